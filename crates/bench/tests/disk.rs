//! Workloads on simulated disks: the same on every machine, and each ordering with its known
//! effects.

use backstitch_bench::{
    Disk, DiskOptions, ImapVariant, Run, Scale, Series, Spec, Target, Workload, document,
    imap_specs, measure,
};
use backstitch_formats::usual;
use backstitch_vfs::{Optimisations, Ordering};

fn spec(workload: Workload, scale: Scale, ordering: Ordering, disk: &str) -> Spec {
    let disk = Disk::named(disk, 256 << 20, &DiskOptions::default()).unwrap();
    Spec {
        layout: usual(),
        unit_bytes: None,
        workload,
        scale,
        ordering,
        optimisations: Optimisations::BOTH,
        target: Target::Disk(Box::new(disk)),
        journal_device: None,
        cache_bytes: 32 << 20,
        dirty_bytes: 0,
        expire_seconds: 30.0,
        atomic_bytes: None,
        seed: 1,
        trace: true,
        check: true,
        mount_stats: None,
        record: None,
    }
}

fn postmark() -> Scale {
    Scale {
        files: Some(60),
        transactions: Some(120),
        min_bytes: Some(500),
        max_bytes: Some(16 << 10),
        ..Scale::default()
    }
}

fn writers(writers: u64) -> Scale {
    Scale {
        files: Some(60),
        writers: Some(writers),
        ..Scale::default()
    }
}

/// The JSON, and every request of the drive.
fn all_of(run: Run) -> (String, Vec<u8>) {
    let mut trace = Vec::new();
    backstitch_bench::write_json_lines(&run.trace, &mut trace).unwrap();
    assert!(!trace.is_empty());
    backstitch_bench::write_json_lines(&run.log_trace, &mut trace).unwrap();
    let document = document(&[Series { runs: vec![run] }], 1);
    (document.to_string(), trace)
}

#[test]
fn two_runs_are_the_same_to_the_last_byte() {
    let scripts = Scale {
        fraction: Some(0.2),
        ..Scale::default()
    };
    let workloads = [(Workload::Postmark, postmark()), (Workload::Sdet, scripts)];
    for (workload, scale) in workloads {
        for ordering in Ordering::ALL.into_iter().chain(Ordering::WITH_GROUP_COMMIT) {
            for disk in ["viking", "sata-ssd"] {
                let spec = spec(workload, scale, ordering, disk);
                let [one, two] = [(); 2].map(|()| all_of(measure(&spec).unwrap()));
                assert!(
                    one == two,
                    "{workload} {ordering} {disk}: {} {}",
                    one.0,
                    two.0
                );
                assert!(!one.0.contains("\"host\""), "{}", one.0);
            }
        }
    }
}

#[test]
fn a_disk_makes_synchronous_updates_slow_and_hides_delayed_ones() {
    let elapsed = |ordering| {
        let spec = spec(Workload::Postmark, postmark(), ordering, "viking");
        measure(&spec).unwrap().elapsed_seconds
    };
    let [soft, sync] = [Ordering::SOFT, Ordering::SYNC].map(elapsed);
    let none = elapsed(Ordering::ASYNC);
    assert!(sync > 3.0 * none, "sync {sync}, async {none}");
    assert!(soft < 1.2 * none, "soft {soft}, async {none}");
}

/// No workload depends on the host, and each leaves what it should.
#[test]
fn every_workload_runs_on_a_disk() {
    for workload in Workload::ALL {
        let small = Scale {
            fraction: Some(0.005),
            max_bytes: (workload == Workload::Postmark).then_some(64 << 10),
            ..Scale::default()
        };
        let [one, two] = [(); 2].map(|()| {
            let spec = spec(workload, small, Ordering::SOFT, "cheetah9");
            measure(&spec).unwrap()
        });
        assert!(one.operations > 0 && one.elapsed_seconds > 0.0);
        assert!(one == two, "{workload}");
    }
}

#[test]
fn scripts_use_the_processor_while_others_wait_for_the_disk() {
    let by_hour = |count| {
        let scale = Scale {
            writers: Some(count),
            fraction: Some(0.3),
            ..Scale::default()
        };
        // More scripts need the single arm of a rotating disk more often, but flash has many dies.
        let spec = spec(Workload::Sdet, scale, Ordering::SYNC, "sata-ssd");
        count as f64 / measure(&spec).unwrap().elapsed_seconds
    };
    let [one, five] = [1, 5].map(by_hour);
    assert!(five > 1.1 * one, "one {one}, five {five}");
}

#[test]
fn clients_wait_for_the_disk_beside_each_other() {
    let elapsed = |count| {
        let spec = spec(Workload::Fsync, writers(count), Ordering::SOFT, "viking");
        measure(&spec).unwrap().elapsed_seconds
    };
    let [one, four] = [1, 4].map(elapsed);
    assert!(four < 0.7 * one, "one {one}, four {four}");
}

