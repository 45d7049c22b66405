//! Answers about prepared cases, in which they are known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice};
use backstitch_store::{
    BlockClass, Change, Goal, Limits, Optimisations, PatchId, PatchKind, Store, VolumeId, drive,
};
use backstitch_trace::graph::Wanted;
use backstitch_trace::show::{Filter, Lines};
use backstitch_trace::why::crash::{Edge, Verdict, crash};
use backstitch_trace::why::cut::{Broken, cut};
use backstitch_trace::why::dirty::{self, dirty};
use backstitch_trace::why::versions::{Blocks, Bounds, Cause, last_versions, versions};
use backstitch_trace::why::{crash as crashes, cut as cuts, wait};
use backstitch_trace::{Keep, Moment, Record, Recorder, Recording, State, Trace, state_at};

const BLOCK_BYTES: usize = 4096;
const MOST_BYTES: usize = 1 << 20;
const NOW: Duration = Duration::ZERO;

/// A store of eight blocks that is recorded, whose changes have names.
struct Bench {
    store: Store,
    volume: VolumeId,
    device: Vec<Arc<dyn BlockDevice>>,
    recorder: Arc<Recorder>,
    ids: BTreeMap<&'static str, PatchId>,
    numbers: BTreeMap<&'static str, u64>,
}

