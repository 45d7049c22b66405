//! What the page is told of a mount under soft updates, on which files are made, waited for and removed.

use std::sync::Arc;

use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_trace::{Keep, Recorder, Recording, State, Trace};
use backstitch_trace_page::{Answering, Answers};
use backstitch_vfs::{Engine, FileType, MountOptions, NewInode};
use serde_json::{Value, json};

/// Files that are made; of some somebody waits for them, and every third is removed.
const FILES: usize = 600;

fn recorded() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
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
    let recording = Recording {
        description: json!({"root": engine.root().0}),
        with_contents: false,
    };
    let recorder = Arc::new(Recorder::in_memory(&recording, 64 << 20));
    engine.watch(Some(recorder.clone()));
    for number in 0..FILES {
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
        if number % 50 == 9 {
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

fn answers(bytes: &[u8]) -> Answers<'_> {
    Answers::new("t.trace".to_owned(), Trace::new(bytes).unwrap())
}

fn reply(answers: &Answers<'_>, request: &str) -> (u16, Value) {
    let reply = answers.answer(request, "n");
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

fn ask(answers: &Answers<'_>, request: &str) -> Value {
    let (status, document) = reply(answers, request);
    assert_eq!(status, 200, "{request}: {document}");
    document
}

/// The text of an answer.
fn text(answers: &Answers<'_>, request: &str) -> String {
    ask(answers, request)["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_path_that_no_operation_had_is_not_said_to_be_on_the_disk() {
    let bytes = recorded();
    let answers = answers(&bytes);
    let last = ask(&answers, "about")["records"].as_u64().unwrap() - 1;
    let done = format!("why/dirty?record={last}&path=/f1");
    assert_eq!(text(&answers, &done), "all of it is on the disk");
    let made = ask(&answers, "search?text=/f40")["found"][0]["first"].clone();
    let before = made.as_u64().unwrap() - 1;
    for (record, wanted) in [
        (last, "path=/no/such"),
        (before, "path=/f40"),
        (last, "inode=987654"),
    ] {
        let (status, document) = reply(&answers, &format!("why/dirty?record={record}&{wanted}"));
        assert_eq!(status, 400, "{wanted}: {document}");
        let why = document["error"].as_str().unwrap();
        assert!(
            why.contains("no operation in the trace is about it"),
            "{why}"
        );
    }
    let (status, document) = reply(&answers, &format!("why/dirty?record={last}&patch=999999"));
    assert_eq!(status, 400, "{document}");
}

#[test]
fn of_waits_it_is_said_which_one_is_told_of() {
    let bytes = recorded();
    let answers = answers(&bytes);
    let waits = ask(&answers, "line?from=0&to=99999999")["waits"].clone();
    let (first, second) = (&waits[0], &waits[1]);
    let at = |key: &str| first[key].as_u64().unwrap();
    let during = text(&answers, &format!("why/wait?record={}", at("first")));
    assert!(
        during.starts_with(&format!("wait {} began", first["number"])),
        "{during}"
    );
    assert_eq!(
        ask(&answers, &format!("moment?record={}", at("first")))["waits"],
        json!([first["number"]])
    );
    // At the record that ends it, it is over.
    for record in [at("last"), at("last") + 1] {
        let after = text(&answers, &format!("why/wait?record={record}"));
        let next = format!(
            "nobody waits now; the next wait:\nwait {} began",
            second["number"]
        );
        assert!(after.starts_with(&next), "{after}");
    }
    let one = text(
        &answers,
        &format!("why/wait?record=0&ticket={}", second["number"]),
    );
    assert!(
        one.starts_with(&format!("wait {} began", second["number"])),
        "{one}"
    );
}

#[test]
fn what_is_before_the_damage_is_answered() {
    let bytes = recorded();
    let whole = answers(&bytes);
    let waits = ask(&whole, "line?from=0&to=99999999")["waits"].clone();
    let end = waits[0]["last"].as_u64().unwrap();
    let mut bad = bytes.clone();
    let at = bad.len() - 10;
    bad[at] ^= 1;
    let damaged = answers(&bad);
    let about = ask(&damaged, "about");
    assert!(about["damage"].is_string(), "{about}");
    assert!(about["records"].as_u64().unwrap() > end, "{about}");
    let first = ask(&whole, "next?kind=batch&record=0")["record"].clone();
    let flights = ask(&whole, &format!("moment?record={first}"))["flights"].clone();
    for request in [
        format!("why/wait?ticket={}", waits[0]["number"]),
        format!("why/written?record={end}&block={}", flights[0]["block"]),
    ] {
        let told = text(&whole, &request);
        assert!(
            told.contains("began at") || told.contains("versions were written"),
            "{told}"
        );
        assert_eq!(text(&damaged, &request), told, "{request}");
    }
}

#[test]
fn of_a_run_each_block_can_be_looked_at() {
    let bytes = recorded();
    let trace = Trace::new(&bytes).unwrap();
    let (mut records, mut list) = (trace.records(), Vec::new());
    let mut state = State::of(&trace, Keep::Live);
    let mut passed = 0;
    let run = loop {
        let (_, record) = records.next(&mut list).unwrap().unwrap();
        state.apply(&record);
        let mut patches = state.patches();
        if let Some((number, patch)) = patches.find(|(_, patch)| patch.parts.len() > 1) {
            break (number, patch.parts.len());
        }
        passed += 1;
    };
    let answers = answers(&bytes);
    let block = ask(&answers, &format!("block?record={passed}&patch={}", run.0));
    assert_eq!(block["blocks_count"], run.1, "{block}");
    for named in block["blocks"].as_array().unwrap() {
        let one = format!("block?record={passed}&patch={}&block={}", run.0, named[0]);
        let one = ask(&answers, &one);
        assert_eq!((&one["block"], &one["name"]), (&named[0], &named[1]));
        let patches = one["patches"].as_array().unwrap();
        let here = patches
            .iter()
            .find(|patch| patch["patch"] == run.0)
            .unwrap();
        // Which change of the run is in this block is not known.
        assert_eq!(
            (&here["is_whole_block"], &here["ranges"]),
            (&true.into(), &json!([]))
        );
    }
}
