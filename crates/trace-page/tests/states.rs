//! The states that a crash can leave, made from a trace that has the image that it began with.

use std::sync::{Arc, Mutex};

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_trace::{Recorder, Recording, Trace};
use backstitch_trace_page::{Answering, Answers, Judge, Judgement};
use backstitch_vfs::{Engine, FileType, MountOptions, NewInode};
use serde_json::{Value, json};

const SIZE_BYTES: usize = 4 << 20;

/// Keeps what it is shown.
#[derive(Default)]
struct Seen {
    image: Option<Vec<u8>>,
    last: Mutex<Vec<u8>>,
}

impl Judge for Seen {
    fn image(&self) -> Result<Option<Arc<dyn BlockDevice>>, String> {
        let device = |bytes: &Vec<u8>| {
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes.clone()));
            device
        };
        Ok(self.image.as_ref().map(device))
    }

    fn judge(&self, state: Arc<dyn BlockDevice>) -> Judgement {
        let mut bytes = vec![0; SIZE_BYTES];
        state.read(0, &mut bytes).unwrap();
        *self.last.lock().unwrap() = bytes;
        Judgement {
            check: vec!["clean".to_owned()],
            tree: vec!["d /".to_owned()],
            more_paths: 3,
            tree_error: Some("a reason".to_owned()),
        }
    }
}

/// Files are made, and some waited for: the image before, the one after, and the trace; that has the
/// image too where it `has_image`.
fn recorded(ordering: &str, has_image: bool) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let mkfs = Mkfs {
        block_size: Some(4096),
        ..Mkfs::new([3; 16], [5; 16], 1_600_000_000)
    };
    usual().make(&mkfs, &*device).unwrap();
    let options = MountOptions {
        ordering: ordering.parse().unwrap(),
        ..MountOptions::default()
    };
    let engine = Engine::mount(device.clone(), usual().layout(), &options).unwrap();
    let mut description = json!({"root": engine.root().0});
    if has_image {
        description["image_bytes"] = SIZE_BYTES.into();
    }
    let recording = Recording {
        description,
        with_contents: true,
    };
    let recorder = Arc::new(Recorder::in_memory(&recording, 64 << 20));
    let before = device.snapshot();
    if has_image {
        recorder.put_image(0, &before);
    }
    engine.watch(Some(recorder.clone()));
    for number in 0..30 {
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
        if number % 10 == 9 {
            engine.fsync(made.inode, false).unwrap();
        }
        engine.forget(made.inode, 1);
    }
    engine.unmount().unwrap();
    (before, device.snapshot(), recorder.finish())
}

fn reply(answers: &Answers<'_>, request: &str) -> (u16, Value) {
    let reply = answers.answer(request, "n");
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

#[track_caller]
fn ask(answers: &Answers<'_>, request: &str) -> Value {
    let (status, document) = reply(answers, request);
    assert_eq!(status, 200, "{request}: {document}");
    document
}

/// The blocks of 4,096 bytes in which two images differ.
fn differing(a: &[u8], b: &[u8]) -> Vec<usize> {
    let pairs = a.chunks(4096).zip(b.chunks(4096)).enumerate();
    pairs
        .filter(|(_, (a, b))| a != b)
        .map(|(at, _)| at)
        .collect()
}

#[test]
fn each_state_has_what_has_arrived_and_nothing_else() {
    for (ordering, has_image) in [("soft", true), ("soft", false), ("async", true)] {
        let (before, after, bytes) = recorded(ordering, has_image);
        let seen = Seen {
            image: (!has_image).then(|| before.clone()),
            ..Seen::default()
        };
        let trace = Trace::new(&bytes).unwrap();
        let answers = Answers::new("t.trace".to_owned(), trace).judged_by(&seen);
        let state = |record: u64, blocks: &str| {
            ask(&answers, &format!("state?record={record}&blocks={blocks}"));
            seen.last.lock().unwrap().clone()
        };
        assert!(state(0, "") == before, "{ordering}: the beginning");
        let last = ask(&answers, "about")["records"].as_u64().unwrap() - 1;
        assert!(state(last, "all") == after, "{ordering}: the end");
        let (mut at, mut batches, mut offered) = (0, 0, 0);
        loop {
            let next = ask(&answers, &format!("next?kind=batch&record={at}"))["record"].as_u64();
            let Some(record) = next else {
                break;
            };
            at = record;
            batches += 1;
            let states = ask(&answers, &format!("states?record={record}"));
            let stable = state(record, "");
            let count = states["differing"].as_u64().unwrap();
            let all = differing(&stable, &state(record, "all"));
            assert_eq!(all.len() as u64, count, "{ordering}, #{record}: {states}");
            for of in states["offered"].as_array().unwrap() {
                let blocks = of["blocks"].as_array().unwrap();
                let named: Vec<String> = blocks.iter().map(Value::to_string).collect();
                let image = state(record, &named.join(","));
                assert_eq!(differing(&stable, &image).len(), blocks.len());
                offered += 1;
            }
            let flushed = ask(&answers, &format!("next?kind=flush&record={record}"));
            if let Some(flushed) = flushed["record"].as_u64() {
                assert!(state(record, "all") == state(flushed, ""), "#{record}");
            }
        }
        assert!(
            batches > 3 && offered > 20,
            "{ordering}: {batches}, {offered}"
        );
    }
}

#[test]
fn the_words_have_the_check_and_the_tree_and_why_there_is_no_more() {
    let (_, _, bytes) = recorded("soft", true);
    let seen = Seen::default();
    let trace = Trace::new(&bytes).unwrap();
    let answers = Answers::new("t.trace".to_owned(), trace).judged_by(&seen);
    let found = ask(&answers, "state?record=0&blocks=");
    let expected = "a check finds:\n  clean\n\na mount finds:\n  d /\n  … and 3 paths more\n  and no more: a reason";
    assert_eq!(found["text"], expected);
    assert_eq!(
        reply(&answers, "state?record=0&blocks=x,99999999999").0,
        400
    );
}

#[test]
fn what_is_missing_for_it_is_said() {
    let (_, _, bytes) = recorded("soft", false);
    let seen = Seen::default();
    let trace = Trace::new(&bytes).unwrap();
    let answers = Answers::new("t.trace".to_owned(), trace.clone()).judged_by(&seen);
    let why = ask(&answers, "states?record=3");
    assert!(
        why["why_not"].as_str().unwrap().contains("--image"),
        "{why}"
    );
    // Nobody judges.
    let answers = Answers::new("t.trace".to_owned(), trace);
    assert_eq!(reply(&answers, "state?record=3").0, 400);
    // Without contents.
    let recorder = Recorder::in_memory(&Recording::default(), 1 << 20);
    let bytes = recorder.finish();
    let answers = Answers::new("t.trace".to_owned(), Trace::new(&bytes).unwrap()).judged_by(&seen);
    let why = ask(&answers, "states?record=0");
    assert!(
        why["why_not"].as_str().unwrap().contains("--contents"),
        "{why}"
    );
    // The length of an image is no reason to take memory.
    let recording = Recording {
        description: json!({"image_bytes": u64::MAX}),
        with_contents: true,
    };
    let bytes = Recorder::in_memory(&recording, 1 << 20).finish();
    let answers = Answers::new("t.trace".to_owned(), Trace::new(&bytes).unwrap()).judged_by(&seen);
    let why = ask(&answers, "states?record=0");
    assert!(
        why["why_not"].as_str().unwrap().contains("too large"),
        "{why}"
    );
}
