//! Each workload with small numbers, in memory: the image is clean afterwards, the figures are
//! there, and the same seed does the same.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use backstitch_bench::{
    EngineFigures, ImapVariant, Run, Scale, Series, Spec, Target, Workload, document, imap_specs,
    measure, micro_table, optimisation_specs, optimisation_tables, plot_optimisations, plot_runs,
    run_series, run_table,
};
use backstitch_formats::usual;
use backstitch_vfs::{Optimisations, Ordering};

fn small(workload: Workload) -> Scale {
    let files = |files, megabytes| Scale {
        files: Some(files),
        megabytes: Some(megabytes),
        ..Scale::default()
    };
    match workload {
        Workload::Untar | Workload::Delete => files(200, 4.0),
        Workload::Andrew | Workload::AndrewSmall => files(40, 0.5),
        Workload::Zero => files(300, 0.0),
        Workload::Fsync => Scale {
            writers: Some(3),
            ..files(60, 0.0)
        },
        workload if workload.is_micro() => files(120, 0.0),
        Workload::Ssh | Workload::Connectathon => Scale {
            fraction: Some(0.02),
            ..Scale::default()
        },
        Workload::Netnews => Scale {
            fraction: Some(0.01),
            ..Scale::default()
        },
        Workload::Sdet => Scale {
            writers: Some(3),
            fraction: Some(0.2),
            ..Scale::default()
        },
        _ => Scale {
            files: Some(30),
            transactions: Some(60),
            max_bytes: (workload == Workload::Postmark).then_some(200_000),
            ..Scale::default()
        },
    }
}

fn spec(workload: Workload, ordering: Ordering) -> Spec {
    Spec {
        workload,
        scale: small(workload),
        layout: usual(),
        unit_bytes: None,
        ordering,
        optimisations: Optimisations::BOTH,
        target: Target::Memory {
            flush: Duration::ZERO,
            size_bytes: 64 << 20,
        },
        journal_device: None,
        cache_bytes: 1 << 30,
        dirty_bytes: 0,
        expire_seconds: 1e6,
        atomic_bytes: None,
        seed: 1,
        trace: false,
        check: true,
        mount_stats: None,
        record: None,
    }
}

fn figures(run: &Run) -> EngineFigures {
    run.engine.unwrap()
}

/// The counters of two runs are the same, as far as the host does not decide. The engine writes the
/// wall clock into inodes, and its bytes may happen to be the same. The writer thread decides when
/// removed files are freed, and so which blocks are reused, and how many of them the sync finds.
fn assert_alike(one: &Run, two: &Run) {
    assert_eq!(one.operations, two.operations);
    let (a, b) = (figures(one), figures(two));
    let near = |x: u64, y: u64| x.abs_diff(y) <= x / 50 + 50;
    let name = one.workload;
    if name == "zero" {
        // Whenever the writer has a turn, freed files leave the inode table, and the next file
        // makes new patches.
        let most = one.operations * 4;
        assert!(a.patches_created <= most && b.patches_created <= most);
    } else {
        assert!(near(a.patches_not_empty(), b.patches_not_empty()), "{name}");
    }
    // Whether a read changes the access time depends on the second in which that was set.
    let hangs_on_time = [
        "micro-read",
        "micro-write",
        "delete",
        "postmark",
        "zero",
        "micro-delete",
        "ssh",
        "netnews",
        "connectathon",
        "imap",
    ];
    if !hangs_on_time.iter().any(|word| name.starts_with(word)) {
        let counts = |e: EngineFigures| {
            [
                e.patches_created,
                e.patches_peak,
                e.blocks_written,
                e.bytes_read,
                e.rollbacks,
                e.blocks_rewritten_for_rollback,
                e.cache_bytes_peak,
            ]
        };
        assert_eq!(counts(a), counts(b), "{name}");
        assert!(near(a.undo_bytes_total, b.undo_bytes_total), "{name}");
    }
}

#[test]
fn every_workload_leaves_a_clean_image_under_every_ordering() {
    for workload in Workload::ALL {
        for ordering in [Ordering::SOFT, Ordering::ASYNC, Ordering::SYNC] {
            let run = measure(&spec(workload, ordering)).unwrap();
            assert_eq!(run.workload, workload.name());
            assert_eq!(run.ordering, Some(ordering.to_string()));
            assert!(run.operations > 0, "{workload}");
            // Whether reads change access times depends on the second.
            let reads_only = workload.name() == "micro-read";
            let patches = figures(&run).patches_created;
            assert!(patches > 0 || reads_only, "{workload}");
            assert_eq!(run.phases.last().unwrap().name, "sync");
        }
    }
}

