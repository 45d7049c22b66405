//! `backstitch fsck IMAGE`, with the exit code of fsck(8).

mod replay;

use super::journal::{journal_host, refuse_journal};
use crate::undo_file::{self, Wanted};
use backstitch_device::signature;
use backstitch_device::{BlockDevice, OverlayDevice, StagedDevice, Staging};
use backstitch_files::error::{Error, Result};
use backstitch_files::foreign;
use backstitch_files::image::{DeviceOptions, now, open_device};
use backstitch_files::show;
use backstitch_formats::{Layout, found, found_by_copies, of};
use backstitch_layout::tools::{
    CheckError, CheckOptions, Code, DeviceSource, EXIT_OPERATIONAL, Finding, Kind, Location,
    Losses, Mode, Outcome, Repair, RepairOptions, Report,
};
use backstitch_layout::{FormatError, LogDamage, RecoveryMark};
use backstitch_vfs::LayoutError;
use replay::{Logs, replay, set_recovery, unreplayed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Check a file system, and repair it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The verdict, clean or not, is that of `e2fsck -fn`; of UFS it follows the rules of FreeBSD's `fsck_ffs`. A finding is a leak
(space that nobody can reach), a count (a number that can be computed again) or a corruption; soft updates leave nothing but leaks and
counts behind.

With -p what soft updates may leave is repaired, and nothing else: if there is a corruption, nothing is changed. A file without a
name is freed if the image says that a crash under soft updates left it: it had been removed, or not yet been given a name. With
-y everything is repaired. Blocks that two files claim are copied, so that both can be read; files without a name go to lost+found.

A journal that must be replayed is replayed first: on the disk with -p and -y, otherwise in memory only, so that the check sees what
a mount would find. With -y, what cannot be replayed is given up; -p then changes nothing.

Nothing is written before the whole repair is worked out. After a power cut in the middle, run it again.

Before -y changes anything it writes an undo file with the old contents: beside the image, IMAGE.undo-DATE; for a block device in
$XDG_STATE_HOME/backstitch or /var/lib/backstitch; where $E2FSPROGS_UNDO_DIR says, if it is set (none: no undo file). -z FILE names
it, and -p writes one with -z only. `backstitch undo FILE IMAGE`, or e2undo, restores every byte, also after a power cut in the middle.
With -j a second undo file, FILE.journal with -z, is the journal device's.

Where a journal or log on another device is needed and -j does not name it, nothing is changed. Where no superblock says what an
image holds, -y looks for copies of one.

Exit status, as fsck(8), added up: 0 clean, 1 corrected, 4 left uncorrected, 8 the check could not be done, 16 usage.

Examples:
  backstitch fsck -n disk.img
  backstitch fsck -p disk.img
  backstitch fsck -y -z /root/disk.undo disk.img; backstitch undo /root/disk.undo disk.img
  backstitch fsck -y --json disk.img | jq '.repairs[]'
  backstitch fsck --json disk.img | jq '.findings[] | select(.kind == \"corruption\")'"
)]
pub(crate) struct Args {
    /// The image: a file or a block device
    image: PathBuf,
    /// Only look (the default)
    #[arg(short = 'n', group = "mode")]
    no: bool,
    /// Repair what soft updates may leave; change nothing if there is more damage
    #[arg(short = 'p', visible_short_alias = 'a', group = "mode")]
    preen: bool,
    /// Repair everything
    #[arg(short = 'y', group = "mode")]
    yes: bool,
    /// The type of file system, one of those that mkfs makes, where the superblock does not say it; with -y
    #[arg(short = 't', long = "type", value_name = "TYPE", requires = "yes")]
    kind: Option<Layout>,
    /// With -y: where neither the superblock nor a backup of it makes sense, guess block size and
    /// groups. A wrong guess destroys what is left, so copy the image first
    #[arg(long, requires = "yes")]
    guess_geometry: bool,
    /// Check an image even if it is marked clean (always on)
    #[arg(short, long)]
    force: bool,
    /// Save the old contents of everything that changes in this new file, as `e2fsck -z` does
    #[arg(
        short = 'z',
        long = "undo",
        value_name = "FILE",
        conflicts_with = "no_undo"
    )]
    undo: Option<PathBuf>,
    /// Write no undo file
    #[arg(long)]
    no_undo: bool,
    /// The device that has the journal or the log, if it is not in IMAGE
    #[arg(short = 'j', long, value_name = "IMAGE2")]
    journal_dev: Option<PathBuf>,
    /// With -y: what the log of operations on another device holds is lost, since that device is (a
    /// journal of ext3 elsewhere is not given up)
    #[arg(long, requires = "yes", conflicts_with = "journal_dev")]
    give_up_log: bool,
    /// Threads; by default by the size of the image
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // What keeps the check from being done has an exit code of its own.
    look(args).map_err(|error| error.exit(operational()))
}

