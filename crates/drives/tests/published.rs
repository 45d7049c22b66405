//! Each preset reaches the figures that are published of its drive.

use crate::common::{drive, iops, rate};
use backstitch_drives::{Drive, DriveSpec, Kind};

/// The share by which a figure may differ.
const TOLERANCE: f64 = 0.10;

fn compare(drive: &str, what: &str, ours: f64, published: f64) {
    let off = ours / published - 1.0;
    println!(
        "{drive:12} {what:22} {ours:10.1} published {published:10.1} {:+5.1} %",
        off * 100.0
    );
    assert!(
        off.abs() <= TOLERANCE,
        "{drive}, {what}: {ours} instead of {published}"
    );
}

fn specs() -> impl Iterator<Item = DriveSpec> {
    DriveSpec::presets().map(|name| DriveSpec::preset(name).unwrap())
}

#[test]
fn average_seek() {
    for spec in specs() {
        let ours = Drive::new(&spec).average_seek_ms();
        assert_eq!(ours.is_some(), spec.published.average_seek_ms.is_some());
        if let (Some(ours), Some(published)) = (ours, spec.published.average_seek_ms) {
            compare(&spec.name, "average seek, ms", ours, published);
        }
    }
}

#[test]
fn sustained_rates() {
    for spec in specs() {
        let (name, published) = (&spec.name, &spec.published);
        let bounds = drive(name).zone_bounds();
        // Enough to fill a flash drive's cache many times.
        let bytes = if spec.flash.is_some() {
            4 << 30
        } else {
            16 << 20
        };
        let depth = if spec.flash.is_some() { 32 } else { 1 };
        let read = |from| rate(&mut drive(name), Kind::Read, from, bytes, depth);
        if let Some(outer) = published.outer_mb_s {
            compare(name, "outer MB/s", read(0), outer);
        }
        if let Some(inner) = published.inner_mb_s {
            let from = bounds[bounds.len() - 2];
            compare(name, "inner MB/s", read(from), inner);
        }
        if let Some(average) = published.average_mb_s {
            let tenths = (0..10).map(|n| n * bounds[bounds.len() - 1] / 10);
            let all: f64 = tenths.map(read).sum();
            compare(name, "average MB/s", all / 10.0, average);
        }
        if let Some(write) = published.write_mb_s {
            let ours = rate(&mut drive(name), Kind::Write, 0, bytes, depth);
            compare(name, "write MB/s", ours, write);
        }
    }
}

#[test]
fn random_requests() {
    for spec in specs() {
        let kinds = [
            (Kind::Read, &spec.published.read_iops),
            (Kind::Write, &spec.published.write_iops),
        ];
        for (kind, published) in kinds {
            for &(depth, figure) in published {
                let requests = if spec.flash.is_some() { 300_000 } else { 5_000 };
                let what = format!("4 KiB {} at {depth}", kind.name());
                compare(
                    &spec.name,
                    &what,
                    iops(&spec.name, kind, depth, requests),
                    figure,
                );
            }
        }
    }
}

/// With SPTF, Worthington, Ganger and Patt (SIGMETRICS 1994) serve about twice as many requests at
/// deep queues as one at a time. There are no published figures of this for these drives.
#[test]
fn queues_help_drives_that_sort_them() {
    for name in ["viking", "cheetah9", "st3320620as"] {
        let [one, many] = [1, 32].map(|depth| iops(name, Kind::Read, depth, 5_000));
        println!("{name:12} 4 KiB reads at 1: {one:.0}, at 32: {many:.0}");
        assert!(
            (1.5..3.0).contains(&(many / one)),
            "{name}: {one} and {many}"
        );
    }
}
