//! `--disk`: simulated disks.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use backstitch_bench::{Disk, DiskOptions, Policy, QueueOrder, Series, Target, write_json_lines};

use backstitch_files::error::{Error, Result};
use backstitch_files::show;

/// What is said of a simulated disk.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// List the simulated disks
    #[arg(long)]
    pub(super) list_disks: bool,
    /// The speed of the simulated disk's host, by that of the machine on which the costs of the
    /// host's work were measured; by default that of the paper which the disk is from
    #[arg(long, value_name = "FACTOR", value_parser = super::seconds)]
    host_speed: Option<f64>,
    /// The elevator of the simulated disk's host: fifo, clook, fscan, sptf
    #[arg(long, value_name = "POLICY")]
    elevator: Option<Policy>,
    /// How many requests the simulated disk takes at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: Option<u32>,
    /// Whether the simulated disk answers writes from its memory
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    write_cache: Option<bool>,
    /// How the ordering `scheduler` tells the simulated disk its order: chain (each request names those
    /// before it; the default), or by flags: part, back, full
    #[arg(long, value_name = "ORDER")]
    queue_order: Option<QueueOrder>,
    /// The simulated disk that the log or the journal has to itself, a preset or a file as of --disk:
    /// by default it is on the file system's, and that of lffs-wafs=2sync and 2async on one more of
    /// the same
    #[arg(long, value_name = "PRESET")]
    pub(super) log_device: Option<String>,
    /// Write the simulated disk's requests, as lines of JSON, to this file; those of the log's own disk
    /// follow
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
}

fn on_or_off(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

/// `--list-disks`.
pub(super) fn list() -> Result<()> {
    let table = Disk::table().map_err(|error| Error::failed("bench", "disks", error))?;
    show::print_bytes("bench", table.as_bytes())
}

impl Args {
    /// What makes no sense on other targets, or for so many runs.
    pub(super) fn check(&self, is_disk: bool, runs: usize) -> Result<()> {
        let given = [
            ("--host-speed", self.host_speed.is_some()),
            ("--elevator", self.elevator.is_some()),
            ("--queue-depth", self.queue_depth.is_some()),
            ("--write-cache", self.write_cache.is_some()),
            ("--queue-order", self.queue_order.is_some()),
            ("--log-device", self.log_device.is_some()),
            ("--trace", self.trace.is_some()),
        ];
        // clap asks for no other option where that would exclude one that is given.
        if let Some((option, _)) = given.iter().find(|(_, given)| *given && !is_disk) {
            let why = format!("{option} is about simulated disks: --disk PRESET");
            return Err(Error::usage("bench", why));
        }
        if self.trace.is_some() && runs > 1 {
            let why = "--trace is of one run: one workload, one ordering, one of its sizes";
            return Err(Error::usage("bench", why));
        }
        Ok(())
    }

    /// The disk of a name.
    pub(super) fn target(&self, name: &str, size_bytes: u64) -> Result<Target> {
        if self.host_speed == Some(0.0) {
            let why = "--host-speed: more than nothing";
            return Err(Error::usage("bench", why));
        }
        let options = DiskOptions {
            elevator: self.elevator,
            queue_depth: self.queue_depth,
            write_cache: self.write_cache,
            host_speed: self.host_speed,
            queue_order: self.queue_order,
        };
        let disk = Disk::named(name, size_bytes, &options);
        let mut disk = disk.map_err(|error| Error::failed("bench", name, error))?;
        if let Some(name) = &self.log_device {
            let with_log = disk.with_log_drive(name, &options);
            disk = with_log.map_err(|error| Error::failed("bench", name, error))?;
        }
        Ok(Target::Disk(Box::new(disk)))
    }

    /// Writes the trace where that was asked for.
    pub(super) fn write_trace(&self, all: &[Series]) -> Result<()> {
        let Some(path) = &self.trace else {
            return Ok(());
        };
        let runs = all.iter().flat_map(|series| &series.runs);
        let written = File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            for run in runs {
                write_json_lines(&run.trace, &mut out)?;
                write_json_lines(&run.log_trace, &mut out)?;
            }
            out.flush()
        });
        written
            .map_err(|error| Error::at_path("bench", path, backstitch_files::error::host(&error)))
    }
}
