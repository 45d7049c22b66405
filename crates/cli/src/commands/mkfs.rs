//! `backstitch mkfs IMAGE`.

use super::overwritten::Overwritten;
use backstitch_device::signature::BSD_LABEL;
use backstitch_device::{BlockDevice, DeviceError, FileDevice, OpenOptions, OverlayDevice};
use backstitch_files::commands::cp::report_lost;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::foreign;
use backstitch_files::image::{Access, DeviceOptions, on_fresh_device, open_device};
use backstitch_files::interrupt::Interrupt;
use backstitch_files::named::{Named, NamedPart, Part};
use backstitch_files::tree::{Copy, CopyOptions, HostNode, HostTree, ImageTree, Preserve};
use backstitch_files::{show, size};
use backstitch_formats::{Layout, Unknown};
use backstitch_layout::tools::{
    Info, JournalFeatures, MadeJournal, Mkfs, MkfsError, MkfsJournal, uuid_text,
};
use backstitch_mechanisms::{log_device, one_flush_features};
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Make a file system on an image or a disk, empty or filled from a directory.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without -s the file system takes the whole of IMAGE, which must exist. An image that holds something that is
recognised (a file system, partitions, a part of a RAID, a disk image of another format, a document, …) is refused without
--force; with it everything that was there is lost, and its signatures are erased, those at the end as well.
The root directory belongs to the user who runs this command. SOURCE_DATE_EPOCH, if set, is the creation time.

Examples:
  backstitch mkfs -s 1G disk.img
  backstitch mkfs -b 1024 -i 4096 -L boot -s 64M boot.img
  backstitch mkfs -s 2G -d rootfs/ root.img     filled with owners, modes, times, xattrs, links, holes
  backstitch mkfs -t ext3 -J 64M -s 8G data.img
  backstitch mkfs -t ufs2 -b 32K -f 4K -s 8G bsd.img
  backstitch mkfs -O journal_dev -s 64M journal.img      a journal for another image, which comes next:
  backstitch mkfs -t ext3 -J device=journal.img -s 8G data.img
  backstitch mkfs -O ^dir_index,^resize_inode -s 100M plain.img
  backstitch mkfs /dev/sdb1
  backstitch mkfs disk.img#2           inside the second partition, and nowhere else"
)]
pub(crate) struct Args {
    /// The image: a file (created with -s if it does not exist) or a block device
    image: PathBuf,
    /// The kind of file system: ext2, ext3 with a journal, ufs1 or ufs2
    #[arg(
        short = 't',
        long = "type",
        value_name = "TYPE",
        default_value = "ext2"
    )]
    kind: String,
    /// The block size: 1024, 2048 or 4096, by default by the size of the file system; UFS: 4096 to
    /// 65536, by default 32768
    #[arg(short, long, value_name = "BLOCK", value_parser = size::parse)]
    block_size: Option<u64>,
    /// UFS: the size of a fragment, an eighth of a block (the default) to a whole one
    #[arg(short = 'f', long, value_name = "BYTES", value_parser = size::parse)]
    fragment_size: Option<u64>,
    /// The size, with K, M, G or T behind the number
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// The number of blocks in a group, a multiple of 8; UFS: the most, as there are four groups or more
    #[arg(short = 'g', long, value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Make one inode for this many bytes of space
    #[arg(short = 'i', long, value_name = "BYTES_PER_INODE", value_parser = size::parse)]
    bytes_per_inode: Option<u64>,
    /// The number of inodes
    #[arg(
        short = 'N',
        long,
        value_name = "INODES",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "bytes_per_inode"
    )]
    inodes: Option<u32>,
    /// The size of an inode: 128, 256, … up to a block
    #[arg(short = 'I', long, value_name = "BYTES", value_parser = size::parse)]
    inode_size: Option<u64>,
    /// The label, up to 16 bytes; UFS: up to 31
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// Fill it from this directory
    #[arg(short = 'd', long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Features to add or, with ^ in front, to leave out; `none` removes all before it
    #[arg(short = 'O', long, value_name = "FEATURE,…")]
    features: Vec<String>,
    /// The journal's size, at least 1024 blocks (by default it depends on the size of the file
    /// system), or the device for it, which `mkfs -O journal_dev` makes
    #[arg(short = 'J', long, value_name = "SIZE|device=JOURNAL", value_parser = journal_choice)]
    journal: Option<JournalChoice>,
    /// Write commit records with a checksum, together with what they commit: a transaction takes
    /// one flush instead of two. Linux keeps this with `-o journal_async_commit`
    #[arg(long)]
    journal_async_commit: bool,
    /// Percentage of the blocks reserved for root
    #[arg(short = 'm', long, value_name = "PERCENT", default_value_t = 5)]
    reserved_percent: u32,
    /// The revision: 1, or 0 for the format of 1993
    #[arg(short, long, value_name = "REVISION", default_value_t = 1)]
    revision: u32,
    /// The UUID; a random one by default
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// The owner and group of the root directory, as numbers
    #[arg(long, value_name = "UID:GID")]
    root_owner: Option<String>,
    /// Make it even if IMAGE holds something, which is then lost
    #[arg(short = 'F', long)]
    force: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if makes_journal_device(args) {
        return make_journal_device(args);
    }
    let (layout, wanted) = wanted(args)?;
    if let Some(dir) = &args.directory
        && !dir.is_dir()
    {
        return Err(Error::at_path("mkfs", dir, "not a directory"));
    }
    let target = Target::of(args)?;
    let made = target.kept(make(args, (layout, wanted), &target))?;
    report(args, &made)
}

