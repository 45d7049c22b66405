//! Recording a trace and repeating it, without a mount.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backstitch_crash::{Workload, standard};
use backstitch_crash_core::check::Check;
use backstitch_crash_core::closed::{self, Bounds};
use backstitch_crash_core::device::ForkDevice;
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::operation::parse_script;
use backstitch_crash_core::schedule::Schedule;
use backstitch_formats::usual;
use backstitch_layout::tools::{CheckOptions, Kind};
use backstitch_mechanisms::Ordering;
use backstitch_store::Optimisations;
use backstitch_vfs::{
    Engine, FileType, InodeNumber, MountOptions, NewInode, RenameMode, SetAttributes, SetXattrMode,
    flags,
};

use crate::choose::{Job, choose};
use crate::options::Options;
use crate::place::Cut;
use crate::player::{Moment, play};
use crate::record::Recorder;
use crate::record::tracing::TracingLayout;
use crate::summary::explored;
use crate::trace::{Geometry, Start, Trace};
use crate::variant::{Variant, Variants, WriteBack};

const GEOMETRY: Geometry = Geometry {
    size_bytes: 8 << 20,
    block_bytes: 1024,
    uid: 0,
    gid: 0,
    start: Start::Empty,
};

fn mounted(image: Fork, recorder: &Recorder) -> Arc<Engine> {
    let layout = TracingLayout {
        inner: usual().layout(),
        recorder: recorder.clone(),
    };
    let device = Arc::new(ForkDevice::new(image));
    let engine = Engine::mount(device, &layout, &MountOptions::default()).unwrap();
    engine.observe(Box::new(recorder.clone()));
    engine
}

fn new(file_type: FileType, target: &[u8]) -> NewInode<'_> {
    NewInode {
        file_type,
        permissions: 0o640,
        umask: 0,
        uid: 7,
        gid: 8,
        device_number: 0,
        target,
    }
}

/// A little of everything, through the engine.
fn work(engine: &Engine) {
    let root = engine.root();
    let make = |dir: InodeNumber, name: &str, file_type: FileType| {
        engine
            .create(dir, name.as_bytes(), &new(file_type, b""))
            .unwrap()
            .inode
    };
    let dir = make(root, "d", FileType::Directory);
    let file = make(dir, "new", FileType::Regular);
    let old = make(root, "name", FileType::Regular);
    engine.write(old, 0, &[1; 3000]).unwrap();
    engine.write(file, 0, &[2; 5000]).unwrap();
    engine.fsync(file, false).unwrap();
    let set = SetAttributes {
        size_bytes: Some(4000),
        permissions: Some(0o600),
        uid: Some(9),
        ..SetAttributes::default()
    };
    engine.set_attributes(file, &set).unwrap();
    engine
        .rename(dir, b"new", root, b"name", RenameMode::Replace)
        .unwrap();
    // The file has no name any more, but is still open.
    engine.write(old, 3000, &[3; 100]).unwrap();
    engine.forget(old, 1);
    let other = make(root, "other", FileType::Regular);
    engine.write(other, 2000, b"behind a hole").unwrap();
    engine
        .rename(root, b"name", root, b"other", RenameMode::Exchange)
        .unwrap();
    engine.link(file, root, b"second name").unwrap();
    engine
        .create(root, b"link", &new(FileType::Symlink, b"d/other"))
        .unwrap();
    engine
        .set_xattr(file, b"user.a", b"value", SetXattrMode::Any)
        .unwrap();
    let set = SetAttributes {
        flags: Some(flags::APPEND | flags::NODUMP),
        ..SetAttributes::default()
    };
    engine.set_attributes(file, &set).unwrap();
    make(root, "gone", FileType::Regular);
    engine.unlink(root, b"gone").unwrap();
    assert!(engine.unlink(root, b"never was").is_err());
    engine.sync().unwrap();
}

fn recorded() -> (Trace, Arc<Engine>) {
    let recorder = Recorder::default();
    let engine = mounted(GEOMETRY.image(None, Ordering::SOFT).unwrap(), &recorder);
    recorder.start(None);
    work(&engine);
    recorder.stop();
    let (operations, notes) = recorder.operations();
    assert_eq!(notes, [""; 0]);
    let trace = Trace {
        geometry: GEOMETRY,
        setup: 0,
        operations,
        notes,
    };
    (trace, engine)
}

