//! Descriptions of drives: documents in TOML, which people can write.

use std::str::FromStr;

use serde::Deserialize;
use thiserror::Error;

/// Why a description of a drive is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// It is not TOML, or has unknown keys.
    #[error("not a description of a drive: {0}")]
    Syntax(String),
    /// No preset has this name.
    #[error("no drive is called {0}; there are {1}")]
    Unknown(String, String),
    /// An impossible figure.
    #[error("drive {drive}: {what}")]
    Impossible {
        /// The drive.
        drive: String,
        /// Which figure, and why.
        what: &'static str,
    },
}

/// The names of the [`Policy`]s.
const POLICIES: [(&str, Policy); 4] = [
    ("fifo", Policy::Fifo),
    ("c-look", Policy::CLook),
    ("fscan", Policy::Fscan),
    ("sptf", Policy::Sptf),
];

/// The order in which requests are taken from a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// As they came.
    #[default]
    Fifo,
    /// By address upwards, then again from the lowest (BSD's disksort).
    CLook,
    /// Two lists: one is served in one direction while the other collects, then the arm turns round
    /// (System V; Feng and Chang §4).
    Fscan,
    /// The shortest positioning time first: seek and rotation.
    Sptf,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        // People write it without the hyphen, too.
        let text = if text == "clook" { "c-look" } else { text };
        let found = POLICIES.iter().find(|(name, _)| *name == text);
        let names = || POLICIES.map(|(name, _)| name).join(", ");
        found
            .map(|(_, policy)| *policy)
            .ok_or_else(|| format!("one of {}", names()))
    }
}

/// The queues of host and drive.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// The host's elevator.
    #[serde(default)]
    pub elevator: Policy,
    /// How many requests the drive takes at once.
    pub tags: u32,
    /// How the drive chooses among them: `fifo` or `sptf`.
    #[serde(default)]
    pub scheduler: Policy,
    /// Whether the drive keeps the order that requests state; else the host holds back requests
    /// that have to wait.
    #[serde(default)]
    pub orders: bool,
    /// The time in milliseconds after which a request in the drive is next, whatever the scheduler
    /// says.
    #[serde(default = "age_limit")]
    pub age_limit_ms: f64,
}

fn age_limit() -> f64 {
    1000.0
}

/// Tracks with the same number of sectors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// How many cylinders.
    pub cylinders: u32,
    /// Sectors on a track.
    pub sectors: u32,
}

/// A rotating disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotatingSpec {
    /// Revolutions in a minute.
    pub rpm: f64,
    /// Tracks in a cylinder.
    pub heads: u32,
    /// The zones, outermost first.
    pub zones: Vec<ZoneSpec>,
    /// The sectors that can be used, if some are spares.
    pub capacity_sectors: Option<u64>,
    /// The seek curve: pairs of distance in cylinders and milliseconds. Between two points the time
    /// follows the square root of the distance, as it does while the arm accelerates.
    pub seek: Vec<(u32, f64)>,
    /// How much longer than a read a write waits until the head has settled, in milliseconds.
    #[serde(default)]
    pub write_settle_ms: f64,
    /// Switching to another head of the same cylinder, in milliseconds.
    pub head_switch_ms: f64,
    /// The overhead of a command, in milliseconds.
    pub command_ms: f64,
    /// The rate of the bus, in millions of bytes a second.
    pub bus_mb_s: f64,
    /// The size of the memory, in KiB.
    pub buffer_kib: u32,
    /// The number of parts into which the memory is divided for reads.
    pub segments: u32,
    /// Whether it reads ahead after a read.
    #[serde(default)]
    pub read_ahead: bool,
    /// Whether a write is done once it is in memory.
    #[serde(default)]
    pub write_cache: bool,
}