/// What a file system is made on.
struct Opened {
    device: Arc<dyn BlockDevice>,
    /// It is a partition of a BSD label that lies in its own first sectors, and stays.
    is_of_label: bool,
}

/// Where the file system goes.
struct Target {
    named: Named,
    /// Whether the file has yet to be made.
    is_new: bool,
}

impl Target {
    fn of(args: &Args) -> Result<Target> {
        let named = Named::of("mkfs", &args.image)?;
        let is_new = named.part == Part::Whole && !named.file.exists();
        Ok(Target { named, is_new })
    }

    /// What was made; where that failed, a new file goes: what cannot be used is not left behind.
    fn kept<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_err() && self.is_new {
            // That it cannot be removed either is not what went wrong.
            let _ = std::fs::remove_file(&self.named.file);
        }
        done
    }

    /// Opens it and sees that nothing is lost there; gives a whole file its size. `check` is asked
    /// about the size before anything is given up.
    fn open(&self, args: &Args, check: impl FnOnce(u64) -> Result<()>) -> Result<Opened> {
        let failed = |error: DeviceError| Error::at_path("mkfs", &args.image, error);
        if self.is_new && args.size.is_none() {
            let error = Error::at_path("mkfs", &args.image, "no such file");
            return Err(error.hint("-s SIZE makes it"));
        }
        let (mut file, part) = match self.is_new {
            true => {
                let made = FileDevice::open_or_make(&self.named.file).map_err(failed)?;
                (made, None)
            }
            false => self.named.open("mkfs", OpenOptions::default())?,
        };
        let is_of_label = part.as_ref().is_some_and(|part| part.is_of_label);
        let overwritten = Overwritten {
            what: "mkfs",
            path: &args.image,
            made: "file system",
            is_forced: args.force,
            // What named the partition goes on to name it; file systems leave room for a label.
            kept: match is_of_label {
                true => &[BSD_LABEL],
                false => &[],
            },
        };
        let is_file = std::fs::metadata(&self.named.file).is_ok_and(|seen| seen.is_file());
        let other = file.other_writer();
        let there = part
            .as_ref()
            .map_or(file.size_bytes(), NamedPart::len_bytes);
        let size = args.size.unwrap_or(there);
        if size > there && (part.is_some() || !is_file) {
            let why = format!("{size} bytes are wanted, and it has {there}");
            return Err(Error::at_path("mkfs", &args.image, why));
        }
        if let Some(part) = part {
            let device: Arc<dyn BlockDevice> = Arc::new(part.on(Arc::new(file)).map_err(failed)?);
            overwritten.refuse(&*device, None)?;
            check(size)?;
            overwritten.erase(&*device)?;
            return Ok(Opened {
                device,
                is_of_label,
            });
        }
        overwritten.refuse(&file, other)?;
        check(size)?;
        overwritten.refuse_to_cut(&file, size)?;
        overwritten.erase(&file)?;
        if is_file && size != there {
            file.resize(size).map_err(failed)?;
        }
        Ok(Opened {
            device: Arc::new(file),
            is_of_label,
        })
    }
}

