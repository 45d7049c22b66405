//! `backstitch mount IMAGE DIR`.

use super::{daemon, mount_point};
use crate::host_memory;
use crate::options::{self, Options};
use crate::stack;
use backstitch_device::{BlockDevice, MappedDevice};
use backstitch_files::error::{Error, Result, USAGE, host, warn_line};
use backstitch_files::foreign;
use backstitch_files::image::{DeviceOptions, default_ordering, now, open_device};
use backstitch_files::named::Named;
use backstitch_files::paths::absolute;
use backstitch_files::show;
use backstitch_formats::{Layout, Raw};
use backstitch_fuse::{AccessPolicy, FrontOptions, MountError};
use backstitch_mechanisms::lffs::DROPPED;
use backstitch_mechanisms::{named, usual_for};
use backstitch_vfs::{Engine, LayoutKind, MountOptions, Ordering};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Mount an image through FUSE. Returns when the mount answers; a daemon then serves it in the
/// background.
#[derive(Debug, clap::Args)]
#[command(after_help = "Options for -o, with commas between them:
  ro, rw              read-only, or not
  allow_other         other users may use the mount (default for root; others need user_allow_other in /etc/fuse.conf)
  noallow_other       they may not; faster for root, because no permissions are checked
  cache=SIZE          limit of the memory for buffers and dependencies, at least 1M; by default 256M, of which half may wait to be
                      written, or a sixteenth of the machine's memory, up to 1G, where that is more
  expire=SECONDS      how long a change may stay in memory (default 30)
  commit=SECONDS      how long a journal gathers changes before it commits them (default 5)
  opt=WORD            none, hard, merge or both (default) of the patch engine's optimisations, for measuring
  atomic=UNIT         what the disk writes completely or not at all: block (default), or 512, 4096, … if it promises no more;
                      order is then kept between such units too
  unsafe              skip flushes: fast, and a power cut may leave anything
  noatime             reads never move access times (default: relatime); strictatime: each read that reaches the mount does
                      (reads from the kernel's cache do not reach it); nodiratime: reading directories does not
  sync, dirsync       every change, or every change of names, is on the disk before the call returns
  data=MODE           ordered, writeback or journal: as ordering=journal=ordered, journal=writeback or journal=full, for fstab
  grpid               new files have the group of their directory
  uid=N, gid=N        all files appear to be owned by that user or group, and are checked as such; what the image stores stays, and
                      a new file is stored with the user and group of the process that makes it
  umask=M             all files and directories appear with the permissions 777 without those in the octal mask M; fmask=M, dmask=M:
                      only files, or only directories
  nonempty            mount over a directory that is not empty
  check_open          an immutable file (chattr +i) cannot be opened for writing, and an append-only one only for appending; by default
                      the open succeeds and the write fails; costs a request for each open
  dev, suid, exec     device nodes, set-user-ID, programs work; nodev, nosuid, noexec forbid (dev, suid: default for root)
  threads=N           threads that serve requests which come by /dev/fuse
  io_uring=WORD       auto (default): requests come by io_uring where the kernel offers it (Linux 6.14 and later, after \"echo Y >
                      /sys/module/fuse/parameters/enable_uring\" as root); off: never; required: else the mount fails
  writeback_cache     the kernel gathers small writes into large requests, but the contents of files then reach the file system in
                      the kernel's order, up to 30 seconds late, and a full disk is reported at fsync or not at all
  discard             discard freed space every expire= seconds and at the unmount, after all changes have been written: an image
                      file gets holes (default: nodiscard; fstrim DIR discards all free space)
  noxattr             no extended attributes or ACLs through the mount, and no backstitch stats, snapshot, trace or patchgroups, which use
                      attributes; saves a request before the first write to a file
  report_once         fsync reports what a failed device lost once for each open file, as with the kernel's file systems
                      (default: each time); costs a request for each open and close
  reclaim_wait=SECONDS  how long an unmount continues to reclaim what a crash left (default 20); the next mount does the rest
  ordering=MODE       as --ordering, for fstab
  nojournal           change a file system that has a journal without writing the journal, which must be empty
  journal_dev=IMAGE2  the device that has the journal (or log_device=, the write-ahead log)
  nvram               the device of journal_dev= or log_device= is memory that survives a power cut: it is mapped, and a flush of
                      it costs next to nothing
  partition=NAME      the partition of the image that holds the file system, as IMAGE#NAME (backstitch info IMAGE lists them)
  offset=BYTES        where the file system begins in the image
  sizelimit=BYTES     how long it is (default: to the image's end); both are mount(8)'s options for a loop device
  raw                 show the image, whatever it holds, as one file, DIR/volume: writes to it are writes of blocks, which can be
                      ordered by patchgroups (an ordering without a log: soft, sync, async, …)
  stack=FILE.toml     mount file systems in files of the image as one tree, as FILE describes (see `backstitch info --stack`)
  flush_ms=MS         make each flush of the device this much slower, for measuring
  volatile=SEED       a simulated drive cache that a kill loses, for tests
user, users, owner and group mean what they do for mount(8). errors=remount-ro is what happens anyway. Other options of mount(8), fstab, ext4
and FUSE are accepted if they have no meaning here (defaults, nofail, _netdev, x-…, lazytime, acl), or refused, with what to do instead.

Examples:
  backstitch mount disk.img /mnt
  backstitch mount -o ro,allow_other /dev/sdb1 /mnt
  backstitch mount --ordering async -o cache=1G,expire=5 disk.img /mnt
  backstitch mount -f disk.img /mnt          stay in the foreground; ^C unmounts
  backstitch mount -o stack=figure8.toml disk.img /mnt
  backstitch mount -o raw /dev/sdb2 /mnt     a database of your own writes /mnt/volume
  mount -t fuse.backstitch /disk.img /mnt    through mount(8), and so in fstab; -t backstitch with a link /sbin/mount.backstitch")]
pub(crate) struct Args {
    /// The image: a file or a block device
    image: PathBuf,
    /// Where to mount it: an empty directory, or any with -o nonempty
    dir: PathBuf,
    #[arg(long, value_name = "MODE", help = ordering_help())]
    ordering: Option<String>,
    /// Mount options
    #[arg(short = 'o', value_name = "OPTS")]
    options: Vec<String>,
    /// As -o ro
    #[arg(short, long)]
    read_only: bool,
    /// As -o rw, the default
    #[arg(short = 'w', long, conflicts_with = "read_only")]
    read_write: bool,
    /// Mount nothing but a file system of this type: one that mkfs -t takes, or auto (default)
    #[arg(short, long = "type", value_name = "TYPE")]
    type_name: Option<String>,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Print one JSON document when the mount answers
    #[arg(long)]
    json: bool,
    /// Be the daemon of another process, and report to it
    #[arg(long, hide = true)]
    daemon: bool,
    /// Called by mount(8)
    #[arg(long, hide = true)]
    helper: bool,
    /// Check the command line, and mount nothing
    #[arg(long, hide = true)]
    fake: bool,
    /// Append what the daemon logs to a file (see BACKSTITCH_LOG)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// What `--help` says of the orderings that there are.
fn ordering_help() -> String {
    let (logging, alone): (Vec<_>, Vec<_>) = Ordering::ALL.into_iter().partition(|o| o.has_log());
    let names = |of: Vec<Ordering>| of.into_iter().map(Ordering::name).collect::<Vec<_>>();
    format!(
        "The consistency mechanism: {} (also with other numbers of ticks of 10 ms); or, where the image has \
         such a log (see mkfs -O), {} (default: {} with a journal, else {})",
        names(alone).join(", "),
        names(logging).join(", "),
        usual_for(true).name(),
        usual_for(false).name(),
    )
}

/// What `--json` prints, and what a daemon reports to the process that started it.
#[derive(Serialize)]
struct Report<'a> {
    pid: u32,
    image: &'a str,
    dir: &'a str,
    layout: &'a str,
    ordering: &'a str,
    atomic_unit_bytes: u32,
    read_only: bool,
    read_only_reason: Option<String>,
    recovery: &'a backstitch_vfs::RecoveryReport,
}

impl Args {
    /// The words behind `-o`, and those that other options stand for.
    fn option_words(&self) -> Vec<String> {
        let short = [(self.read_only, "ro"), (self.read_write, "rw")];
        let short = short.into_iter().filter(|(is_given, _)| *is_given);
        let short = short.map(|(_, word)| word.to_owned());
        self.options.iter().cloned().chain(short).collect()
    }

    /// The layout that the image must have, where a type is asked for.
    fn wanted_layout(&self) -> Result<Option<Layout>> {
        let name = self.type_name.as_deref().filter(|name| *name != "auto");
        let layout = name.map(str::parse::<Layout>).transpose();
        layout.map_err(|why| Error::usage("mount", why.to_string()))
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let words = args.option_words();
    let mut options = options::parse(words.iter().map(String::as_str))
        .map_err(|why| Error::usage("mount", why))?;
    let layout = args.wanted_layout()?;
    let ordering = match args.ordering.as_ref().or(options.ordering.as_ref()) {
        Some(text) => Some(parse_ordering(text)?),
        None => None,
    };
    if let (Some(ordering), Some(mode)) = (ordering, &options.data)
        && ordering.name() != mode
    {
        let why = format!(
            "data= asks for {mode}, and ordering= for {}",
            ordering.name()
        );
        return Err(Error::usage("mount", why));
    }
    let mut image = absolute("mount", &args.image)?;
    if !args.daemon {
        image.as_mut_os_string().push(part_words(&options)?);
    }
    if args.image.is_dir() && !args.dir.is_dir() {
        let error = Error::at_path("mount", &args.image, "it is a directory, not an image");
        return Err(error.hint("the image comes first, then the directory to mount it on"));
    }
    let dir = mount_point::resolve(&args.dir)?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.daemon {
        mount_point::check_fuse()?;
        check_memory(&options)?;
    }
    if args.helper && !options.non_empty {
        options.non_empty = mount_point::hides_for_helper(&dir);
    }
    if !args.foreground && !args.daemon {
        let mut passed = words;
        if options.non_empty {
            passed.push("nonempty".to_owned());
        }
        if let Some(path) = &options.journal_device {
            // The daemon has another current directory; the later word wins.
            passed.push(format!(
                "journal_dev={}",
                absolute("mount", path)?.display()
            ));
        }
        if let Some(path) = &options.stack {
            passed.push(format!("stack={}", absolute("mount", path)?.display()));
        }
        return daemon::start(&daemon::Start {
            image: &image,
            dir: &dir,
            ordering,
            type_name: args.type_name.as_deref(),
            options: &passed,
            log: args.log.as_deref(),
            json: args.json,
        });
    }
    crate::allocator::use_one_arena();
    let engine = mount_engine(&image, &dir, ordering, layout, &options)?;
    serve(args, &image, &dir, engine, &options)?;
    Ok(ExitCode::SUCCESS)
}

/// What stands behind the image's name where the options say that a part of it is meant.
fn part_words(options: &Options) -> Result<String> {
    let has_range = options.offset_bytes.is_some() || options.size_limit_bytes.is_some();
    match &options.partition {
        Some(_) if has_range => {
            let why = "either a partition or offset= and sizelimit= can be given";
            Err(Error::usage("mount", why))
        }
        Some(name) => Ok(format!("#{name}")),
        None if !has_range => Ok(String::new()),
        None => {
            let offset = format!("?offset={}", options.offset_bytes.unwrap_or(0));
            let limit = options.size_limit_bytes;
            Ok(offset + &limit.map_or(String::new(), |limit| format!("&sizelimit={limit}")))
        }
    }
}

/// Refuses a cache that would end the daemon once it has grown.
fn check_memory(options: &Options) -> Result<()> {
    let room = host_memory::cache_in_address_space()?;
    match (options.cache_bytes, room) {
        (Some(bytes), Some(room)) if bytes > room => {
            let why = format!(
                "limited, so that {} MiB are the most for cache=, and {} are wanted",
                room >> 20,
                bytes >> 20
            );
            Err(Error::failed("mount", "address space", why).hint("ulimit -v unlimited"))
        }
        _ => Ok(()),
    }
}

fn parse_ordering(text: &str) -> Result<Ordering> {
    let parsed = text.parse::<Ordering>();
    parsed.map_err(|why| Error::usage("mount", why.to_string()).exit(USAGE))
}

fn mount_engine(
    image: &Path,
    dir: &Path,
    ordering: Option<Ordering>,
    layout: Option<Layout>,
    options: &Options,
) -> Result<Arc<Engine>> {
    if options.raw {
        check_raw(ordering, options)?;
    }
    let device = open_device(
        "mount",
        image,
        DeviceOptions {
            read_only: options.read_only,
            unsafe_no_flush: options.unsafe_no_flush,
            volatile_seed: options.volatile_seed,
            flush_delay: options.flush_delay,
            ..DeviceOptions::default()
        },
    )
    .map_err(
        |error| match !options.read_only && is_write_protected(image) {
            true => error.hint("it is write-protected; -o ro mounts it for reading"),
            false => error,
        },
    )?;
    check_type(image, &*device, layout)?;
    let journal = open_log_device(options)?;
    let described = match &options.stack {
        Some(path) => Some(stack::read("mount", path)?),
        None => None,
    };
    let of_first = described.as_ref().and_then(|d| d.stack.volumes[0].ordering);
    let ordering = match ordering.or(of_first) {
        Some(ordering) => ordering,
        None if options.without_journal || options.raw => usual_for(false),
        None => default_ordering("mount", image, &*device, journal.as_deref())?,
    };
    let ordering = match (&options.data, ordering) {
        (None, ordering) => ordering,
        (Some(mode), ordering) if ordering.has_log() => parse_ordering(mode)?,
        (Some(_), _) => {
            let why = "option 'data': it has no journal";
            return Err(Error::at_path("mount", image, why).exit(USAGE));
        }
    };
    let wanted = mount_options(ordering, options)?;
    let raw = Raw {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    };
    let layout: &dyn LayoutKind = match &described {
        Some(described) => &described.stack,
        None if options.raw => &raw,
        None => backstitch_formats::of(&*device).layout(),
    };
    // What is no file system of ours is said first.
    layout
        .block_bytes(&*device)
        .map_err(|error| foreign::explained("mount", image, &*device, error))?;
    mount_point::check_empty(dir, options.non_empty)?;
    Engine::mount_with_journal(device.clone(), journal, layout, &wanted)
        .map_err(|error| foreign::explained("mount", image, &*device, error))
}

/// The device of the log, where that has one of its own.
fn open_log_device(options: &Options) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(path) = &options.journal_device else {
        return Ok(None);
    };
    if options.maps_log && !options.read_only {
        let mapped = MappedDevice::open(path);
        let mapped = mapped.map_err(|error| Error::at_path("mount", path, error))?;
        return Ok(Some(Arc::new(mapped)));
    }
    let opened = DeviceOptions {
        read_only: options.read_only,
        unsafe_no_flush: options.unsafe_no_flush,
        // Two drives do not lose the same.
        volatile_seed: options.volatile_seed.map(|seed| seed.wrapping_add(1)),
        flush_delay: options.flush_delay,
        ..DeviceOptions::default()
    };
    open_device("mount", path, opened).map(Some)
}

/// What the engine is told; where memory has no limit by an option, it follows from the host.
fn mount_options(ordering: Ordering, options: &Options) -> Result<MountOptions> {
    let mut wanted = MountOptions {
        read_only: options.read_only,
        ordering,
        optimisations: options.optimisations,
        mount_time: now(),
        without_journal: options.without_journal,
        atomic_bytes: options.atomic.bytes(),
        discard: options.discard,
        ..MountOptions::default()
    };
    match (options.cache_bytes, host_memory::cache_in_address_space()?) {
        (Some(bytes), _) => wanted.cache_bytes = bytes,
        (None, Some(room)) => wanted.cache_bytes = wanted.cache_bytes.min(room),
        (None, None) => wanted.dirty_bytes = host_memory::dirty_bytes(),
    }
    if let Some(seconds) = options.expire_seconds {
        wanted.expire_seconds = seconds;
    }
    if let Some(seconds) = options.commit_seconds {
        wanted.commit_seconds = seconds;
    }
    if let Some(seconds) = options.reclaim_wait_seconds {
        wanted.reclaim_wait_seconds = seconds;
    }
    Ok(wanted)
}

/// Whether this process may read an image and not write it.
fn is_write_protected(image: &Path) -> bool {
    let Ok(named) = Named::of("mount", image) else {
        return false;
    };
    let may = |access| rustix::fs::access(&named.file, access).is_ok();
    may(rustix::fs::Access::READ_OK) && !may(rustix::fs::Access::WRITE_OK)
}

/// Refuses another file system of ours than the one that is asked for. What holds none is told later.
fn check_type(image: &Path, device: &dyn BlockDevice, wanted: Option<Layout>) -> Result<()> {
    let Some((wanted, found)) = wanted.zip(backstitch_formats::found(device)) else {
        return Ok(());
    };
    if wanted.is_what(device) {
        return Ok(());
    }
    let why = format!("it holds {}, not {}", found.name(), wanted.name());
    let error = Error::at_path("mount", image, why);
    Err(error.hint("without -t the type is found"))
}

/// What only file systems have is refused.
fn check_raw(ordering: Option<Ordering>, options: &Options) -> Result<()> {
    let wrong = match ordering {
        Some(ordering) if ordering.has_log() => {
            Some("log: an ordering without one is expected, as soft, sync or async")
        }
        _ if options.stack.is_some() => Some("stacks"),
        _ if options.journal_device.is_some() || options.without_journal => Some("journals"),
        _ => None,
    };
    match wrong {
        Some(wrong) => Err(Error::usage(
            "mount",
            format!("-o raw shows blocks, which have no {wrong}"),
        )),
        None => Ok(()),
    }
}

fn front_options(image: &Path, engine: &Engine, options: &Options) -> FrontOptions {
    let is_root = rustix::process::geteuid().is_root();
    let allow_other = options.allow_other.unwrap_or(is_root);
    FrontOptions {
        image: image.display().to_string(),
        stack: options
            .stack
            .as_ref()
            .map(|path| path.display().to_string()),
        read_only: options.read_only || engine.read_only_reason().is_some(),
        allow_other,
        // Root passes every check.
        check_permissions: allow_other || !is_root || options.squash.is_any(),
        access_times: AccessPolicy {
            rule: options.access_times.filter(|_| !options.read_only),
            of_directories: options.directory_access_times,
        },
        synchronous: options.synchronous,
        synchronous_names: options.synchronous_names,
        group_of_directory: options.group_of_directory,
        squash: options.squash,
        check_open: options.check_open,
        kernel_options: options.kernel_options.clone(),
        devices: options.devices.unwrap_or(is_root),
        set_user_id: options.set_user_id.unwrap_or(is_root),
        execute: options.execute,
        writeback_cache: options.writeback_cache,
        xattrs: options.xattrs,
        report_once: options.report_once,
        threads: options.threads,
        io_uring: options.io_uring,
    }
}

/// Mounts, reports, and serves until the end.
fn serve(
    args: &Args,
    image: &Path,
    dir: &Path,
    engine: Arc<Engine>,
    options: &Options,
) -> Result<()> {
    let front = front_options(image, &engine, options);
    let failed = |error: backstitch_fuse::MountError| match error {
        MountError::Mount { reason, .. } => {
            Error::at_path("mount", dir, format!("cannot mount: {}", host(&reason)))
        }
        other => Error::at_path("mount", dir, other),
    };
    let signals = daemon::Signals::catch()?;
    let mounted = match backstitch_fuse::spawn(engine.clone(), dir, &front) {
        Ok(mounted) => mounted,
        Err(error) => {
            // Nothing was changed, but the engine may have marked the image as in use.
            let _ = engine.unmount();
            let error = failed(error);
            return Err(match mount_point::refused_hint(front.allow_other) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        }
    };
    let (image_text, dir_text) = (image.display().to_string(), dir.display().to_string());
    let report = Report {
        pid: std::process::id(),
        image: &image_text,
        dir: &dir_text,
        layout: engine.layout_name(),
        ordering: engine.ordering_name(),
        atomic_unit_bytes: engine.atomic_bytes(),
        read_only: front.read_only,
        // Who asked for it knows why.
        read_only_reason: engine.read_only_reason().filter(|_| !options.read_only),
        recovery: engine.recovery(),
    };
    if args.daemon {
        daemon::report(&report, args.log.as_deref())?;
    } else {
        announce(
            &serde_json::to_value(&report).unwrap_or_default(),
            args.json,
        )?;
    }
    engine.on_memory_free(crate::allocator::give_back);
    let served = Arc::downgrade(&engine);
    drop(engine);
    signals.unmount_on_arrival(mounted.unmounter(), mounted.ender(), move || {
        if let Some(Err(error)) = served.upgrade().map(|engine| engine.sync()) {
            tracing::error!(%error, "not everything could be written");
        }
    });
    mounted
        .wait()
        .map_err(|error| Error::at_path("unmount", image, error))
}

/// Tells the user what a mount came to.
pub(super) fn announce(report: &serde_json::Value, json: bool) -> Result<()> {
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    if let Some(reason) = report["read_only_reason"].as_str() {
        warn_line(&format!(
            "mount: {}: mounted read-only: {reason}",
            text("image")
        ));
    }
    let actions = report["recovery"]["actions"].as_array();
    if actions.is_some_and(|actions| actions.iter().any(|action| action == DROPPED)) {
        // Whoever expects something of it is not to find that out from what is missing.
        warn_line(&format!("mount: {}: {DROPPED}", text("image")));
    }
    if json {
        return show::print_json("mount", report);
    }
    let (image, dir, layout, ordering) =
        (text("image"), text("dir"), text("layout"), text("ordering"));
    let recovered = recovered(&report["recovery"]);
    if report["read_only"] == true {
        let line = format!("{image} on {dir}: {layout}, read-only\n{recovered}");
        return show::print_bytes("mount", line.as_bytes());
    }
    let promises = named(&ordering).map(Ordering::promises);
    let order = match promises.is_some_and(|p| p.keeps_order_in_place()) {
        true => format!(
            ", order between units of {} bytes",
            report["atomic_unit_bytes"]
        ),
        // The others keep none between blocks, or whole transactions.
        false => String::new(),
    };
    let line = format!("{image} on {dir}: {layout}, {ordering}{order}\n{recovered}");
    show::print_bytes("mount", line.as_bytes())
}

/// What was done about what a crash had left, as a line; nothing where there was nothing to do.
fn recovered(recovery: &serde_json::Value) -> String {
    let actions = recovery["actions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let actions: Vec<&str> = actions
        .iter()
        .filter_map(|action| action.as_str())
        .collect();
    match actions.is_empty() {
        true => String::new(),
        false => format!("recovered after a crash: {}\n", actions.join("; ")),
    }
}
