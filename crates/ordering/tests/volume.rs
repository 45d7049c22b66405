//! A volume over a store: what becomes of a layout's dependencies, tokens and groups under each
//! mechanism.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice};
use backstitch_ordering::rules::Rule;
use backstitch_ordering::{
    ASYNC, BlockClass, BlockKind, BlockNumber, Change, CrashLeaves, CrashRecord, Decision,
    GroupError, GroupId, Groups, LogPlace, Mechanism, MechanismKind, NewObject, NoLog, Operation,
    PatchId, PatchSpec, Place, Promises, SOFT, SYNC, Volume, VolumeId,
};
use backstitch_patch::PatchKind;
use backstitch_rules::watch::{self, Form};
use backstitch_store::{Goal, Limits, Optimisations, Store};

/// A change of names.
const NAMES: Operation<'static> = Operation::Remove {
    at: Place {
        directory: 2,
        name: b"name",
    },
    is_directory: false,
};
/// A change of contents.
const CONTENTS: Operation<'static> = Operation::Resize {
    object: 2,
    size_bytes: 0,
};

type Kind = &'static dyn MechanismKind;

const METADATA: BlockKind = BlockKind::metadata(0);
const BLOCK: u32 = 1024;
const NOW: Duration = Duration::ZERO;

/// A store with one volume, of whose blocks the first 16 are in memory.
struct Bench {
    store: Store,
    volume: VolumeId,
    mechanism: Box<dyn Mechanism>,
    groups: Groups,
    engaged: Vec<GroupId>,
}

impl Bench {
    fn new(kind: Kind) -> Bench {
        Bench::with_units(kind, BLOCK)
    }

    fn with_units(kind: Kind, unit_bytes: u32) -> Bench {
        Bench::over(kind.make(None).unwrap(), unit_bytes)
    }

    fn over(mechanism: Box<dyn Mechanism>, unit_bytes: u32) -> Bench {
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume_with_units(BLOCK, unit_bytes);
        for block in 0..16 {
            let bytes: Buffer = vec![block as u8; BLOCK as usize].into();
            store.insert(volume, block, BlockClass::Metadata, bytes);
        }
        Bench {
            store,
            volume,
            mechanism,
            groups: Groups::default(),
            engaged: Vec::new(),
        }
    }

    fn volume(&mut self) -> Volume<'_> {
        let volume = Volume::new(&mut self.store, &mut *self.mechanism, self.volume, NOW);
        volume.under(&mut self.groups, &self.engaged)
    }

    /// One operation; what its caller waits for.
    fn step(
        &mut self,
        operation: Operation<'static>,
        body: impl FnOnce(&mut Volume<'_>) -> PatchId,
    ) -> (PatchId, Vec<PatchId>) {
        let mut volume = self.volume();
        volume.begin(operation);
        let id = body(&mut volume);
        let mut wait_for = Vec::new();
        volume.end(&mut wait_for);
        (id, wait_for)
    }

    fn metadata(&mut self, block: u64, at: usize, after: &[PatchId]) -> PatchId {
        let write = |v: &mut Volume<'_>| {
            v.write(BlockNumber(block), BlockClass::Metadata, at, &[1; 4], after)
        };
        self.step(NAMES, write).0
    }

    fn write_out(&mut self, target: PatchId) {
        loop {
            let goal = Goal::Patches(&[target]);
            let batch = self.store.next_batch(goal, NOW, u64::MAX);
            if batch.is_empty() {
                break;
            }
            self.store.complete(batch, NOW);
        }
        assert!(!self.store.graph().is_live(target));
    }

    /// Whether writing one puts the other onto stable storage too.
    fn comes_after(&mut self, later: PatchId, earlier: PatchId) -> bool {
        assert!(self.store.graph().is_live(earlier));
        self.write_out(later);
        !self.store.graph().is_live(earlier)
    }
}

