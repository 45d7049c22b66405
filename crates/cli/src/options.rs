//! Mount options: `-o ro,cache=1G,…`.

mod foreign;

use backstitch_files::named::may_name_partition;
use backstitch_files::size;
use backstitch_fuse::{IoUring, Squash};
use backstitch_vfs::{AccessTimes, LEAST_CACHE_BYTES, Optimisations};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What the options of a mount ask for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// The consistency mechanism, where fstab states it.
    pub(crate) ordering: Option<String>,
    /// No writes.
    pub(crate) read_only: bool,
    /// Other users may use the mount; where not said, they may if root mounts.
    pub(crate) allow_other: Option<bool>,
    /// Flushes are skipped: fast, and nothing is promised after a power cut.
    pub(crate) unsafe_no_flush: bool,
    /// The bound of the block cache.
    pub(crate) cache_bytes: Option<u64>,
    /// How long a change may stay in memory.
    pub(crate) expire_seconds: Option<f64>,
    /// How long a journal gathers changes.
    pub(crate) commit_seconds: Option<f64>,
    /// Which of the patch engine's optimisations are on.
    pub(crate) optimisations: Optimisations,
    /// The device gets a simulated volatile write cache with this seed.
    pub(crate) volatile_seed: Option<u64>,
    /// How much longer each flush of the device takes.
    pub(crate) flush_delay: Option<Duration>,
    /// The partition of the image that holds the file system.
    pub(crate) partition: Option<String>,
    /// Where the file system begins in the image, in bytes.
    pub(crate) offset_bytes: Option<u64>,
    /// How much of the image from there on it may use, in bytes.
    pub(crate) size_limit_bytes: Option<u64>,
    /// When reads move access times; `None` for never.
    pub(crate) access_times: Option<AccessTimes>,
    /// Reading a directory moves its access time.
    pub(crate) directory_access_times: bool,
    /// Every change is on stable storage before it is answered.
    pub(crate) synchronous: bool,
    /// The same for changes of names.
    pub(crate) synchronous_names: bool,
    /// New files have the group of their directory.
    pub(crate) group_of_directory: bool,
    /// One owner and one set of permissions for all files.
    pub(crate) squash: Squash,
    /// The journal's mode, as ext4(5) has it, by our name of it.
    pub(crate) data: Option<String>,
    /// The directory may have something in it, which the mount hides.
    pub(crate) non_empty: bool,
    /// The kernel asks when a file is opened.
    pub(crate) check_open: bool,
    /// What the kernel is told as it is.
    pub(crate) kernel_options: Vec<String>,
    /// Device nodes work; where not said, they do if root mounts.
    pub(crate) devices: Option<bool>,
    /// Set-user-ID works; where not said, it does if root mounts.
    pub(crate) set_user_id: Option<bool>,
    /// Programs can be run.
    pub(crate) execute: bool,
    /// Threads that serve requests.
    pub(crate) threads: usize,
    /// Whether requests come by io_uring.
    pub(crate) io_uring: IoUring,
    pub(crate) writeback_cache: bool,
    /// Extended attributes can be asked for and set.
    pub(crate) xattrs: bool,
    /// What a failed device lost is reported once to each open file.
    pub(crate) report_once: bool,
    /// How long an unmount reclaims what a crash left.
    pub(crate) reclaim_wait_seconds: Option<f64>,
    /// Discard what is freed.
    pub(crate) discard: bool,
    /// A journal that is there is not written.
    pub(crate) without_journal: bool,
    /// The device that has the journal.
    pub(crate) journal_device: Option<PathBuf>,
    /// That device is memory that survives, and is mapped.
    pub(crate) maps_log: bool,
    /// What is written wholly or not at all.
    pub(crate) atomic: AtomicUnit,
    /// The file that describes a stack, of which the image holds the first file system.
    pub(crate) stack: Option<PathBuf>,
    /// The image is shown as one file, whatever it holds.
    pub(crate) raw: bool,
}

/// More threads would only wait for each other.
const MOST_THREADS: usize = 256;

/// What is taken to reach the disk wholly or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AtomicUnit {
    /// A block of the file system.
    #[default]
    Block,
    /// A number of bytes.
    Bytes(u32),
}

impl AtomicUnit {
    /// The bytes, where they are not those of a block.
    pub(crate) fn bytes(self) -> Option<u32> {
        match self {
            AtomicUnit::Block => None,
            AtomicUnit::Bytes(bytes) => Some(bytes),
        }
    }
}

