//! Random operations in one thread, cut at random moments: whatever subset of the unflushed writes
//! reached the device, a foreign checker finds nothing but what soft updates may leave.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::crash::{Machine, Random, check, images, our_check, seeds, what_no_crash_leaves};
use backstitch_crash::unexpected_of_e2fsck as judge;
use backstitch_device::MemoryDevice;
use backstitch_layout::{Allocate, InodeNumber, SetAttributes, SetXattrMode};
use backstitch_mechanisms::Ordering;
use backstitch_store::{Optimisations, drive};

/// Runs a history; returns the number of states looked at and those found bad.
fn explore(
    ordering: Ordering,
    block_size: u32,
    seed: u64,
    operations: usize,
) -> (usize, Vec<String>) {
    let directory = images();
    let path = directory.join(format!(
        "backstitch-crash-{}-{seed}-{block_size}-{ordering}",
        std::process::id()
    ));
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let words = ["both", "none", "both", "hard", "both", "merge"];
    let optimisations = words[seed as usize % words.len()].parse().unwrap();
    let mut machine = Machine::new(ordering, block_size, optimisations);
    let mut states = 0;
    let mut bad = Vec::new();
    let mut history = Vec::new();
    for number in 0..operations {
        history.push(machine.operation(&mut random, number));
        if random.below(4) == 0 {
            machine.background();
        }
        if random.below(4) == 0 {
            machine.write_some(&mut random, &mut |state| {
                states += 1;
                let Some((report, ours)) = check(state, &path) else {
                    return;
                };
                let mut found = judge(&report);
                found.extend(ours);
                if !found.is_empty() && bad.is_empty() {
                    bad.push(format!(
                        "seed {seed}, operation {number}: {}",
                        found.join("\n")
                    ));
                    if std::env::var_os("BACKSTITCH_KEEP").is_some() {
                        std::fs::write(path.with_extension("bad"), state).unwrap();
                        std::fs::write(
                            path.with_extension("log"),
                            history.join("\n") + "\n" + &report,
                        )
                        .unwrap();
                    }
                }
            });
        }
    }
    machine.drain();
    let report = check(&machine.memory.snapshot(), &path);
    if let Some((report, ours)) = report
        && ordering != Ordering::ASYNC
    {
        let mut found = judge(&report);
        found.extend(ours);
        if !found.is_empty() && std::env::var_os("BACKSTITCH_KEEP").is_some() {
            std::fs::write(path.with_extension("img"), machine.memory.snapshot()).unwrap();
            std::fs::write(
                path.with_extension("end"),
                history.join("\n") + "\n" + &report,
            )
            .unwrap();
        }
        bad.extend(found);
    }
    let _ = std::fs::remove_file(&path);
    (states, bad)
}

#[test]
fn soft_updates_leave_nothing_but_leaks_and_counts() {
    if Command::new("e2fsck").arg("-V").output().is_err() {
        eprintln!("SKIPPED: e2fsck is missing (Debian package e2fsprogs)");
        return;
    }
    let mut states = 0;
    for seed in seeds() {
        for block_size in [1024, 4096] {
            let (looked_at, bad) = explore(Ordering::SOFT, block_size, seed, 400);
            states += looked_at;
            assert!(bad.is_empty(), "blocks of {block_size}: {}", bad.join("\n"));
        }
    }
    eprintln!("{states} states");
}

#[test]
fn no_order_leaves_damage() {
    if Command::new("e2fsck").arg("-V").output().is_err() {
        eprintln!("SKIPPED: e2fsck is missing (Debian package e2fsprogs)");
        return;
    }
    let found = (1..=6).any(|seed| !explore(Ordering::ASYNC, 1024, seed, 400).1.is_empty());
    assert!(
        found,
        "a crash without order left no damage: this test does not look"
    );
}

#[test]
fn an_attribute_block_is_marked_before_its_second_user_is_on_the_disk() {
    let path = images().join(format!("backstitch-shared-{}", std::process::id()));
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let mut random = Random(77);
    for number in 0..12 {
        machine.create(&mut random, number, 0);
    }
    machine.drain();
    // The inodes lie in different blocks, so that one goes to the disk without the other.
    let (first, second) = (machine.names[0].2, machine.names[11].2);
    for inode in [first, second] {
        let any = SetXattrMode::Any;
        machine
            .run(|fs, v, now| fs.set_xattr(v, inode, b"user.a", Some(b"one"), any, now))
            .unwrap();
    }
    machine.fsync(second);
    let (report, ours) = check(&machine.memory.snapshot(), &path).unwrap();
    let _ = std::fs::remove_file(&path);
    assert!(judge(&report).is_empty() && ours.is_empty(), "{report}");
}