#[test]
fn a_volume_has_its_mechanisms_promises() {
    for (kind, record, keeps_order) in [
        (&SOFT as Kind, 1, true),
        (&ASYNC, 0, false),
        (&SYNC, 2, true),
    ] {
        let mut bench = Bench::new(kind);
        let volume = bench.volume();
        let name = kind.name();
        let recorded = volume.crash_record().map(CrashRecord::code);
        assert_eq!(recorded, Some(record), "{name}");
        assert_eq!(volume.keeps_order(), keeps_order, "{name}");
        assert_eq!(volume.spans_volumes(), keeps_order, "{name}");
        assert!(!volume.scopes_are_atomic() && volume.room() == usize::MAX);
        assert_eq!(
            (volume.block_bytes(), volume.atomic_bytes()),
            (BLOCK, BLOCK as usize)
        );
    }
}

#[test]
fn order_is_kept_or_dropped() {
    for kind in [&SOFT as Kind, &SYNC, &ASYNC] {
        let keeps = kind.promises().keeps_order();
        let mut bench = Bench::new(kind);
        let first = bench.metadata(0, 0, &[]);
        let later = bench.metadata(1, 0, &[first]);
        let fourth = bench.metadata(2, 0, &[]);
        let of = bench.volume().empty(&[fourth]);
        assert_eq!(of != PatchId::COMMITTED, keeps, "{kind:?}");
        let mut fired = Vec::new();
        let mut volume = bench.volume();
        volume.watch(&[first, fourth], 77);
        volume.take_fired(&mut fired);
        assert_eq!(fired.is_empty(), keeps, "{kind:?}");
        assert_eq!(bench.comes_after(later, first), keeps, "{kind:?}");
        bench.write_out(fourth);
        bench.write_out(first);
        bench.volume().take_fired(&mut fired);
        assert_eq!(fired, [77], "{kind:?}");
    }
}

/// Under `sync` a caller waits for metadata that it asked for, and for nothing else.
#[test]
fn a_call_under_sync_waits_for_its_metadata() {
    use Operation::{Administration, Background};
    let touch = Operation::Touch { object: 2 };
    for operation in [NAMES, touch, Administration, CONTENTS, Background] {
        let waits = ![CONTENTS, Background].contains(&operation);
        let mut bench = Bench::new(&SYNC);
        let mut made = None;
        let (name, wait_for) = bench.step(operation, |v| {
            made = Some(v.write(BlockNumber(0), BlockClass::Data, 0, &[1; 4], &[]));
            v.write_implied_times(BlockNumber(1), BlockClass::Metadata, 0, &[1; 4]);
            v.write(BlockNumber(2), BlockClass::Directory, 0, &[1; 4], &[])
        });
        let expected = if waits { vec![name] } else { vec![] };
        assert_eq!(wait_for, expected, "{operation:?}");
        // Metadata keep what undoes them, so that the caller waits for nothing else of the block.
        let kind = |id| bench.store.graph().info(id).unwrap().kind;
        assert_eq!(
            (kind(name), kind(made.unwrap())),
            (PatchKind::Soft, PatchKind::Hard)
        );
        // The next operation does not wait for the one before.
        let (_, wait_for) = bench.step(operation, |_| PatchId::COMMITTED);
        assert!(wait_for.is_empty());
        let (_, wait_for) = bench.step(CONTENTS, |v| {
            v.write(BlockNumber(3), BlockClass::Data, 0, &[1], &[])
        });
        assert!(wait_for.is_empty());
        let mut bench = Bench::new(&SOFT);
        let write =
            |v: &mut Volume<'_>| v.write(BlockNumber(2), BlockClass::Directory, 0, &[1; 4], &[]);
        let (name, wait_for) = bench.step(operation, write);
        assert!(wait_for.is_empty());
        assert_eq!(
            bench.store.graph().info(name).unwrap().kind,
            PatchKind::Hard
        );
    }
}

