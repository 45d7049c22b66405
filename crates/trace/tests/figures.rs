//! The paper's figures (Frost et al., SOSP 2007): what a trace of their changes is drawn as.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice};
use backstitch_store::{
    BlockClass, Change, Goal, Limits, Optimisations, PatchId, PatchKind, Store, VolumeId, drive,
};
use backstitch_trace::graph::{By, Drawing, Drawn, Wanted};
use backstitch_trace::{Keep, Moment, Recorder, Recording, Trace, state_at};

const BLOCK_BYTES: usize = 4096;
/// More than any trace here has.
const MOST_BYTES: usize = 1 << 20;

/// A store that is recorded, whose changes have names.
struct Bench {
    store: Store,
    volume: VolumeId,
    device: Vec<Arc<dyn BlockDevice>>,
    recorder: Arc<Recorder>,
    names: BTreeMap<&'static str, PatchId>,
}

impl Bench {
    fn new(optimisations: Optimisations) -> Bench {
        let mut store = Store::new(Limits::default(), optimisations);
        let volume = store.add_volume(BLOCK_BYTES as u32);
        let recorder = Arc::new(Recorder::in_memory(&Recording::default(), MOST_BYTES));
        store.watch(Some(recorder.clone()));
        for block in 0..16 {
            let class = BlockClass::Metadata;
            store.insert(volume, block, class, Buffer::zeroed(BLOCK_BYTES));
        }
        Bench {
            store,
            volume,
            device: vec![Arc::new(MemoryDevice::new(16 * BLOCK_BYTES))],
            recorder,
            names: BTreeMap::new(),
        }
    }

    fn change(&mut self, name: &'static str, block: u64, change: Change<'_>, after: &[&str]) {
        let after: Vec<PatchId> = after.iter().map(|name| self.names[name]).collect();
        let class = BlockClass::Metadata;
        let now = Duration::ZERO;
        let id = (self.store).patch(self.volume, block, class, change, (&after).into(), now);
        self.names.insert(name, id);
    }

    fn bytes(&mut self, name: &'static str, at: (u64, u32, usize), after: &[&str]) {
        let (block, offset_bytes, len) = at;
        let bytes = vec![7; len];
        let change = Change::Bytes {
            offset_bytes,
            bytes: &bytes,
        };
        self.change(name, block, change, after);
    }

    fn bit(&mut self, name: &'static str, block: u64, bit: u32) {
        let change = Change::Flip {
            offset_bytes: 0,
            mask: 1 << bit,
        };
        self.change(name, block, change, &[]);
    }

    /// What a trace up to now is drawn as, with the numbers of the names.
    fn draw(&self) -> (Drawing, BTreeMap<&'static str, u64>) {
        let names = self.names.iter();
        let numbers = names.map(|(name, id)| (*name, self.recorder.number_of(*id).unwrap()));
        let numbers: BTreeMap<_, _> = numbers.collect();
        let bytes = self.recorder.finish();
        let trace = Trace::new(&bytes).unwrap();
        let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
        let drawing = Drawing::of(&state, By::Block, &Wanted::default());
        (drawing, numbers)
    }
}

fn edges(drawing: &Drawing) -> BTreeSet<(u64, u64)> {
    drawing.edges.iter().copied().collect()
}

/// Where the blocks of figure 3 are.
const BITMAP: u64 = 1;
const INODES: u64 = 2;
const GROUP: u64 = 3;
const SUPERBLOCK: u64 = 4;
const DATA: u64 = 8;

/// Figure 3: four writes of 4 KiB each are appended to an empty file.
fn append(bench: &mut Bench) {
    const B: [&str; 4] = ["b1", "b2", "b3", "b4"];
    const D: [&str; 4] = ["d1", "d2", "d3", "d4"];
    const WRITTEN: [&str; 4] = ["d1'", "d2'", "d3'", "d4'"];
    const I: [&str; 4] = ["i1", "i2", "i3", "i4"];
    const SIZE: [&str; 4] = ["i1'", "i2'", "i3'", "i4'"];
    for n in 0..4 {
        bench.bit(B[n], BITMAP, n as u32);
        if n == 0 {
            bench.bytes("g", (GROUP, 12, 2), &[]);
            bench.bytes("s", (SUPERBLOCK, 12, 4), &[]);
        }
        let data = DATA + n as u64;
        bench.bytes(D[n], (data, 0, BLOCK_BYTES), &[B[n]]);
        bench.bytes(I[n], (INODES, 40 + 4 * n as u32, 4), &[B[n], D[n]]);
        bench.bytes(SIZE[n], (INODES, 4, 4), &[D[n]]);
        if n == 0 {
            bench.bytes("i''", (INODES, 16, 4), &[]);
        }
        bench.bytes(WRITTEN[n], (data, 0, BLOCK_BYTES), &[]);
    }
}