/// A flash drive.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// The capacity.
    pub capacity_sectors: u64,
    /// Channels, which carry one transfer each.
    pub channels: u32,
    /// Dies, all channels together; each does one thing at a time. Planes that work independently
    /// count as dies.
    pub dies: u32,
    /// What a die reads or programs at a time, in KiB.
    pub page_kib: u32,
    /// Pages of an erase block.
    pub block_pages: u32,
    /// Reading a page into the die's register, in microseconds.
    pub read_us: f64,
    /// Programming a page, in microseconds.
    pub program_us: f64,
    /// Erasing a block, in microseconds.
    pub erase_us: f64,
    /// The rate of a channel, in millions of bytes a second.
    pub channel_mb_s: f64,
    /// The rate of the link to the host, in millions of bytes a second.
    pub link_mb_s: f64,
    /// The time of a read that no other resource accounts for, in microseconds.
    pub read_overhead_us: f64,
    /// The same for a write.
    pub write_overhead_us: f64,
    /// The time that a read's command takes in the one processor, in microseconds.
    pub read_command_us: f64,
    /// The same for a write's command.
    pub write_command_us: f64,
    /// The share of all cells, spare ones included, that holds valid data.
    pub fill: f64,
    /// The volatile cache for writes, in KiB; none if zero.
    pub cache_kib: u32,
    /// The time of a flush beyond programming what is in the cache, in microseconds.
    pub flush_us: f64,
    /// The seed of random choices.
    #[serde(default)]
    pub seed: u64,
}

/// The computer that a paper had a drive in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its processor.
    pub processor: String,
    /// Its speed, relative to the present-day processor for which the simulated host's costs are
    /// stated.
    pub speed: f64,
    /// Memory for buffers of the file system, in MiB; half of them may wait to be written.
    pub buffers_mib: Option<u32>,
    /// Memory for pages that were read or written, in MiB.
    pub pages_mib: Option<u32>,
    /// Memory for changes under way (dependencies), in MiB, beside the buffers. `None`: they are in
    /// the buffers' memory.
    pub changes_mib: Option<u32>,
}

/// Figures of a drive that the maker or a paper states, and tests compare.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    /// Average seek of reads, in milliseconds.
    pub average_seek_ms: Option<f64>,
    /// Reading in order in the outermost zone, in millions of bytes a second.
    pub outer_mb_s: Option<f64>,
    /// The same in the innermost zone.
    pub inner_mb_s: Option<f64>,
    /// The same over the whole drive.
    pub average_mb_s: Option<f64>,
    /// Writing in order, in the same unit.
    pub write_mb_s: Option<f64>,
    /// Random reads of 4 KiB in a second, by the number of requests in the queue.
    pub read_iops: Vec<(u32, f64)>,
    /// The same for writes.
    pub write_iops: Vec<(u32, f64)>,
}

/// A drive. Neither rotating nor flash, it takes no time at all.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSpec {
    /// Its name for people.
    pub name: String,
    /// One sentence on what it is.
    #[serde(default)]
    pub description: String,
    /// The queues.
    pub queue: QueueSpec,
    /// A rotating disk.
    pub rotating: Option<RotatingSpec>,
    /// A flash drive.
    pub flash: Option<FlashSpec>,
    /// The computer that it was measured in.
    pub host: Option<HostSpec>,
    /// The published figures that tests compare it with.
    #[serde(default)]
    pub published: Published,
}

/// The presets, by name.
const PRESETS: &[(&str, &str)] = &[
    ("viking", include_str!("presets/viking.toml")),
    ("cheetah9", include_str!("presets/cheetah9.toml")),
    ("st2383", include_str!("presets/st2383.toml")),
    ("st3320620as", include_str!("presets/st3320620as.toml")),
    ("nvme", include_str!("presets/nvme.toml")),
    ("sata-ssd", include_str!("presets/sata-ssd.toml")),
    ("nvram", include_str!("presets/nvram.toml")),
    ("ideal", include_str!("presets/ideal.toml")),
];

