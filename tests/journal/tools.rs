//! The commands with journals: on a device of their own, replayed or given up by fsck, written or
//! left alone by a mount.

use std::fs::{self, File};

use backstitch_device::MemoryDevice;
use backstitch_formats::journal_host;
use backstitch_journal::format::Features;
use backstitch_journal::format::features::{INCOMPAT_CSUM_V3, INCOMPAT_REVOKE};
use backstitch_journal::recovery::{Damage, Home};
use backstitch_layout::RecoveryMark;
use backstitch_tests::command::{backstitch, run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::loop_device::LoopDevice;
use backstitch_tests::random::Random;
use backstitch_tests::require;
use backstitch_tests::scratch::{Scratch, force_unmount, umount_ours};

use super::kernel::work;
use super::{expect_same, write, write_journal};

#[test]
fn a_journal_on_a_device_of_its_own() {
    require!("root", "fuse", "loop", "mke2fs", "e2fsck", "backstitch");
    let scratch = Scratch::new("external_journal");
    let (disk, log) = (scratch.path("disk.img"), scratch.path("log.img"));
    File::create(&disk)
        .and_then(|file| file.set_len(24 << 20))
        .expect("cannot make");
    let mut command = tool("mke2fs");
    run(command
        .args(["-q", "-F", "-O", "journal_dev", "-b", "1024"])
        .arg(&log)
        .arg("2M"))
    .expect_success();
    let dir = scratch.dir("mnt");
    let (crashed, crashed_log) = (scratch.path("crashed.img"), scratch.path("crashed-log.img"));
    {
        let (disk, log) = (LoopDevice::over(&disk), LoopDevice::over(&log));
        let device = format!("device={}", log.name());
        let mut command = tool("mke2fs");
        run(command.args([
            "-q",
            "-F",
            "-t",
            "ext3",
            "-b",
            "1024",
            "-J",
            &device,
            disk.name(),
        ]))
        .expect_success();
        run(tool("mount")
            .args(["-t", "ext3", "-o", "data=journal", disk.name()])
            .arg(&dir))
        .expect_success();
        work(&dir, Random::seed("external_journal"), false);
        let file = File::create(dir.join("last")).expect("cannot create");
        file.sync_all().expect("cannot sync");
        // Nothing is being written, so the two files are what a power cut would leave.
        fs::copy(scratch.path("disk.img"), &crashed).expect("cannot copy");
        fs::copy(scratch.path("log.img"), &crashed_log).expect("cannot copy");
        drop(file);
        force_unmount(&dir);
    }
    let theirs = scratch.path("theirs.img");
    fs::copy(&crashed, &theirs).expect("cannot copy");
    let their_log = scratch.path("their-log.img");
    fs::copy(&crashed_log, &their_log).expect("cannot copy");
    let mut command = tool("e2fsck");
    command
        .args(["-y", "-E", "journal_only", "-j"])
        .arg(&their_log)
        .arg(&theirs);
    run(&mut command).expect_success();
    let mount = |options: &str| {
        let mut command = backstitch();
        run(command
            .args(["mount", "-o", options])
            .arg(&crashed)
            .arg(&dir))
    };
    let refused = mount("rw");
    assert!(
        refused.stderr.contains("journal_dev="),
        "{}",
        refused.describe()
    );
    let log_option = format!("nojournal,journal_dev={}", crashed_log.display());
    // Read-only: nothing is written, but all files are there.
    mount(&format!("ro,{log_option}")).expect_success();
    assert!(dir.join("last").exists());
    umount_ours(&dir);
    let ours = MemoryDevice::from_bytes(fs::read(&crashed).expect("gone"));
    let our_log = MemoryDevice::from_bytes(fs::read(&crashed_log).expect("gone"));
    let place = journal_host()
        .place(&ours)
        .expect("no place")
        .expect("no journal");
    assert!(
        place.needs_recovery,
        "written by a read-only mount, or nothing to replay"
    );
    let mut journal =
        backstitch_mechanisms::jbd2::open(&ours, Some(&our_log), &place).expect("no journal");
    let home = Home {
        device: &ours,
        blocks: place.home_blocks,
        contents: journal_host(),
    };
    let outcome = journal
        .recover(&home, Damage::Refuse)
        .expect("cannot replay");
    assert!(outcome.transactions > 0, "nothing was replayed");
    journal_host()
        .set_recovery(&ours, RecoveryMark::default())
        .expect("cannot mark");
    expect_same("external", "e2fsck", &ours.snapshot(), &theirs);
    assert!(
        our_log.snapshot() == fs::read(&their_log).expect("gone"),
        "another log"
    );
    mount(&log_option).expect_success();
    fs::write(dir.join("new"), b"new").expect("cannot write");
    umount_ours(&dir);
    let mut command = tool("e2fsck");
    let checked = run(command.args(["-fn", "-j"]).arg(&crashed_log).arg(&crashed));
    assert_eq!(checked.code, Some(0), "{}", checked.describe());
}

#[test]
fn fsck_replays_or_gives_up() {
    require!("mke2fs", "e2fsck", "backstitch");
    let seed = Random::seed("fsck_replays");
    let scratch = Scratch::new("fsck_replays");
    let mut random = Random::new(seed);
    let arguments = ["-t", "ext3", "-b", "1024", "-J", "size=1"];
    let made = Image::mke2fs(&scratch, "made.img", "24M", &arguments);
    let mut dirty = made.bytes();
    let features = Features {
        incompat: INCOMPAT_CSUM_V3 | INCOMPAT_REVOKE,
        ..Features::default()
    };
    write_journal(&mut dirty, &mut random, features);
    let path = scratch.path("dirty.img");
    let fsck = |mode: &str| run(backstitch().args(["fsck", mode]).arg(&path));
    write(&path, &dirty);
    let looked = fsck("-n");
    assert_eq!(looked.code, Some(0), "{}", looked.describe());
    assert!(
        looked.text().contains("taken for done"),
        "{}",
        looked.text()
    );
    assert!(fs::read(&path).expect("gone") == dirty, "-n wrote");
    let preened = fsck("-p");
    assert_eq!(preened.code, Some(1), "{}", preened.describe());
    assert_eq!(fsck("-p").code, Some(0));
    Image::at(path.clone()).expect_clean();
    // A copy with a wrong checksum: -p changes nothing, -y gives up the journal.
    let device = MemoryDevice::from_bytes(dirty.clone());
    let place = journal_host()
        .place(&device)
        .expect("no place")
        .expect("no journal");
    let journal = backstitch_mechanisms::jbd2::open(&device, None, &place).expect("no journal");
    let scan = journal.scan(place.home_blocks).expect("cannot scan");
    // A copy that is revoked, or followed by a later one, is not read. So this takes the last copy,
    // whose loss fsck notices.
    let place_of = |position| {
        let block = journal.device().map().block(position);
        (block.expect("no such block").0 * 1024 + 700) as usize
    };
    let is_read = scan.copies.iter().rev().any(|copy| {
        let at = place_of(copy.position);
        dirty[at] ^= 1;
        write(&path, &dirty);
        let is_missed = fsck("-n").code != Some(0);
        dirty[at] ^= u8::from(!is_missed);
        is_missed
    });
    assert!(is_read, "no copy is read");
    for mode in ["-n", "-p"] {
        let refused = fsck(mode);
        assert!(refused.code >= Some(4), "{}", refused.describe());
        assert!(fs::read(&path).expect("gone") == dirty, "{mode} wrote");
    }
    let repaired = fsck("-y");
    assert_eq!(repaired.code, Some(1), "{}", repaired.describe());
    assert!(
        repaired.text().contains("damaged blocks of the journal"),
        "{}",
        repaired.text()
    );
    Image::at(path).expect_clean();
}

#[test]
fn an_image_with_a_journal_is_written_through_it_or_without_it() {
    require!("root", "fuse", "e2fsck", "debugfs", "backstitch");
    let scratch = Scratch::new("without_journal");
    let (source, dir) = (scratch.dir("source"), scratch.dir("mnt"));
    fs::write(source.join("given"), b"given").expect("cannot write");
    let path = scratch.path("disk.img");
    let mut command = backstitch();
    command
        .args(["mkfs", "-t", "ext3", "-s", "16M", "-d"])
        .arg(&source)
        .arg(&path);
    run(&mut command).expect_success();
    Image::at(path.clone()).expect_clean();
    let info = run(backstitch().args(["info", "--json"]).arg(&path))
        .expect_success()
        .json();
    assert_eq!(info["journal"]["blocks"], 1024);
    assert_eq!(info["journal"]["needs_recovery"], false);
    let mount = |options: &str| {
        run(backstitch()
            .args(["mount", "-o", options])
            .arg(&path)
            .arg(&dir))
        .expect_success();
    };
    let unmount = || umount_ours(&dir);
    mount("rw");
    assert_eq!(fs::read(dir.join("given")).expect("cannot read"), b"given");
    fs::write(dir.join("through"), b"journal").expect("cannot write");
    unmount();
    let dumped = run(backstitch().args(["journal", "dump"]).arg(&path)).expect_success();
    // The log is empty again, and its numbers are beyond those of a new one.
    let said = String::from_utf8_lossy(&dumped.stdout).into_owned();
    assert!(said.contains("starts at block 0"), "{said}");
    assert!(!said.trim_end().ends_with("transaction 1"), "{said}");
    Image::at(path.clone()).expect_clean();
    mount("nojournal");
    fs::write(dir.join("new"), b"new").expect("cannot write");
    unmount();
    Image::at(path).expect_clean();
}