impl fmt::Display for AtomicUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AtomicUnit::Block => f.write_str("block"),
            AtomicUnit::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for AtomicUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "block" {
            return Ok(AtomicUnit::Block);
        }
        let bytes = size::parse(text).ok().and_then(|b| u32::try_from(b).ok());
        let fits = bytes.filter(|b| b.is_power_of_two() && (512..=65536).contains(b));
        fits.map(AtomicUnit::Bytes)
            .ok_or_else(|| "block or a power of two from 512 up expected".to_owned())
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ordering: None,
            read_only: false,
            allow_other: None,
            unsafe_no_flush: false,
            cache_bytes: None,
            expire_seconds: None,
            commit_seconds: None,
            optimisations: Optimisations::BOTH,
            volatile_seed: None,
            flush_delay: None,
            partition: None,
            offset_bytes: None,
            size_limit_bytes: None,
            access_times: Some(AccessTimes::Relative),
            directory_access_times: true,
            synchronous: false,
            synchronous_names: false,
            group_of_directory: false,
            squash: Squash::default(),
            data: None,
            non_empty: false,
            check_open: false,
            kernel_options: Vec::new(),
            devices: None,
            set_user_id: None,
            execute: true,
            threads: 0,
            writeback_cache: false,
            xattrs: true,
            report_once: false,
            io_uring: IoUring::default(),
            reclaim_wait_seconds: None,
            discard: false,
            without_journal: false,
            journal_device: None,
            maps_log: false,
            atomic: AtomicUnit::Block,
            stack: None,
            raw: false,
        }
    }
}

/// Reads the lists behind `-o`, the later word winning.
///
/// # Errors
///
/// Names the option that is unknown, or what is wrong with its value.
pub(crate) fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
    let mut options = Options::default();
    for list in lists {
        for word in foreign::words(list).filter(|word| !word.is_empty()) {
            apply(&mut options, word)?;
        }
    }
    Ok(options)
}

fn apply(options: &mut Options, word: &str) -> Result<(), String> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    if let Some(value) = value {
        return apply_value(options, name, value);
    }
    match name {
        "ro" => options.read_only = true,
        "rw" => options.read_only = false,
        "allow_other" => options.allow_other = Some(true),
        "noallow_other" => options.allow_other = Some(false),
        "unsafe" => options.unsafe_no_flush = true,
        "raw" => options.raw = true,
        "nvram" => options.maps_log = true,
        "nojournal" => options.without_journal = true,
        "noatime" => options.access_times = None,
        "atime" => options.access_times = Some(AccessTimes::Relative),
        "dev" => options.devices = Some(true),
        "nodev" => options.devices = Some(false),
        "suid" => options.set_user_id = Some(true),
        "nosuid" => options.set_user_id = Some(false),
        "exec" => options.execute = true,
        "writeback_cache" => options.writeback_cache = true,
        "nowriteback_cache" => options.writeback_cache = false,
        "xattr" => options.xattrs = true,
        "noxattr" => options.xattrs = false,
        "report_once" => options.report_once = true,
        "noexec" => options.execute = false,
        "cache" | "expire" | "commit" | "opt" | "volatile" | "flush_ms" | "partition"
        | "offset" | "sizelimit" | "reclaim_wait" | "threads" | "ordering" | "journal_dev"
        | "log_device" | "atomic" | "stack" | "io_uring" => {
            return Err(format!("option '{name}' needs a value: {name}=…"));
        }
        _ => {
            let known = foreign::apply(options, name);
            return known.unwrap_or_else(|| Err(format!("unknown option '{name}'")));
        }
    }
    Ok(())
}

