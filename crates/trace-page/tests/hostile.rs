//! Whatever a trace holds and whatever is asked, the answer is one, and of a bounded length.

use std::time::{Duration, Instant};

use backstitch_trace::{CHUNK_HEAD_BYTES, CHUNK_MAGIC, MAGIC, Trace, VERSION};
use backstitch_trace_page::{Answering, Answers};
use proptest::prelude::*;
use serde_json::Value;

/// A thousand patches, each with the words for an operation of the longest kind.
const MOST_REPLY_BYTES: usize = 16 << 20;
/// For all questions about one trace, on a busy machine and without optimisation.
const MOST_TIME: Duration = Duration::from_secs(120);

const QUESTIONS: [&str; 20] = [
    "about",
    "line?from=0&to=99999999",
    "line?from={r}&to={n}",
    "next?kind=operation&record={r}",
    "next?kind=flush&record={r}&back=1",
    "search?text=/",
    "moment?record={r}",
    "moment?record={r}&by=operation",
    "moment?record={r}&cluster={n}",
    "moment?record={r}&patch={n}",
    "records?record={r}",
    "block?record={r}&block={n}",
    "block?record={r}&patch={n}",
    "why/dirty?record={r}",
    "why/dirty?record={r}&path=/x",
    "why/wait?record={r}",
    "why/written?record={r}&block={n}",
    "why/written?record={r}&number={n}",
    "why/crash?record={r}&with={n}&without=1",
    "why/cut?record={r}&blocks=all&patches={n}",
];

/// A trace of these records, whose checksums are right.
fn trace_of(body: &[u8], records: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    let description = br#"{"root":2}"#;
    bytes.extend((description.len() as u32).to_le_bytes());
    bytes.extend(description);
    let mut chunk = vec![0; CHUNK_HEAD_BYTES];
    chunk[0..4].copy_from_slice(&CHUNK_MAGIC);
    chunk[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    chunk[12..16].copy_from_slice(&records.to_le_bytes());
    chunk.extend(body);
    let sum = crc32c::crc32c(&chunk[8..]);
    chunk[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes.extend(chunk);
    bytes
}

/// Asks everything, and gives the answers.
fn ask_all(bytes: &[u8], records: &[u64], numbers: &[u64]) -> Vec<Value> {
    let answers = Answers::new("t".to_owned(), Trace::new(bytes).unwrap());
    let began = Instant::now();
    let mut all = Vec::new();
    for question in QUESTIONS {
        for (record, number) in records.iter().zip(numbers.iter().cycle()) {
            let question = question.replace("{r}", &record.to_string());
            let question = question.replace("{n}", &number.to_string());
            let reply = answers.answer(&question, "n");
            assert!(
                matches!(reply.status, 200 | 400),
                "{question}: {}",
                reply.status
            );
            let len = reply.body.len();
            assert!(len <= MOST_REPLY_BYTES, "{question}: {len} bytes");
            all.push(serde_json::from_slice(&reply.body).unwrap());
        }
    }
    assert!(began.elapsed() < MOST_TIME, "{:?}", began.elapsed());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_records_and_any_numbers(body in prop::collection::vec(prop_oneof![
        3 => 0u8..28,
        1 => any::<u8>(),
    ], 0..200), count in 0u32..80, number in any::<u64>()) {
        ask_all(&trace_of(&body, count), &[0, 7, u64::MAX], &[0, 1, 2, 5, number]);
    }

    #[test]
    fn any_question(question in "(moment|line|block|why/cut|why/wait|next)\\?[a-z=&,%0-9]{0,60}") {
        let bytes = trace_of(&[3, 3, 3], 3);
        let answers = Answers::new("t".to_owned(), Trace::new(&bytes).unwrap());
        let status = answers.answer(&question, "n").status;
        prop_assert!(matches!(status, 200 | 400), "{}", status);
    }
}

/// A number as a record has it.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A new soft patch of block 0 that changes one byte.
const CREATE: [u8; 8] = [5, 0, 0, 1, 1, 0, 1, 0];

#[test]
fn a_block_that_is_written_very_often_without_very_many_patches_takes_no_room() {
    const EACH: usize = 500;
    let mut body = CREATE.repeat(EACH);
    // Written with nothing.
    body.extend([15, 0, 0, 0].repeat(EACH));
    let bytes = trace_of(&body, 2 * EACH as u32);
    let last = 2 * EACH as u64 - 1;
    ask_all(&bytes, &[last], &[0]);
    let answers = Answers::new("t".to_owned(), Trace::new(&bytes).unwrap());
    let reply = answers.answer(&format!("why/written?record={last}&block=0"), "n");
    let document: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(document["answer"]["count"], EACH, "{document}");
    let text = document["text"].as_str().unwrap();
    assert!(text.contains(" and 450 more"), "{text}");
    assert!(reply.body.len() < 20_000, "{} bytes", reply.body.len());
}

#[test]
fn very_long_chains_and_very_many_edges_are_told_in_part() {
    const PATCHES: u64 = 3000;
    let (mut body, mut records) = (Vec::new(), 0);
    for patch in 1..=PATCHES {
        // Every second one is of block 1.
        body.extend([5, 0, 0, 1 + (patch % 2) as u8, 1, 0, 1, 0]);
        records += 1;
        for before in (1..patch).rev().take(4) {
            // The newest one is 1, the one before it 2, and so on.
            body.extend([11, 1]);
            number(patch - before + 1, &mut body);
            records += 1;
        }
    }
    let bytes = trace_of(&body, records);
    let answers = ask_all(&bytes, &[u64::from(records) - 1], &[PATCHES]);
    let crash = &answers[18]["answer"];
    assert_eq!(crash["verdict"], "forbidden");
    let (path, left_out) = (
        crash["path"].as_array().unwrap().len(),
        &crash["path_left_out"],
    );
    assert_eq!(path, 200);
    assert!(left_out.as_u64().unwrap() > 500, "{left_out}");
}

#[test]
fn very_long_names_take_no_room() {
    const LEVELS: u64 = 64;
    const OPERATIONS: u64 = 1500;
    let name = vec![b'x'; 60_000];
    let (mut body, mut records) = (Vec::new(), 0);
    let begin = |object: u64, name: Option<&[u8]>, scope: u64, body: &mut Vec<u8>| {
        body.push(2);
        number(scope, body);
        body.extend([1, b'c', 1]);
        number(object, body);
        body.push(u8::from(name.is_some()));
        if let Some(name) = name {
            number(name.len() as u64, body);
            body.extend_from_slice(name);
        }
        body.extend([0, 0]);
    };
    for level in 0..LEVELS {
        begin(2 + level, Some(&name), level + 1, &mut body);
        body.push(4);
        number(3 + level, &mut body);
        records += 2;
    }
    for operation in 0..OPERATIONS {
        begin(2 + LEVELS, None, 1000 + operation, &mut body);
        // A patch, so that the operation is remembered.
        body.extend(CREATE);
        records += 2;
    }
    let bytes = trace_of(&body, records);
    let answers = ask_all(&bytes, &[u64::from(records) - 1], &[1]);
    let found = answers[5]["found"].as_array().unwrap();
    assert_eq!(found.len(), 100);
    let longest = found.iter().map(|of| of["label"].as_str().unwrap().len());
    assert!(longest.max().unwrap() < 10_000);
}