#[test]
fn a_removed_file_is_not_looked_at_where_it_is_freed_already() {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let root = machine.fs.root();
    // Its blocks are far apart, so that it is freed in several parts, each with indirect blocks of
    // its own.
    let sparse = machine.make(root, "sparse");
    for place in 0..60 {
        machine.write_at(sparse, place << 22, b"x").unwrap();
    }
    let full = machine.make(root, "full");
    let chunk = vec![1; 1 << 20];
    for at in 0.. {
        if machine.write_at(full, at << 20, &chunk).ok() != Some(chunk.len()) {
            break;
        }
    }
    machine.drain();
    // Nothing is in memory: every part waits for reads, and meanwhile the other file takes what is
    // free.
    let memory = machine.memory.clone();
    let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::BOTH);
    machine
        .run(|fs, v, now| fs.unlink(v, root, b"sparse", now))
        .unwrap();
    machine.write_out();
    let other = machine.make(root, "other");
    let mut taken = 0;
    while !machine.background_until_miss() {
        let block = [0xff; 1 << 10];
        while let Ok(done) =
            machine.attempt(|fs, v, now| fs.write(v, other, taken << 10, &block, now))
        {
            assert_eq!(done, block.len());
            taken += 1;
        }
    }
    assert!(taken > 50, "too little was taken meanwhile: {taken}");
    machine.drain();
    assert_eq!(machine.fs.read_only_reason(), None);
    let path = images().join(format!("backstitch-parts-{}", std::process::id()));
    let (report, ours) = check(&machine.memory.snapshot(), &path).unwrap();
    let _ = std::fs::remove_file(&path);
    assert!(judge(&report).is_empty() && ours.is_empty(), "{report}");
}

/// Moves a directory out of a tree, and the tree into it.
fn turned_inside_out() -> Machine {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let root = machine.fs.root();
    let mut directories = vec![root];
    for (above, name) in [
        (0, "outer"),
        (1, "middle"),
        (2, "inner"),
        (3, "sub"),
        (0, "other"),
    ] {
        let made = machine.make_directory(directories[above], name);
        directories.push(made);
        // Their inodes lie in different blocks, so that one can reach the disk without the others.
        for filler in 0..4 {
            machine.make(root, &format!("{name}{filler}"));
        }
    }
    let (middle, sub, other) = (directories[2], directories[4], directories[5]);
    machine.drain();
    machine.move_to(middle, "inner", other);
    machine.move_to(root, "outer", sub);
    machine
}

#[test]
fn no_directory_is_below_itself_on_the_disk() {
    let mut looked_at = 0;
    for number in 0.. {
        let mut machine = turned_inside_out();
        let mut changes = Vec::new();
        machine.store.uncommitted(&mut changes);
        let Some(change) = changes.get(number) else {
            break;
        };
        // One change goes to the disk, with what it depends on and nothing else.
        let now = Duration::ZERO;
        drive::sync(&mut machine.store, &machine.devices, &[*change], now).unwrap();
        let memory = machine.memory.clone();
        let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::BOTH);
        let mut directory = machine.fs.root();
        let mut path = Vec::new();
        while path.len() < 12 {
            let names = ["outer", "middle", "inner", "sub", "other"]
                .into_iter()
                .find_map(|name| {
                    let found = machine.run(|fs, v, _| fs.lookup(v, directory, name.as_bytes()));
                    found.ok().map(|inode| (name, inode))
                });
            let Some((name, inode)) = names else { break };
            path.push(name);
            directory = inode;
        }
        assert!(path.len() < 12, "change {number} leaves {}", path.join("/"));
        looked_at += 1;
    }
    assert!(looked_at > 3);
}

/// A number of 32 bits in an image.
fn word(image: &[u8], at: usize) -> usize {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize
}

/// Where an inode lies in an image of blocks of 1 KiB with one group.
fn inode_at(image: &[u8], inode: InodeNumber) -> usize {
    let inode_bytes = word(image, 1024 + 88) & 0xffff;
    word(image, 2048 + 8) * 1024 + (inode.0 as usize - 1) * inode_bytes
}