fn operational() -> u8 {
    u8::try_from(EXIT_OPERATIONAL).unwrap_or(u8::MAX)
}

fn look(args: &Args) -> Result<ExitCode> {
    let mode = match (args.preen, args.yes) {
        (true, _) => Mode::Preen,
        (_, true) => Mode::All,
        _ => return only_look(args),
    };
    mend(args, mode)
}

fn options(args: &Args) -> CheckOptions {
    CheckOptions {
        threads: args.threads.map(usize::from),
        ..CheckOptions::default()
    }
}

/// What a repair changes, before any of it is written.
struct Planned {
    image: Arc<StagedDevice>,
    /// The journal's device, where that is another one, and what is staged for it.
    journal: Option<(Arc<dyn BlockDevice>, Arc<StagedDevice>)>,
    outcome: Outcome,
}

/// What is to be repaired. Where no superblock says what it is, a copy does.
fn layout_of(
    args: &Args,
    mode: Mode,
    device: &Arc<dyn BlockDevice>,
    options: &RepairOptions,
) -> Result<Layout> {
    let there = found(&**device);
    if let Some(wanted) = args.kind {
        return match there.filter(|_| !wanted.is_what(&**device)) {
            None => Ok(wanted),
            Some(there) => {
                let why = format!("it holds {}, as its superblock says", there.name());
                let hint = "-t is for an image without a superblock";
                Err(Error::at_path("fsck", &args.image, why).hint(hint))
            }
        };
    }
    if there.is_some() || mode != Mode::All {
        return Ok(of(&**device));
    }
    if let Some(seen) = foreign::found(&**device) {
        return refused(args, &**device, seen);
    }
    let guesses = found_by_copies(
        device,
        &RepairOptions {
            guess_geometry: false,
            ..options.clone()
        },
    );
    match guesses.map_err(|error| Error::at_path("fsck", &args.image, error))?[..] {
        [] => Ok(of(&**device)),
        [only] if only.makes_sense => Ok(only.layout),
        [only] => {
            let kind = only.layout.name();
            let why = format!(
                "it has no superblock, and a copy of one of {kind}, under which little makes sense"
            );
            let hint = format!(
                "an earlier file system may have left it; -t {kind} repairs the image as that"
            );
            Err(Error::at_path("fsck", &args.image, why).hint(hint))
        }
        ref several => {
            let names: Vec<&str> = several.iter().map(|found| found.layout.name()).collect();
            let why = format!(
                "it has no superblock, and copies of those of several types: {}",
                names.join(" and ")
            );
            let hint = "-t TYPE says which it is; what the others left is of an earlier use";
            Err(Error::at_path("fsck", &args.image, why).hint(hint))
        }
    }
}

/// What somebody else knows is not repaired as ours, unless it is some file that may hold anything:
/// a copy that an earlier file system left would be put over what is there now.
fn refused(args: &Args, device: &dyn BlockDevice, seen: &signature::Signature) -> Result<Layout> {
    let why = match seen.kind {
        signature::Kind::File => return Ok(of(device)),
        signature::Kind::PartitionTable => format!("it is a disk with {}", seen.name),
        _ => format!("it is {}", seen.name),
    };
    let hint = format!(
        "{}; if it is something else, -t TYPE looks for copies of a superblock",
        seen.reader_of(&args.image.display().to_string())
    );
    Err(Error::at_path("fsck", &args.image, why).hint(hint))
}

