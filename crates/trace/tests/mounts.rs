//! Traces of mounts: replayed, shown, counted, from a ring and from a file.

use std::sync::Arc;

use backstitch_device::{BlockDevice, MemoryDevice, WriteRequest};
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_trace::graph::{By, Drawing, Drawn, Node, Wanted};
use backstitch_trace::replay::{Replayed, replay};
use backstitch_trace::show::{Filter, Lines};
use backstitch_trace::stats::Stats;
use backstitch_trace::why::wait::wait;
use backstitch_trace::{Error, Keep, Moment, Recorder, Recording, State, Trace, state_at};
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions, NewInode, RenameMode};
use serde_json::json;

const SIZE_BYTES: usize = 16 << 20;
/// More than any trace here has.
const MOST_BYTES: usize = 64 << 20;

fn image(features: &[&str]) -> Vec<u8> {
    let device = MemoryDevice::new(SIZE_BYTES);
    let mut mkfs = Mkfs {
        block_size: Some(4096),
        ..Mkfs::new([3; 16], [5; 16], 1_600_000_000)
    };
    mkfs.features = features.iter().map(|f| (*f).to_owned()).collect();
    usual().make(&mkfs, &device).unwrap();
    device.snapshot()
}

fn mount(image: &[u8], ordering: &str) -> (Arc<MemoryDevice>, Arc<Engine>) {
    let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
    let options = MountOptions {
        ordering: ordering.parse().unwrap(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(device.clone(), usual().layout(), &options).unwrap();
    (device, engine)
}

fn new(file_type: FileType) -> NewInode<'static> {
    NewInode {
        file_type,
        permissions: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: b"",
    }
}

/// A directory with files, of which some are renamed and removed.
fn work(engine: &Engine) -> InodeNumber {
    let directory = new(FileType::Directory);
    let directory = engine
        .create(engine.root(), b"src", &directory)
        .unwrap()
        .inode;
    for number in 0..60 {
        let name = format!("f{number}");
        let made = (engine.create(directory, name.as_bytes(), &new(FileType::Regular))).unwrap();
        let bytes = vec![number as u8; 700 * number];
        engine.write(made.inode, 0, &bytes).unwrap();
        if number % 7 == 0 {
            engine.fsync(made.inode, false).unwrap();
        }
        engine.forget(made.inode, 1);
    }
    for number in 0..20 {
        let name = format!("f{number}");
        match number % 2 {
            0 => engine.unlink(directory, name.as_bytes()).unwrap(),
            _ => {
                let to = format!("g{number}");
                let (from, to) = ((directory, name.as_bytes()), (directory, to.as_bytes()));
                engine
                    .rename(from.0, from.1, to.0, to.1, RenameMode::Replace)
                    .unwrap();
            }
        }
    }
    directory
}

fn recording(engine: &Engine, with_contents: bool) -> Recording {
    Recording {
        description: json!({"root": engine.root().0}),
        with_contents,
    }
}

#[test]
fn a_trace_with_contents_replays_to_the_same_image() {
    for (ordering, features) in [
        ("soft", &[][..]),
        ("async", &[]),
        ("sync", &[]),
        ("journal=ordered", &["has_journal"]),
        ("journal=full", &["has_journal"]),
    ] {
        let (device, engine) = mount(&image(features), ordering);
        engine.sync().unwrap();
        let before = device.snapshot();
        let recorder = Arc::new(Recorder::in_memory(&recording(&engine, true), MOST_BYTES));
        engine.watch(Some(recorder.clone()));
        work(&engine);
        engine.unmount().unwrap();
        drop(engine);
        let bytes = recorder.finish();
        let trace = Trace::new(&bytes).unwrap();
        let again = MemoryDevice::from_bytes(before.clone());
        let done = replay(&trace, |volume, offset_bytes, bytes| {
            assert_eq!(volume, 0);
            let buffers = vec![bytes.into()];
            let request = WriteRequest {
                offset_bytes,
                buffers,
            };
            again.submit(&[request]).map_err(|error| error.to_string())
        });
        let Replayed {
            batches, left_out, ..
        } = done.unwrap();
        assert!(batches > 0 && left_out == 0, "{ordering}: {batches}");
        assert!(again.snapshot() == device.snapshot(), "{ordering}");
        assert!(
            before != device.snapshot(),
            "{ordering}: nothing was written"
        );
    }
}

#[test]
fn the_state_knows_what_was_rolled_back() {
    for ordering in ["soft", "sync"] {
        let (_, engine) = mount(&image(&[]), ordering);
        let recorder = Arc::new(Recorder::in_memory(&recording(&engine, false), MOST_BYTES));
        engine.watch(Some(recorder.clone()));
        work(&engine);
        engine.unmount().unwrap();
        let bytes = recorder.finish();
        let trace = Trace::new(&bytes).unwrap();
        let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
        assert_eq!(state.mismatches, 0, "{ordering}");
        assert_eq!(state.patches().count(), 0, "{ordering}: all is on the disk");
        assert_eq!(replay(&trace, |_, _, _| Ok(())), Err(Error::NoContents));
        let stats = Stats::of(&trace).unwrap();
        assert_eq!(stats.operations["create"].operations, 61);
        assert_eq!(stats.operations["rename"].operations, 10);
        assert_eq!(stats.operations["remove"].operations, 10);
        assert!(stats.rounds.count() >= 9 && stats.versions > 0, "{stats:?}");
        let rolled_back: u64 = stats.rollbacks.values().sum();
        assert_eq!(
            rolled_back > 0,
            stats.versions_with_rollback > 0,
            "{stats:?}"
        );
        assert!(stats.text().contains("create"), "{}", stats.text());
    }
}

#[test]
fn what_a_file_waits_for_is_drawn_and_what_became_of_it_shown() {
    let (_, engine) = mount(&image(&[]), "soft");
    let recorder = Arc::new(Recorder::in_memory(&recording(&engine, false), MOST_BYTES));
    engine.watch(Some(recorder.clone()));
    let directory = work(&engine);
    let file = new(FileType::Regular);
    let made = engine.create(directory, b"last", &file).unwrap();
    engine.write(made.inode, 0, &[9; 10_000]).unwrap();
    // The bytes are gathered until somebody asks for the file.
    engine.attributes(made.inode).unwrap();
    let moment = Moment::Record(recorder.records() - 1);
    engine.sync().unwrap();
    let bytes = recorder.finish();
    engine.watch(None);
    engine.unmount().unwrap();
    let trace = Trace::new(&bytes).unwrap();
    let state = state_at(&trace, moment, Keep::Live).unwrap();
    let wanted = Wanted {
        path: Some("/src/last".to_owned()),
        ..Wanted::default()
    };
    let drawing = Drawing::of(&state, By::Operation, &wanted);
    let is_waiting = |node: &Node| node.drawn == Drawn::Waiting;
    assert!(drawing.nodes.iter().any(is_waiting), "{drawing:#?}");
    assert!(!drawing.edges.is_empty());
    // A patch stands under the operation that it was first made for; the name's may be older.
    let is_write = |node: &Node| node.cluster.starts_with("write /src/last");
    assert!(drawing.nodes.iter().any(is_write), "{drawing:#?}");
    let is_of_create = |node: &Node| {
        let scopes = &state.patch(node.patch).unwrap().scopes;
        let scopes = scopes.iter().filter_map(|scope| state.scope(*scope));
        scopes
            .into_iter()
            .any(|scope| scope.label == "create /src/last")
    };
    assert!(drawing.nodes.iter().any(is_of_create), "{drawing:#?}");
    let filter = Filter {
        path: Some("/src/last".to_owned()),
        ..Filter::default()
    };
    let (mut lines, mut state) = (Lines::new(filter), State::of(&trace, Keep::Live));
    let (mut records, mut list) = (trace.records(), Vec::new());
    let mut events = Vec::new();
    while let Some((number, record)) = records.next(&mut list).unwrap() {
        state.apply(&record);
        if let Some(line) = lines.line(number, &record, &state) {
            events.push(line);
        }
    }
    let has = |event: &str| events.iter().any(|line| line.json["event"] == event);
    for event in ["begin", "made", "create", "write", "commit"] {
        assert!(has(event), "{event}: {events:#?}");
    }
    let of_others = events.iter().find(|line| line.text.contains("/src/f1"));
    assert!(of_others.is_none(), "{of_others:?}");
}

#[test]
fn an_fsync_takes_as_many_rounds_as_the_answer_says() {
    let (_, engine) = mount(&image(&[]), "soft");
    let recorder = Recorder::in_memory(&recording(&engine, false), MOST_BYTES);
    let recorder = Arc::new(recorder);
    engine.watch(Some(recorder.clone()));
    work(&engine);
    engine.unmount().unwrap();
    let bytes = recorder.finish();
    let trace = Trace::new(&bytes).unwrap();
    let longest = wait(&trace, None).unwrap().unwrap();
    // The name waits for the inode.
    assert!(longest.rounds >= 2, "{}", longest.text());
    assert!(longest.ended.is_some(), "{}", longest.text());
    assert!(
        longest.batches.len() >= longest.rounds as usize,
        "{}",
        longest.text()
    );
    let same = wait(&trace, Some(longest.ticket)).unwrap().unwrap();
    assert_eq!(same.text(), longest.text());
    assert!(
        longest.text().contains("create /src/"),
        "{}",
        longest.text()
    );
}

#[test]
fn the_last_of_a_long_run_is_kept() {
    let (_, engine) = mount(&image(&[]), "soft");
    let ring = Arc::new(Recorder::of_the_last(&recording(&engine, false), 1));
    engine.watch(Some(ring.clone()));
    work(&engine);
    for number in 0..3_000 {
        let name = format!("many{number}");
        let made = engine
            .create(engine.root(), name.as_bytes(), &new(FileType::Regular))
            .unwrap();
        engine.forget(made.inode, 1);
    }
    let records = ring.records();
    let live = engine.stats().patches.live;
    let bytes = ring.finish();
    engine.watch(None);
    engine.unmount().unwrap();
    assert!(bytes.len() < 2 << 20, "{}", bytes.len());
    let trace = Trace::new(&bytes).unwrap();
    let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
    assert!(records > 20_000, "{records}");
    assert!(live > 0 && state.patches().count() > 0);
    assert_eq!(state.mismatches, 0);
}

#[test]
fn a_file_gets_the_same_bytes_as_memory() {
    let path = std::env::temp_dir().join(format!("backstitch-trace-mount-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let (_, engine) = mount(&image(&[]), "soft");
    let recorder = Recorder::into_writer(&recording(&engine, false), file).unwrap();
    let recorder = Arc::new(recorder);
    engine.watch(Some(recorder.clone()));
    work(&engine);
    engine.unmount().unwrap();
    let length = recorder.finish_writing().unwrap().bytes;
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(bytes.len() as u64, length);
    let trace = Trace::new(&bytes).unwrap();
    let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
    assert_eq!((state.records, state.mismatches), (recorder.records(), 0));
    assert_eq!(state.lost, None);
}