#[test]
fn the_append_of_figure_3a_is_23_patches_with_their_edges() {
    let mut bench = Bench::new(Optimisations::NONE);
    append(&mut bench);
    let (drawing, p) = bench.draw();
    assert_eq!(drawing.nodes.len(), 23);
    let mut expected = BTreeSet::new();
    for n in 1..=4 {
        let of = |name: String| p[&name[..]];
        let (b, d, i) = (
            of(format!("b{n}")),
            of(format!("d{n}")),
            of(format!("i{n}")),
        );
        let (size, written) = (of(format!("i{n}'")), of(format!("d{n}'")));
        expected.extend([(d, b), (i, b), (i, d), (size, d), (written, d)]);
        if n > 1 {
            // Each change of the size overlaps the one before it.
            expected.insert((size, of(format!("i{}'", n - 1))));
        }
    }
    assert_eq!(edges(&drawing), expected);
    let clusters: BTreeSet<&str> = drawing.nodes.iter().map(|n| &n.cluster[..]).collect();
    assert_eq!(clusters.len(), 8, "{clusters:?}");
    let heavy = drawing.nodes.iter().filter(|n| n.kind == PatchKind::Hard);
    assert_eq!(heavy.count(), 0);
    let ready = drawing.nodes.iter().filter(|n| n.drawn == Drawn::Ready);
    // Bitmap, group, superblock and the time wait for nothing.
    assert_eq!(ready.count(), 4 + 2 + 1);
}

#[test]
fn the_append_of_figure_3d_is_eight_hard_patches() {
    let mut bench = Bench::new(Optimisations::BOTH);
    append(&mut bench);
    let (drawing, p) = bench.draw();
    assert_eq!(drawing.nodes.len(), 8, "{drawing:#?}");
    let heavy = drawing.nodes.iter().filter(|n| n.kind == PatchKind::Hard);
    assert_eq!(heavy.count(), 8);
    let mut expected = BTreeSet::new();
    for n in 1..=4 {
        let d = p[&format!("d{n}")[..]];
        expected.extend([(d, p["b1"]), (p["i1"], d)]);
    }
    expected.insert((p["i1"], p["b1"]));
    assert_eq!(edges(&drawing), expected);
    let dot = drawing.dot();
    assert!(
        dot.contains("digraph") && dot.matches(" -> ").count() == 9,
        "{dot}"
    );
    assert_eq!(dot.matches("penwidth=3").count(), 8);
    let svg = drawing.svg();
    assert_eq!(svg.matches("class=\"e\"").count(), 9, "{svg}");
}