fn make(args: &Args, (layout, mut wanted): (Layout, Mkfs), target: &Target) -> Result<Info> {
    let failed = |error: MkfsError| {
        let error = Error::at_path("mkfs", &args.image, error);
        match args.size {
            None => error.hint("-s SIZE sets the size"),
            Some(_) => error,
        }
    };
    if let (true, Some(size)) = (target.is_new, args.size) {
        // Before there is a file: options that cannot be had leave nothing behind.
        layout.planned_inodes(&wanted, size).map_err(failed)?;
    }
    wanted.device_is_zero = target.is_new;
    let journal = journal_device(args, &mut wanted)?;
    let attach = |journal: &dyn BlockDevice| {
        let attached = layout.attach_journal(journal, wanted.uuid);
        attached.map_err(|error| Error::at_path("mkfs", &args.image, error))
    };
    if let Some(journal) = &journal {
        // In memory: a journal that cannot be had costs nobody what is there.
        attach(&OverlayDevice::new(journal.clone()))?;
    }
    // Options that cannot be had cost nobody what is there.
    let can_make = |size| layout.planned_inodes(&wanted, size).map(drop);
    let opened = target.open(args, |size| can_make(size).map_err(failed))?;
    wanted.keeps_boot_blocks = opened.is_of_label;
    let device = opened.device;
    let made = layout.make(&wanted, &*device).map_err(failed)?;
    if let Some(journal) = &journal {
        attach(&**journal)?;
    }
    if let Some(dir) = &args.directory {
        fill(&args.image, device, journal, dir, target.is_new)?;
    }
    Ok(made)
}

/// Copies a directory of the host into the new file system, with everything there is to keep.
fn fill(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
    dir: &Path,
    is_new: bool,
) -> Result<()> {
    let interrupt = Interrupt::catch("mkfs")?;
    let filled = on_fresh_device(
        "mkfs",
        image,
        (device, journal),
        Access::Write,
        true,
        |image| {
            let (source, target) = (HostTree::new("mkfs"), ImageTree::new(image));
            let options = CopyOptions {
                preserve: Preserve::ALL,
                excluded: image.file(),
                interrupt: interrupt.clone(),
                ..CopyOptions::default()
            };
            let mut copy = Copy::new("mkfs", &source, &target, options);
            let done = copy.contents_of(HostNode::new(dir, true), target.node(b"/", false)?, true);
            done.map_err(|error| match interrupt.came() {
                false => error,
                true => error.hint(format!(
                    "the file system is made, and {} files of {} are in it, complete",
                    copy.files,
                    dir.display()
                )),
            })?;
            report_lost("mkfs", copy.xattrs_lost);
            Ok(())
        },
    );
    filled.map_err(|error| match is_new {
        true => error.hint("nothing is left of the image"),
        false => error,
    })
}

fn narrow(what: &str, value: Option<u64>) -> Result<Option<u32>> {
    let narrow = value.map(u32::try_from).transpose();
    narrow.map_err(|_| Error::usage("mkfs", format!("{what}: too large")))
}

/// The layout of the type that is named, and the features that the type adds.
fn type_of(args: &Args) -> Result<(Layout, &'static [&'static str])> {
    let unknown = || {
        let name = args.kind.clone();
        Error::usage("mkfs", Unknown { name }.to_string())
    };
    backstitch_formats::named(&args.kind).ok_or_else(unknown)
}

/// The command line as the maker wants it.
fn wanted(args: &Args) -> Result<(Layout, Mkfs)> {
    let (layout, of_type) = type_of(args)?;
    let [uuid, hash_seed] = random_ids(args)?;
    let (root_uid, root_gid) = root_owner(args.root_owner.as_deref())?;
    let wanted = Mkfs {
        size_bytes: args.size,
        block_size: narrow("block size", args.block_size)?,
        fragment_size: narrow("fragment size", args.fragment_size)?,
        blocks_per_group: args.blocks_per_group,
        bytes_per_inode: args.bytes_per_inode,
        inodes: args.inodes,
        inode_size: narrow("inode size", args.inode_size)?,
        label: args.label.clone().unwrap_or_default().into_bytes(),
        features: features(args, layout, of_type)?,
        journal_bytes: match args.journal {
            Some(JournalChoice::Bytes(bytes)) => Some(bytes),
            _ => None,
        },
        journal_features: journal_features(args),
        revision: args.revision,
        reserved_percent: args.reserved_percent,
        root_uid,
        root_gid,
        ..Mkfs::new(uuid, hash_seed, making_time()?)
    };
    Ok((layout, wanted))
}