/// Works out the replay of the journal and the repair. Writes nothing.
fn plan(
    args: &Args,
    mode: Mode,
    staging: &Arc<Staging>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Planned> {
    let options = RepairOptions {
        mode,
        guess_geometry: args.guess_geometry,
        now_seconds: u32::try_from(now().seconds).unwrap_or(u32::MAX),
        check: options(args),
    };
    let tools = layout_of(args, mode, device, &options)?;
    let image = staging.device(device.clone());
    let journal = journal_device(args, false)?.map(|below| {
        let staged = staging.device(below.clone());
        (below, staged)
    });
    let damage = match mode {
        Mode::Preen => LogDamage::Refuse,
        Mode::All => LogDamage::GiveUp,
    };
    let on_journal = journal
        .as_ref()
        .map(|(_, staged)| &**staged as &dyn BlockDevice);
    let whole: Arc<dyn BlockDevice> = image.clone();
    let log = log_location(&*image);
    let logs = Logs {
        device: on_journal,
        damage,
        gives_up_missing: args.give_up_log,
    };
    let replayed = match tools == of(&*whole) {
        true => replay(&whole, logs),
        // Found by a copy of its superblock, which is to be put in place before anything else.
        false => Ok(Vec::new()),
    };
    let replayed = replayed.map_err(|error| unreplayed(&args.image, &*whole, error))?;
    let mut outcome = tools.repair(&*image, &options).map_err(|error| {
        let is_missing = matches!(
            error,
            CheckError::Format(FormatError::NotAFileSystem { .. } | FormatError::Corrupt(_))
        );
        match is_missing && mode == Mode::All && found(&**device).is_none() {
            true if foreign::found(&**device).is_none() => {
                let why = "no superblock was found, and no copy of one";
                Error::at_path("fsck", &args.image, why)
            }
            _ => unchecked(&args.image, &**device, error),
        }
    })?;
    let of_journal = replayed.into_iter().map(|what| Repair {
        location: log,
        what,
    });
    outcome.repairs.splice(0..0, of_journal);
    Ok(Planned {
        image,
        journal,
        outcome,
    })
}

/// Writes the undo files of a repair that is planned: the image's, and that of the journal's
/// device.
fn keep_old_contents(
    args: &Args,
    mode: Mode,
    planned: &Planned,
    device: &dyn BlockDevice,
) -> Result<[Option<PathBuf>; 2]> {
    let wanted = Wanted::of(args.no_undo, args.undo.as_ref(), mode == Mode::All);
    let kept = undo_file::keep("fsck", &args.image, &wanted, &planned.image, device)?;
    let of_image = kept.map(|(path, _)| path);
    let (Some((below, staged)), Some(journal)) = (&planned.journal, &args.journal_dev) else {
        return Ok([of_image, None]);
    };
    let wanted = match wanted {
        Wanted::Named(path) => {
            let mut path = path.into_os_string();
            path.push(".journal");
            Wanted::Named(path.into())
        }
        other => other,
    };
    let kept = undo_file::keep("fsck", journal, &wanted, staged, &**below);
    if let (Err(_), Some(path)) = (&kept, &of_image) {
        // Nothing will be changed that it could take back.
        let _ = std::fs::remove_file(path);
    }
    Ok([of_image, kept?.map(|(path, _)| path)])
}

/// Repairs, and says what was found and what was done.
fn mend(args: &Args, mode: Mode) -> Result<ExitCode> {
    let device = open_device("fsck", &args.image, DeviceOptions::default())?;
    refuse_journal("fsck", &args.image, &*device)?;
    let started = Instant::now();
    let staging = Staging::new();
    let planned = plan(args, mode, &staging, &device)?;
    let undo_files = keep_old_contents(args, mode, &planned, &*device)?;
    if !args.json {
        if let Some(losses) = &planned.outcome.losses {
            show::print_bytes("fsck", losses_text(args, losses).as_bytes())?;
        }
        let images = [Some(&args.image), args.journal_dev.as_ref()];
        for (image, file) in images.into_iter().zip(&undo_files) {
            if let (Some(image), Some(file)) = (image, file) {
                let line = undo_file::announcement(image, file);
                show::print_bytes("fsck", line.as_bytes())?;
            }
        }
    }
    let committed = staging.commit();
    committed.map_err(|error| {
        let error = Error::at_path("fsck", &args.image, error);
        match &undo_files[0] {
            Some(file) => error.hint(format!(
                "run it again, or take it back: backstitch undo {} {}",
                file.display(),
                args.image.display()
            )),
            None => error.hint("run it again"),
        }
    })?;
    let outcome = planned.outcome;
    if args.json {
        let document = repair_document(args, &outcome, &undo_files, started);
        show::print_json("fsck", &document)?;
    } else {
        show::print_bytes("fsck", repair_text(args, &outcome).as_bytes())?;
    }
    if outcome.after.is_none() {
        let why = "it has damage that -p does not repair; nothing was changed";
        let hint = format!("backstitch fsck -y {}", args.image.display());
        Error::at_path("fsck", &args.image, why).hint(hint).print();
    }
    let ended_early = outcome
        .after
        .as_ref()
        .is_some_and(|report| report.ended_early);
    if ended_early && !args.guess_geometry {
        let why = "neither the superblock nor a backup of it makes sense; the geometry could only be guessed";
        let image = args.image.display();
        let hint = format!("copy the image, then try: backstitch fsck -y --guess-geometry {image}");
        Error::at_path("fsck", &args.image, why).hint(hint).print();
    }
    let status = u8::try_from(outcome.exit_status()).unwrap_or(operational());
    Ok(ExitCode::from(status))
}

/// What the repair that is about to be written takes away.
fn losses_text(args: &Args, losses: &Losses) -> String {
    let image = args.image.display();
    let names = losses.names_before;
    if losses.is_empty() {
        return format!("{image}: the repair keeps all of the {names} names that can be reached\n");
    }
    let mut text = format!(
        "{image}: of the {names} names that can be reached, the repair takes away {}; {} files or directories go to \
         lost+found; {} block pointers are cleared\n",
        losses.names_gone, losses.moved_to_lost_found, losses.pointers_cleared
    );
    for path in &losses.gone {
        text.push_str(&format!("{image}: takes away {path}\n"));
    }
    let unlisted = losses.names_gone - losses.gone.len() as u64;
    if unlisted > 0 {
        text.push_str(&format!("{image}: … and {unlisted} more\n"));
    }
    text
}

/// What was found before, what was done, and what is left.
fn repair_document(
    args: &Args,
    outcome: &Outcome,
    [undo_file, journal_undo_file]: &[Option<PathBuf>; 2],
    started: Instant,
) -> Value {
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let mut document = match &outcome.before {
        Some(before) => document(args, before, started),
        None => json!({ "image": args.image.display().to_string(), "findings": [] }),
    };
    if let Value::Object(members) = &mut document {
        let left = outcome.after.as_ref().map(|report| &report.findings);
        members.insert("losses".into(), json!(outcome.losses));
        members.insert("repairs".into(), json!(outcome.repairs));
        members.insert("repairs_omitted".into(), outcome.omitted.into());
        members.insert("left".into(), json!(left));
        members.insert("undo_file".into(), json!(shown(undo_file)));
        members.insert("journal_undo_file".into(), json!(shown(journal_undo_file)));
        members.insert("clean".into(), outcome.is_clean().into());
        members.insert("exit_status".into(), outcome.exit_status().into());
        members.insert("seconds".into(), started.elapsed().as_secs_f64().into());
    }
    document
}

fn repair_text(args: &Args, outcome: &Outcome) -> String {
    let mut text: String = outcome
        .repairs
        .iter()
        .map(|repair| format!("{repair}\n"))
        .collect();
    if outcome.omitted > 0 {
        text.push_str(&format!("… and {} more repairs\n", outcome.omitted));
    }
    if let Some(last) = outcome.after.as_ref().or(outcome.before.as_ref()) {
        text.push_str(&report_text(&args.image.display().to_string(), last));
    }
    text
}

fn only_look(args: &Args) -> Result<ExitCode> {
    let read_only = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let device = open_device("fsck", &args.image, read_only)?;
    refuse_journal("fsck", &args.image, &*device)?;
    let journal_device = journal_device(args, true)?;
    let started = Instant::now();
    let report = examined(
        &device,
        &args.image,
        journal_device.as_deref(),
        &options(args),
    )?;
    if args.json {
        show::print_json("fsck", &document(args, &report, started))?;
    } else {
        let image = args.image.display().to_string();
        show::print_bytes("fsck", report_text(&image, &report).as_bytes())?;
    }
    let status = u8::try_from(report.exit_status()).unwrap_or(operational());
    Ok(ExitCode::from(status))
}

/// What a check finds of an image, which keeps its bytes, with its log on another device, which may be
/// written to.
///
/// # Errors
/// Where it cannot be checked, or has a log that is elsewhere.
pub(crate) fn examine(
    device: &Arc<dyn BlockDevice>,
    image: &Path,
    journal_device: Option<&dyn BlockDevice>,
    options: &CheckOptions,
) -> Result<Report> {
    refuse_journal("fsck", image, &**device)?;
    examined(device, image, journal_device, options)
}

/// The same of what is no journal by itself, with its log on another device. The log is brought home in
/// memory.
fn examined(
    device: &Arc<dyn BlockDevice>,
    image: &Path,
    journal_device: Option<&dyn BlockDevice>,
    options: &CheckOptions,
) -> Result<Report> {
    let device: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device.clone()));
    let log = log_location(&*device);
    let logs = Logs {
        device: journal_device,
        damage: LogDamage::Refuse,
        gives_up_missing: false,
    };
    let replayed = match replay(&device, logs) {
        // Nothing is known to be wrong: the check needs what is there.
        Err(error @ backstitch_vfs::Error::Layout(LayoutError::LogElsewhere(_))) => {
            return Err(unreplayed(image, &*device, error));
        }
        replayed => replayed,
    };
    if replayed.is_err() {
        // In memory only, so that the check sees more than that a journal waits. If the superblock
        // is too bad for that, it says so.
        let _ = set_recovery(&*device, RecoveryMark::default());
    }
    let tools = of(&*device);
    let mut report = tools
        .check(&DeviceSource(&*device), options)
        .map_err(|error| unchecked(image, &*device, error))?;
    match replayed {
        Ok(actions) => report.notes.extend(actions.into_iter().map(|what| Finding {
            what: format!("not done, but taken for done: {what}"),
            ..log_finding(log)
        })),
        Err(error) => report.findings.push(Finding {
            what: error.to_string(),
            ..log_finding(log)
        }),
    }
    Ok(report)
}