/// Figure 4: a file is removed, another one is made in the same directory whose inode is in the
/// same block, and gets a second name.
#[test]
fn the_names_of_figure_4_are_drawn_before_and_after_the_write() {
    const DIRECTORY: u64 = 5;
    let mut bench = Bench::new(Optimisations::BOTH);
    bench.bytes("d1", (DIRECTORY, 0, 4), &[]);
    bench.bytes("i", (INODES, 0, 4), &["d1"]);
    bench.bytes("d2", (DIRECTORY, 64, 16), &["i"]);
    // a) A circle of two blocks: the new name can be taken back, and so keeps its undo data.
    let before = bench.recorder.number_of(bench.names["d1"]).unwrap();
    // b) The removal is written, without the new name.
    let now = Duration::ZERO;
    let batch = bench.store.next_batch(Goal::All, now, 1 << 20);
    drive::perform(&bench.device, &batch.writes).unwrap();
    bench.store.complete(batch, now);
    // c) Another name of the new file joins the first one, which becomes hard by that.
    bench.bytes("d3", (DIRECTORY, 128, 16), &["i"]);
    let [number, d2, d3] =
        ["i", "d2", "d3"].map(|name| bench.recorder.number_of(bench.names[name]).unwrap());
    let bytes = bench.recorder.finish();
    let trace = Trace::new(&bytes).unwrap();
    let draw = |moment| {
        let state = state_at(&trace, moment, Keep::Everything).unwrap();
        Drawing::of(&state, By::Block, &Wanted::default())
    };
    let a = draw(before_the_first_write(&trace));
    assert_eq!(
        edges(&a),
        BTreeSet::from([(number, before), (d2, number), (d2, before)])
    );
    let kind = |drawing: &Drawing, patch| {
        let found = drawing.nodes.iter().find(|node| node.patch == patch);
        found.map(|node| (node.kind, node.drawn))
    };
    assert_eq!(kind(&a, before), Some((PatchKind::Hard, Drawn::Ready)));
    assert_eq!(kind(&a, number), Some((PatchKind::Hard, Drawn::Waiting)));
    assert_eq!(kind(&a, d2), Some((PatchKind::Soft, Drawn::Waiting)));
    let b = draw(Moment::Batch(1));
    assert_eq!(kind(&b, before), Some((PatchKind::Hard, Drawn::InFlight)));
    assert_eq!(kind(&b, d2), Some((PatchKind::Soft, Drawn::Waiting)));
    let dashed = |drawing: &Drawing| {
        let rolled_back = drawing.nodes.iter().filter(|node| node.is_rolled_back);
        let patches: Vec<u64> = rolled_back.map(|node| node.patch).collect();
        let (dot, svg) = (drawing.dot(), drawing.svg());
        // One more in the legend.
        let in_legend = usize::from(!patches.is_empty());
        assert_eq!(dot.matches("dashed").count(), patches.len(), "{dot}");
        let in_svg = svg.matches("stroke-dasharray").count();
        assert_eq!(in_svg, patches.len() + in_legend, "{svg}");
        patches
    };
    assert_eq!((dashed(&a), dashed(&b)), (Vec::new(), vec![d2]));
    let of_d2 = b.nodes.iter().find(|node| node.patch == d2).unwrap();
    assert_eq!(of_d2.standing(), "waiting, rolled back");
    let c = draw(Moment::End);
    assert!(dashed(&c).is_empty(), "the block is no longer on its way");
    assert_eq!(d2, d3, "they are one patch");
    assert_eq!(kind(&c, before), Some((PatchKind::Hard, Drawn::Committed)));
    assert_eq!(kind(&c, number), Some((PatchKind::Hard, Drawn::Ready)));
    assert_eq!(kind(&c, d2), Some((PatchKind::Hard, Drawn::Waiting)));
}

#[test]
fn nothing_is_rolled_back_of_a_block_whose_batch_has_failed() {
    let mut bench = Bench::new(Optimisations::BOTH);
    bench.bytes("a", (DATA, 0, 8), &[]);
    bench.bytes("i", (INODES, 0, 4), &[]);
    bench.bytes("b", (DATA, 64, 8), &["i"]);
    bench.bytes("i2", (INODES, 64, 4), &["b"]);
    let batch = bench.store.next_batch(Goal::All, Duration::ZERO, 1 << 20);
    let rolled_back = |drawing: &Drawing| drawing.nodes.iter().any(|node| node.is_rolled_back);
    bench.store.tell_failed(&batch);
    let bytes = bench.recorder.finish();
    let trace = Trace::new(&bytes).unwrap();
    let draw = |moment| {
        let state = state_at(&trace, moment, Keep::Live).unwrap();
        Drawing::of(&state, By::Block, &Wanted::default())
    };
    assert!(rolled_back(&draw(Moment::Batch(1))));
    assert!(!rolled_back(&draw(Moment::End)));
}

fn before_the_first_write(trace: &Trace<'_>) -> Moment {
    let (mut records, mut list) = (trace.records(), Vec::new());
    while let Some((number, record)) = records.next(&mut list).unwrap() {
        if record.word() == "write" {
            return Moment::Record(number - 1);
        }
    }
    panic!("nothing is written");
}
