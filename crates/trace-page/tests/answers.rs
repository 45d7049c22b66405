//! What the page is told of a prepared case: two blocks that wait for each other, patch by patch, are
//! written out, which takes four rounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice};
use backstitch_store::{
    BlockClass, Change, Goal, Limits, Optimisations, PatchId, Store, VolumeId, drive,
};
use backstitch_trace::{Recorder, Recording, Trace};
use backstitch_trace_page::{Answering, Answers};
use serde_json::Value;

const BLOCK_BYTES: usize = 4096;
const NOW: Duration = Duration::ZERO;

/// A store that is recorded, whose changes have names.
struct Bench {
    store: Store,
    volume: VolumeId,
    recorder: Arc<Recorder>,
    ids: BTreeMap<&'static str, PatchId>,
    numbers: BTreeMap<&'static str, u64>,
}

impl Bench {
    fn new() -> Bench {
        let mut store = Store::new(Limits::default(), Optimisations::NONE);
        let volume = store.add_volume(BLOCK_BYTES as u32);
        let recorder = Arc::new(Recorder::in_memory(&Recording::default(), 1 << 20));
        store.watch(Some(recorder.clone()));
        for block in 0..8 {
            let zeros = Buffer::zeroed(BLOCK_BYTES);
            store.insert(volume, block, BlockClass::Metadata, zeros);
        }
        let (ids, numbers) = (BTreeMap::new(), BTreeMap::new());
        Bench {
            store,
            volume,
            recorder,
            ids,
            numbers,
        }
    }

    fn change(&mut self, name: &'static str, block: u64, offset_bytes: u32, after: &[&str]) {
        let after: Vec<PatchId> = after.iter().map(|name| self.ids[name]).collect();
        let change = Change::Bytes {
            offset_bytes,
            bytes: &[7; 4],
        };
        let class = BlockClass::Metadata;
        let id = (self.store).patch(self.volume, block, class, change, (&after).into(), NOW);
        self.ids.insert(name, id);
        self.numbers
            .insert(name, self.recorder.number_of(id).unwrap());
    }
}

/// The trace, the numbers of its patches `a`, `b`, `c` and `d`, and the last record before the first
/// write.
fn case() -> (&'static [u8], BTreeMap<&'static str, u64>, u64) {
    let mut bench = Bench::new();
    bench.change("a", 1, 0, &[]);
    bench.change("b", 2, 0, &["a"]);
    bench.change("c", 1, 100, &["b"]);
    bench.change("d", 2, 100, &["c"]);
    let device: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(MemoryDevice::new(8 * BLOCK_BYTES))];
    let goal = [bench.ids["d"]];
    drive::write_out(&mut bench.store, &device, Goal::Patches(&goal), NOW).unwrap();
    let bytes: &'static [u8] = bench.recorder.finish().leak();
    let (trace, mut list, mut before) = (Trace::new(bytes).unwrap(), Vec::new(), 0);
    let mut records = trace.records();
    while let Some((number, record)) = records.next(&mut list).unwrap() {
        if matches!(record.word(), "settle" | "write" | "awaited") {
            break;
        }
        before = number;
    }
    (bytes, bench.numbers, before)
}

