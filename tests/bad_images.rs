//! Hostile input: what is no file system is refused with one clear line, and damaged file systems
//! are survived.

use backstitch_tests::command::{backstitch, run_within, tool, wait_within};
use backstitch_tests::image::Image;
use backstitch_tests::random::Random;
use backstitch_tests::scratch::{Scratch, force_unmount, mount_points_below};
use backstitch_tests::{require, say, setting};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longer than anything here may take.
const LIMIT: Duration = Duration::from_secs(20);
const SUPERBLOCK: u64 = 1024;

/// A way to make an image that cannot be mounted, and words of which the message must have one.
/// `info` shows images with wrong features and group descriptors instead of refusing them.
type Refused = (&'static str, fn(&Image), &'static [&'static str]);

fn set_u16(image: &Image, field: u64, value: u16) {
    image.patch(SUPERBLOCK + field, &value.to_le_bytes());
}

fn set_u32(image: &Image, field: u64, value: u32) {
    image.patch(SUPERBLOCK + field, &value.to_le_bytes());
}

const REFUSED: &[Refused] = &[
    (
        "empty",
        |i| i.resize(0),
        &["short", "small", "past", "empty", "superblock"],
    ),
    (
        "tiny",
        |i| i.resize(1500),
        &["short", "small", "past", "superblock"],
    ),
    (
        "zeros",
        |i| i.patch(0, &[0; 8192]),
        &["superblock", "magic", "file system"],
    ),
    (
        "text",
        |i| i.patch(0, &b"Dear reader, ".repeat(700)),
        &["superblock", "magic", "file system"],
    ),
    (
        "cut-in-half",
        |i| i.resize(8 << 20),
        &["larger", "short", "blocks", "size"],
    ),
    (
        "more-blocks-than-bytes",
        |i| set_u32(i, 4, 16_385),
        &["blocks", "larger", "size"],
    ),
    (
        "blocks-without-end",
        |i| set_u32(i, 4, u32::MAX),
        &["blocks", "larger", "size", "group"],
    ),
    ("no-blocks", |i| set_u32(i, 4, 0), &["blocks"]),
    ("no-inodes", |i| set_u32(i, 0, 0), &["inodes"]),
    (
        "inodes-without-end",
        |i| set_u32(i, 0, u32::MAX),
        &["inodes"],
    ),
    ("first-block", |i| set_u32(i, 20, 99), &["first"]),
    (
        "block-size",
        |i| set_u32(i, 24, 30),
        &["block size", "block_size", "log"],
    ),
    ("blocks-per-group-0", |i| set_u32(i, 32, 0), &["group"]),
    ("blocks-per-group", |i| set_u32(i, 32, 70_000), &["group"]),
    (
        "inodes-per-group-0",
        |i| set_u32(i, 40, 0),
        &["group", "inodes"],
    ),
    (
        "inodes-per-group",
        |i| set_u32(i, 40, 70_000),
        &["group", "inodes"],
    ),
    ("inode-size-0", |i| set_u16(i, 88, 0), &["inode"]),
    ("inode-size-100", |i| set_u16(i, 88, 100), &["inode"]),
    ("inode-size-65535", |i| set_u16(i, 88, 65_535), &["inode"]),
    ("revision", |i| set_u32(i, 76, 9), &["revision"]),
    (
        "unknown-feature",
        |i| set_u32(i, 96, 0x8000_0002),
        &["feature"],
    ),
    (
        "journal-to-replay",
        |i| set_u32(i, 96, 0x6),
        &["recover", "journal", "feature"],
    ),
    (
        "bitmap-outside",
        |i| i.patch(2048, &u32::MAX.to_le_bytes()),
        &["group", "bitmap"],
    ),
    (
        "inode-table-outside",
        |i| i.patch(2056, &16_000_000u32.to_le_bytes()),
        &["group", "table"],
    ),
    (
        "inode-table-in-the-superblock",
        |i| i.patch(2056, &1u32.to_le_bytes()),
        &["group", "table"],
    ),
];

/// Images that `info` shows although they cannot be mounted.
const SHOWN: &[&str] = &[
    "unknown-feature",
    "journal-to-replay",
    "bitmap-outside",
    "inode-table-outside",
    "inode-table-in-the-superblock",
];

fn make(scratch: &Scratch) -> Image {
    Image::mke2fs(scratch, "disk.img", "16M", &["-b", "1024", "-N", "1024"])
}

#[test]
fn what_is_no_file_system_is_refused() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("refused");
    let dir = scratch.dir("mnt");
    let mut wrong = Vec::new();
    for (name, damage, words) in REFUSED {
        let image = make(&scratch);
        damage(&image);
        let before = image.bytes();
        let path = image.path().to_string_lossy().into_owned();
        let mount = dir.to_string_lossy().into_owned();
        let inside = format!("{path}:/");
        let mut attempts = vec![vec!["mount", &path, &mount], vec!["ls", &inside]];
        if !SHOWN.contains(name) {
            attempts.push(vec!["info", &path]);
        }
        for arguments in attempts {
            if let Err(text) = refused(&arguments, words) {
                wrong.push(format!("{name}: {text}"));
            }
            if !mount_points_below(&dir).is_empty() {
                force_unmount(&dir);
            }
        }
        if image.bytes() != before {
            wrong.push(format!("{name}: the image was changed"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} complaints:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// One line `backstitch: WHAT: WHERE: WHY`, exit code 1.
fn refused(arguments: &[&str], words: &[&str]) -> Result<(), String> {
    let outcome = run_within(backstitch().args(arguments), LIMIT);
    let line = outcome.stderr.lines().next().unwrap_or_default().to_owned();
    let parts = line.splitn(4, ": ").count() == 4 && line.starts_with("backstitch: ");
    let lower = line.to_lowercase();
    let clear = parts && words.iter().any(|word| lower.contains(word));
    if outcome.code == Some(1) && clear && !outcome.stderr.contains("panicked") {
        Ok(())
    } else {
        Err(format!(
            "{} (expected one of {words:?})",
            outcome.describe().trim_end()
        ))
    }
}

/// Damage below the superblock, which may be noticed only when it is reached.
const SURVIVED: &[(&str, &[&str])] = &[
    ("cyclic-directories", &["ln <2> /a/up", "ln /a /a/b/up"]),
    ("name-of-a-free-inode", &["ln <900> /a/free"]),
    (
        "name-of-a-reserved-inode",
        &["ln <1> /a/bad-blocks", "ln <7> /a/resize"],
    ),
    ("root-is-a-file", &["sif <2> mode 0100644"]),
    ("root-is-free", &["sif <2> links_count 0"]),
    ("root-has-no-block", &["sif <2> block[0] 0"]),
    ("directory-outside", &["sif /a block[0] 4000000000"]),
    ("directory-in-the-superblock", &["sif /a block[0] 1"]),
    ("directory-without-end", &["sif /a size 0x7fffffff"]),
    ("directory-of-no-size", &["sif /a size 0"]),
    ("directory-of-odd-size", &["sif /a size 1000"]),
    (
        "file-outside",
        &["sif /f block[0] 4000000000", "sif /f block[IND] 4000000000"],
    ),
    (
        "indirect-block-in-itself",
        &["sif /f block[IND] 300", "sif /f block[DIND] 300"],
    ),
    ("indirect-block-in-a-bitmap", &["sif /f block[TIND] 5"]),
    ("file-without-end", &["sif /f size 0x7fffffffffffffff"]),
    ("link-without-end", &["sif /l size 0x7fffffff"]),
    (
        "long-link-outside",
        &["sif /l size 100", "sif /l block[0] 4000000000"],
    ),
    ("attributes-outside", &["sif /f file_acl 4000000000"]),
    ("attributes-in-a-directory", &["sif /f file_acl 300"]),
    ("attributes-in-the-superblock", &["sif /f file_acl 1"]),
    ("blocks-all-free", &["freeb 1 16000"]),
    ("inodes-all-free", &["freei <2>", "freei /a", "freei /f"]),
    ("no-such-mode", &["sif /f mode 0170644"]),
    (
        "deleted-but-named",
        &["sif /f links_count 0", "sif /f dtime 1"],
    ),
    ("many-links", &["sif /f links_count 65535"]),
    ("index-without-one", &["sif /a flags 0x1000"]),
    ("inline-data", &["sif /f flags 0x10000000"]),
    ("extents", &["sif /f flags 0x80000"]),
    ("large-extra-part", &["sif /f extra_isize 60000"]),
];

fn filled(scratch: &Scratch) -> Image {
    let image = make(scratch);
    let content = scratch.path("content");
    fs::write(&content, Random::new(1).bytes(400_000)).expect("cannot write");
    let write = format!("write {} f", content.display());
    image.debugfs(&[
        "mkdir a",
        "mkdir a/b",
        "symlink l a/b",
        &write,
        "ea_set f user.x value",
    ]);
    image
}

#[test]
fn damage_is_survived() {
    require!("backstitch", "fuse", "root", "mke2fs", "debugfs");
    let scratch = Scratch::new("damaged");
    let mut wrong = Vec::new();
    for (name, commands) in SURVIVED {
        let image = filled(&scratch);
        image.debugfs(commands);
        wrong.extend(
            survives(&scratch, &image)
                .err()
                .map(|text| format!("{name}: {text}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "{} complaints:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Pads an entry to a multiple of four bytes.
fn pad(entry: &[u8]) -> Vec<u8> {
    let mut padded = entry.to_vec();
    padded.resize(entry.len().next_multiple_of(4), 0);
    padded
}

/// Directory blocks that are no chains of entries, written over those of the directory `/a`.
#[test]
fn broken_directory_blocks_are_survived() {
    require!("backstitch", "fuse", "root", "mke2fs", "debugfs");
    let scratch = Scratch::new("directories");
    let entry = |inode: u32, len: u16, name: u8, kind: u8| {
        let mut bytes = [&inode.to_le_bytes()[..], &len.to_le_bytes(), &[name, kind]].concat();
        bytes.extend(b"....".iter().take(4.min(usize::from(name))));
        bytes
    };
    let dots = |rest: Vec<u8>| {
        [entry(13, 12, 1, 2), entry(2, 12, 2, 2), rest]
            .map(|part| pad(&part))
            .concat()
    };
    let blocks = [
        ("entry of no length", entry(12, 0, 4, 1)),
        ("entry of odd length", entry(12, 13, 4, 1)),
        ("entry past the block", entry(12, 2000, 4, 1)),
        ("name past its entry", entry(12, 12, 200, 1)),
        ("no name", entry(12, 1024, 0, 1)),
        ("no dots", entry(14, 1024, 4, 1)),
        ("name of no inode", dots(entry(1_000_000, 1000, 4, 1))),
        (
            "name of the last inode and one",
            dots(entry(1025, 1000, 4, 1)),
        ),
        ("name of a wrong type", dots(entry(15, 1000, 4, 2))),
        ("name of an unknown type", dots(entry(15, 1000, 4, 77))),
        ("name of the directory itself", dots(entry(13, 1000, 4, 2))),
        ("too little room at the end", dots(entry(15, 996, 4, 1))),
        ("garbage", vec![0xff; 1024]),
        ("zeros", vec![0; 1024]),
        (
            "a slash",
            dots([&entry(15, 1000, 4, 1)[..8], b"a/b/"].concat()),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, bytes) in blocks {
        let image = filled(&scratch);
        let found = run_within(
            tool("debugfs").args(["-R", "blocks /a"]).arg(image.path()),
            LIMIT,
        );
        let block: u64 = found
            .text()
            .split_whitespace()
            .next()
            .and_then(|b| b.parse().ok())
            .unwrap();
        image.patch(block * 1024, &bytes);
        wrong.extend(
            survives(&scratch, &image)
                .err()
                .map(|text| format!("{name}: {text}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "{} complaints:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Random bytes changed in the metadata of `ROUNDS` images (20 by default), with the seed `SEED`.
#[test]
fn random_damage_is_survived() {
    require!("backstitch", "fuse", "root", "mke2fs", "debugfs");
    let scratch = Scratch::new("random_damage");
    let seed = Random::seed("random_damage");
    for round in 0..setting("ROUNDS", 20) {
        let mut random = Random::new(seed + round);
        let image = filled(&scratch);
        // Both groups' bitmaps and tables, and the directories, are in the first 300 blocks.
        for _ in 0..random.between(1, 40) {
            let len = random.between(1, 5) as usize;
            image.patch(SUPERBLOCK + random.below(300 << 10), &random.bytes(len));
        }
        if let Err(text) = survives(&scratch, &image) {
            panic!("SEED={} ROUNDS=1: {text}", seed + round);
        }
    }
}

/// Mounts in the foreground, reads and changes what can be reached, unmounts: no panic, no hang.
/// Errors are allowed.
fn survives(scratch: &Scratch, image: &Image) -> Result<(), String> {
    let before = image.path().metadata().map(|data| data.len()).unwrap_or(0);
    for arguments in [vec!["info"], vec!["fsck", "-n"]] {
        let outcome = run_within(backstitch().args(arguments).arg(image.path()), LIMIT);
        if outcome.timed_out || outcome.code.is_none() || outcome.stderr.contains("panicked") {
            return Err(outcome.describe());
        }
    }
    mounted_survives(scratch, image, &walk)?;
    let after = image.path().metadata().map(|data| data.len()).unwrap_or(0);
    if before == after {
        Ok(())
    } else {
        Err(format!("the image grew from {before} to {after}"))
    }
}

/// Mounts in the foreground, does `work`, and unmounts.
fn mounted_survives(
    scratch: &Scratch,
    image: &Image,
    work: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let (dir, log) = (scratch.dir("mnt"), scratch.path("daemon.log"));
    let output = File::create(&log).expect("cannot make a log");
    let mut daemon = backstitch()
        .args(["mount", "-f"])
        .arg(image.path())
        .arg(&dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("cannot duplicate a descriptor"))
        .stderr(output)
        .spawn()
        .expect("cannot run the daemon");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let deadline = Instant::now() + LIMIT;
    while mount_points_below(&dir).is_empty() {
        if let Some(status) = daemon.try_wait().expect("cannot wait") {
            // It may refuse, but it must not panic.
            let fine = status.code() == Some(1) && !said().contains("panicked");
            return if fine {
                Ok(())
            } else {
                Err(format!("the daemon ended: {status}: {}", said()))
            };
        }
        if Instant::now() > deadline {
            let _ = daemon.kill();
            let _ = daemon.wait();
            return Err(format!("does not mount: {}", said()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let walked = work(&dir);
    let alive = daemon.try_wait().expect("cannot wait").is_none();
    run_within(tool("umount").arg(&dir), LIMIT);
    force_unmount(&dir);
    let ended = wait_within(&mut daemon, LIMIT);
    let text = said();
    if text.contains("panicked") || !alive {
        return Err(format!("the daemon died: {text}"));
    }
    if ended.is_none() {
        return Err(format!("the daemon does not end: {text}"));
    }
    walked
}

/// Reads everything that can be reached, and makes, changes and removes a few things.
fn walk(dir: &Path) -> Result<(), String> {
    let script = "cd \"$0\" || exit 0
        find . -maxdepth 8 -ls | head -n 3000
        find . -maxdepth 8 -type f -exec head -c 300000 {} ';' | wc -c
        find . -maxdepth 8 -type f -exec getfattr -d -m - {} ';'
        for place in . a a/b; do
            mkdir $place/new; echo text > $place/new/file; mv $place/new $place/newer
            ln $place/newer/file $place/linked; rm -rf $place/newer; sync -f .
        done
        echo more >> f; truncate -s 5000 f; truncate -s 100000000 f; setfattr -n user.y -v 1 f
        rm f; rm -rf a; df .";
    let mut shell = tool("timeout");
    // `timeout` has a limit of its own, since the shell's children would go on without it.
    shell.args(["-k", "1", "15", "sh", "-c", script]).arg(dir);
    let outcome = run_within(&mut shell, LIMIT);
    match outcome.timed_out || matches!(outcome.code, Some(124 | 137)) {
        true => Err(format!("hangs: {}", outcome.describe())),
        false => Ok(()),
    }
}

/// Bitmaps that say that everything is free: blocks that are allocated may belong to the journal,
/// the superblock or any file. The file system becomes read-only, and its daemon ends as it should.
#[test]
fn zeroed_block_bitmaps_are_survived_with_a_journal() {
    require!("backstitch", "fuse", "root", "mke2fs", "dumpe2fs");
    let scratch = Scratch::new("zeroed_bitmaps");
    for group in 0..3 {
        let image = Image::mke2fs(&scratch, "disk.img", "32M", &["-t", "ext3", "-b", "1024"]);
        let text = run_within(tool("dumpe2fs").arg(image.path()), LIMIT).text();
        let mut lines = text
            .lines()
            .skip_while(|line| !line.starts_with(&format!("Group {group}:")));
        let place = lines.find_map(|line| line.trim().strip_prefix("Block bitmap at "));
        let number = place.and_then(|rest| rest.split([' ', ',']).next()?.parse::<u64>().ok());
        image.patch(number.expect("no bitmap") * 1024, &[0; 1024]);
        if let Err(text) = mounted_survives(&scratch, &image, &|dir| {
            grow(dir);
            Ok(())
        }) {
            panic!("group {group}: {text}");
        }
    }
}

/// Files that grow, are renamed and shrink, with a commit now and then. Errors are allowed.
fn grow(dir: &Path) {
    let mut random = Random::new(3);
    for number in 0..150 {
        let name = dir.join(format!("file-{number}"));
        let size = random.below(30_000) as usize;
        let _ = fs::write(&name, random.bytes(size));
        let other = dir.join(format!("file-{}", random.below(number + 1)));
        let _ = match random.below(4) {
            0 => fs::rename(&other, dir.join(format!("renamed-{number}"))),
            1 => fs::remove_file(&other),
            2 => File::options()
                .write(true)
                .open(&other)
                .and_then(|file| file.set_len(random.below(40_000))),
            _ => Ok(()),
        };
        if random.one_in(15) {
            let _ = File::open(dir).and_then(|dir| dir.sync_all());
        }
    }
}

/// Shows that the checks above can fail.
#[test]
fn a_good_image_is_not_refused() {
    require!("backstitch", "fuse", "root", "mke2fs", "debugfs");
    let scratch = Scratch::new("good");
    let image = filled(&scratch);
    let path = image.path().to_string_lossy().into_owned();
    assert!(refused(&["info", &path], &["superblock"]).is_err());
    survives(&scratch, &image).expect("a good image");
    image.expect_clean();
    say("bad_images: a good image is accepted");
}
