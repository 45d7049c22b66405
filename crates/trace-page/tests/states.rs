//! The states that a crash can leave, made from a trace that has the image that it began with.

use std::sync::{Arc, Mutex};

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_formats::usual;
use backstitch_layout::tools::{Mkfs, MkfsJournal};
use backstitch_trace::{Recorder, Recording, Trace};
use backstitch_trace_page::{Answering, Answers, Devices, Judge, Judgement};
use backstitch_vfs::{Engine, FileType, MountOptions, NewInode, Ordering};
use backstitch_wafs::Wafs;
use serde_json::{Value, json};

/// The image in whole blocks; a mount's device is a bit longer.
const SIZE_BYTES: usize = 4 << 20;
const BLOCK_BYTES: u32 = 4096;
const TAIL_BYTES: usize = 512;
/// The log's device, where it is another one.
const LOG_BYTES: usize = 5 << 20;

/// Keeps what it is shown: the image in whole blocks, and behind it the log.
#[derive(Default)]
struct Seen {
    beginning: Option<Vec<u8>>,
    last: Mutex<Vec<u8>>,
}

impl Judge for Seen {
    fn beginning(&self) -> Result<Option<Devices>, String> {
        let devices = |bytes: &Vec<u8>| {
            let (image, log) = bytes.split_at(SIZE_BYTES);
            let image = [image, &[0; TAIL_BYTES]].concat();
            let of = |bytes: Vec<u8>| -> Arc<dyn BlockDevice> {
                Arc::new(MemoryDevice::from_bytes(bytes))
            };
            Devices {
                image: of(image),
                log: (!log.is_empty()).then(|| of(log.to_vec())),
                block_bytes: BLOCK_BYTES,
            }
        };
        Ok(self.beginning.as_ref().map(devices))
    }

    fn judge(&self, state: &Devices) -> Judgement {
        let mut bytes = vec![0; SIZE_BYTES];
        state.image.read(0, &mut bytes).unwrap();
        if let Some(log) = &state.log {
            let mut log_bytes = vec![0; LOG_BYTES];
            log.read(0, &mut log_bytes).unwrap();
            bytes.extend(log_bytes);
        }
        *self.last.lock().unwrap() = bytes;
        Judgement {
            check: vec!["clean".to_owned()],
            tree: vec!["d /".to_owned()],
            more_paths: 3,
            tree_error: Some("a reason".to_owned()),
        }
    }
}

/// What a mount writes to.
struct Disks {
    image: Arc<MemoryDevice>,
    log: Option<Arc<MemoryDevice>>,
}

impl Disks {
    /// An empty file system, with its log apart where the ordering is said to have it there.
    fn made(ordering: Ordering, is_apart: bool) -> Disks {
        let image = Arc::new(MemoryDevice::new(SIZE_BYTES + TAIL_BYTES));
        let log = is_apart.then(|| Arc::new(MemoryDevice::new(LOG_BYTES)));
        let mut mkfs = Mkfs {
            block_size: Some(BLOCK_BYTES),
            ..Mkfs::new([3; 16], [5; 16], 1_600_000_000)
        };
        match &log {
            Some(log) if ordering.needs_log_device() => Wafs::make(&**log, [11; 16], 1).unwrap(),
            Some(log) => {
                let journal = MkfsJournal {
                    block_size: Some(BLOCK_BYTES),
                    device_is_zero: true,
                    ..MkfsJournal::new([11; 16], 1_600_000_000)
                };
                let made = usual().make_journal(&journal, &**log).unwrap();
                mkfs.journal_uuid = Some(made.uuid);
                mkfs.features.push("has_journal".to_owned());
                usual().attach_journal(&**log, [3; 16]).unwrap();
            }
            None => {}
        }
        usual().make(&mkfs, &*image).unwrap();
        Disks { image, log }
    }

    /// As [`Seen`] has it.
    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = self.image.snapshot();
        bytes.truncate(SIZE_BYTES);
        bytes.extend(self.log.iter().flat_map(|log| log.snapshot()));
        bytes
    }

    fn mounted(&self, ordering: Ordering) -> Arc<Engine> {
        let options = MountOptions {
            ordering,
            ..MountOptions::default()
        };
        let log = self.log.clone().map(|log| log as _);
        let layout = usual().layout();
        Engine::mount_with_journal(self.image.clone(), log, layout, &options).unwrap()
    }
}