#[test]
fn a_change_stands_apart_where_it_is_to() {
    let mut bench = Bench::new(&SOFT);
    let other = bench.metadata(1, 0, &[]);
    let beside = |v: &mut Volume<'_>| {
        v.write_apart(BlockNumber(0), BlockClass::Metadata, 8, &[1; 4], &[other])
    };
    let (beside, _) = bench.step(NAMES, beside);
    let apart =
        |v: &mut Volume<'_>| v.write_apart(BlockNumber(0), BlockClass::Metadata, 0, &[1; 4], &[]);
    let (apart, _) = bench.step(NAMES, apart);
    let volume = bench.volume();
    assert!(!volume.merged(apart, beside) && volume.merged(apart, apart));
    assert!(!bench.comes_after(apart, other), "nor does it wait");
    assert!(
        !bench.volume().merged(apart, apart),
        "it is on stable storage"
    );
    assert!(bench.comes_after(beside, other));
    // Others are one patch.
    let other = bench.metadata(1, 0, &[]);
    let beside = bench.metadata(0, 8, &[other]);
    let together = bench.metadata(0, 0, &[]);
    assert!(bench.volume().merged(together, beside) && bench.comes_after(together, other));
}

#[test]
fn an_atomic_unit_has_borders() {
    let mut bench = Bench::with_units(&SOFT, 512);
    let volume = bench.volume();
    assert_eq!(volume.atomic_bytes(), 512);
    for (range, is_atomic) in [
        (0..512, true),
        (0..513, false),
        (511..512, true),
        (511..513, false),
        (512..1024, true),
        (600..600, true),
        (512..512, true),
        (100..101, true),
        (0..1024, false),
        (1023..1024, true),
    ] {
        assert_eq!(volume.is_atomic(range.clone()), is_atomic, "{range:?}");
    }
}

#[test]
fn blocks_are_read_as_they_are_in_memory() {
    let mut bench = Bench::new(&SOFT);
    let id = bench.metadata(3, 5, &[]);
    let mut expected = vec![3; BLOCK as usize];
    expected[5..9].fill(1);
    let mut volume = bench.volume();
    assert_eq!(volume.read(BlockNumber(3)).unwrap(), expected);
    assert_eq!(*volume.read_shared(BlockNumber(3)).unwrap(), expected);
    assert_eq!(**volume.peek(BlockNumber(3)).unwrap(), expected);
    assert!(volume.want(BlockNumber(3)) && volume.peek(BlockNumber(20)).is_none());
    let mut pending = Vec::new();
    volume.pending(BlockNumber(3), &mut pending);
    volume.pending(BlockNumber(4), &mut pending);
    assert_eq!(pending, [id]);
    assert_eq!(volume.place(7), Some(7));
    assert_eq!(volume.retired(), 0);
    assert!(volume.is_live(id) && volume.is_pending(id));
    // What is not there is noted, and read from the device.
    assert!(volume.read(BlockNumber(20)).is_err() && !volume.want(BlockNumber(21)));
    volume.want_soon(BlockNumber(22), 2);
    let device = MemoryDevice::new(64 * BLOCK as usize);
    assert!(volume.read_missing(&device).unwrap());
    assert!(!volume.read_missing(&device).unwrap());
    assert_eq!(volume.read(BlockNumber(20)).unwrap(), [0; BLOCK as usize]);
    assert!(volume.peek(BlockNumber(21)).is_some());
    volume.write_now(&device, &[id]).unwrap();
    assert!(!volume.is_live(id) && !volume.is_pending(id));
    assert_eq!(volume.retired(), 1);
    let mut written = vec![0; BLOCK as usize];
    device.read(3 * u64::from(BLOCK), &mut written).unwrap();
    assert_eq!(written, expected);
    assert_eq!(bench.store.take_wanted_soon(), [(bench.volume, 22, 2)]);
    assert!(bench.volume().read(BlockNumber(100)).is_err());
    assert!(
        bench.volume().read_missing(&device).is_err(),
        "past the device's end"
    );
}