#[test]
fn write_back_under_way_does_no_harm() {
    for workload in Workload::ALL {
        let crowded = Spec {
            cache_bytes: 1 << 20,
            expire_seconds: 0.0,
            ..spec(workload, Ordering::SOFT)
        };
        measure(&crowded).unwrap();
    }
}

#[test]
fn the_same_seed_gives_the_same_counters() {
    // The host decides which writers share a flush.
    let is_alone = |workload: &Workload| !workload.has_clients();
    for workload in Workload::ALL.into_iter().filter(is_alone) {
        let [one, two] = [(); 2].map(|()| measure(&spec(workload, Ordering::SOFT)).unwrap());
        assert_alike(&one, &two);
    }
}

#[test]
fn memory_is_measured_before_anything_is_written() {
    let base = spec(Workload::Untar, Ordering::SOFT);
    for spec in optimisation_specs(&base) {
        let small = Spec {
            scale: small(spec.workload),
            ..spec
        };
        let run = measure(&small).unwrap();
        assert_eq!(figures(&run).blocks_written_before_sync, 0, "{small:?}");
    }
}

/// The optimisations help where order is between transactions, too: even small workloads have less
/// than half of the patches and a twentieth of the undo data.
#[test]
fn the_optimisations_save_under_a_journal_too() {
    let ordering = Ordering::JOURNAL_ORDERED;
    for of_none in optimisation_specs(&spec(Workload::Untar, ordering)).chunks(4) {
        let [none, both] = [&of_none[0], &of_none[3]].map(|spec| {
            let small = Spec {
                scale: small(spec.workload),
                ..spec.clone()
            };
            figures(&measure(&small).unwrap())
        });
        let name = of_none[0].workload;
        let patches = (both.patches_created, none.patches_created);
        assert!(patches.0 * 2 < patches.1, "{name}: {patches:?}");
        let undo = (both.undo_bytes_total, none.undo_bytes_total);
        assert!(undo.0 * 20 <= undo.1, "{name}: {undo:?}");
    }
}

#[test]
fn the_optimisations_save_patches_and_undo_data_everywhere() {
    let base = spec(Workload::Untar, Ordering::SOFT);
    let specs: Vec<Spec> = optimisation_specs(&base)
        .into_iter()
        .map(|spec| Spec {
            scale: small(spec.workload),
            ..spec
        })
        .collect();
    let all = run_series(&specs, 1, |_, _, _| {}).unwrap();
    for of_workload in all.chunks(4) {
        let [none, .., both] = of_workload else {
            panic!("four rows a workload")
        };
        let (none, both) = (none.median(), both.median());
        assert_eq!(none.opt.as_deref(), Some("none"));
        assert_eq!(both.opt.as_deref(), Some("both"));
        let name = none.workload;
        let (none, both) = (figures(none), figures(both));
        assert!(both.patches_created < none.patches_created, "{name}");
        assert!(both.undo_bytes_total < none.undo_bytes_total, "{name}");
    }
    let tables = optimisation_tables(&all);
    assert!(tables.contains("4,996,331") && tables.contains("PostMark".to_lowercase().as_str()));
    let directory = tempfile::tempdir().unwrap();
    for drawn in [
        plot_optimisations(&all, directory.path()).unwrap(),
        plot_runs(&all, directory.path()).unwrap(),
    ] {
        let text = std::fs::read_to_string(drawn).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    }
}