/// A file gets a hole, then is truncated. Its count of sectors is damaged (0), so that it cannot
/// become smaller, and the machine's clock stands still for fifty steps. So the hole, whose blocks
/// only an indirect block points to, changes nothing in the inode.
fn hole_and_truncation_of_a_damaged_file() -> (Machine, InodeNumber) {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let root = machine.fs.root();
    let file = machine.make(root, "file");
    machine.write_at(file, 0, &[1; 40 << 10]).unwrap();
    machine.drain();
    let mut image = machine.memory.snapshot();
    let sectors = inode_at(&image, file) + 28;
    assert_eq!(word(&image, sectors), 82);
    image[sectors..sectors + 4].fill(0);
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let mut machine = Machine::open(memory, Ordering::SOFT, 1024, Optimisations::BOTH);
    machine.write_at(file, 0, b"a change of times").unwrap();
    machine.write_out();
    let hole = Allocate::PunchHole;
    machine
        .run(|fs, v, now| fs.allocate(v, file, hole, 20 << 10, 20 << 10, now))
        .unwrap();
    let set = SetAttributes {
        size_bytes: Some(20 << 10),
        ..SetAttributes::default()
    };
    machine
        .run(|fs, v, now| fs.set_attributes(v, file, &set, now))
        .unwrap();
    (machine, file)
}

#[test]
fn a_size_waits_for_a_hole_that_did_not_change_the_inode() {
    let (mut looked_at, mut shorter) = (0, 0);
    loop {
        let (mut machine, file) = hole_and_truncation_of_a_damaged_file();
        let mut changes = Vec::new();
        machine.store.uncommitted(&mut changes);
        let Some(change) = changes.get(looked_at) else {
            break;
        };
        // One change goes to the disk, with what it depends on and nothing else.
        let now = Duration::ZERO;
        drive::sync(&mut machine.store, &machine.devices, &[*change], now).unwrap();
        let image = machine.memory.snapshot();
        let inode = inode_at(&image, file);
        let indirect = word(&image, inode + 40 + 12 * 4) * 1024;
        if word(&image, inode + 4) == 20 << 10 {
            shorter += 1;
            for block in 20..40 {
                let pointer = word(&image, indirect + (block - 12) * 4);
                assert_eq!(
                    pointer, 0,
                    "change {looked_at}: block {block} behind the end"
                );
            }
        }
        looked_at += 1;
    }
    assert!(
        shorter > 0 && looked_at > shorter,
        "{shorter} of {looked_at}"
    );
}

/// A new sparse file is settled, as when a thread waits for it. Then it gains a block: an indirect
/// block that is there gets a pointer to a new one, which points to the block. Blocks are of 1 KiB:
/// those from 268 on are mapped by two levels, each lower indirect block maps 256. Free blocks hold
/// rubbish.
fn settled_and_extended() -> (Machine, InodeNumber) {
    let mut machine = Machine::new(Ordering::SOFT, 1024, Optimisations::BOTH);
    let root = machine.fs.root();
    let rubbish = machine.make(root, "rubbish");
    machine.write_at(rubbish, 0, &[0xee; 1 << 20]).unwrap();
    machine.drain();
    machine
        .run(|fs, v, now| fs.unlink(v, root, b"rubbish", now))
        .unwrap();
    machine.drain();
    let file = machine.make(root, "file");
    for block in [268, 300] {
        machine.write_at(file, block << 10, &[1; 1024]).unwrap();
    }
    let mut made = Vec::new();
    machine.store.uncommitted(&mut made);
    machine.store.settle(&made);
    machine.write_at(file, 524 << 10, &[1; 1024]).unwrap();
    (machine, file)
}

#[test]
fn what_a_settled_file_gains_is_there_before_it_shows() {
    // A later change of the inode joins the patch that makes the inode only where that is not
    // settled. An indirect block that relied on the joining would show its new pointers too early
    // (a debug assertion in the layout compares the two).
    let (mut looked_at, mut mapped) = (0, 0);
    loop {
        let (mut machine, file) = settled_and_extended();
        let mut changes = Vec::new();
        machine.store.uncommitted(&mut changes);
        let Some(change) = changes.get(looked_at) else {
            break;
        };
        let now = Duration::ZERO;
        drive::sync(&mut machine.store, &machine.devices, &[*change], now).unwrap();
        let image = machine.memory.snapshot();
        let bad = what_no_crash_leaves(our_check(&image));
        assert!(bad.is_empty(), "change {looked_at}: {}", bad.join("\n"));
        let inode = inode_at(&image, file);
        let links = word(&image, inode + 24) >> 16;
        let double = match links {
            0 => 0,
            _ => word(&image, inode + 40 + 13 * 4),
        };
        for block in [268, 300, 524] {
            let at = block - 268;
            let place = [at / 256, at % 256]
                .iter()
                .fold(double, |above, index| match above {
                    0 => 0,
                    above => word(&image, above * 1024 + index * 4),
                });
            if place != 0 {
                mapped += 1;
                let bytes = &image[place * 1024..][..1024];
                let is_given = bytes.iter().all(|b| *b == 1);
                assert!(is_given, "change {looked_at}: block {block} shows rubbish");
            }
        }
        looked_at += 1;
    }
    assert!(mapped > 0 && looked_at > 3, "{mapped} in {looked_at}");
}
