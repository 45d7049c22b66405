//! Simulated disks to run on.

use std::path::Path;
use std::str::FromStr;

use backstitch_drives::{DriveSpec, Flag, Policy};

use crate::{Error, Result};

/// The processor with speed 1: the one on which the costs of the host's work were measured.
pub const REFERENCE_HOST: &str = "one core of an Intel Xeon of 2023";

/// How a mechanism that leaves its order to the drive's queue tells the drive (Ganger and Patt 1994).
/// Its writes go to the drive in batches; a batch comes after the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// Each request names all of the batch before.
    #[default]
    Chain,
    /// Requests are flagged: the last one of each batch, or, with [`Flag::Part`], which says nothing
    /// of the requests before it, every one.
    Flag(Flag),
}

impl FromStr for QueueOrder {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "chain" => Ok(QueueOrder::Chain),
            "part" => Ok(QueueOrder::Flag(Flag::Part)),
            "back" => Ok(QueueOrder::Flag(Flag::Back)),
            "full" => Ok(QueueOrder::Flag(Flag::Full)),
            _ => Err("one of chain, part, back, full".to_owned()),
        }
    }
}

/// A simulated disk and its computer.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// The drive.
    pub drive: DriveSpec,
    /// A drive for the log alone. If it is not given, a mechanism whose log is always on another
    /// drive gets a second one of `drive`.
    pub log_drive: Option<DriveSpec>,
    /// The file system's size, at most the drive's.
    pub size_bytes: u64,
    /// The speed of the processor, relative to [`REFERENCE_HOST`].
    pub host_speed: f64,
    /// The computer's memory for the file system's buffers, if it is known: the default of
    /// [`Spec::cache_bytes`](crate::Spec::cache_bytes).
    pub buffer_bytes: Option<u64>,
    /// Memory for pages that were read or written. If it is not given, as much as for buffers.
    pub page_bytes: Option<u64>,
    /// Memory for the dependencies of changes, in addition to the buffers. If it is not given, they
    /// are part of the buffers' memory.
    pub changes_bytes: Option<u64>,
    /// How `scheduler` tells the drive its order.
    pub queue_order: QueueOrder,
}

/// Changes to a drive's description.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskOptions {
    /// The host's elevator.
    pub elevator: Option<Policy>,
    /// How many requests the drive takes at once.
    pub queue_depth: Option<u32>,
    /// Whether a write counts as done once it is in the drive's cache.
    pub write_cache: Option<bool>,
    /// The speed of the processor, relative to [`REFERENCE_HOST`].
    pub host_speed: Option<f64>,
    /// How `scheduler` tells the drive its order: by chains, if nothing is said.
    pub queue_order: Option<QueueOrder>,
}

impl Disk {
    /// The preset with this name, or the drive that a file describes (a name that ends in `.toml`).
    ///
    /// # Errors
    /// If there is no such drive, or it does not support the options.
    pub fn named(name: &str, size_bytes: u64, options: &DiskOptions) -> Result<Disk> {
        let path = Path::new(name);
        let mut drive = match path.extension().is_some_and(|end| end == "toml") {
            true => {
                let text = std::fs::read_to_string(path).map_err(Error::at(path))?;
                DriveSpec::parse(&text)?
            }
            false => DriveSpec::preset(name)?,
        };
        if let Some(elevator) = options.elevator {
            drive.queue.elevator = elevator;
        }
        if let Some(tags) = options.queue_depth {
            drive.queue.tags = tags;
        }
        if let Some(write_cache) = options.write_cache {
            switch_cache(&mut drive, write_cache)?;
        }
        let host = drive.host.as_ref();
        let default_speed = host.map_or(1.0, |host| host.speed);
        let bytes = |mib: u32| u64::from(mib) << 20;
        Ok(Disk {
            host_speed: options.host_speed.unwrap_or(default_speed),
            buffer_bytes: host.and_then(|host| host.buffers_mib).map(bytes),
            page_bytes: host.and_then(|host| host.pages_mib).map(bytes),
            changes_bytes: host.and_then(|host| host.changes_mib).map(bytes),
            queue_order: options.queue_order.unwrap_or_default(),
            drive,
            log_drive: None,
            size_bytes,
        })
    }

    /// The same disk with a drive for the log: a preset, or one that a file describes.
    ///
    /// # Errors
    /// As [`named`](Self::named).
    pub fn with_log_drive(self, name: &str, options: &DiskOptions) -> Result<Disk> {
        let other = Disk::named(name, self.size_bytes, options)?;
        Ok(Disk {
            log_drive: Some(other.drive),
            ..self
        })
    }

    /// The presets as a table: name, description, and computer.
    ///
    /// # Errors
    /// None: all presets can be read.
    pub fn table() -> Result<String> {
        let mut text = String::new();
        for name in DriveSpec::presets() {
            let drive = DriveSpec::preset(name)?;
            let host = match &drive.host {
                Some(host) => format!(
                    "{} (speed {}), {} of buffers, {} of pages",
                    host.processor,
                    host.speed,
                    mebibytes(host.buffers_mib),
                    mebibytes(host.pages_mib),
                ),
                None => "this engine's reference (speed 1)".to_owned(),
            };
            text.push_str(&format!("{name:<12} {}\n", drive.description));
            text.push_str(&format!("{:<12} host: {host}\n", ""));
        }
        Ok(text)
    }
}

fn mebibytes(mib: Option<u32>) -> String {
    mib.map_or("the default".to_owned(), |mib| format!("{mib} MiB"))
}

fn switch_cache(drive: &mut DriveSpec, is_on: bool) -> Result<()> {
    match (&mut drive.rotating, &mut drive.flash) {
        (Some(rotating), _) => rotating.write_cache = is_on,
        (None, Some(flash)) if !is_on => flash.cache_kib = 0,
        (None, Some(flash)) if flash.cache_kib > 0 => {}
        _ => {
            let why = format!("{} has no write cache to switch on or off", drive.name);
            return Err(Error::Scale(why));
        }
    }
    Ok(())
}