/// What the journal is to use.
fn journal_features(args: &Args) -> JournalFeatures {
    match args.journal_async_commit {
        true => one_flush_features(),
        false => JournalFeatures::default(),
    }
}

/// Where a journal goes, or how large it is.
#[derive(Clone, Debug)]
enum JournalChoice {
    Bytes(u64),
    Device(PathBuf),
}

/// `size=N` in MiB or `device=JOURNAL`, as mke2fs has them, or a size.
fn journal_choice(text: &str) -> std::result::Result<JournalChoice, String> {
    if let Some(path) = text.strip_prefix("device=") {
        return Ok(JournalChoice::Device(path.into()));
    }
    let bytes = match text.strip_prefix("size=") {
        Some(mebibytes) if mebibytes.parse::<u32>().is_ok() => {
            size::parse(&format!("{mebibytes}M"))
        }
        Some(other) => size::parse(other),
        None => size::parse(text),
    };
    bytes.map(JournalChoice::Bytes)
}

/// Opens the device that is to have the journal, and has the file system name it. The file system's
/// blocks are as large as its.
fn journal_device(args: &Args, wanted: &mut Mkfs) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(JournalChoice::Device(path)) = &args.journal else {
        return Ok(None);
    };
    let failed = |what: &dyn std::fmt::Display| Error::at_path("mkfs", path, what);
    let device = open_device("mkfs", path, DeviceOptions::default())?;
    let found = log_device(&*device).map_err(|e| failed(&e))?;
    let Some(found) = found else {
        return Err(match foreign::found(&*device) {
            Some(other) => failed(&format!("it holds {}, and no journal", other.name)),
            None => {
                failed(&"it holds no journal").hint("`backstitch mkfs -O journal_dev` makes one")
            }
        });
    };
    let block_bytes = *wanted.block_size.get_or_insert(found.block_bytes);
    if block_bytes != found.block_bytes {
        let journal = found.block_bytes;
        return Err(failed(&format!(
            "the journal has blocks of {journal} bytes, the file system is to have {block_bytes}"
        )));
    }
    wanted.journal_uuid = Some(found.uuid);
    Ok(Some(device))
}

fn makes_journal_device(args: &Args) -> bool {
    let mut words = args.features.iter().flat_map(|list| list.split(','));
    words.any(|word| word == "journal_dev")
}

/// Makes a device that holds a journal and nothing else.
fn make_journal_device(args: &Args) -> Result<()> {
    if args.features.iter().any(|list| list != "journal_dev") || args.directory.is_some() {
        let what =
            "-O journal_dev makes a journal and no file system: it goes with -b, -L, -U and -s";
        return Err(Error::usage("mkfs", what));
    }
    let failed = |what: &dyn std::fmt::Display| Error::at_path("mkfs", &args.image, what);
    let (layout, _) = type_of(args)?;
    let target = Target::of(args)?;
    let [uuid, _] = random_ids(args)?;
    let wanted = MkfsJournal {
        size_bytes: args.size,
        block_size: narrow("block size", args.block_size)?,
        label: args.label.clone().unwrap_or_default().into_bytes(),
        uuid,
        features: journal_features(args),
        time_seconds: making_time()?,
        device_is_zero: target.is_new,
    };
    let opened = target.open(args, |_| Ok(()));
    let made = opened.and_then(|opened| {
        layout
            .make_journal(&wanted, &*opened.device)
            .map_err(|e| failed(&e))
    });
    report_journal_device(args, &target.kept(made)?)
}

fn report_journal_device(args: &Args, made: &MadeJournal) -> Result<()> {
    let image = args.image.display().to_string();
    let (blocks, block_bytes) = (made.blocks, made.block_bytes);
    let uuid = uuid_text(&made.uuid);
    if args.json {
        let document = json!({
            "image": image,
            "layout": "journal_dev",
            "uuid": uuid,
            "label": args.label.clone().unwrap_or_default(),
            "size_bytes": u64::from(blocks) * u64::from(block_bytes),
            "block_size_bytes": block_bytes,
            "blocks": blocks,
        });
        return show::print_json("mkfs", &document);
    }
    if args.quiet {
        return Ok(());
    }
    let size = size::show(u64::from(blocks) * u64::from(block_bytes));
    let line = format!(
        "{image}: a journal, {size}, {blocks} blocks of {block_bytes} bytes, UUID {uuid}\n"
    );
    show::print_bytes("mkfs", line.as_bytes())
}