/// Everything below a directory: permissions, owners, contents.
fn tree(engine: &Engine) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut stack = vec![(engine.root(), String::new())];
    while let Some((dir, path)) = stack.pop() {
        let mut children = Vec::new();
        engine
            .read_directory(dir, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    let name = String::from_utf8_lossy(entry.name);
                    children.push((entry.inode, format!("{path}/{name}")));
                }
                true
            })
            .unwrap();
        for (inode, path) in children {
            let attributes = engine.attributes(inode).unwrap();
            let mut bytes = Vec::new();
            match attributes.file_type {
                FileType::Directory => stack.push((inode, path.clone())),
                FileType::Symlink => bytes = engine.read_link(inode).unwrap(),
                _ => engine.read(inode, 0, 1 << 20, &mut bytes).unwrap(),
            }
            let (mode, flags) = (attributes.permissions, attributes.flags);
            let links = attributes.links;
            let (uid, gid) = (attributes.uid, attributes.gid);
            let xattrs = engine.list_xattrs(inode).unwrap();
            found.insert(
                path,
                format!("{mode:o} {flags:x} {links} {uid} {gid} {xattrs:?} {bytes:?}"),
            );
        }
    }
    found
}

fn everything(optimisations: Optimisations) -> Variant {
    Variant {
        write_back: WriteBack::Always(Schedule::Everything, 0),
        optimisations,
    }
}

#[test]
fn what_was_recorded_is_done_again() {
    let (trace, engine) = recorded();
    let text = trace.to_text();
    let wanted = tree(&engine);
    assert_eq!(wanted.len(), 6, "{wanted:?}");
    let image = GEOMETRY.image(None, Ordering::SOFT).unwrap();
    for optimisations in [Optimisations::BOTH, Optimisations::NONE] {
        let mut last = None;
        let mut keep = |moment: &Moment<'_>| {
            last = Some(moment.mount.fork());
            true
        };
        let variant = everything(optimisations);
        let refused = play(&image, &trace, Ordering::SOFT, &variant, &mut keep).unwrap();
        assert_eq!(refused, [""; 0], "{text}");
        let left = last.unwrap();
        let report = usual().check(&left, &CheckOptions::default()).unwrap();
        assert_eq!(report.count(Kind::Corruption), 0);
        assert_eq!(tree(&mounted(left, &Recorder::default())), wanted, "{text}");
    }
}

#[test]
fn the_explorer_of_the_file_system_reads_a_trace_too() {
    let (trace, engine) = recorded();
    let workload = Workload {
        name: "trace".to_owned(),
        operations: trace.operations.clone(),
        setup: 0,
    };
    let mut campaign = standard::campaign(Ordering::SOFT, 1, 1);
    campaign.base = Some(GEOMETRY.image(None, Ordering::SOFT).unwrap());
    let left = campaign.after(&workload).unwrap();
    let text = trace.to_text();
    assert_eq!(
        tree(&mounted(left, &Recorder::default())),
        tree(&engine),
        "{text}"
    );
}

#[test]
fn a_cut_is_the_set_that_it_was_made_of() {
    let (trace, _engine) = recorded();
    let image = GEOMETRY.image(None, Ordering::SOFT).unwrap();
    let mut compared = 0;
    for variant in Variants::new(&trace, 3).all {
        let mut visit = |moment: &Moment<'_>| {
            let Frontier { nodes, .. } = Frontier::new(&moment.mount.store, moment.mount.fork());
            let bounds = Bounds {
                exhaustive: 64,
                samples: 16,
            };
            let mut random = fastrand::Rng::with_seed(moment.number as u64);
            closed::visit(&nodes, bounds, &mut random, &mut |included| {
                compared += 1;
                let cut = Cut::of(&nodes, included);
                assert_eq!(cut.included(&nodes).as_deref(), Some(included), "{cut:?}");
            });
            assert_eq!(Cut::Only(vec![nodes.len() as u32]).included(&nodes), None);
            true
        };
        play(&image, &trace, Ordering::SOFT, &variant, &mut visit).unwrap();
    }
    assert!(compared > 1000, "{compared}");
}

