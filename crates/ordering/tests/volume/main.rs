//! A volume over a store: what becomes of a layout's dependencies, tokens and groups under each
//! mechanism.

mod groups;
mod stacked;

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

    /// Two patchgroups, of which the first is engaged.
    fn two_groups(&mut self) -> [GroupId; 2] {
        let both @ [first, _] = [(); 2].map(|()| self.groups.create().unwrap());
        let graph = self.store.graph_mut();
        self.groups.engage(graph, first).unwrap();
        self.engaged = vec![first];
        both
    }

    /// Another group is engaged in the place of one that it comes after.
    fn go_on_under(&mut self, group: GroupId, before: GroupId) {
        self.groups.disengage(before).unwrap();
        let graph = self.store.graph_mut();
        self.groups.depend(graph, group, before).unwrap();
        self.groups.engage(graph, group).unwrap();
        self.engaged = vec![group];
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
