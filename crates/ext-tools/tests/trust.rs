//! Which images are trusted that were not unmounted: only those that no other system has mounted
//! since.

use std::sync::Arc;
use std::time::Duration;

use crate::crash::Machine;
use backstitch_device::MemoryDevice;
use backstitch_ext::rules::Rule as ExtRule;
use backstitch_mechanisms::Ordering;
use backstitch_rules::watch::{self, Form};
use backstitch_store::{Optimisations, drive};

/// Where the superblock has the time and the number of its last mount, and its state; and the bit
/// that says "clean".
const MOUNT_TIME: usize = 1024 + 0x2c;
const MOUNT_COUNT: usize = 1024 + 0x34;
const STATE: usize = 1024 + 0x3a;
const CLEAN: u8 = 1;

/// Runs a closure with a rule in force or without it.
fn with_rule<T>(rule: ExtRule, holds: bool, body: impl FnOnce() -> T) -> T {
    watch::switch_off((!holds).then_some((rule.into(), Form::Whole)));
    let done = body();
    watch::switch_off(None);
    done
}

fn opened(image: Vec<u8>) -> Machine {
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    Machine::open(memory, Ordering::SOFT, 1024, Optimisations::BOTH)
}

/// An image in use whose power fails: an inode is on the disk, its name is not.
fn cut() -> Vec<u8> {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::NONE);
    let root = machine.fs.root();
    machine.make_directory(root, "directory");
    let mut changes = Vec::new();
    machine.store.uncommitted(&mut changes);
    // The first change waits for nothing.
    let (store, devices) = (&mut machine.store, &machine.devices);
    drive::sync(store, devices, &changes[..1], Duration::ZERO).unwrap();
    machine.memory.snapshot()
}

/// Whether an image is trusted that another system has mounted, and not unmounted, after our mount.
fn believes_in_another_mount() -> bool {
    let mut image = cut();
    assert_eq!(opened(image.clone()).fs.read_only_reason(), None);
    // Linux counts its mounts, and has no record of how it keeps order.
    image[MOUNT_COUNT] += 1;
    image[MOUNT_TIME] += 1;
    opened(image).fs.read_only_reason().is_none()
}

#[test]
fn the_record_of_an_earlier_mount_is_not_believed() {
    let rule = ExtRule::RecordIsOfThisMount;
    assert!(!with_rule(rule, true, believes_in_another_mount));
    assert!(with_rule(rule, false, believes_in_another_mount));
}

/// Whether an image says that it is clean once it was unmounted, with what a crash left of it
/// reclaimed or not.
fn is_called_clean(is_reclaimed: bool) -> bool {
    let mut machine = opened(cut());
    if is_reclaimed {
        machine.reclaim_until(|progress| !progress.running);
    }
    machine.drain();
    machine.run(|fs, v, now| fs.write_counters(v, now)).unwrap();
    machine.drain();
    machine.run(|fs, v, now| fs.mark_clean(v, now)).unwrap();
    machine.drain();
    machine.memory.snapshot()[STATE] & CLEAN != 0
}

#[test]
fn an_image_with_what_a_crash_left_is_not_called_clean() {
    let rule = ExtRule::CleanOnlyWithoutLeaks;
    assert!(with_rule(rule, true, || is_called_clean(true)));
    assert!(!with_rule(rule, true, || is_called_clean(false)));
    assert!(with_rule(rule, false, || is_called_clean(false)));
}