/// Where findings about the log are that a file system has: a log of operations has no place that
/// every image of the layout has.
fn log_location(device: &dyn BlockDevice) -> Location {
    let note = journal_host(device).and_then(|host| host.log_note(device).ok().flatten());
    match note.is_some_and(|note| note.place.is_some()) {
        true => Location::FILE_SYSTEM,
        false => of(device).journal_location(),
    }
}

/// What is said of the log.
fn log_finding(location: Location) -> Finding {
    Finding {
        code: Code::JournalInvalid,
        kind: Code::JournalInvalid.kind(),
        location,
        what: String::new(),
    }
}

fn journal_device(args: &Args, read_only: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    let options = DeviceOptions {
        read_only,
        ..DeviceOptions::default()
    };
    let Some(path) = &args.journal_dev else {
        return Ok(None);
    };
    let device = open_device("fsck", path, options)?;
    Ok(Some(match read_only {
        true => Arc::new(OverlayDevice::new(device)),
        false => device,
    }))
}

/// Why an image is not checked.
fn unchecked(image: &Path, device: &dyn BlockDevice, error: CheckError) -> Error {
    let has_other_features = matches!(error, CheckError::Format(FormatError::Incompatible { .. }));
    let explained = foreign::explained("fsck", image, device, error);
    match has_other_features {
        true => {
            let program = of(device).foreign_check();
            explained.or_hint(format!(
                "{program} checks it; mounted with -o ro it shows its files"
            ))
        }
        false => explained,
    }
}