fn options(states: u64, seed: u64) -> Options {
    Options {
        ordering: Ordering::SOFT,
        check: Check {
            command: "true".into(),
            timeout: Duration::from_secs(1),
        },
        states,
        seed,
        jobs: 1,
        image: None,
        command: String::new(),
        replay_command: String::new(),
        keep: None,
        record: None,
        stop: Arc::new(AtomicBool::new(false)),
    }
}

#[test]
fn the_same_seed_chooses_the_same_states() {
    let (trace, _engine) = recorded();
    let image = GEOMETRY.image(None, Ordering::SOFT).unwrap();
    let chosen = |seed: u64| choose(&image, &trace, &options(100, seed)).unwrap().jobs;
    let first = chosen(1);
    assert_eq!(first.len(), 100);
    assert_eq!(first, chosen(1));
    assert_ne!(first, chosen(2));
}

/// A trace whose setup is the first of two scripts.
fn scripted(setup: &str, script: &str) -> Trace {
    let mut operations = parse_script(setup).unwrap();
    let setup = operations.len();
    operations.extend(parse_script(script).unwrap());
    Trace {
        geometry: GEOMETRY,
        setup,
        operations,
        notes: Vec::new(),
    }
}

/// What the file `file` holds in each of these states.
fn contents(image: &Fork, trace: &Trace, ordering: Ordering, jobs: &[Job]) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    for job in jobs {
        let mut look = |moment: &Moment<'_>| {
            if moment.number < job.place.moment {
                return true;
            }
            let mut frontier = Frontier::new(&moment.mount.store, moment.mount.fork());
            let included = job.place.cut.included(&frontier.nodes).unwrap();
            let state = frontier.states.fork(&frontier.nodes, &included);
            let engine = mounted(state, &Recorder::default());
            let inode = engine.lookup(engine.root(), b"file").unwrap().inode;
            let mut bytes = Vec::new();
            engine.read(inode, 0, 1 << 20, &mut bytes).unwrap();
            seen.insert(bytes);
            false
        };
        play(image, trace, ordering, &job.place.variant, &mut look).unwrap();
    }
    seen
}

/// A new file whose name is written back before its contents, as while the program sleeps, is
/// renamed over another one: for a while the name may lead to an empty file.
#[test]
fn a_pause_between_two_operations_is_found() {
    let trace = scripted(
        "creat file; write file 0 5; sync",
        "creat tmp; write tmp 0 9; rename tmp file",
    );
    for ordering in [Ordering::SOFT, Ordering::INTERBUFFER] {
        let image = GEOMETRY.image(None, ordering).unwrap();
        let options = Options {
            ordering,
            ..options(1_000_000, 1)
        };
        let choice = choose(&image, &trace, &options).unwrap();
        assert!(choice.is_exhaustive());
        assert_eq!((choice.once, choice.once_of), (2, 2));
        let said = explored(&options, &choice);
        let end = "six schedules of write-back, and with everything written back once, after each of 2 operations";
        assert!(
            said.starts_with("exhaustive: ") && said.ends_with(end),
            "{said}"
        );
        let lengths = |jobs: &[Job]| -> Vec<usize> {
            let found = contents(&image, &trace, ordering, jobs);
            let lengths: BTreeSet<usize> = found.iter().map(Vec::len).collect();
            lengths.into_iter().collect()
        };
        assert_eq!(lengths(&choice.jobs), [0, 5, 9], "{ordering}");
        // The states are in the order of their variants, the six schedules first.
        let is_always = |job: &Job| matches!(job.place.variant.write_back, WriteBack::Always(..));
        let always = choice.jobs.partition_point(is_always);
        let without = lengths(&choice.jobs[..always]);
        assert_eq!(without, [5, 9], "{ordering}");
    }
}

#[test]
fn a_long_program_is_not_called_exhaustive() {
    let script = "chmod file 600; fsync file; ".repeat(40);
    let trace = scripted("creat file; sync", &script);
    let image = GEOMETRY.image(None, Ordering::SOFT).unwrap();
    let options = options(1_000_000, 1);
    let choice = choose(&image, &trace, &options).unwrap();
    assert_eq!(choice.whole_moments, choice.moments);
    assert_eq!((choice.once, choice.once_of), (64, 79));
    assert!(!choice.is_exhaustive());
    let said = explored(&options, &choice);
    assert!(
        said.starts_with("sampled ") && said.ends_with("after each of 64 out of 79 operations"),
        "{said}"
    );
}