impl DriveSpec {
    /// The names of the presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// A preset.
    ///
    /// # Errors
    /// [`SpecError::Unknown`], with the names that there are.
    pub fn preset(name: &str) -> Result<DriveSpec, SpecError> {
        match PRESETS.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => DriveSpec::parse(text),
            None => {
                let all = DriveSpec::presets().collect::<Vec<_>>().join(", ");
                Err(SpecError::Unknown(name.to_owned(), all))
            }
        }
    }

    /// Reads the description of a drive.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<DriveSpec, SpecError> {
        let spec: DriveSpec =
            toml::from_str(text).map_err(|error| SpecError::Syntax(error.to_string()))?;
        match spec.fault() {
            None => Ok(spec),
            Some(what) => Err(SpecError::Impossible {
                drive: spec.name,
                what,
            }),
        }
    }

    fn fault(&self) -> Option<&'static str> {
        if self.queue.tags == 0 {
            return Some("tags: a drive takes one request at least");
        }
        if matches!(self.queue.scheduler, Policy::CLook | Policy::Fscan) {
            return Some("scheduler: drives choose by fifo or sptf");
        }
        if self
            .host
            .as_ref()
            .is_some_and(|host| !is_positive(host.speed))
        {
            return Some("host speed: more than nothing");
        }
        let host = self.host.as_ref();
        let memory = host.map(|host| [host.buffers_mib, host.pages_mib, host.changes_mib]);
        if memory.into_iter().flatten().any(|mib| mib == Some(0)) {
            return Some("host buffers_mib, pages_mib, changes_mib: more than nothing");
        }
        match (&self.rotating, &self.flash) {
            (Some(_), Some(_)) => Some("it is either rotating or flash"),
            (Some(rotating), None) => rotating.fault(),
            (None, Some(flash)) => flash.fault(),
            (None, None) => None,
        }
    }
}

/// Whether a time or rate is finite and above zero.
fn is_positive(figure: f64) -> bool {
    figure.is_finite() && figure > 0.0
}

/// Whether a cost is finite and not negative.
fn is_cost(figure: f64) -> bool {
    figure.is_finite() && figure >= 0.0
}

impl RotatingSpec {
    fn fault(&self) -> Option<&'static str> {
        let sectors: u64 = (self.zones.iter())
            .map(|zone| u64::from(zone.cylinders) * u64::from(zone.sectors))
            .sum::<u64>()
            * u64::from(self.heads);
        let rises = |pair: &[(u32, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        let costs = [self.write_settle_ms, self.head_switch_ms, self.command_ms];
        if self
            .zones
            .iter()
            .any(|z| z.cylinders == 0 || z.sectors == 0)
            || sectors == 0
        {
            Some("zones: each has cylinders and sectors, and there are heads")
        } else if self.capacity_sectors.is_some_and(|c| c == 0 || c > sectors) {
            Some("capacity_sectors: not more than the zones have")
        } else if !is_positive(self.rpm) || !is_positive(self.bus_mb_s) {
            Some("rpm, bus_mb_s: more than nothing")
        } else if !costs.into_iter().all(is_cost) || self.seek.iter().any(|p| !is_cost(p.1)) {
            Some("times: not less than nothing")
        } else if self.seek.iter().any(|p| p.1 > 4000.0) {
            Some("seek: not more than four seconds")
        } else if self.seek.first().is_none_or(|p| p.0 != 1) || !self.seek.windows(2).all(rises) {
            Some("seek: from one cylinder on, both figures rising")
        } else if self.segments == 0 || self.buffer_kib / self.segments < 4 {
            Some("segments: 4 KiB of the buffer for each at least")
        } else {
            None
        }
    }
}

impl FlashSpec {
    fn fault(&self) -> Option<&'static str> {
        let costs = [
            self.read_us,
            self.program_us,
            self.erase_us,
            self.read_overhead_us,
            self.write_overhead_us,
            self.read_command_us,
            self.write_command_us,
            self.flush_us,
        ];
        let parts = [self.channels, self.dies, self.page_kib, self.block_pages];
        if parts.contains(&0) || self.capacity_sectors == 0 {
            Some("channels, dies, page_kib, block_pages, capacity_sectors: more than nothing")
        } else if !is_positive(self.channel_mb_s) || !is_positive(self.link_mb_s) {
            Some("channel_mb_s, link_mb_s: more than nothing")
        } else if !costs.into_iter().all(is_cost) {
            Some("times: not less than nothing")
        } else if !(0.0..=0.98).contains(&self.fill) {
            Some("fill: between 0 and 0.98")
        } else if self.cache_kib != 0 && self.cache_kib < self.page_kib {
            Some("cache_kib: a page at least")
        } else {
            None
        }
    }
}