/// The features that the type adds, and those that are asked for.
fn features(args: &Args, layout: Layout, of_type: &[&str]) -> Result<Vec<String>> {
    let words = args.features.iter().flat_map(|list| list.split(','));
    let words: Vec<&str> = words
        .filter(|word| !word.is_empty() && *word != "^")
        .collect();
    let name = |word: &str| word.strip_prefix('^').unwrap_or(word).to_owned();
    let known = |word: &&&str| **word != "none" && **word != "^none";
    let mut names = words.iter().filter(known).map(|word| name(word));
    if let Some(name) = names.find(|name| !layout.has_feature(name)) {
        return Err(Error::usage("mkfs", format!("unknown feature '{name}'")));
    }
    let all = of_type.iter().chain(&words);
    Ok(all.map(|word| (*word).to_owned()).collect())
}

/// The UUID and the seed of directory hashes.
fn random_ids(args: &Args) -> Result<[[u8; 16]; 2]> {
    let mut ids = [random_uuid("mkfs")?, random_uuid("mkfs")?];
    if let Some(text) = &args.uuid {
        let uuid = parse_uuid(text);
        ids[0] = uuid.ok_or_else(|| Error::usage("mkfs", format!("not a UUID: '{text}'")))?;
    }
    Ok(ids)
}

/// A UUID of version 4 (random), the usual variant.
pub(super) fn random_uuid(what: &str) -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let random = std::fs::File::open("/dev/urandom");
    let read = random.and_then(|mut file| file.read_exact(&mut id));
    read.map_err(|error| Error::failed(what, "/dev/urandom", host(&error)))?;
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Ok(id)
}

pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !(dashes.is_empty() || dashes == [8, 13, 18, 23]) {
        return None;
    }
    // Parsed as one number, which refuses signs only in front.
    let is_hex = digits.chars().all(|c| c.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_hex)?;
    Some(number.to_be_bytes())
}

fn root_owner(text: Option<&str>) -> Result<(u32, u32)> {
    let Some(text) = text else {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        return Ok((uid.as_raw(), gid.as_raw()));
    };
    let parsed = text.split_once(':').and_then(|(uid, gid)| {
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        Some((uid, gid))
    });
    parsed.ok_or_else(|| Error::usage("mkfs", format!("not UID:GID: '{text}'")))
}

fn making_time() -> Result<u64> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().map_err(|_| {
            Error::failed(
                "mkfs",
                "SOURCE_DATE_EPOCH",
                format!("not a number of seconds: '{text}'"),
            )
        }),
        Err(_) => Ok(SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()),
    }
}

fn report(args: &Args, made: &Info) -> Result<()> {
    let size_bytes = made.size_bytes();
    if args.json {
        let document = json!({
            "image": args.image.display().to_string(),
            "layout": args.kind,
            "uuid": uuid_text(&made.uuid),
            "label": String::from_utf8_lossy(&made.label),
            "size_bytes": size_bytes,
            "block_size_bytes": made.block_bytes,
            "blocks": made.blocks,
            "inodes": made.inodes,
            "inode_size_bytes": made.inode_bytes,
            "groups": made.groups,
            "features": made.features,
        });
        return show::print_json("mkfs", &document);
    }
    if args.quiet {
        return Ok(());
    }
    let line = format!(
        "{}: {}, {}, {} blocks of {} bytes, {} inodes, UUID {}\n",
        args.image.display(),
        args.kind,
        size::show(size_bytes),
        made.blocks,
        made.block_bytes,
        made.inodes,
        uuid_text(&made.uuid),
    );
    show::print_bytes("mkfs", line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let uuid = parse_uuid("01234567-89ab-cdef-0123-456789abcdef").unwrap();
        assert_eq!(uuid[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(uuid_text(&uuid), "01234567-89ab-cdef-0123-456789abcdef");
        assert!(parse_uuid("0123456789abcdef0123456789abcdef").is_some());
        for bad in [
            "",
            "0123",
            "+1234567-89ab-cdef-0123-456789abcdef",
            "0-123456789abcdef0123456789abcdef",
        ] {
            assert!(parse_uuid(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn owners() {
        assert_eq!(root_owner(Some("1000:100")).ok(), Some((1000, 100)));
        assert!(root_owner(Some("1000")).is_err() && root_owner(Some("a:b")).is_err());
    }
}
