//! An index says of each moment what reading from the beginning says.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_trace::graph::{By, Drawing, Wanted};
use backstitch_trace::index::{Bounds, Density, Index, Kind, Line, Span, Tail, graph};
use backstitch_trace::{
    CHUNK_HEAD_BYTES, Error, HEAD_BYTES, Keep, Recorder, Recording, State, Trace,
};
use backstitch_vfs::{Engine, FileType, MountOptions, NewInode};
use serde_json::{Value, json};

const SIZE_BYTES: usize = 16 << 20;
const MOST_BYTES: usize = 64 << 20;

/// A mount under soft updates on which files are made, written and removed; one of so many is waited
/// for.
fn trace(recorder: impl Fn(&Recording) -> Recorder, files: usize, synced: usize) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let mkfs = Mkfs {
        block_size: Some(4096),
        ..Mkfs::new([3; 16], [5; 16], 1_600_000_000)
    };
    usual().make(&mkfs, &*device).unwrap();
    let options = MountOptions {
        ordering: "soft".parse().unwrap(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(device, usual().layout(), &options).unwrap();
    let recorder = Arc::new(recorder(&Recording {
        description: json!({"root": engine.root().0}),
        with_contents: false,
    }));
    engine.watch(Some(recorder.clone()));
    for number in 0..files {
        let name = format!("f{number}");
        let new = NewInode {
            file_type: FileType::Regular,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: b"",
        };
        let made = engine.create(engine.root(), name.as_bytes(), &new).unwrap();
        engine.write(made.inode, 0, &[7; 5000]).unwrap();
        if number % synced == 9 {
            engine.fsync(made.inode, false).unwrap();
        }
        engine.forget(made.inode, 1);
        if number % 3 == 0 {
            engine.unlink(engine.root(), name.as_bytes()).unwrap();
        }
    }
    engine.unmount().unwrap();
    recorder.finish()
}

fn whole(files: usize) -> Vec<u8> {
    let recorder = |recording: &Recording| Recorder::in_memory(recording, MOST_BYTES);
    trace(recorder, files, 50)
}

fn picture(state: &State) -> (Value, String, usize) {
    let drawing = Drawing::of(state, By::Operation, &Wanted::default());
    (
        drawing.json(),
        format!("{:?}", state.time),
        state.patches_count(),
    )
}

#[test]
fn each_moment_is_what_reading_from_the_beginning_says_in_whatever_order_they_are_asked_for() {
    let bytes = whole(1200);
    let trace = Trace::new(&bytes).unwrap();
    let usual = Density::default();
    let count = Index::of(trace.clone()).records();
    assert!(count > 10_000, "{count} records");
    let few = Density {
        most: 5,
        first_distance: 100,
        ..usual
    };
    let light = Density {
        first_distance: 500,
        most_weight: 3000,
        ..usual
    };
    for density in [usual, few, light] {
        let mut index = Index::with(trace.clone(), density);
        let places: Vec<u64> = index.checkpoints().collect();
        let distance = places[1] - places[0];
        assert!(places.windows(2).all(|two| two[1] - two[0] == distance));
        assert!(places.len() - 1 <= density.most);
        // The denser ones have been thinned out, for their number and for their weight.
        let is_thin = distance > density.first_distance && places.len() > 2;
        assert_eq!(
            is_thin,
            density.first_distance < usual.first_distance,
            "{places:?}"
        );
        agrees_in_any_order(&trace, &mut index);
    }
}

fn agrees_in_any_order(trace: &Trace<'_>, index: &mut Index<'_>) {
    let count = index.records();
    let mut wanted: Vec<u64> = (0..40).map(|n| n * (count - 1) / 39).collect();
    // Steps on, steps back, and one that is asked for again.
    wanted.extend([
        5000, 5001, 5002, 5003, 5002, 5001, 5000, 4999, 4999, 0, 1, 0,
    ]);
    let mut sorted = wanted.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let mut expected = std::collections::BTreeMap::new();
    let mut state = State::of(trace, Keep::Live);
    let (mut records, mut list, mut passed) = (trace.records(), Vec::new(), 0);
    while let Some((_, record)) = records.next(&mut list).unwrap() {
        state.apply(&record);
        if sorted.binary_search(&passed).is_ok() {
            expected.insert(passed, picture(&state));
        }
        passed += 1;
    }
    assert_eq!(passed, count);
    assert!(expected.values().any(|(_, _, patches)| *patches > 20));
    for record in wanted {
        let found = picture(index.state_after(record));
        assert!(found == expected[&record], "after record {record}");
    }
    // Words of records do not disturb what follows.
    let words = index.words(5000, 10);
    assert_eq!(index.number_of(5000), 5000);
    assert!(!words.is_empty() && words.iter().all(|(at, _, _)| (4991..=5000).contains(at)));
    assert!(picture(index.state_after(5001)) == expected[&5001]);
    assert!(picture(index.state_after(u64::MAX)) == expected[&(count - 1)]);
}

#[test]
fn steps_back_seldom_begin_from_far_away() {
    const STEPS: u64 = 1000;
    let bytes = whole(1200);
    let mut index = Index::of(Trace::new(&bytes).unwrap());
    let from = 8000;
    assert!(index.records() > from);
    for record in (from - STEPS..=from).rev() {
        index.state_after(record);
    }
    // Some walks from the beginning, and from there on short ones.
    let most = STEPS * 256 + (2 + STEPS / 256) * from;
    assert!(index.walked() < most, "{} records", index.walked());
}

#[test]
fn what_is_ready_is_found_in_one_pass() {
    let bytes = whole(60);
    let trace = Trace::new(&bytes).unwrap();
    let mut state = State::of(&trace, Keep::Live);
    let (mut records, mut list) = (trace.records(), Vec::new());
    let (mut ready, mut waiting) = (0, 0);
    while let Some((number, record)) = records.next(&mut list).unwrap() {
        state.apply(&record);
        if number % 17 != 0 {
            continue;
        }
        let all = state.ready();
        for (patch, _) in state.patches() {
            assert_eq!(
                all.contains(&patch),
                state.is_ready(patch),
                "p{patch} after #{number}"
            );
            *if all.contains(&patch) {
                &mut ready
            } else {
                &mut waiting
            } += 1;
        }
    }
    assert!(
        ready > 100 && waiting > 100,
        "{ready} ready, {waiting} waiting"
    );
}

#[test]
fn the_time_line_has_every_operation_and_puts_neighbours_together() {
    let bytes = whole(120);
    let index = Index::of(Trace::new(&bytes).unwrap());
    let line = index.line();
    let creates = line.search("create", 0, usize::MAX);
    assert_eq!(creates.len(), 120);
    assert_eq!(
        line.search("/f77", 0, usize::MAX).len(),
        2,
        "create and write"
    );
    assert_eq!(line.search("/f77", creates[80].first, 10), [] as [&_; 0]);
    assert_eq!(
        line.spans(Kind::Wait)
            .iter()
            .filter(|of| of.last.is_some())
            .count(),
        line.spans(Kind::Wait).len()
    );
    let all = line.page(0, index.records(), usize::MAX);
    let operations = line.spans(Kind::Operation);
    assert_eq!(
        all["operations"].as_array().unwrap().len(),
        operations.len()
    );
    let few = line.page(0, index.records(), 10);
    let few = few["operations"].as_array().unwrap();
    assert!(few.len() <= 10);
    let counts = few.iter().map(|of| of["count"].as_u64().unwrap_or(1));
    assert_eq!(counts.sum::<u64>(), operations.len() as u64);
    // From one to the next and back.
    let second = operations[1].last.unwrap();
    let third = line.next(Kind::Operation, second, false).unwrap();
    assert_eq!(third, operations[2].last.unwrap());
    assert_eq!(line.next(Kind::Operation, third, true), Some(second));
    assert_eq!(line.next(Kind::Operation, 0, true), None);
    let flush = line.next_flush(0, false).unwrap();
    let batch = &line.spans(Kind::Batch)[0];
    assert_eq!(flush, batch.settled.unwrap());
    assert!(flush > batch.last.unwrap(), "commits follow a flush");
}

#[test]
fn the_most_that_was_not_on_the_disk_is_on_the_time_line_however_much_of_it_is_shown() {
    let bytes = whole(1200);
    let trace = Trace::new(&bytes).unwrap();
    let (mut state, mut records, mut list) =
        (State::of(&trace, Keep::Live), trace.records(), vec![]);
    let mut counts = Vec::new();
    while let Some((_, record)) = records.next(&mut list).unwrap() {
        state.apply(&record);
        counts.push(state.pending_count() as u64);
    }
    let mut index = Index::of(trace);
    let all = index.page(0, index.records(), 10);
    let all = all["not_on_disk"].as_array().unwrap();
    assert!(all.len() <= 1024 && all.len() > 500, "{}", all.len());
    let most = all.iter().map(|of| of[1].as_u64().unwrap()).max();
    assert_eq!(most, counts.iter().copied().max());
    // Nearer: each record.
    for from in [0, 5000, 5001, index.records() - 51] {
        let page = index.page(from, from + 50, 10);
        let near = page["not_on_disk"].as_array().unwrap();
        let expected = (from..=from + 50).map(|at| json!([at, counts[at as usize]]));
        assert_eq!(*near, expected.collect::<Vec<_>>(), "from {from}");
    }
    // In between: neighbours on both sides.
    let page = index.page(3001, 7101, 10);
    let samples = page["not_on_disk"].as_array().unwrap();
    let at = |of: Option<&Value>| of.unwrap()[0].as_u64().unwrap();
    assert!(
        at(samples.first()) < 3001 && at(samples.last()) > 7101,
        "{samples:?}"
    );
}

#[test]
fn what_is_too_much_to_draw_is_put_together() {
    let recorder = |recording: &Recording| Recorder::in_memory(recording, MOST_BYTES);
    let bytes = trace(recorder, 1500, usize::MAX);
    let mut index = Index::of(Trace::new(&bytes).unwrap());
    let samples = index.line().page(0, index.records(), 1);
    let samples = samples["not_on_disk"].as_array().unwrap();
    let most = samples.iter().max_by_key(|of| of[1].as_u64()).unwrap();
    let (record, patches) = (most[0].as_u64().unwrap(), most[1].as_u64().unwrap());
    assert!(patches > 1000, "{patches}");
    let state = index.state_after(record);
    let all = graph(state, By::Block, &Wanted::default(), None);
    let clusters = all["clusters"].as_array().unwrap();
    let counts = clusters
        .iter()
        .flat_map(|of| of["counts"].as_object().unwrap().values());
    let counted: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
    let left_out = all["patches_left_out"].as_u64().unwrap();
    assert_eq!(counted + left_out, patches);
    assert!(!all["ways"].as_array().unwrap().is_empty());
    // One of them, patch by patch.
    let largest = &clusters[0];
    let one = graph(
        state,
        By::Block,
        &Wanted::default(),
        largest["cluster"].as_u64(),
    );
    let nodes = one["nodes"].as_array().unwrap();
    let name = &largest["name"];
    assert!(nodes.iter().any(|node| node["cluster"] == *name), "{name}");
    assert!(nodes.len() <= 1000);
}

#[test]
fn a_recording_of_the_end_only_has_its_own_numbers() {
    let recorder = |recording: &Recording| Recorder::of_the_last(recording, 200_000);
    let bytes = trace(recorder, 1500, 50);
    let mut index = Index::of(Trace::new(&bytes).unwrap());
    assert!(index.damage().is_none());
    let last = index.records() - 1;
    let words = index.words(last, 5);
    let (at, number, _) = words.last().unwrap();
    assert!(number > at, "what is not kept was counted: #{number}");
    assert_eq!(index.number_of(*at), *number);
    assert_eq!(index.state_after(last).patches_count(), 0);
}

#[test]
fn what_is_before_the_damage_can_be_looked_at() {
    let bytes = whole(1200);
    let records = Index::of(Trace::new(&bytes).unwrap()).records();
    let mut bad = bytes.clone();
    let at = bad.len() / 2;
    bad[at] ^= 1;
    let mut index = Index::of(Trace::new(&bad).unwrap());
    assert!(matches!(index.damage(), Some(Error::Damaged { .. })));
    let readable = index.records();
    assert!(
        readable > 0 && readable < records,
        "{readable} of {records}"
    );
    let mut good = Index::of(Trace::new(&bytes).unwrap());
    for record in [0, readable / 2, readable - 1] {
        assert!(picture(index.state_after(record)) == picture(good.state_after(record)));
    }
    let cut = Index::of(Trace::new(&bytes[..bytes.len() - 9]).unwrap());
    assert!(cut.is_cut() && cut.damage().is_none());
}

/// The head of a trace, and its chunks.
fn chunks(bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let head = HEAD_BYTES + number(12);
    let (mut at, mut chunks) = (head, Vec::new());
    while at < bytes.len() {
        let end = at + CHUNK_HEAD_BYTES + number(at + 8);
        chunks.push(bytes[at..end].to_vec());
        at = end;
    }
    (bytes[..head].to_vec(), chunks)
}

#[test]
fn the_last_of_a_recording_is_complete_at_each_moment_that_is_kept() {
    let bytes = whole(1800);
    let mut all = Index::of(Trace::new(&bytes).unwrap());
    let (head, chunks) = chunks(&bytes);
    assert!(chunks.len() > 3, "{} chunks", chunks.len());
    let most_bytes = chunks[0].len() * 2;
    let bounds = Bounds {
        most_bytes,
        most_time: Duration::MAX,
    };
    let mut tail = Tail::new(head, bounds).unwrap();
    let mut forgotten = 0;
    for chunk in chunks {
        tail.take(chunk).unwrap();
        assert!(tail.kept_bytes() <= most_bytes);
        let last = tail.records() - 1;
        assert!(picture(tail.end()) == picture(all.state_after(last)));
        let snapshot = tail.snapshot();
        assert_eq!(snapshot.first(), tail.first());
        let mut index = Index::of(snapshot.trace().unwrap());
        assert_eq!(index.records(), tail.records() - tail.first());
        for share in 0..5 {
            let record = share * (index.records() - 1) / 4;
            let there = tail.first() + record;
            let found = picture(index.state_after(record));
            assert!(found == picture(all.state_after(there)), "#{there}");
            assert_eq!(index.number_of(record), there);
        }
        // Of the time line what is kept is the same, and what is older is not there much longer.
        let is_kept = |of: &&Span| of.first >= tail.first() && of.last.is_some_and(|at| at <= last);
        for kind in [Kind::Operation, Kind::Batch, Kind::Wait] {
            let spans = |line: &Line| -> Vec<Span> {
                line.spans(kind).iter().filter(is_kept).cloned().collect()
            };
            assert_eq!(spans(tail.line()), spans(all.line()), "{kind:?}");
        }
        let operations = tail.line().spans(Kind::Operation);
        let old = operations.iter().filter(|of| of.first < tail.first());
        let (old, count) = (old.count(), operations.len());
        assert!(old <= count * 3 / 4, "{old} of {count} spans are forgotten");
        forgotten = tail.first();
    }
    assert!(forgotten > all.records() / 4, "{forgotten}");
}

#[test]
fn what_is_older_than_a_time_is_forgotten_and_damage_is_told_of() {
    let (head, chunks) = chunks(&whole(1800));
    let bounds = Bounds {
        most_bytes: usize::MAX,
        most_time: Duration::ZERO,
    };
    let mut tail = Tail::new(head.clone(), bounds).unwrap();
    for chunk in &chunks {
        tail.take(chunk.clone()).unwrap();
    }
    assert_eq!(tail.kept_bytes(), chunks[chunks.len() - 1].len());
    let mut tail = Tail::new(head, bounds).unwrap();
    let mut bad = chunks[0].clone();
    bad[CHUNK_HEAD_BYTES + 100] ^= 1;
    assert!(matches!(tail.take(bad), Err(Error::Damaged { .. })));
    assert!(Tail::new(b"BSTRACE".to_vec(), bounds).is_err());
}
