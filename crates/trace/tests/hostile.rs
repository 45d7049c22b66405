//! Whatever a file holds, reading it is an answer or an error.

use backstitch_trace::graph::{By, Drawing, Wanted};
use backstitch_trace::index::{self, Index};
use backstitch_trace::record::Record;
use backstitch_trace::replay::replay;
use backstitch_trace::show::{Filter, Lines};
use backstitch_trace::stats::Stats;
use backstitch_trace::why::{crash, cut, dirty, versions, wait};
use backstitch_trace::{
    CHUNK_HEAD_BYTES, CHUNK_MAGIC, Error, Keep, MAGIC, Moment, State, Trace, VERSION, state_at,
};
use proptest::prelude::*;

/// Everything that is done with traces; `true` where it was read to its end.
fn use_all_of(bytes: &[u8]) -> bool {
    let Ok(trace) = Trace::new(bytes) else {
        return false;
    };
    let _ = Stats::of(&trace).map(|stats| (stats.text(), stats.json()));
    let _ = replay(&trace, |_, _, _| Ok(()));
    let mut is_whole = true;
    for keep in [Keep::Live, Keep::Everything] {
        let mut state = State::of(&trace, keep);
        let mut lines = Lines::new(Filter::default());
        let (mut records, mut list) = (trace.records(), Vec::new());
        loop {
            match records.next(&mut list) {
                Ok(Some((number, record))) => {
                    state.apply(&record);
                    lines.line(number, &record, &state);
                }
                Ok(None) => break,
                Err(_) => {
                    is_whole = false;
                    break;
                }
            }
        }
        let _ = dirty::text(&state, &dirty::dirty(&state, &Wanted::default()), 0);
        let _ = crash::crash(&state, 1, 2);
        for by in [By::Block, By::Operation] {
            let drawing = Drawing::of(&state, by, &Wanted::default());
            let _ = (drawing.dot(), drawing.svg());
        }
    }
    let mut index = Index::of(trace.clone());
    for record in [0, index.records() / 2, u64::MAX] {
        let _ = index.words(record, 10);
        let state = index.state_after(record);
        for by in [By::Block, By::Operation] {
            let _ = index::graph(state, by, &Wanted::default(), None);
        }
        let _ = index::block(state, 1);
        let _ = cut::text(state, &cut::cut(state, 1..20));
    }
    let _ = index.line().page(0, u64::MAX, 10);
    let _ = wait::wait(&trace, None).map(|wait| wait.map(|wait| wait.text()));
    let _ = versions::versions(&trace, 0).map(|found| versions::text(&found));
    let _ = state_at(&trace, Moment::Record(5), Keep::Live);
    is_whole
}

/// A trace of these records, whose checksums are right.
fn trace_of(body: &[u8], records: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend(b"{}");
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_behind_a_good_checksum(body in prop::collection::vec(prop_oneof![
        3 => 0u8..28,
        1 => any::<u8>(),
    ], 0..200), records in 0u32..80) {
        use_all_of(&trace_of(&body, records));
    }

    #[test]
    fn any_bytes_at_all(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!use_all_of(&bytes));
    }
}

#[test]
fn a_file_of_something_else_or_of_another_version_is_said_to_be() {
    assert_eq!(Trace::new(b"").unwrap_err(), Error::NoTrace);
    assert_eq!(Trace::new(&[0; 64]).unwrap_err(), Error::NoTrace);
    let mut other = trace_of(&[3], 1);
    assert!(use_all_of(&other));
    other[8] = 9;
    assert_eq!(Trace::new(&other).unwrap_err(), Error::Version(9));
}

/// A number as a record has it.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[test]
fn very_many_ways_from_one_patch_to_another_take_no_time() {
    const LAYERS: u64 = 40;
    let (mut body, mut records) = (Vec::new(), 0);
    // Two patches to a layer, all of block 0.
    for _ in 0..2 * LAYERS {
        // A new soft patch of block 0 that changes one byte.
        body.extend([5, 0, 0, 1, 1, 0, 1, 0]);
        records += 1;
    }
    // Each patch waits for both of the layer before.
    let newest = 2 * LAYERS;
    let named = |patch: u64| newest - patch + 1;
    for layer in 1..LAYERS {
        for (after, before) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            body.push(11);
            number(named(2 * layer + after), &mut body);
            number(named(2 * (layer - 1) + before), &mut body);
            records += 1;
        }
    }
    let bytes = trace_of(&body, records);
    let trace = Trace::new(&bytes).unwrap();
    let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
    let last = state.patch(newest).unwrap();
    assert_eq!(last.befores.len(), 2);
    assert!(state.is_ready(newest));
    assert!(use_all_of(&bytes));
}

#[test]
fn a_flipped_bit_is_found_and_a_cut_is_known() {
    let good = trace_of(&[3, 3, 3], 3);
    let head = good.len() - 3 - CHUNK_HEAD_BYTES;
    for at in head + 4..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let trace = Trace::new(&bad).unwrap();
        let (mut records, mut list) = (trace.records(), Vec::new());
        let first = records.next(&mut list).map(|found| found.map(|(n, _)| n));
        let is_found = first.is_err() || (first == Ok(None) && records.is_cut());
        assert!(is_found, "byte {at}: {first:?}");
    }
    let trace = Trace::new(&good[..good.len() - 1]).unwrap();
    let (mut records, mut list) = (trace.records(), Vec::new());
    assert_eq!(records.next(&mut list).unwrap(), None);
    assert!(records.is_cut());
    let trace = Trace::new(&good).unwrap();
    let (mut records, mut list) = (trace.records(), Vec::new());
    assert_eq!(records.next(&mut list).unwrap(), Some((0, Record::End)));
}
