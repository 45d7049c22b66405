//! Patchgroups over this volume and one without a log.

use super::*;

/// A bench for steps under patchgroups, on a volume with a journal and on one without a log.
struct Grouped {
    bench: Bench,
    elsewhere: VolumeId,
    groups: Groups,
}

impl Grouped {
    fn new() -> Grouped {
        let mut bench = Bench::new(JournalMode::Ordered);
        let elsewhere = bench.store.add_volume(BLOCK as u32);
        for block in 0..3 {
            let zeros: Buffer = vec![0; BLOCK].into();
            (bench.store).insert(elsewhere, block, BlockClass::Metadata, zeros);
        }
        Grouped {
            bench,
            elsewhere,
            groups: Groups::default(),
        }
    }

    /// Makes and engages a new group that comes after `earlier`.
    fn group_after(&mut self, earlier: Option<GroupId>) -> GroupId {
        let group = self.groups.create().unwrap();
        let graph = self.bench.store.graph_mut();
        if let Some(earlier) = earlier {
            self.groups.depend(graph, group, earlier).unwrap();
        }
        self.groups.engage(graph, group).unwrap();
        group
    }

    fn change_elsewhere(&mut self, block: u64, group: GroupId) -> PatchId {
        let mut soft = SOFT.make(None).unwrap();
        let store = &mut self.bench.store;
        let volume = Volume::new(store, &mut *soft, self.elsewhere, NOW);
        let engaged = [group];
        let mut volume = volume.under(&mut self.groups, &engaged);
        volume.begin(NAMES);
        let id = volume.write(BlockNumber(block), BlockClass::Metadata, 0, &[1], &[]);
        volume.end(&mut Vec::new());
        self.groups.disengage(group).unwrap();
        id
    }

    /// Changes something under the group, if the running transaction may contain it; returns
    /// whether it may.
    fn change_here(&mut self, at: usize, group: GroupId) -> bool {
        let Bench {
            store,
            volume,
            journal,
        } = &mut self.bench;
        let engaged = [group];
        let volume = Volume::new(store, journal, *volume, NOW);
        let mut volume = volume.under(&mut self.groups, &engaged);
        volume.begin(NAMES);
        let may = volume.come_after_groups();
        if may {
            volume.write(BlockNumber(INODES), BlockClass::Metadata, at, &[1], &[]);
        }
        volume.end(&mut Vec::new());
        may
    }
}

#[test]
fn a_step_under_a_group_has_its_transaction_come_after_the_earlier_groups() {
    let mut grouped = Grouped::new();
    let first = grouped.group_after(None);
    let there = grouped.change_elsewhere(0, first);
    let second = grouped.group_after(Some(first));
    assert!(grouped.change_here(0, second));
    grouped.groups.disengage(second).unwrap();
    // The running transaction cannot wait for what waits for it.
    let third = grouped.group_after(Some(second));
    grouped.change_elsewhere(1, third);
    let fourth = grouped.group_after(Some(third));
    assert!(!grouped.change_here(1, fourth));
    let closed = grouped.bench.close();
    grouped.bench.write_out(closed);
    assert!(!grouped.bench.is_live(there));
    assert!(grouped.change_here(1, fourth));
}

/// Programs go back and forth between a volume without a log and this one, in groups one after the
/// other. A group's tail stands for its changes on both. The transaction that has one part of them
/// waits for the other part, and is closed first only where that part waits for the transaction.
#[test]
fn a_transaction_waits_for_what_a_group_of_its_own_did_elsewhere() {
    let mut bench = Bench::new(JournalMode::Ordered);
    let elsewhere = bench.store.add_volume(BLOCK as u32);
    for block in 0..3 {
        let zeros: Buffer = vec![0; BLOCK].into();
        bench
            .store
            .insert(elsewhere, block, BlockClass::Metadata, zeros);
    }
    let change = |bench: &mut Bench, block: u64, after: &[PatchId]| {
        let change = Change::Bytes {
            offset_bytes: 0,
            bytes: &[1],
        };
        let class = BlockClass::Metadata;
        bench
            .store
            .patch(elsewhere, block, class, change, after.into(), NOW)
    };
    let here = bench.metadata(0, 1, &[]);
    let there = change(&mut bench, 0, &[]);
    let tail = bench
        .store
        .graph_mut()
        .create_empty(&[here, there], None, false);
    // The next group comes after it, here (again and again) and there.
    for _ in 0..3 {
        assert!(bench.journal.come_after(&mut bench.store, &[tail]));
    }
    let next = bench.metadata(1, 1, &[]);
    assert_eq!(next, here, "the same transaction");
    let next_there = change(&mut bench, 1, &[tail]);
    let next_tail = bench
        .store
        .graph_mut()
        .create_empty(&[next, next_there], None, false);
    // What the third group comes after waits for the transaction, at each call.
    for _ in 0..2 {
        assert!(!bench.journal.come_after(&mut bench.store, &[next_tail]));
    }
    let first = bench.close();
    assert!(bench.journal.come_after(&mut bench.store, &[next_tail]));
    bench.metadata(2, 1, &[]);
    let second = bench.close();

    bench.write_out(first);
    assert!(!bench.is_live(there) && bench.is_live(next_there));
    bench.write_out(second);
    assert!(!bench.is_live(next_there));
}