/// The report, with what it is about and what it comes to.
fn document(args: &Args, report: &Report, started: Instant) -> Value {
    let mut document = serde_json::to_value(report).unwrap_or_default();
    if let Value::Object(members) = &mut document {
        members.insert("image".into(), args.image.display().to_string().into());
        members.insert("clean".into(), report.is_clean().into());
        members.insert("consistent".into(), report.is_consistent().into());
        members.insert("exit_status".into(), report.exit_status().into());
        members.insert("seconds".into(), started.elapsed().as_secs_f64().into());
        let kinds = [Kind::Leak, Kind::Count, Kind::Corruption].map(|kind| report.count(kind));
        let [leaks, counts, corruptions] = kinds;
        let counted = json!({ "leak": leaks, "count": counts, "corruption": corruptions });
        members.insert("kinds".into(), counted);
    }
    document
}

/// A report for people, of an image that is called this; the verdict comes last.
pub(crate) fn report_text(image: &str, report: &Report) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    report
        .findings
        .iter()
        .for_each(|finding| line(finding.to_string()));
    report
        .notes
        .iter()
        .for_each(|note| line(format!("note: {}: {}", note.location, note.what)));
    if report.omitted > 0 {
        line(format!("… and {} more", report.omitted));
    }
    let s = &report.summary;
    let (files, inodes, used, blocks) = (s.used_inodes, s.inodes, s.used_blocks, s.blocks);
    if report.is_clean() {
        line(format!(
            "{image}: clean, {files}/{inodes} files, {used}/{blocks} blocks"
        ));
        return text;
    }
    let [leaks, counts, corruptions] =
        [Kind::Leak, Kind::Count, Kind::Corruption].map(|kind| report.count(kind));
    let verdict = match report.is_consistent() {
        true => "consistent, but with something to tidy up",
        false => "damaged",
    };
    line(format!(
        "{image}: {verdict}: {leaks} leaks, {counts} counts, {corruptions} corruptions"
    ));
    if report.ended_early {
        line(format!(
            "{image}: the check ended early: nothing behind this could be trusted"
        ));
    }
    text
}