/// On the log's disk only the log is read and written. If callers wait for the log, it is faster
/// there, since no head moves between log and files.
#[test]
fn a_log_on_a_disk_of_its_own_is_written_there_and_waits_for_no_head() {
    let small_files = Scale {
        min_bytes: Some(2 << 10),
        megabytes: Some(0.5),
        ..Scale::default()
    };
    let run = |ordering, log_disk: Option<&str>| {
        let mut spec = spec(Workload::MicroCreate, small_files, ordering, "cheetah9");
        if let (Some(name), Target::Disk(disk)) = (log_disk, &mut spec.target) {
            let options = DiskOptions::default();
            **disk = disk.clone().with_log_drive(name, &options).unwrap();
        }
        measure(&spec).unwrap()
    };
    let one = run(Ordering::LFFS_WAFS_1SYNC, None);
    let two = run(Ordering::LFFS_WAFS_2SYNC, None);
    assert!(one.log_trace.is_empty());
    assert!(two.log_trace.len() > 200, "{}", two.log_trace.len());
    assert!(
        two.elapsed_seconds < one.elapsed_seconds,
        "one {}, two {}",
        one.elapsed_seconds,
        two.elapsed_seconds
    );
    let free = run(Ordering::LFFS_WAFS_2SYNC, Some("ideal"));
    assert!(free.elapsed_seconds < 0.5 * two.elapsed_seconds);
    assert_eq!(free.log_trace.len(), two.log_trace.len());

    let inside = run(Ordering::JOURNAL_ORDERED, None);
    let apart = run(Ordering::JOURNAL_ORDERED, Some("cheetah9"));
    assert!(inside.log_trace.is_empty() && !apart.log_trace.is_empty());
}

/// Several callers that wait share the writes of the log. A single one waits longer.
#[test]
fn a_group_commit_is_for_all_who_wait() {
    let run = |ordering, count| {
        let scale = Scale {
            writers: Some(count),
            fraction: Some(0.1),
            ..Scale::default()
        };
        measure(&spec(Workload::Sdet, scale, ordering, "cheetah9")).unwrap()
    };
    let groups = [Ordering::JOURNAL_ORDERED_GROUP, Ordering::LFFS_WAFS_2GROUP];
    for (group, alone) in groups
        .into_iter()
        .zip([Ordering::JOURNAL_ORDERED, Ordering::LFFS_WAFS_2SYNC])
    {
        let flushes = |count| run(group, count).engine.unwrap().flushes as f64 / count as f64;
        let (one, eight) = (flushes(1), flushes(8));
        assert!(
            eight < 0.7 * one,
            "{group}: {one} and {eight} for each script"
        );
        let (grouped, not) = (run(group, 1).elapsed_seconds, run(alone, 1).elapsed_seconds);
        assert!(grouped > not, "{group}: {grouped} and {not}");
    }
}

#[test]
fn a_faster_host_is_faster_where_the_disk_is_none() {
    let elapsed = |host_speed| {
        let options = DiskOptions {
            host_speed: Some(host_speed),
            ..DiskOptions::default()
        };
        let mut spec = spec(Workload::Postmark, postmark(), Ordering::SOFT, "ideal");
        spec.target = Target::Disk(Box::new(Disk::named("ideal", 256 << 20, &options).unwrap()));
        measure(&spec).unwrap().elapsed_seconds
    };
    let [slow, fast] = [0.5, 1.0].map(elapsed);
    assert!((slow / fast - 2.0).abs() < 0.02, "{slow} {fast}");
}

/// Prints the figures of docs/MEASUREMENTS.md: `cargo test -p backstitch-bench disk::figures --
/// --ignored --nocapture`.
#[test]
#[ignore = "prints figures, for minutes"]
fn figures() {
    let micro = |workload| {
        (
            workload,
            4 << 10,
            Scale {
                min_bytes: Some(4 << 10),
                ..Scale::default()
            },
        )
    };
    let full = |workload| (workload, 0, Scale::default());
    let workloads = [
        micro(Workload::MicroCreate),
        micro(Workload::MicroRead),
        micro(Workload::MicroWrite),
        micro(Workload::MicroDelete),
        full(Workload::PostmarkSmall),
        full(Workload::Sdet),
        full(Workload::Andrew),
        full(Workload::Ssh),
        full(Workload::Connectathon),
        full(Workload::Zero),
        full(Workload::Netnews),
    ];
    for disk in ["viking", "cheetah9"] {
        for (workload, file_bytes, scale) in workloads {
            for ordering in [Ordering::ASYNC, Ordering::SOFT, Ordering::SYNC] {
                let mut spec = spec(workload, scale, ordering, disk);
                (spec.trace, spec.check, spec.cache_bytes) = (false, false, 128 << 20);
                spec.target = Target::Disk(Box::new(
                    Disk::named(disk, 4 << 30, &DiskOptions::default()).unwrap(),
                ));
                let run = measure(&spec).unwrap();
                let engine = run.engine.unwrap();
                println!(
                    "{disk} {workload} {file_bytes} {ordering}: {:.2} s, processor {:.2} s, {} operations, \
                     {} requests, {} blocks, {} B read, phases {:?}",
                    run.elapsed_seconds,
                    run.cpu_user_seconds,
                    run.operations,
                    engine.write_requests,
                    engine.blocks_written,
                    engine.bytes_read,
                    run.phases
                        .iter()
                        .map(|p| (p.name, (p.elapsed_seconds * 100.0).round() / 100.0))
                        .collect::<Vec<_>>(),
                );
            }
        }
    }
}

#[test]
fn patchgroups_spare_a_mail_server_its_waits_for_the_disk() {
    let messages = Scale {
        files: Some(100),
        ..Scale::default()
    };
    for ordering in [Ordering::SOFT, Ordering::JOURNAL_FULL] {
        let base = Workload::Imap(ImapVariant::Fsync);
        let specs = imap_specs(&spec(base, messages, ordering, "viking"));
        let runs = specs.iter().map(|spec| measure(spec).unwrap());
        let seconds: Vec<f64> = runs.map(|run| run.elapsed_seconds).collect();
        // Each fsync waits for at least a rotation of the disk.
        assert!(seconds[0] > 100.0 * 0.004, "{ordering}: {seconds:?}");
        assert!(seconds[1] < seconds[0] / 10.0, "{ordering}: {seconds:?}");
        let twice = measure(&specs[1]).unwrap().elapsed_seconds;
        assert_eq!(twice, seconds[1], "{ordering}");
    }
}