/// Tokens of two volumes of one store, of which one is on the other.
#[test]
fn tokens_are_told_to_who_asked() {
    let mut bench = Bench::new(&SOFT);
    let id = bench.metadata(0, 0, &[]);
    let mut upper_mechanism = SOFT.make(None).unwrap();
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    assert_eq!(lower.watch_one(id, 5), Some(5));
    assert_eq!(lower.watch_one(id, 6), Some(5), "who asked first is told");
    let empty = lower.empty(&[id]);
    assert_eq!(lower.watch_one(empty, 6), None);
    lower.watch(&[id], 7);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 3);
    assert_eq!(upper.watch_one(id, 8), None, "another volume's token");
    upper.watch(&[id], (1 << 56) - 1);
    assert!(upper.leave().is_empty());
    bench.write_out(id);
    let (mut below, mut above) = (vec![99], vec![98]);
    let mut lower = bench.volume();
    lower.take_fired(&mut below);
    below.sort_unstable();
    assert_eq!(below, [5, 7, 99]);
    lower
        .enter(&mut *upper_mechanism, upper_id, 3)
        .take_fired(&mut above);
    assert_eq!(above, [98, (1 << 56) - 1]);
    let mut bench = Bench::new(&ASYNC);
    let id = bench.metadata(0, 0, &[]);
    assert_eq!(bench.volume().watch_one(id, 5), None, "no order is kept");
}

/// What the mechanism of a volume on another one wants on stable storage its caller waits for,
/// unless nothing was changed.
#[test]
fn a_call_waits_for_the_volume_above() {
    for only_reads in [false, true] {
        let mut bench = Bench::new(&SOFT);
        let mut upper_mechanism = SYNC.make(None).unwrap();
        let mut lower = bench.volume();
        let upper_id = lower.add_volume();
        lower.place_blocks(upper_id, 0, 8, 4);
        lower.begin(NAMES);
        let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
        let id = upper.write(BlockNumber(0), BlockClass::Directory, 0, &[1; 4], &[]);
        if only_reads {
            upper.only_read();
        }
        let above = upper.leave();
        assert_eq!(above, if only_reads { vec![] } else { vec![id] });
        lower.answer_after(above.clone());
        let mut wait_for = Vec::new();
        lower.end(&mut wait_for);
        assert_eq!(wait_for, above);
    }
}

#[test]
fn blocks_of_a_volume_on_another_one_have_places() {
    let mut bench = Bench::new(&SOFT);
    let mut upper_mechanism = SOFT.make(None).unwrap();
    let shown_by = bench.metadata(1, 0, &[]);
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    lower.place_blocks(upper_id, 10, 8, 2);
    assert!(lower.has_place_here(upper_id, 11) && !lower.has_place_here(upper_id, 12));
    assert_eq!(lower.place_of(upper_id, 11), Some(9));
    assert_eq!(lower.place_of(upper_id, 9), None);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
    assert_eq!((upper.place(10), upper.place(12)), (Some(8), None));
    // Who only reads sees zeros; who would change it wants a place.
    let zeros = [0; BLOCK as usize];
    assert_eq!(upper.read(BlockNumber(12)).unwrap(), zeros);
    assert_eq!(**upper.peek(BlockNumber(12)).unwrap(), zeros);
    assert!(upper.want(BlockNumber(12)));
    upper.begin(CONTENTS);
    assert!(
        upper.read(BlockNumber(12)).is_err()
            && upper.read_shared(BlockNumber(13)).is_err()
            && !upper.want(BlockNumber(14))
    );
    assert!(upper.expect_places(BlockNumber(9), 2).is_err());
    assert!(upper.expect_places(BlockNumber(10), 2).is_ok());
    assert!(upper.expect_places(BlockNumber(10), 3).is_err());
    drop(upper);
    let mut wanted = lower.take_places_wanted(upper_id);
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(wanted, [9, 12, 13, 14]);
    assert!(lower.take_places_wanted(upper_id).is_empty());
    assert!(
        lower.expect_places(BlockNumber(100), 5).is_ok(),
        "it is on a device"
    );
    // What is written into a new place counts once the place is known on the disk.
    lower.place_blocks(upper_id, 12, 12, 1);
    lower.show_blocks_by(upper_id, 12, 1, &[shown_by]);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
    upper.begin(CONTENTS);
    let hidden = upper.write(BlockNumber(12), BlockClass::Data, 0, &[1; 4], &[]);
    let shown = upper.write(BlockNumber(10), BlockClass::Data, 0, &[1; 4], &[]);
    // It is not forgotten, for a reader of the file outside sees it.
    upper.discard(BlockNumber(12));
    upper.discard(BlockNumber(10));
    let mut pending = Vec::new();
    upper.pending(BlockNumber(12), &mut pending);
    assert_eq!(pending.len(), 1);
    upper.pending(BlockNumber(10), &mut pending);
    assert_eq!(pending.len(), 1);
    assert!(upper.is_live(hidden) && !upper.is_live(shown));
    let next = upper.write(BlockNumber(11), BlockClass::Data, 0, &[1; 4], &[hidden]);
    assert!(bench.comes_after(next, shown_by));
}