/// How something is recorded.
#[derive(Clone, Copy, Debug)]
struct Kind {
    ordering: &'static str,
    /// The log is on a device of its own.
    is_apart: bool,
    /// The trace has what it began with.
    has_image: bool,
}

const SOFT: Kind = Kind {
    ordering: "soft",
    is_apart: false,
    has_image: true,
};

/// Files are made, and some waited for: the disks before, those after, and the trace.
fn recorded(kind: Kind) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let ordering = kind.ordering.parse().unwrap();
    let disks = Disks::made(ordering, kind.is_apart);
    let engine = disks.mounted(ordering);
    let mut description = json!({"root": engine.root().0});
    if kind.has_image {
        description["image_bytes"] = SIZE_BYTES.into();
        if kind.is_apart {
            description["log_bytes"] = LOG_BYTES.into();
        }
    }
    let recording = Recording {
        description,
        with_contents: true,
    };
    let recorder = Arc::new(Recorder::in_memory(&recording, 64 << 20));
    let before = disks.snapshot();
    if kind.has_image {
        recorder.put_image(&before);
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
    (before, disks.snapshot(), recorder.finish())
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
    let kinds = [
        ("soft", false, true),
        ("soft", false, false),
        ("async", false, true),
        ("journal=ordered", true, true),
        ("journal=ordered", true, false),
        ("lffs-wafs=2sync", true, true),
        ("lffs-wafs=2sync", true, false),
    ];
    for (ordering, is_apart, has_image) in kinds {
        let kind = Kind {
            ordering,
            is_apart,
            has_image,
        };
        let (before, after, bytes) = recorded(kind);
        let seen = Seen {
            beginning: (!has_image).then(|| before.clone()),
            ..Seen::default()
        };
        let trace = Trace::new(&bytes).unwrap();
        let answers = Answers::new("t.trace".to_owned(), trace).judged_by(&seen);
        let state = |record: u64, blocks: &str| {
            ask(&answers, &format!("state?record={record}&blocks={blocks}"));
            seen.last.lock().unwrap().clone()
        };
        assert!(state(0, "") == before, "{kind:?}: the beginning");
        let last = ask(&answers, "about")["records"].as_u64().unwrap() - 1;
        assert!(state(last, "all") == after, "{kind:?}: the end");
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
            assert_eq!(all.len() as u64, count, "{kind:?}, #{record}: {states}");
            for of in states["offered"].as_array().unwrap() {
                let blocks = of["blocks"].as_array().unwrap();
                let named: Vec<String> = blocks.iter().map(Value::to_string).collect();
                let image = state(record, &named.join(","));
                assert_eq!(differing(&stable, &image).len(), blocks.len());
                offered += 1;
            }
            let flushed = ask(&answers, &format!("next?kind=flush&record={record}"));
            if let Some(flushed) = flushed["record"].as_u64() {
                assert!(
                    state(record, "all") == state(flushed, ""),
                    "{kind:?}, #{record}"
                );
            }
        }
        assert!(
            batches > 3 && offered > 20,
            "{kind:?}: {batches}, {offered}"
        );
    }
}

#[test]
fn the_words_have_the_check_and_the_tree_and_why_there_is_no_more() {
    let (_, _, bytes) = recorded(SOFT);
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
    let kind = Kind {
        has_image: false,
        ..SOFT
    };
    let (_, _, bytes) = recorded(kind);
    let seen = Seen::default();
    let trace = Trace::new(&bytes).unwrap();
    let answers = Answers::new("t.trace".to_owned(), trace.clone()).judged_by(&seen);
    let why = ask(&answers, "states?record=3");
    assert!(
        why["why_not"].as_str().unwrap().contains("--image"),
        "{why}"
    );
    // A log elsewhere that was not named.
    let kind = Kind {
        ordering: "journal=ordered",
        is_apart: true,
        has_image: false,
    };
    let (mut before, _, logged) = recorded(kind);
    before.truncate(SIZE_BYTES);
    let image_only = Seen {
        beginning: Some(before),
        ..Seen::default()
    };
    let logged = Trace::new(&logged).unwrap();
    let answers_without = Answers::new("t.trace".to_owned(), logged).judged_by(&image_only);
    let last = ask(&answers_without, "about")["records"].as_u64().unwrap() - 1;
    let why = ask(&answers_without, &format!("states?record={last}"));
    assert!(
        why["why_not"].as_str().unwrap().contains("--log-device"),
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
