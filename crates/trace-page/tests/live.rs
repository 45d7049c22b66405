//! What the page is told of a recording that goes on.

use backstitch_store::{Happening, Scope, Watcher};
use backstitch_trace::{CHUNK_HEAD_BYTES, HEAD_BYTES, Recorder, Recording};
use backstitch_trace_page::{Answering, Live};
use serde_json::{Value, json};
use std::time::Duration;

const MOST_BYTES: usize = 64 << 20;

/// A recording of this many operations, so many milliseconds apart, with names of so many bytes: its
/// head and its chunks.
fn recording(operations: u64, apart: u64, name_bytes: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let recording = Recording {
        description: json!({"root": 2}),
        with_contents: false,
    };
    let recorder = Recorder::in_memory(&recording, MOST_BYTES);
    for number in 0..operations {
        let name = format!("{number:0>name_bytes$}");
        let scope = Scope {
            word: "create",
            objects: &[2],
            names: &[name.as_bytes()],
            range_bytes: (0, 0),
        };
        let now = Duration::from_millis(number * apart);
        recorder.happened(&Happening::Begin(now, scope));
        recorder.happened(&Happening::Made(10 + number));
        recorder.happened(&Happening::End);
    }
    let bytes = recorder.finish();
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

fn reply(live: &Live, request: &str) -> (u16, Value) {
    let reply = live.answer(request, "n");
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

#[track_caller]
fn ask(live: &Live, request: &str) -> Value {
    let (status, document) = reply(live, request);
    assert_eq!(status, 200, "{request}: {document}");
    document
}

#[test]
fn before_anything_has_happened_there_is_nothing_to_halt() {
    let live = Live::new("/mnt".to_owned());
    assert_eq!(ask(&live, "about")["name"], "/mnt");
    assert_eq!(ask(&live, "live")["records"], 0);
    assert_eq!(reply(&live, "halt").0, 400);
    assert_eq!(reply(&live, "moment?record=0").0, 404);
    assert_eq!(reply(&live, "at/1/about").0, 400);
    assert!(live.take(vec![1; 100]).is_err());
    let (head, chunks) = recording(10, 1000, 4);
    live.begin(head).unwrap();
    assert_eq!(reply(&live, "halt").0, 400);
    live.take(chunks[0].clone()).unwrap();
    assert_eq!(ask(&live, "halt")["halted"], 1);
    assert!(live.take(vec![1; 100]).is_err());
    let page = live.answer("", "n");
    assert!(page.kind.starts_with("text/html"));
}

#[test]
fn the_last_minute_is_kept_and_a_second_recording_begins_anew() {
    // One chunk has some 64 operations, and so 32 seconds.
    let (head, chunks) = recording(400, 500, 1000);
    let live = Live::new("/mnt".to_owned());
    live.begin(head.clone()).unwrap();
    for chunk in &chunks {
        live.take(chunk.clone()).unwrap();
    }
    let told = ask(&live, "live");
    let seconds = told["seconds"].as_f64().unwrap();
    assert!((30.0..100.0).contains(&seconds), "{seconds}");
    let last = told["operations"].as_array().unwrap().last().unwrap()[1].clone();
    assert!(last.as_str().unwrap().ends_with("0399"), "{last}");
    let halted = ask(&live, "halt");
    assert_eq!(halted["first"], told["first"]);
    let about = ask(&live, &format!("at/{}/about", halted["halted"]));
    let records = about["records"].as_u64().unwrap();
    assert_eq!(
        records,
        told["records"].as_u64().unwrap() - told["first"].as_u64().unwrap()
    );
    let first = ask(&live, &format!("at/{}/moment?record=0", halted["halted"]));
    assert_eq!(first["number"], told["first"]);
    live.begin(head).unwrap();
    live.take(chunks[0].clone()).unwrap();
    let again = ask(
        &live,
        &format!("live?since={}&recording=1", told["records"]),
    );
    assert_eq!(
        (&again["recording"], &again["first"]),
        (&2.into(), &0.into())
    );
    // What was halted before stays.
    ask(&live, &format!("at/{}/moment?record=0", halted["halted"]));
    live.end("it is over");
    assert_eq!(ask(&live, "live")["ended"], "it is over");
}

#[test]
fn what_is_kept_of_much_at_once_has_a_bound() {
    let (head, chunks) = recording(3000, 1, 20_000);
    let live = Live::new("/mnt".to_owned());
    live.begin(head).unwrap();
    let most = ask(&live, "about")["bounds"]["bytes"].as_u64().unwrap();
    let all: usize = chunks.iter().map(Vec::len).sum();
    assert!(all as u64 > 2 * most, "{all} bytes");
    for chunk in chunks {
        live.take(chunk).unwrap();
    }
    let told = ask(&live, "live");
    let kept = told["records"].as_u64().unwrap() - told["first"].as_u64().unwrap();
    // Time, begin, made and end: four records of 20,000 bytes.
    assert!(kept / 4 * 20_000 <= most, "{kept} records");
    let operations = told["line"]["operations"].as_array().unwrap();
    assert!(!operations.is_empty());
}
