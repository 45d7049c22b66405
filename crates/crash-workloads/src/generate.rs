//! Workloads of our own: ACE's (the same operations, files and promises as its workloads of one and
//! two operations), sequences on a small tree that is already on stable storage, and random ones.

mod ace;
mod cases;
pub mod guided;
mod mutate;
mod random;

use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_layout::{Allocate, flags};
use fastrand::Rng as Random;

use crate::MOST_BYTES;
use crate::ace::Workload;
pub use cases::{FAMILIES, Family, cases};
use random::Grown;

/// The workloads of `length` operations, 1 or 2, as ACE enumerates them.
pub fn ace(length: usize) -> Vec<Workload> {
    name(ace::workloads(length), "ace", length, 0)
}

/// Sequences of `length` operations, 1 or 2, each followed by fsync, fdatasync, sync or nothing,
/// over a small tree on stable storage.
pub fn sequences(length: usize) -> Vec<Workload> {
    let cores = tree_cores();
    let tree = tree();
    let mut workloads = Vec::new();
    for first in &cores {
        for promise in every_promise(first) {
            let mut operations = tree.clone();
            operations.push(first.clone());
            operations.extend(promise);
            if length < 2 {
                workloads.push(operations);
                continue;
            }
            for second in &cores {
                for promise in every_promise(second) {
                    let mut operations = operations.clone();
                    operations.push(second.clone());
                    operations.extend(promise);
                    workloads.push(operations);
                }
            }
        }
    }
    name(workloads, "seq", length, tree.len())
}

/// `count` random workloads.
pub fn random(count: usize, seed: u64) -> Vec<Workload> {
    grow(
        "random",
        0x1_0000_0001,
        count,
        seed,
        |random, grown, operations| {
            for _ in 0..6 + random.usize(..10) {
                operations.push(grown.operation(random));
            }
        },
    )
}

/// `count` workloads of programs that flush most of what they do: new files, files that replace
/// others, a log that grows beyond an indirect block, and now and then another operation or a sync.
pub fn flushed(count: usize, seed: u64) -> Vec<Workload> {
    grow(
        "flushed",
        0x1_0000_0003,
        count,
        seed,
        |random, grown, operations| {
            for _ in 0..4 + random.usize(..8) {
                match random.usize(..8) {
                    0 => operations.push(grown.operation(random)),
                    // A sync gives back what was kept ready, for other files to use.
                    1 => operations.push(Operation::Sync),
                    _ => grown.flushed(random, operations),
                }
            }
        },
    )
}

/// `count` sessions of more than 200 operations. After about every seven of them something is
/// flushed.
pub fn long(count: usize, seed: u64) -> Vec<Workload> {
    const OPERATIONS: usize = 200;
    grow(
        "long",
        0x1_0000_0005,
        count,
        seed,
        |random, grown, operations| {
            while operations.len() < OPERATIONS {
                for _ in 0..2 + random.usize(..8) {
                    operations.push(grown.operation(random));
                }
                match random.usize(..4) {
                    0 => operations.push(Operation::Sync),
                    1 => grown.flushed(random, operations),
                    _ => operations.push(grown.flush(random)),
                }
            }
        },
    )
}

/// `count` random operations on a tree of these directories and files.
pub fn more(
    directories: Vec<String>,
    files: Vec<String>,
    count: usize,
    random: &mut Random,
) -> Vec<Operation> {
    let mut grown = Grown::over(directories, files);
    (0..count).map(|_| grown.operation(random)).collect()
}

/// `count` random workloads, to each of which `more` adds operations, each with a seed of its own.
/// Kinds with different `spread` use different seeds.
fn grow(
    kind: &str,
    spread: u64,
    count: usize,
    seed: u64,
    more: impl Fn(&mut Random, &mut Grown, &mut Vec<Operation>),
) -> Vec<Workload> {
    let workloads = (0..count as u64).map(|number| {
        let mut random = Random::with_seed(seed.wrapping_mul(spread).wrapping_add(number));
        let mut operations = tree();
        more(&mut random, &mut Grown::new(), &mut operations);
        operations
    });
    name(workloads.collect(), kind, seed as usize, tree().len())
}

/// Shuffles workloads in a way that depends on the seed only, so that the first ones are of every
/// sort.
pub fn shuffle(workloads: &mut [Workload], seed: u64) {
    let mut random = Random::with_seed(seed);
    for at in (1..workloads.len()).rev() {
        workloads.swap(at, random.usize(..at + 1));
    }
}

fn name(workloads: Vec<Vec<Operation>>, kind: &str, of: usize, setup: usize) -> Vec<Workload> {
    let named = |(number, operations)| Workload {
        name: format!("{kind}:{of}/{}", number + 1),
        operations,
        setup,
    };
    workloads.into_iter().enumerate().map(named).collect()
}