fn answers(bytes: &'static [u8]) -> Answers<'static> {
    Answers::new("t.trace".to_owned(), Trace::new(bytes).unwrap())
}

fn ask(answers: &Answers<'_>, request: &str) -> Value {
    let reply = answers.answer(request, "n");
    let body = String::from_utf8(reply.body).unwrap();
    assert_eq!(reply.status, 200, "{request}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn the_graph_and_a_block_at_a_moment() {
    let (bytes, n, before) = case();
    let answers = answers(bytes);
    let about = ask(&answers, "about");
    assert_eq!(about["batches"], 4, "{about}");
    let moment = ask(&answers, &format!("moment?record={before}"));
    let nodes = moment["graph"]["nodes"].as_array().unwrap();
    let standing: BTreeMap<u64, &str> = nodes
        .iter()
        .map(|node| {
            (
                node["patch"].as_u64().unwrap(),
                node["standing"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(standing[&n["a"]], "ready");
    assert!(
        ["b", "c", "d"]
            .iter()
            .all(|name| standing[&n[name]] == "waiting"),
        "{standing:?}"
    );
    let edges = moment["graph"]["edges"].as_array().unwrap();
    let is_there = |after: &str, before: &str| {
        let is_it = |edge: &&Value| edge["after"] == n[after] && edge["before"] == n[before];
        edges.iter().find(is_it).is_some()
    };
    assert!(
        is_there("b", "a") && is_there("c", "b") && is_there("d", "c"),
        "{edges:?}"
    );
    let block = ask(&answers, &format!("block?record={before}&patch={}", n["c"]));
    assert_eq!(
        (&block["number"], &block["len_bytes"]),
        (&1.into(), &4096.into())
    );
    let patches = block["patches"].as_array().unwrap();
    let ranges: Vec<&Value> = patches.iter().map(|patch| &patch["ranges"][0]).collect();
    assert_eq!((&ranges[0][0], &ranges[0][1]), (&0.into(), &4.into()));
    assert_eq!((&ranges[1][0], &ranges[1][1]), (&100.into(), &4.into()));
    let gone = ask(&answers, &format!("block?record=999999&patch={}", n["c"]));
    assert!(gone["block"].is_null(), "{gone}");
    let end = ask(&answers, "moment?record=18446744073709551615");
    assert_eq!(
        (end["patches"].as_u64(), &end["flights"]),
        (Some(0), &serde_json::json!([]))
    );
}

#[test]
fn the_questions_are_answered() {
    let (bytes, n, before) = case();
    let answers = answers(bytes);
    let dirty = ask(
        &answers,
        &format!("why/dirty?record={before}&patch={}", n["d"]),
    );
    assert_eq!(dirty["answer"]["rounds"], 4, "{dirty}");
    assert_eq!(
        dirty["answer"]["chain"],
        serde_json::json!([n["d"], n["c"], n["b"], n["a"]])
    );
    let written = ask(&answers, "why/written?record=999999&number=1");
    assert_eq!(written["answer"]["count"], 2);
    let text = written["text"].as_str().unwrap();
    assert!(
        text.contains(&format!("left out: it waited for p{}", n["b"])),
        "{text}"
    );
    let none = ask(&answers, &format!("why/written?record={before}&number=1"));
    assert_eq!(none["answer"]["count"], 0);
    let pair = format!(
        "why/crash?record={before}&with={}&without={}",
        n["d"], n["b"]
    );
    assert_eq!(ask(&answers, &pair)["answer"]["verdict"], "forbidden");
    let pair = format!(
        "why/crash?record={before}&with={}&without={}",
        n["b"], n["d"]
    );
    assert_eq!(ask(&answers, &pair)["answer"]["verdict"], "possible");
    let cut = ask(
        &answers,
        &format!("why/cut?record={before}&patches={},{}", n["a"], n["c"]),
    );
    assert_eq!(cut["answer"]["is_possible"], false);
    assert_eq!(cut["answer"]["broken"][0]["without"]["patch"], n["b"]);
    let cut = ask(
        &answers,
        &format!("why/cut?record={before}&patches={},{}", n["a"], n["b"]),
    );
    assert_eq!(
        (&cut["answer"]["is_possible"], &cut["answer"]["is_now"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn a_block_on_its_way_can_be_there_or_not() {
    let (bytes, n, _) = case();
    let answers = answers(bytes);
    let first = ask(&answers, "next?kind=batch&record=0")["record"]
        .as_u64()
        .unwrap();
    let moment = ask(&answers, &format!("moment?record={first}"));
    let flight = &moment["flights"][0];
    assert_eq!(flight["patches"], serde_json::json!([n["a"]]), "{moment}");
    assert_eq!(moment["flights_count"], 1);
    let here = flight["block"].to_string();
    for (blocks, with) in [("", vec![]), (&here, vec![n["a"]]), ("all", vec![n["a"]])] {
        let cut = ask(&answers, &format!("why/cut?record={first}&blocks={blocks}"));
        assert_eq!(cut["answer"]["is_now"], true, "{cut}");
        assert_eq!(cut["answer"]["with"], serde_json::json!(with), "{cut}");
    }
    let second = ask(&answers, &format!("next?kind=batch&record={first}"))["record"].as_u64();
    let after = ask(&answers, &format!("moment?record={}", second.unwrap()));
    assert_eq!(after["patches"], 3);
    let first_flush = ask(&answers, &format!("next?kind=flush&record={first}"));
    assert!(first_flush["record"].as_u64() < second);
}

#[test]
fn from_the_flush_on_what_it_wrote_is_on_the_disk() {
    let (bytes, n, _) = case();
    let trace = Trace::new(bytes).unwrap();
    let (mut records, mut list, mut flushed) = (trace.records(), Vec::new(), None);
    while let Some((number, record)) = records.next(&mut list).unwrap() {
        if record.word() == "flushed" && flushed.is_none() {
            flushed = Some(number);
        }
    }
    let answers = answers(bytes);
    let flushed = flushed.unwrap();
    let moment = ask(&answers, &format!("moment?record={flushed}"));
    assert_eq!(
        (&moment["flights_count"], &moment["patches"]),
        (&0.into(), &3.into())
    );
    let nodes = moment["graph"]["nodes"].as_array().unwrap();
    let first = nodes.iter().find(|node| node["patch"] == n["a"]);
    assert!(
        first.is_none_or(|node| node["standing"] == "committed"),
        "{moment}"
    );
    let pair = format!(
        "why/crash?record={flushed}&with={}&without={}",
        n["b"], n["a"]
    );
    assert_eq!(ask(&answers, &pair)["answer"]["verdict"], "is there");
    // The flush is gone to where nothing of it is told any more.
    let next = ask(&answers, "next?kind=flush&record=0")["record"]
        .as_u64()
        .unwrap();
    assert!(next > flushed);
    let moment = ask(&answers, &format!("moment?record={next}"));
    assert_eq!(
        moment["graph"]["nodes"].as_array().unwrap().len(),
        3,
        "{moment}"
    );
}

#[test]
fn a_block_is_not_another_one_of_the_same_number() {
    let mut bench = Bench::new();
    let other = bench.store.add_volume(BLOCK_BYTES as u32);
    let (class, zeros) = (BlockClass::Metadata, Buffer::zeroed(BLOCK_BYTES));
    bench.store.insert(other, 1, class, zeros);
    bench.change("here", 1, 0, &[]);
    let first = bench.volume;
    bench.volume = other;
    bench.change("there", 1, 0, &[]);
    bench.volume = first;
    let device = || -> Arc<dyn BlockDevice> { Arc::new(MemoryDevice::new(8 * BLOCK_BYTES)) };
    let devices = vec![device(), device()];
    let goal = [bench.ids["here"], bench.ids["there"]];
    drive::write_out(&mut bench.store, &devices, Goal::Patches(&goal), NOW).unwrap();
    let bytes: &'static [u8] = bench.recorder.finish().leak();
    let answers = answers(bytes);
    let batch = ask(&answers, "next?kind=batch&record=0")["record"].clone();
    let flights = ask(&answers, &format!("moment?record={batch}"))["flights"].clone();
    let both = ask(&answers, "why/written?record=999999&number=1");
    assert_eq!(both["answer"]["count"], 2, "{both}");
    for flight in flights.as_array().unwrap() {
        let one = format!("why/written?record=999999&block={}", flight["block"]);
        let one = ask(&answers, &one);
        assert_eq!(one["answer"]["count"], 1, "{one}");
        let text = one["text"].as_str().unwrap();
        assert!(
            text.contains(&format!("{}:\n", flight["name"].as_str().unwrap())),
            "{text}"
        );
    }
    assert_eq!(flights.as_array().unwrap().len(), 2);
}

#[test]
fn what_was_discarded_is_not_said_to_be_on_the_disk() {
    let mut bench = Bench::new();
    bench.change("gone", 1, 0, &[]);
    bench.change("other", 2, 0, &[]);
    bench.store.discard(bench.volume, 1);
    let n = bench.numbers.clone();
    let answers = answers(bench.recorder.finish().leak());
    let pair = format!(
        "why/crash?record=999999&with={}&without={}",
        n["other"], n["gone"]
    );
    let found = ask(&answers, &pair);
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("need not be written any more"), "{text}");
    assert_eq!(found["answer"]["without"]["standing"], "discarded");
}

#[test]
fn what_makes_no_sense_is_said_to_make_none() {
    let (bytes, _, _) = case();
    let answers = answers(bytes);
    for wrong in [
        "moment",
        "moment?record=x",
        "records?record=",
        "block?record=3",
        "block?record=3&block=99999999999",
        "next?record=1&kind=z",
        "why/crash?record=1&with=1",
        "why/crash?record=1&with=1&without=99999",
        "why/wait?record=0",
        "why/wait?ticket=77",
        "why/written?record=1",
        "why/written?record=1&block=99999999999",
        "why/dirty?record=1&patch=99999",
        "why/cut?record=1&blocks=99999999999",
    ] {
        let reply = answers.answer(wrong, "n");
        assert_eq!(reply.status, 400, "{wrong}");
        let document: Value = serde_json::from_slice(&reply.body).unwrap();
        assert!(!document["error"].as_str().unwrap().is_empty(), "{wrong}");
    }
    assert_eq!(answers.answer("why/nothing", "n").status, 404);
}