#[test]
fn what_makes_up_for_a_change_takes_its_place() {
    for (kind, class, is_superseded) in [
        (&SOFT as Kind, BlockClass::Directory, true),
        (&SOFT, BlockClass::Metadata, false),
        (&ASYNC, BlockClass::Directory, true),
    ] {
        let mut bench = Bench::new(kind);
        let removed =
            |v: &mut Volume<'_>| v.initialise(BlockNumber(30), class, &[1; BLOCK as usize], &[]);
        let (removed, _) = bench.step(NAMES, removed);
        let by = bench.metadata(1, 0, &[]);
        bench.volume().supersede(BlockNumber(30), by);
        assert_eq!(
            bench.volume().merged(removed, by),
            is_superseded,
            "{kind:?} {class:?}"
        );
    }
}

/// A hole of a file gets a place, where the disk holds what somebody removed. Nobody inside needs
/// the block any more before it was written: it is written all the same before the file outside
/// leads to it.
#[test]
fn a_new_place_is_written_before_it_shows_though_something_makes_up_for_it() {
    let mut bench = Bench::new(&SOFT);
    let mut upper_mechanism = ASYNC.make(None).unwrap();
    let zeros = |v: &mut Volume<'_>| {
        v.initialise(BlockNumber(30), BlockClass::Data, &[0; BLOCK as usize], &[])
    };
    let (zeros, _) = bench.step(CONTENTS, zeros);
    let shown_by = bench.metadata(1, 0, &[zeros]);
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    lower.place_blocks(upper_id, 0, 8, 1);
    lower.place_blocks(upper_id, 1, 30, 1);
    lower.show_blocks_by(upper_id, 1, 1, &[shown_by]);
    let mut upper = lower.enter(&mut *upper_mechanism, upper_id, 1);
    upper.begin(NAMES);
    upper.initialise(
        BlockNumber(1),
        BlockClass::Directory,
        &[1; BLOCK as usize],
        &[],
    );
    let by = upper.write(BlockNumber(0), METADATA, 0, &[1; 4], &[]);
    upper.supersede(BlockNumber(1), by);
    drop(upper);
    let mut written = Vec::new();
    while bench.store.graph().is_live(shown_by) {
        let goal = Goal::Patches(&[shown_by]);
        let batch = bench.store.next_batch(goal, NOW, u64::MAX);
        let requests = batch.writes.iter().flat_map(|(_, requests)| requests);
        written.extend(requests.map(|r| r.offset_bytes / u64::from(BLOCK)));
        bench.store.complete(batch, NOW);
    }
    assert_eq!(written, [30, 1]);
}

#[test]
fn without_the_rule_a_new_place_shows_what_it_held() {
    let rule = Rule::NewPlaceIsNotSuperseded;
    watch::switch_off(Some((rule.into(), Form::Whole)));
    let done = std::panic::catch_unwind(
        a_new_place_is_written_before_it_shows_though_something_makes_up_for_it,
    );
    watch::switch_off(None);
    assert!(done.is_err(), "nothing shows that {rule:?} is off");
}

/// A mechanism that notes what it is told.
type Heard = (Vec<(u64, BlockKind, [bool; 4], u32, u32)>, Vec<u64>);

struct Told(Arc<Mutex<Heard>>);

impl Mechanism for Told {
    fn kind(&self) -> Kind {
        &SOFT
    }