/// Two directories, one in the other's neighbourhood, and files of some blocks.
fn tree() -> Vec<Operation> {
    let plain = Path::plain;
    vec![
        Operation::Mkdir(plain("A"), None),
        Operation::Mkdir(plain("B"), None),
        Operation::Create(plain("foo"), None),
        Operation::Write(plain("foo"), 0, Data::Pattern(6000)),
        Operation::Create(plain("A/foo"), None),
        Operation::Write(plain("A/foo"), 0, Data::Pattern(14_000)),
        Operation::Create(plain("B/bar"), None),
        Operation::Sync,
    ]
}

fn tree_cores() -> Vec<Operation> {
    let plain = Path::plain;
    let xattr = b"user.a".to_vec();
    let mut cores = vec![
        Operation::Create(plain("bar"), None),
        Operation::Create(plain("A/bar"), None),
        Operation::Mkdir(plain("C"), None),
        Operation::Mkdir(plain("A/D"), None),
        Operation::Symlink(b"target".to_vec(), plain("A/s"), None),
        Operation::Symlink(vec![b't'; 90], plain("s"), None),
        Operation::Unlink(plain("foo")),
        Operation::Unlink(plain("A/foo")),
        Operation::Unlink(plain("B/bar")),
        Operation::Rmdir(plain("B")),
        Operation::Rename(plain("foo"), plain("A/foo")),
        Operation::Rename(plain("A/foo"), plain("B/bar")),
        Operation::Rename(plain("foo"), plain("new")),
        Operation::Rename(plain("foo"), plain("B/new")),
        Operation::Rename(plain("A"), plain("E")),
        Operation::Rename(plain("A"), plain("B/A")),
        Operation::Rename(plain("B"), plain("A/B")),
        Operation::Link(plain("foo"), plain("A/l")),
        Operation::Link(plain("A/foo"), plain("l")),
    ];
    for file in ["foo", "A/foo"] {
        let path = || plain(file);
        let reserve = Allocate::Reserve { keep_size: false };
        cores.extend([
            Operation::Write(path(), 0, Data::Pattern(3000)),
            Operation::Write(path(), 20_000, Data::Pattern(2000)),
            Operation::Append(path(), Data::Pattern(700)),
            Operation::Append(path(), Data::Pattern(9000)),
            Operation::Allocate(path(), reserve, 5000, 10_000),
            Operation::Allocate(path(), Allocate::PunchHole, 1024, 3000),
            Operation::Truncate(path(), 0),
            Operation::Truncate(path(), 1500),
            Operation::Truncate(path(), 40_000),
            Operation::SetXattr(path(), xattr.clone(), b"one".to_vec()),
            Operation::RemoveXattr(path(), xattr.clone()),
        ]);
    }
    cores.extend([
        Operation::Chattr(plain("foo"), flags::IMMUTABLE | flags::NODUMP),
        Operation::Chattr(plain("A"), flags::APPEND | flags::NOATIME),
    ]);
    cores
}

/// The path that an operation changes, for the promise that follows it.
fn subject(operation: &Operation) -> Path {
    match operation {
        Operation::Create(path, _)
        | Operation::Mkdir(path, _)
        | Operation::Symlink(_, path, _)
        | Operation::Write(path, ..)
        | Operation::Append(path, _)
        | Operation::Truncate(path, _)
        | Operation::Allocate(path, ..)
        | Operation::SetXattr(path, ..)
        | Operation::RemoveXattr(path, _)
        | Operation::Chattr(path, _)
        | Operation::Link(_, path)
        | Operation::Rename(_, path) => path.clone(),
        Operation::Unlink(path) | Operation::Rmdir(path) => {
            let mut directory = path.clone();
            directory.names.pop();
            directory
        }
        _ => Path::default(),
    }
}

fn every_promise(operation: &Operation) -> [Option<Operation>; 4] {
    let subject = subject(operation);
    [
        None,
        Some(Operation::Sync),
        Some(Operation::Fsync(subject.clone())),
        Some(Operation::Fdatasync(subject)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_of_workloads() {
        assert!(ace(1).len() >= 377, "{}", ace(1).len());
        assert!(ace(2).len() > 100_000, "{}", ace(2).len());
        assert_eq!(sequences(1).len(), 43 * 4);
        assert_eq!(sequences(2).len(), 43 * 4 * 43 * 4);
    }

    #[test]
    fn workloads_are_different_and_repeatable() {
        let first = ace(1);
        let scripts: BTreeSet<String> = first
            .iter()
            .map(|w| backstitch_crash_core::operation::script(&w.operations))
            .collect();
        assert_eq!(scripts.len(), first.len());
        assert_eq!(random(20, 7), random(20, 7));
        assert_eq!(flushed(20, 7), flushed(20, 7));
        let is_flush = |o: &&Operation| {
            matches!(
                o,
                Operation::Fsync(_) | Operation::Fdatasync(_) | Operation::Sync
            )
        };
        for session in long(10, 7) {
            assert!(session.operations.len() >= 200);
            assert!(session.operations.iter().filter(is_flush).count() >= 20);
        }
        assert_ne!(random(20, 7)[3].operations, random(20, 8)[3].operations);
        let (mut one, mut other) = (ace(1), ace(1));
        shuffle(&mut one, 3);
        shuffle(&mut other, 3);
        assert_eq!(one, other);
        assert_ne!(one, first);
    }
}