fn apply_value(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let bad = |what: &str| format!("option '{name}': not {what}: '{value}'");
    let seconds = || {
        let number: Option<f64> = value.parse().ok();
        let number = number.filter(|n| n.is_finite() && *n >= 0.0);
        number.ok_or_else(|| bad("a number of seconds"))
    };
    match name {
        "opt" => {
            options.optimisations = value
                .parse()
                .map_err(|_| bad("one of none, hard, merge, both"))?;
        }
        "cache" => {
            let bytes = size::parse(value).map_err(|e| format!("option '{name}': {e}"))?;
            if bytes < LEAST_CACHE_BYTES {
                return Err(format!(
                    "option '{name}': {bytes} bytes are too few: an operation needs several blocks at once, so 1M is the least"
                ));
            }
            options.cache_bytes = Some(bytes);
        }
        "expire" => options.expire_seconds = Some(seconds()?),
        "commit" => match seconds()? {
            0.0 => return Err(bad("a number of seconds above 0 (5 is the default)")),
            some => options.commit_seconds = Some(some),
        },
        "reclaim_wait" => options.reclaim_wait_seconds = Some(seconds()?),
        "volatile" => {
            options.volatile_seed = Some(value.parse().map_err(|_| bad("a seed"))?);
        }
        "flush_ms" => {
            let number: Option<f64> = value.parse().ok();
            let number = number.filter(|n| (0.0..=60_000.0).contains(n));
            let delay = number.map(|n| Duration::from_secs_f64(n / 1e3));
            options.flush_delay = Some(delay.ok_or_else(|| bad("milliseconds, up to a minute"))?);
        }
        "partition" => {
            if !may_name_partition(value) {
                return Err(bad(
                    "the name of a partition, as `backstitch info` shows it",
                ));
            }
            options.partition = Some(value.to_owned());
        }
        "offset" | "sizelimit" => {
            let bytes = size::parse(value).map_err(|e| format!("option '{name}': {e}"))?;
            match name {
                "offset" => options.offset_bytes = Some(bytes),
                _ => options.size_limit_bytes = Some(bytes),
            }
        }
        "ordering" => options.ordering = Some(value.to_owned()),
        "atomic" => {
            options.atomic = value
                .parse()
                .map_err(|_| bad("block or a power of two from 512 on"))?;
        }
        "journal_dev" | "log_device" => options.journal_device = Some(value.into()),
        "stack" => options.stack = Some(value.into()),
        "io_uring" => {
            options.io_uring = match value {
                "auto" => IoUring::Auto,
                "off" => IoUring::Off,
                "required" => IoUring::Required,
                _ => return Err(bad("one of auto, off, required")),
            };
        }
        "threads" => {
            let threads = value
                .parse()
                .ok()
                .filter(|n| (1..=MOST_THREADS).contains(n));
            options.threads = threads.ok_or_else(|| bad("a number of threads from 1 to 256"))?;
        }
        _ => {
            let known = foreign::apply_value(options, name, value);
            return known.unwrap_or_else(|| Err(format!("unknown option '{name}'")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_word_wins() {
        let options = parse(["ro,cache=64M,writeback_cache,noxattr", "rw,expire=0.5"]).unwrap();
        assert!(options.writeback_cache && !options.xattrs);
        assert!(!options.read_only);
        assert_eq!(options.cache_bytes, Some(64 << 20));
        assert_eq!(options.expire_seconds, Some(0.5));
        let options = parse(["atomic=512", "atomic=4k"]).unwrap();
        assert_eq!(options.atomic.bytes(), Some(4096));
        let options = parse(["atomic=512,atomic=block"]).unwrap();
        assert_eq!(options.atomic.bytes(), None);
    }

    #[test]
    fn mount_8_may_say_what_it_always_says() {
        let options = parse(["rw,noatime,nosuid,nodev,noexec,_netdev,nofail,x-systemd.automount"]);
        let options = options.unwrap();
        assert_eq!(options.devices, Some(false));
        assert_eq!(options.set_user_id, Some(false));
        assert!(!options.execute && options.access_times.is_none());
        assert_eq!(
            parse(["defaults,nouser,x-a.b=c,"]).unwrap(),
            Options::default()
        );
    }

    #[test]
    fn unknown_options_are_named() {
        assert_eq!(
            parse(["ro,frobnicate"]),
            Err("unknown option 'frobnicate'".into())
        );
        assert_eq!(parse(["foo=1"]), Err("unknown option 'foo'".into()));
        assert!(parse(["cache"]).unwrap_err().contains("needs a value"));
        for bad in [
            "cache=x",
            "cache=0",
            "cache=64K",
            "reclaim_wait=",
            "reclaim_wait=-1",
            "expire=-1",
            "expire=inf",
            "volatile=a",
            "threads=-2",
            "flush_ms=-1",
            "partition=",
            "partition=a/b",
            "offset=x",
            "sizelimit",
            "flush_ms=NaN",
            "atomic=256",
            "atomic=1000",
            "atomic=",
        ] {
            assert!(parse([bad]).is_err(), "{bad}");
        }
    }
}