    fn transform(&mut self, _: &mut Store, s: &PatchSpec<'_>, _: &mut Vec<PatchId>) -> Decision {
        let flags = [s.is_apart, s.is_implied_times, s.is_hidden, s.is_grouped];
        let (at, what) = match s.change {
            Change::Bytes {
                offset_bytes,
                bytes,
            } => (offset_bytes, u32::from(bytes[0])),
            Change::Flip { offset_bytes, mask } => (offset_bytes, mask),
        };
        let heard = &mut self.0.lock().unwrap().0;
        heard.push((s.block, s.kind, flags, at, what));
        Decision::IN_PLACE
    }

    fn expect(&mut self, block: u64) {
        self.0.lock().unwrap().1.push(block);
    }
}

#[test]
fn a_mechanism_is_told_of_changes_before_they_are_made() {
    let told = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let mut bench = Bench::over(Box::new(Told(told.clone())), BLOCK);
    let changes = |v: &mut Volume<'_>| {
        v.write_apart(BlockNumber(1), METADATA, 0, &[1; 4], &[]);
        v.write_implied_times(BlockNumber(2), METADATA, 8, &[2; 4]);
        v.hidden(true, |v| {
            v.write(BlockNumber(3), BlockClass::Data, 0, &[3; 4], &[])
        });
        v.expect(BlockNumber(9));
        v.flip(BlockNumber(4), BlockClass::Directory, 4, 4, &[])
    };
    bench.step(NAMES, changes);
    let (specs, expected) = std::mem::take(&mut *told.lock().unwrap());
    let (metadata, data) = (METADATA, BlockKind::from(BlockClass::Data));
    let directory = BlockKind::from(BlockClass::Directory);
    assert_eq!(
        specs,
        [
            (1, metadata, [true, false, false, false], 0, 1),
            (2, metadata, [false, true, false, false], 8, 2),
            (3, data, [false, false, true, false], 0, 3),
            (4, directory, [false, false, true, false], 4, 4),
        ]
    );
    assert_eq!(expected, [9]);
}

/// A mechanism whose scopes are atomic, as a journal's, and that keeps no order in the graph.
struct Atomic;

impl MechanismKind for Atomic {
    fn name(&self) -> &'static str {
        "atomic"
    }

    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::WholeScopes)
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        None
    }

    fn make(&self, _: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::new(Atomic))
    }
}

impl Mechanism for Atomic {
    fn kind(&self) -> Kind {
        &Atomic
    }

    fn transform(
        &mut self,
        _: &mut Store,
        _: &PatchSpec<'_>,
        dependencies: &mut Vec<PatchId>,
    ) -> Decision {
        dependencies.clear();
        Decision::IN_PLACE
    }
}

#[test]
fn what_a_group_holds_is_what_a_reader_of_the_disk_could_see() {
    for (mechanism, counts_hidden) in [
        (SOFT.make(None).unwrap(), false),
        (ASYNC.make(None).unwrap(), true),
        (Atomic.make(None).unwrap(), true),
    ] {
        let name = mechanism.kind().name();
        let mut bench = Bench::over(mechanism, BLOCK);
        assert!(!bench.volume().is_grouped() && bench.volume().engaged().is_empty());
        let [first, second] = [(); 2].map(|()| bench.groups.create().unwrap());
        bench.groups.engage(bench.store.graph_mut(), first).unwrap();
        bench.engaged = vec![first];
        assert!(bench.volume().is_grouped());
        assert_eq!(bench.volume().engaged(), [first]);
        assert_eq!(bench.groups.engaged(), 1);
        assert_eq!(bench.groups.is_blank(first), Ok(true));
        let flip = |v: &mut Volume<'_>| v.flip(BlockNumber(4), BlockClass::Metadata, 0, 1, &[]);
        let (bit, _) = bench.step(NAMES, flip);
        let hidden = |v: &mut Volume<'_>| {
            v.hidden(true, |v| {
                v.write(BlockNumber(5), BlockClass::Metadata, 0, &[1; 4], &[])
            })
        };
        let (hidden, _) = bench.step(NAMES, hidden);
        let without = |v: &mut Volume<'_>| {
            v.without_groups(|v| {
                assert!(!v.is_grouped());
                v.write(BlockNumber(6), BlockClass::Metadata, 0, &[1; 4], &[])
            })
        };
        let (without, _) = bench.step(NAMES, without);
        assert_eq!(bench.groups.is_blank(first), Ok(!counts_hidden), "{name}");
        let shown = bench.metadata(0, 0, &[]);
        let times = |v: &mut Volume<'_>| {
            v.write_implied_times(BlockNumber(7), BlockClass::Metadata, 0, &[1; 4])
        };
        let (times, _) = bench.step(NAMES, times);
        assert_eq!(bench.groups.is_blank(first), Ok(false));
        let mut targets = bench.groups.targets(bench.store.graph(), first).unwrap();
        let mut expected = vec![shown, times];
        expected.extend([bit, hidden].into_iter().filter(|_| counts_hidden));
        targets.sort_unstable();
        expected.sort_unstable();
        assert_eq!(targets, expected, "{name}");
        assert!(!targets.contains(&without));
        // Times are of the group, but nobody waits for them.
        bench.groups.disengage(first).unwrap();
        let graph = bench.store.graph_mut();
        bench.groups.depend(graph, second, first).unwrap();
        bench.groups.engage(graph, second).unwrap();
        bench.engaged = vec![second];
        let later = bench.metadata(1, 0, &[]);
        if name != "atomic" {
            assert!(bench.comes_after(later, shown), "{name}");
            assert!(bench.volume().is_live(times), "{name}");
            assert_eq!(bench.volume().is_live(bit), !counts_hidden, "{name}");
        } else {
            assert!(!bench.comes_after(later, shown), "the log keeps the order");
        }
        assert!(bench.volume().come_after_groups(), "there is no log");
    }
}

