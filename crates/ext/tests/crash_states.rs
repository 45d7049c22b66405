//! Random operations in one thread, cut at random moments: whatever subset of the unflushed writes reached the device, a foreign
//! checker finds nothing but what soft updates may leave.

mod crash;

use std::process::Command;
use std::time::Duration;

use backstitch_crash::unexpected_of_e2fsck as judge;
use backstitch_layout::SetXattrMode;
use backstitch_ordering::MechanismKind;
use backstitch_store::{Optimisations, drive};
use crash::{Machine, Random, check, images, seeds};

/// Runs a history; returns the number of states looked at and those found bad.
fn explore(
    ordering: MechanismKind,
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
        && ordering != MechanismKind::Async
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
            let (looked_at, bad) = explore(MechanismKind::Soft, block_size, seed, 400);
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
    let found = (1..=6).any(|seed| !explore(MechanismKind::Async, 1024, seed, 400).1.is_empty());
    assert!(
        found,
        "a crash without order left no damage: this test does not look"
    );
}

#[test]
fn an_attribute_block_is_marked_before_its_second_user_is_on_the_disk() {
    let path = images().join(format!("backstitch-shared-{}", std::process::id()));
    let mut machine = Machine::new(MechanismKind::Soft, 1024, Optimisations::BOTH);
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
    let mut machine = Machine::new(MechanismKind::Soft, 1024, Optimisations::BOTH);
    let root = machine.fs.root();
    // Far apart, so that it is freed in several parts, each with indirect blocks of its own.
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
    // With nothing in memory every part has to wait for reads; meanwhile others take what is free.
    let memory = machine.memory.clone();
    let mut machine = Machine::open(memory, MechanismKind::Soft, 1024, Optimisations::BOTH);
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
    let mut machine = Machine::new(MechanismKind::Soft, 1024, Optimisations::BOTH);
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
        let mut machine = Machine::open(memory, MechanismKind::Soft, 1024, Optimisations::BOTH);
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