impl Bench {
    fn new(optimisations: Optimisations) -> Bench {
        let mut store = Store::new(Limits::default(), optimisations);
        let volume = store.add_volume(BLOCK_BYTES as u32);
        let recorder = Arc::new(Recorder::in_memory(&Recording::default(), MOST_BYTES));
        store.watch(Some(recorder.clone()));
        for block in 0..8 {
            let zeros = Buffer::zeroed(BLOCK_BYTES);
            store.insert(volume, block, BlockClass::Metadata, zeros);
        }
        Bench {
            store,
            volume,
            device: vec![Arc::new(MemoryDevice::new(8 * BLOCK_BYTES))],
            recorder,
            ids: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Four bytes of a block at an offset, after others.
    fn change(&mut self, name: &'static str, block: u64, offset_bytes: u32, after: &[&str]) {
        let after: Vec<PatchId> = after.iter().map(|name| self.ids[name]).collect();
        let change = Change::Bytes {
            offset_bytes,
            bytes: &[7; 4],
        };
        let class = BlockClass::Metadata;
        let id = (self.store).patch(self.volume, block, class, change, (&after).into(), NOW);
        self.ids.insert(name, id);
        let number = self.recorder.number_of(id).unwrap();
        self.numbers.insert(name, number);
    }

    fn write_out(&mut self, name: &str) {
        let ids = [self.ids[name]];
        drive::write_out(&mut self.store, &self.device, Goal::Patches(&ids), NOW).unwrap();
    }

    fn finish(&self) -> Vec<u8> {
        self.recorder.finish()
    }
}

fn at_end(bytes: &[u8]) -> State {
    state_at(&Trace::new(bytes).unwrap(), Moment::End, Keep::Live).unwrap()
}

/// Blocks 1 and 2 wait for each other, patch by patch: `a` of block 1, `b` of block 2 after it, `c` of
/// block 1 after that, `d` of block 2.
fn circle() -> Bench {
    let mut bench = Bench::new(Optimisations::NONE);
    bench.change("a", 1, 0, &[]);
    bench.change("b", 2, 0, &["a"]);
    bench.change("c", 1, 100, &["b"]);
    bench.change("d", 2, 100, &["c"]);
    bench
}

#[test]
fn what_is_dirty_waits_for_the_longest_chain() {
    let bench = circle();
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    let all = dirty(&state, &Wanted::default());
    let rounds: Vec<u32> = all.iter().map(|dirty| dirty.rounds).collect();
    assert_eq!(rounds, [4, 3, 2, 1]);
    assert_eq!(all[0].chain, [n["d"], n["c"], n["b"], n["a"]]);
    let text = dirty::text(&state, &all, 0);
    assert!(
        text.contains("4 patches") && text.contains("4 rounds"),
        "{text}"
    );
    // Shorter chains are parts of it, and not told again.
    assert_eq!(text.matches("waits for nothing").count(), 1, "{text}");
    let wanted = Wanted {
        patch: Some(n["b"]),
        ..Wanted::default()
    };
    let one = dirty(&state, &wanted);
    assert_eq!((one.len(), one[0].rounds), (1, 2));
}

#[test]
fn what_the_trace_does_not_tell_of_is_not_said_to_be_on_the_disk() {
    let state = at_end(&circle().finish());
    let wanted = Wanted {
        path: Some("/a".to_owned()),
        ..Wanted::default()
    };
    let (found, untold) = (dirty(&state, &wanted), dirty::untold(&state, &wanted));
    assert_eq!((found.len(), untold), (0, 4));
    let text = dirty::text(&state, &found, untold);
    assert!(
        text.contains("4 more patches are not on the disk"),
        "{text}"
    );
    assert_eq!(dirty::untold(&state, &Wanted::default()), 0);
}

#[test]
fn patches_of_one_block_go_in_one_round() {
    let mut bench = Bench::new(Optimisations::NONE);
    bench.change("a", 1, 0, &[]);
    bench.change("b", 1, 2, &["a"]);
    bench.change("c", 2, 0, &["b"]);
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    let all = dirty(&state, &Wanted::default());
    assert_eq!(all[0].rounds, 2);
    assert_eq!(all[0].chain, [n["c"], n["b"], n["a"]]);
}

#[test]
fn the_rounds_are_those_that_the_store_needs() {
    let mut bench = circle();
    let state = at_end(&circle().finish());
    let expected = dirty(&state, &Wanted::default())[0].rounds;
    bench.write_out("d");
    let bytes = bench.finish();
    let trace = Trace::new(&bytes).unwrap();
    let (mut records, mut list, mut batches) = (trace.records(), Vec::new(), 0);
    while let Some((_, record)) = records.next(&mut list).unwrap() {
        batches += u32::from(record.word() == "flushed");
    }
    assert_eq!(batches, expected);
}

#[test]
fn a_block_is_written_again_for_what_was_left_out() {
    let mut bench = circle();
    bench.write_out("d");
    bench.change("e", 1, 200, &[]);
    bench.write_out("e");
    let n = bench.numbers.clone();
    let bytes = bench.finish();
    let found = versions(&Trace::new(&bytes).unwrap(), 1).unwrap();
    let new: Vec<Vec<u64>> = found
        .iter()
        .map(|version| version.new.iter().map(|new| new.patch).collect())
        .collect();
    assert_eq!(new, [vec![n["a"]], vec![n["c"]], vec![n["e"]]]);
    assert_eq!(found[0].left_out, [n["c"]]);
    assert_eq!(found[0].new[0].cause, Cause::Made);
    match &found[1].new[0].cause {
        Cause::LeftOut(why) => {
            assert!(why.starts_with(&format!("p{},", n["b"])), "{why}");
            assert!(why.contains("metadata block 2"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(found[2].new[0].cause, Cause::Made);
    assert!(
        versions(&Trace::new(&bytes).unwrap(), 5)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_crash_leaves_what_no_edge_forbids() {
    let bench = circle();
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    let forbidden = crash(&state, n["d"], n["b"]);
    let path = vec![(n["d"], Edge::Waits), (n["c"], Edge::Waits)];
    assert_eq!(forbidden, Verdict::Forbidden(path));
    assert_eq!(crash(&state, n["b"], n["d"]), Verdict::Possible);
    let text = crashes::text(&state, n["d"], n["b"], &forbidden);
    assert!(text.starts_with("no crash leaves"), "{text}");
    // What has no undo data goes along with its block; the graph says so by itself.
    let mut bench = Bench::new(Optimisations::BOTH);
    bench.change("hard", 1, 0, &[]);
    bench.change("between", 2, 0, &["hard"]);
    bench.change("soft", 1, 100, &["between"]);
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    let verdict = crash(&state, n["soft"], n["hard"]);
    assert_eq!(verdict, Verdict::Forbidden(vec![(n["soft"], Edge::Waits)]));
    assert_eq!(crash(&state, n["hard"], n["soft"]), Verdict::Possible);
    let mut bench = circle();
    bench.write_out("a");
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    assert_eq!(crash(&state, n["d"], n["a"]), Verdict::IsThere);
    assert_eq!(crash(&state, n["a"], n["d"]), Verdict::SoItIs);
}

#[test]
fn a_state_is_possible_where_nothing_that_it_has_waits_for_what_it_lacks() {
    let bench = circle();
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    let all = [n["a"], n["b"], n["c"], n["d"]];
    for count in 0..=4 {
        let found = cut(&state, all[..count].iter().copied());
        assert!(found.broken.is_empty(), "{count}");
        // Nothing is on its way yet.
        assert_eq!(found.is_now, count == 0);
    }
    let found = cut(&state, [n["a"], n["c"], n["d"]]);
    let expected = Broken {
        with: n["c"],
        without: n["b"],
        edge: Edge::Waits,
    };
    assert_eq!(found.broken, [expected]);
    let text = cuts::text(&state, &found);
    assert!(text.starts_with("no crash leaves"), "{text}");
    assert!(cuts::json(&state, &found)["is_possible"] == false);
    // What is on the disk already changes nothing.
    let mut bench = circle();
    bench.write_out("a");
    let state = at_end(&bench.finish());
    let found = cut(&state, [n["a"], n["b"]]);
    assert_eq!((found.broken.len(), found.with.len()), (0, 1));
}

#[test]
fn what_is_on_its_way_can_have_arrived_or_not() {
    let bench = circle();
    let n = bench.numbers.clone();
    let mut state = at_end(&bench.finish());
    // The first round: `a`, without `c`, which is of the same block.
    let patches = [n["a"]];
    state.apply(&Record::Write {
        block: state.patch(n["a"]).unwrap().parts[0].block,
        rolled_back: 1,
        patches: &patches,
    });
    assert_eq!(state.blocks_in_flight().count(), 1);
    for with in [&[][..], &patches] {
        let found = cut(&state, with.iter().copied());
        assert!(found.is_now && found.broken.is_empty(), "{with:?}");
    }
    let later = cut(&state, [n["a"], n["b"]]);
    assert!(!later.is_now && later.broken.is_empty());
}

/// A run of some blocks.
fn run_of(blocks: std::ops::Range<u32>) -> State {
    let mut state = State::new(Keep::Live);
    for block in blocks {
        let change = backstitch_trace::record::Change::Nothing;
        state.apply(&match state.newest() {
            0 => Record::Create {
                patch: 1,
                kind: PatchKind::Run,
                held: false,
                block: Some(block),
                change,
                stated: &[],
            },
            _ => Record::Merge {
                into: 1,
                kind: PatchKind::Run,
                block,
                change,
                stated: &[],
            },
        });
    }
    state
}

fn write(state: &mut State, block: u32) {
    state.apply(&Record::Write {
        block,
        rolled_back: 0,
        patches: &[1],
    });
}

#[test]
fn a_block_of_a_run_is_not_all_of_it() {
    let mut state = run_of(0..3);
    // Something that waits for the run, on its way: only a made-up trace has that.
    state.apply(&Record::Create {
        patch: 2,
        kind: PatchKind::Soft,
        held: false,
        block: Some(9),
        change: backstitch_trace::record::Change::Nothing,
        stated: &[],
    });
    state.apply(&Record::Wait {
        after: 2,
        before: 1,
    });
    write(&mut state, 0);
    let one = cuts::cut_with_blocks(&state, [], [0]);
    assert!(one.is_now && one.with.is_empty(), "{one:?}");
    assert_eq!((one.partly[0].there, one.partly[0].all), (1, 3));
    let text = cuts::text(&state, &one);
    assert!(text.contains("now can leave 1 of 3 blocks of p1"), "{text}");
    let broken = cuts::cut_with_blocks(&state, [2], [0]).broken;
    assert_eq!((broken[0].with, broken[0].without), (2, 1));
    write(&mut state, 1);
    write(&mut state, 2);
    let all = cuts::cut_with_blocks(&state, [], [0, 1, 2]);
    assert_eq!(all.with.iter().copied().collect::<Vec<_>>(), [1]);
    assert!(all.is_now && all.partly.is_empty());
    assert!(
        cuts::cut_with_blocks(&state, [2], [0, 1, 2])
            .broken
            .is_empty()
    );
}

#[test]
fn what_a_flush_brought_to_the_disk_is_there_before_the_commit_says_so() {
    let mut state = run_of(0..2);
    write(&mut state, 0);
    let batch = |number| Record::Batch {
        number,
        goal: b"all",
        requests: 1,
        bytes: 1,
    };
    state.apply(&batch(1));
    state.apply(&Record::Flushed { number: 1 });
    assert_eq!(
        (state.blocks_in_flight().count(), state.pending_count()),
        (0, 1)
    );
    write(&mut state, 1);
    state.apply(&batch(2));
    assert_eq!(state.blocks_in_flight().collect::<Vec<_>>(), [(Some(2), 1)]);
    // Of a batch that failed nobody knows what is there.
    let mut failed = state.clone();
    failed.apply(&Record::Failed { number: 2 });
    assert_eq!(failed.blocks_in_flight().collect::<Vec<_>>(), [(None, 1)]);
    state.apply(&Record::Flushed { number: 2 });
    assert_eq!((state.patches_count(), state.pending_count()), (1, 0));
    state.apply(&Record::Commit { patch: 1 });
    assert_eq!((state.patches_count(), state.pending_count()), (0, 0));
}

#[test]
fn of_many_versions_the_last_are_kept() {
    let mut bench = circle();
    bench.write_out("d");
    bench.change("e", 1, 200, &[]);
    bench.write_out("e");
    let n = bench.numbers.clone();
    let bytes = bench.finish();
    let trace = Trace::new(&bytes).unwrap();
    let bounds = Bounds {
        versions: 2,
        ..Bounds::NONE
    };
    let all = versions(&trace, 1).unwrap();
    let (count, last) = last_versions(&trace, Blocks::WithNumber(1), bounds).unwrap();
    assert_eq!((count, &last[..]), (3, &all[1..]));
    let bounds = Bounds {
        records: all[1].record,
        ..Bounds::NONE
    };
    let (count, first) = last_versions(&trace, Blocks::WithNumber(1), bounds).unwrap();
    assert_eq!((count, &first[..]), (1, &all[..1]));
    // Of patches that are not kept it is known that they were left out.
    let bounds = Bounds {
        patches: 0,
        ..Bounds::NONE
    };
    let (_, found) = last_versions(&trace, Blocks::WithNumber(1), bounds).unwrap();
    assert_eq!((found[0].left_out.len(), found[0].left_out_count), (0, 1));
    assert_eq!((found[1].new.len(), found[1].new_count), (0, 1));
    let block = state_at(&trace, Moment::Record(all[0].record), Keep::Live).unwrap();
    let block = block.patch(n["c"]).unwrap().parts[0].block;
    let one = last_versions(&trace, Blocks::One(block), Bounds::NONE).unwrap();
    assert_eq!(one.1, all);
}

#[test]
fn of_a_long_way_the_beginning_is_told() {
    let bench = circle();
    let n = bench.numbers.clone();
    let state = at_end(&bench.finish());
    let (short, left_out) = crash(&state, n["d"], n["a"]).shortened(1);
    assert_eq!(short, Verdict::Forbidden(vec![(n["d"], Edge::Waits)]));
    assert_eq!(left_out, 2);
}

#[test]
fn of_very_much_dirt_some_chains_are_told() {
    let state = at_end(&circle().finish());
    let (count, some) = dirty::longest(&state, &Wanted::default(), 1);
    assert_eq!((count, some.len()), (4, 1));
    assert_eq!(some[0], dirty(&state, &Wanted::default())[0]);
}

#[test]
fn what_was_discarded_is_not_said_to_be_on_the_disk() {
    for keep in [Keep::Everything, Keep::Live] {
        discarded_under(keep);
    }
}

fn discarded_under(keep: Keep) {
    let mut state = State::new(keep);
    for patch in [1, 2] {
        state.apply(&Record::Create {
            patch,
            kind: PatchKind::Soft,
            held: false,
            block: Some(patch as u32),
            change: backstitch_trace::record::Change::Bytes {
                offset_bytes: 0,
                len_bytes: 4,
            },
            stated: &[],
        });
    }
    let commit = Record::Commit { patch: 1 };
    state.apply(&commit);
    let line = Lines::new(Filter::default()).line(2, &commit, &state);
    let line = line.unwrap();
    assert_eq!(line.text, "p1 need not be written any more");
    assert_eq!(line.json["discarded"], true);
    for (with, without) in [(1, 2), (2, 1)] {
        let verdict = crash(&state, with, without);
        let text = crashes::text(&state, with, without, &verdict);
        assert!(text.contains("p1 need not be written"), "{text}");
        let json = crashes::json(&state, with, without, &verdict).to_string();
        assert!(json.contains("discarded"), "{json}");
    }
    state.apply(&Record::Write {
        block: 2,
        rolled_back: 0,
        patches: &[2],
    });
    let commit = Record::Commit { patch: 2 };
    state.apply(&commit);
    let line = Lines::new(Filter::default()).line(4, &commit, &state);
    assert_eq!(line.unwrap().text, "p2 is on the disk");
}

#[test]
fn a_trace_without_waits_has_none() {
    let bytes = circle().finish();
    let trace = Trace::new(&bytes).unwrap();
    assert!(wait::wait(&trace, None).unwrap().is_none());
    assert!(wait::wait(&trace, Some(3)).unwrap().is_none());
}