/// Changes of an object that is made together with them show no earlier than its names.
#[test]
fn changes_of_a_new_object_hide_behind_its_names() {
    for (kind, names, is_hidden) in [
        (&SOFT as Kind, 2, true),
        (&SOFT, 1, false),
        (&SOFT, 0, false),
        (&ASYNC, 2, false),
    ] {
        let mut bench = Bench::new(kind);
        let [first, second] = [(); 2].map(|()| bench.groups.create().unwrap());
        bench.groups.engage(bench.store.graph_mut(), first).unwrap();
        bench.engaged = vec![first];
        bench.metadata(0, 0, &[]);
        bench.groups.disengage(first).unwrap();
        let graph = bench.store.graph_mut();
        bench.groups.depend(graph, second, first).unwrap();
        bench.groups.engage(graph, second).unwrap();
        bench.engaged.clear();
        let made = bench.metadata(1, 0, &[]);
        let early = bench.metadata(2, 0, &[made]);
        bench.engaged = vec![second];
        let late = bench.metadata(3, 0, &[made]);
        let late_too = bench.metadata(4, 0, &[made]);
        let new = NewObject {
            made,
            names: match names {
                0 => vec![],
                1 => vec![early, late],
                _ => vec![late, late_too],
            },
        };
        let members = |bench: &Bench| bench.groups.targets(bench.store.graph(), second).unwrap();
        let before = members(&bench);
        let into =
            |v: &mut Volume<'_>| v.write_into_new(BlockNumber(1), METADATA, 16, &[1; 4], &[], &new);
        let (id, _) = bench.step(NAMES, into);
        let noted = members(&bench).len() > before.len();
        assert_eq!(noted, !is_hidden, "{kind:?}, {names} names");
        assert!(!is_hidden || bench.volume().merged(id, made));
        // Where a change does not become a part of it, nothing is hidden.
        let before = members(&bench).len();
        let elsewhere =
            |v: &mut Volume<'_>| v.write_into_new(BlockNumber(5), METADATA, 16, &[1; 4], &[], &new);
        bench.step(NAMES, elsewhere);
        assert!(members(&bench).len() > before);
        assert!(
            !bench.volume().is_contents_of_new(BlockNumber(1), &new),
            "no contents"
        );
        bench.volume().reached_by(&[early]);
        assert!(members(&bench).contains(&early));
    }
}