#[test]
fn the_document_has_the_keys_of_the_contract() {
    let zero = Spec {
        scale: Scale::default(),
        ..spec(Workload::Zero, Ordering::ASYNC)
    };
    let all = run_series(&[zero], 1, |_, _, _| {}).unwrap();
    let document = document(&all, 1);
    for key in ["backstitch", "host", "seed", "runs"] {
        assert!(document.get(key).is_some(), "{key}");
    }
    let run = document["runs"][0].as_object().unwrap();
    let mut keys: Vec<&str> = run.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut expected = [
        "workload",
        "ordering",
        "opt",
        "target",
        "elapsed_seconds",
        "cpu_user_seconds",
        "cpu_sys_seconds",
        "operations",
        "operations_per_second",
        "bytes_read",
        "bytes_written",
        "blocks_written",
        "write_requests",
        "flushes",
        "rollbacks",
        "blocks_rewritten_for_rollback",
        "patches_created",
        "patches_peak",
        "undo_bytes_total",
        "undo_bytes_peak",
        "dependency_bytes_peak",
        "cache_bytes_peak",
        "phases",
        "paper",
        // Keys of ours, beyond the contract.
        "patches_created_empty",
        "patches_created_runs",
        "patches_created_hard",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(run["paper"]["value"], 10_782.8);
    assert_eq!(run["phases"][0]["operations"], 50_000);
}

#[test]
fn several_runs_are_reported_as_a_spread() {
    let zero = spec(Workload::Zero, Ordering::SOFT);
    let mut told = 0;
    let all = run_series(&[zero], 3, |_, _, run| told += usize::from(run.is_some())).unwrap();
    assert_eq!(told, 3);
    let run = &document(&all, 1)["runs"][0];
    for figure in ["median", "min", "max"] {
        assert!(run["elapsed_seconds"][figure].is_f64(), "{run}");
    }
    assert!(run_table(&all).contains(" [") && run.get("paper").is_none());
}

#[test]
fn an_image_is_made_anew_for_every_run() {
    let directory = tempfile::tempdir().unwrap();
    let image = Spec {
        target: Target::Image {
            path: directory.path().join("x.img"),
            size_bytes: 64 << 20,
        },
        ..spec(Workload::Delete, Ordering::SOFT)
    };
    let all = run_series(&[image], 2, |_, _, _| {}).unwrap();
    let series: &Series = &all[0];
    assert_alike(&series.runs[0], &series.runs[1]);
}

#[test]
fn a_journal_on_a_device_of_its_own_is_made_anew_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.img");
    let apart = Spec {
        journal_device: Some(path.clone()),
        ..spec(Workload::Untar, Ordering::JOURNAL_ORDERED)
    };
    let all = run_series(&[apart], 2, |_, _, _| {}).unwrap();
    assert_alike(&all[0].runs[0], &all[0].runs[1]);
    let mut log = vec![0; 1 << 20];
    File::open(&path).unwrap().read_exact(&mut log).unwrap();
    // Blocks of the log have the magic number of jbd2: the superblock's, and those of the
    // transactions after it.
    let records = log
        .chunks(4096)
        .filter(|block| block[..4] == [0xc0, 0x3b, 0x39, 0x98]);
    assert!(records.count() > 2);
}

#[test]
fn system_calls_do_the_same_work() {
    let directory = tempfile::tempdir().unwrap();
    for workload in Workload::ALL {
        let ours = measure(&spec(workload, Ordering::SOFT)).unwrap();
        let host = Spec {
            target: Target::Directory(directory.path().to_owned()),
            ..spec(workload, Ordering::SOFT)
        };
        let host = measure(&host).unwrap();
        assert_eq!(host.operations, ours.operations, "{workload}");
        assert!(host.engine.is_none());
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn every_way_moves_all_messages_and_patchgroups_wait_least() {
    for ordering in [
        Ordering::SOFT,
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
    ] {
        let base = Spec {
            scale: Scale {
                files: Some(40),
                ..Scale::default()
            },
            ..spec(Workload::Imap(ImapVariant::Fsync), ordering)
        };
        let specs = imap_specs(&base);
        let is_log = ordering != Ordering::SOFT;
        assert_eq!(specs.len(), if is_log { 3 } else { 2 }, "{ordering}");
        let flushes = specs
            .iter()
            .map(|spec| figures(&measure(spec).unwrap()).flushes);
        let flushes: Vec<u64> = flushes.collect();
        assert!(flushes[0] >= 40, "{ordering}: {flushes:?}");
        assert!(flushes[1] * 4 < flushes[0], "{ordering}: {flushes:?}");
    }
}

/// Only files that were created are compared with the paper's writes for each created file.
#[test]
fn the_table_of_created_files_has_no_other_runs() {
    let series = |workload| Series {
        runs: vec![measure(&spec(workload, Ordering::SOFT)).unwrap()],
    };
    let others = [Workload::Sdet, Workload::Fsync, Workload::MicroDelete].map(series);
    assert_eq!(micro_table(&others), "");
    let created = [series(Workload::MicroCreate), series(Workload::Sdet)];
    let table = micro_table(&created);
    assert_eq!(table.matches("soft").count(), 1, "{table}");
}