#[test]
fn contents_of_a_new_object_hide_where_its_making_waits_for_them() {
    let mut bench = Bench::new(&SOFT);
    let [first, second] = [(); 2].map(|()| bench.groups.create().unwrap());
    bench.groups.engage(bench.store.graph_mut(), first).unwrap();
    bench.engaged = vec![first];
    bench.metadata(0, 0, &[]);
    bench.groups.disengage(first).unwrap();
    let graph = bench.store.graph_mut();
    bench.groups.depend(graph, second, first).unwrap();
    bench.groups.engage(graph, second).unwrap();
    bench.engaged.clear();
    let write = |v: &mut Volume<'_>| {
        v.write_in_run(BlockNumber(20), 0, &[1; BLOCK as usize], PatchId::COMMITTED)
    };
    let (contents, _) = bench.step(CONTENTS, write);
    let made = bench.metadata(1, 0, &[contents]);
    bench.engaged = vec![second];
    let name = bench.metadata(2, 0, &[made]);
    let new = NewObject {
        made,
        names: vec![name],
    };
    assert!(bench.volume().is_contents_of_new(BlockNumber(20), &new));
    assert!(!bench.volume().is_contents_of_new(BlockNumber(21), &new));
    bench.engaged.clear();
    assert!(
        !bench.volume().is_contents_of_new(BlockNumber(20), &new),
        "no group"
    );
}

/// "Yes" only where the layout's order alone decides.
#[test]
fn a_change_joins_the_patch_that_made_the_object() {
    for (mechanism, is_grouped, joins) in [
        (SOFT.make(None).unwrap(), false, true),
        (SOFT.make(None).unwrap(), true, false),
        (ASYNC.make(None).unwrap(), false, false),
        (Box::new(Atomic), false, false),
    ] {
        let name = mechanism.kind().name();
        let mut bench = Bench::over(mechanism, BLOCK);
        let made = bench.metadata(1, 0, &[]);
        if is_grouped {
            let group = bench.groups.create().unwrap();
            bench.groups.engage(bench.store.graph_mut(), group).unwrap();
            bench.engaged = vec![group];
        }
        let asked = bench.volume().joins(BlockNumber(1), 16, &[1; 4], &[], made);
        assert_eq!(asked, joins, "{name}, grouped: {is_grouped}");
        assert!(
            !bench.volume().joins(BlockNumber(2), 16, &[1; 4], &[], made),
            "another block"
        );
    }
    let mut bench = Bench::new(&SOFT);
    let mut mechanism = SOFT.make(None).unwrap();
    let made = bench.metadata(1, 0, &[]);
    let mut lower = bench.volume();
    let upper_id = lower.add_volume();
    lower.place_blocks(upper_id, 0, 1, 1);
    let mut upper = lower.enter(&mut *mechanism, upper_id, 1);
    assert!(
        !upper.joins(BlockNumber(0), 16, &[1; 4], &[], made),
        "blocks need places"
    );
}

#[test]
fn a_group_comes_after_a_bounded_number_of_others() {
    const MOST: u64 = 1 << 12;
    let mut bench = Bench::new(&SOFT);
    let after = bench.groups.create().unwrap();
    let hold = bench.store.graph_mut().create_empty(&[], None, true);
    for n in 0..=MOST {
        let before = bench.groups.create().unwrap();
        let graph = bench.store.graph_mut();
        bench.groups.engage(graph, before).unwrap();
        let member = graph.create_empty(&[hold], None, false);
        bench.engaged = vec![before];
        bench.volume().reached_by(&[member]);
        bench.groups.disengage(before).unwrap();
        let graph = bench.store.graph_mut();
        let taken = bench.groups.depend(graph, after, before);
        let expected = if n < MOST {
            Ok(())
        } else {
            Err(GroupError::TooMany)
        };
        assert_eq!(taken, expected, "{n}");
    }
    // They are one patch from then on, and nothing once they are on stable storage.
    let graph = bench.store.graph_mut();
    bench.groups.engage(graph, after).unwrap();
    let mut heads = Vec::new();
    bench.groups.heads(graph, &[after], &mut heads);
    assert_eq!(heads.len(), 1);
    assert_eq!(graph.dependencies(heads[0]).len() as u64, MOST);
    graph.release(hold);
    heads.clear();
    bench.groups.heads(graph, &[after], &mut heads);
    assert!(heads.is_empty());
}
