//! The images to damage: each of a kind, with its contents, and with the list of what is right in
//! it.

use super::atlas::Atlas;
use super::contents::{self, Amount};
use super::volume::Volume;
use super::walk::Tree;
use crate::command::{backstitch, run, tool};
use crate::image::Image;
use crate::mount::{Mounted, Options};
use crate::requirements::missing;
use crate::scratch::Scratch;
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The value of all times in an image, so that it is always the same.
const NOW: &str = "1700000000";
/// Bytes of the pieces in which an image's contents are remembered.
const PIECE: usize = 4096;

/// A step after mke2fs has made an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Filled by `backstitch cp` instead of mke2fs.
    OurFilling,
    /// Devices, attributes and ACLs.
    Specials,
    /// Gives the directories an index.
    Indexes,
    /// Files that were removed while they were open.
    Orphans,
    /// Transactions in the journal that must be replayed, with checksums of this version.
    Crash(u32),
    /// The same, left by a mount of ours that was killed.
    OurCrash(&'static str),
}

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    size: &'static str,
    options: &'static [&'static str],
    steps: &'static [Step],
    amount: Amount,
    /// It is used in one round of so many, since large images take longer.
    pub every: u64,
}

const fn kind(
    name: &'static str,
    size: &'static str,
    options: &'static [&'static str],
    steps: &'static [Step],
) -> Kind {
    Kind {
        name,
        size,
        options,
        steps,
        amount: Amount::Small,
        every: 1,
    }
}

impl Kind {
    const fn many(self) -> Kind {
        Kind {
            amount: Amount::Many,
            ..self
        }
    }

    const fn rarely(self, every: u64) -> Kind {
        Kind { every, ..self }
    }
}

use Step::{Crash, Indexes, Orphans, OurCrash, OurFilling, Specials};

/// Every kind.
pub const KINDS: &[Kind] = &[
    kind("ext2-1k", "16M", &["-b", "1024", "-I", "128"], &[Specials]),
    kind(
        "ext2-1k-inode256",
        "16M",
        &["-b", "1024", "-I", "256"],
        &[Specials],
    ),
    kind(
        "ext2-1k-groups",
        "64M",
        &["-b", "1024", "-I", "128", "-N", "4096"],
        &[Specials],
    ),
    kind("ext2-2k", "32M", &["-b", "2048", "-I", "256"], &[Specials]),
    kind("ext2-4k", "32M", &["-b", "4096", "-I", "256"], &[Specials]),
    kind(
        "ext2-4k-inode128",
        "64M",
        &["-b", "4096", "-I", "128"],
        &[Specials],
    ),
    kind("ext2-revision-0", "16M", &["-b", "1024", "-r", "0"], &[]),
    kind(
        "ext2-all-backups",
        "64M",
        &[
            "-b",
            "1024",
            "-O",
            "^sparse_super,^resize_inode",
            "-N",
            "2048",
        ],
        &[Specials],
    ),
    kind(
        "ext2-no-resize",
        "32M",
        &["-b", "4096", "-O", "^resize_inode"],
        &[Specials],
    ),
    kind(
        "ext2-no-filetype",
        "16M",
        &["-b", "1024", "-O", "^filetype"],
        &[Specials],
    ),
    kind(
        "ext2-small-groups",
        "16M",
        &["-b", "1024", "-g", "1024", "-N", "2048"],
        &[Specials],
    ),
    kind(
        "ext2-index-1k",
        "32M",
        &["-b", "1024", "-O", "dir_index", "-N", "4096"],
        &[Indexes],
    )
    .many(),
    kind(
        "ext2-index-4k",
        "32M",
        &["-b", "4096", "-O", "dir_index", "-N", "2048"],
        &[Indexes],
    )
    .many(),
    kind("ext2-orphans", "16M", &["-b", "1024"], &[Specials, Orphans]),
    kind(
        "ext2-our-filling",
        "32M",
        &["-b", "2048"],
        &[OurFilling, Specials],
    ),
    kind(
        "ext2-1k-256m",
        "256M",
        &["-b", "1024", "-N", "4096"],
        &[Specials],
    )
    .rarely(4),
    kind(
        "ext2-4k-1g",
        "1G",
        &["-b", "4096", "-N", "4096"],
        &[Specials],
    )
    .rarely(4),
    kind("ext3-1k", "32M", &["-t", "ext3", "-b", "1024"], &[Specials]),
    kind(
        "ext3-2k",
        "32M",
        &["-t", "ext3", "-b", "2048", "-I", "256"],
        &[Specials, Indexes],
    ),
    kind("ext3-4k", "64M", &["-t", "ext3", "-b", "4096"], &[Specials]),
    kind(
        "ext3-orphans",
        "32M",
        &["-t", "ext3", "-b", "1024"],
        &[Specials, Orphans],
    ),
    kind(
        "ext3-crash-1k",
        "32M",
        &["-t", "ext3", "-b", "1024"],
        &[Specials, Crash(0)],
    ),
    kind(
        "ext3-crash-2k-orphans",
        "32M",
        &["-t", "ext3", "-b", "2048"],
        &[Specials, Orphans, Crash(0)],
    ),
    kind(
        "ext3-crash-4k",
        "64M",
        &["-t", "ext3", "-b", "4096"],
        &[Specials, Crash(0)],
    ),
    kind(
        "ext3-crash-index",
        "32M",
        &["-t", "ext3", "-b", "1024", "-N", "4096"],
        &[Indexes, Crash(0)],
    )
    .many(),
    kind(
        "ext3-crash-sums",
        "32M",
        &["-t", "ext3", "-b", "1024"],
        &[Specials, Crash(3)],
    ),
    kind(
        "ext3-our-crash-ordered",
        "32M",
        &["-t", "ext3", "-b", "1024"],
        &[Specials, OurCrash("journal=ordered")],
    ),
    kind(
        "ext3-our-crash-full",
        "64M",
        &["-t", "ext3", "-b", "4096"],
        &[Specials, OurCrash("journal=full")],
    ),
    kind(
        "ext3-1k-256m",
        "256M",
        &["-t", "ext3", "-b", "1024", "-N", "4096"],
        &[Specials],
    )
    .rarely(4),
    kind(
        "ext3-crash-4k-1g",
        "1G",
        &["-t", "ext3", "-b", "4096", "-N", "4096"],
        &[Specials, Crash(0)],
    )
    .rarely(4),
];

/// An image to damage, in memory.
#[derive(Debug)]
pub struct Base {
    /// Its kind's name.
    pub name: &'static str,
    size: u64,
    /// The pieces that are not all zeros.
    pieces: Vec<(u64, Vec<u8>)>,
    /// The right tree, after a replay of the journal.
    pub right: Tree,
    /// The places of everything.
    pub atlas: Atlas,
}

impl Base {
    /// Makes an image of a kind in the directory `work`, which must be used for nothing else;
    /// `None` if the machine lacks what that needs.
    ///
    /// # Panics
    ///
    /// If a tool that makes or checks it fails.
    pub fn make(kind: &Kind, work: &Path) -> Option<Base> {
        let image = Image::at(work.join("base.img"));
        let source = work.join("source");
        contents::fill(&source, kind.amount).expect("cannot make files");
        format(kind, &source, image.path());
        for step in kind.steps {
            match step {
                OurFilling => our_filling(&source, image.path()),
                Specials => specials(work, &image),
                Indexes => drop(e2fsck("-fyD", image.path())),
                Orphans => orphans(&image),
                Crash(checksums) => crash(work, &image, *checksums),
                OurCrash(_) if missing("fuse").is_some() => return None,
                OurCrash(mode) => our_crash(mode, &image),
            }
        }
        let replayed = image.copy("replayed.img");
        e2fsck("-fy", replayed.path());
        let right = Tree::of(replayed.path());
        assert!(
            right.len() > 150,
            "{}: only {} names",
            kind.name,
            right.len()
        );
        let file = File::open(image.path()).expect("cannot open an image");
        let volume = Volume::open(file).expect("an image that makes no sense");
        let base = Base {
            name: kind.name,
            size: image.path().metadata().map_or(0, |data| data.len()),
            pieces: pieces(image.path()),
            right,
            atlas: Atlas::of(&volume),
        };
        fs::remove_dir_all(work).expect("cannot remove files");
        Some(base)
    }

    /// Makes a copy.
    ///
    /// # Panics
    ///
    /// If the host refuses.
    pub fn copy(&self, path: &Path) -> File {
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let file = file.expect("cannot make an image");
        file.set_len(self.size).expect("cannot make an image");
        for (offset, bytes) in &self.pieces {
            file.write_all_at(bytes, *offset)
                .expect("cannot write an image");
        }
        file
    }
}

/// The pieces of a file that are not all zeros.
fn pieces(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    each_piece(path, PIECE, |at, bytes| {
        if bytes.iter().all(|byte| *byte == 0) {
            return;
        }
        match pieces.last_mut() {
            Some((start, list)) if *start + list.len() as u64 == at => list.extend(bytes),
            _ => pieces.push((at, bytes.to_vec())),
        }
    });
    pieces
}

/// Calls `show` with every piece of a file that is not a hole.
fn each_piece(path: &Path, length: usize, mut show: impl FnMut(u64, &[u8])) {
    let file = File::open(path).expect("cannot open an image");
    let size = file.metadata().map_or(0, |data| data.len());
    let mut bytes = vec![0; length];
    let mut at = 0;
    // If the host does not tell holes, everything is read.
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(start)).unwrap_or(size);
        at = start - start % length as u64;
        while at < end {
            let bytes = &mut bytes[..length.min((size - at) as usize)];
            file.read_exact_at(bytes, at).expect("cannot read an image");
            show(at, bytes);
            at += bytes.len() as u64;
        }
    }
}

fn format(kind: &Kind, source: &Path, image: &Path) {
    let mut command = tool("mke2fs");
    if !kind.options.contains(&"-t") {
        command.args(["-t", "ext2"]);
    }
    let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let extended = format!("nodiscard,lazy_itable_init=0,hash_seed={uuid}");
    command.env("E2FSPROGS_FAKE_TIME", NOW);
    command
        .args(["-q", "-F", "-U", uuid, "-E", &extended])
        .args(kind.options);
    if !kind.steps.contains(&OurFilling) {
        command.arg("-d").arg(source);
    }
    run(command.arg(image).arg(kind.size)).expect_success();
}

/// Repairs, and asserts that everything could be repaired.
fn e2fsck(how: &str, image: &Path) -> String {
    let mut command = tool("e2fsck");
    command.env("E2FSPROGS_FAKE_TIME", NOW);
    let outcome = run(command.arg(how).arg(image));
    assert!(
        matches!(outcome.code, Some(0 | 1)),
        "{}",
        outcome.describe()
    );
    outcome.text()
}

fn our_filling(source: &Path, image: &Path) {
    let mut names: Vec<PathBuf> = fs::read_dir(source)
        .expect("cannot read a directory")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    let mut command = backstitch();
    command.args(["cp", "-r"]).args(names);
    run(command.arg(format!("{}:/", image.display()))).expect_success();
}

fn specials(work: &Path, image: &Image) {
    let commands = contents::specials(work).expect("cannot make files");
    debugfs(image, &commands);
}

fn debugfs(image: &Image, commands: &[String]) {
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    image.debugfs(&commands);
}

/// Puts two files without a name into the list of those that the next mount must remove.
fn orphans(image: &Image) {
    let (first, second) = (
        inode_of(image, "/small/file-30"),
        inode_of(image, "/large/one-level"),
    );
    let commands = [
        "unlink /small/file-30".to_owned(),
        "unlink /large/one-level".to_owned(),
        format!("sif <{first}> links_count 0"),
        format!("sif <{second}> links_count 0"),
        format!("sif <{first}> dtime {second}"),
        format!("sif <{second}> dtime 0"),
        format!("ssv last_orphan {first}"),
    ];
    debugfs(image, &commands);
}

fn inode_of(image: &Image, path: &str) -> u32 {
    let request = format!("stat {path}");
    let text = run(tool("debugfs").args(["-R", &request]).arg(image.path())).text();
    let number = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no {path}: {text}"))
}

/// Puts three transactions into the journal that make, remove and change files. Nothing of them is
/// in place, as after a power cut. The second one revokes a block of the first one.
fn crash(work: &Path, image: &Image, checksums: u32) {
    let new = work.join("new");
    fs::write(&new, b"written by a transaction\n".repeat(300)).expect("cannot write");
    let new = new.display();
    let steps = [
        vec![
            format!("write {new} committed-1"),
            "mkdir made".into(),
            "rm small/file-40".into(),
        ],
        vec![
            format!("write {new} made/committed-2"),
            "ln links/first links/fourth".into(),
        ],
        vec![
            "rm small/file-41".into(),
            "rm made/committed-2".into(),
            "mkdir made/inner".into(),
        ],
    ];
    let file = File::open(image.path()).expect("cannot open an image");
    let block_bytes = Volume::open(file).expect("no image").block_bytes as usize;
    let after = image.copy("after.img");
    let mut script = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let before = after.copy("before.img");
        debugfs(&after, step);
        let (mut blocks, mut bytes) = difference(&before, &after, block_bytes);
        let mut revoked = String::new();
        let victim = block_of(image, "/links/first");
        match index {
            0 => {
                blocks.push(victim.to_string());
                bytes.resize(bytes.len() + block_bytes, 0xee);
            }
            1 => revoked = format!("-r {victim} "),
            _ => {}
        }
        let data = work.join(format!("transaction-{index}"));
        fs::write(&data, bytes).expect("cannot write");
        script.push(format!(
            "jw {revoked}-b {} {}",
            blocks.join(","),
            data.display()
        ));
    }
    let open = match checksums {
        0 => "jo".to_owned(),
        version => format!("jo -c -v {version}"),
    };
    script.insert(0, open);
    script.push("jc".into());
    debugfs(image, &script);
}

fn block_of(image: &Image, path: &str) -> u64 {
    let request = format!("bmap {path} 1");
    let text = run(tool("debugfs").args(["-R", &request]).arg(image.path())).text();
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("no block of {path}: {text}"))
}

/// The blocks in which two images differ, except those with the superblock, and their later
/// contents.
fn difference(before: &Image, after: &Image, block_bytes: usize) -> (Vec<String>, Vec<u8>) {
    let old = File::open(before.path()).expect("cannot open an image");
    let (mut blocks, mut bytes) = (Vec::new(), Vec::new());
    // A block that became zeros was written too, and so is not a hole.
    each_piece(after.path(), block_bytes, |offset, new| {
        let mut there = vec![0; new.len()];
        old.read_exact_at(&mut there, offset)
            .expect("cannot read an image");
        let number = offset / block_bytes as u64;
        if new != there && number > 1024 / block_bytes as u64 {
            blocks.push(number.to_string());
            bytes.extend_from_slice(new);
        }
    });
    (blocks, bytes)
}

/// Changes the image through our mount, which is killed after a commit.
fn our_crash(mode: &str, image: &Image) {
    let scratch = Scratch::new("mutants");
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(image, &dir, &Options::ordered(mode, "commit=300"));
    let work = || -> std::io::Result<()> {
        fs::create_dir(dir.join("made"))?;
        for number in 0..20 {
            fs::write(dir.join(format!("made/committed-{number}")), [number; 3000])?;
        }
        for number in 40..50 {
            fs::remove_file(dir.join(format!("small/file-{number}")))?;
        }
        fs::rename(dir.join("deep/level-0"), dir.join("made/moved"))?;
        let open = File::open(&dir)?;
        Ok(rustix::fs::syncfs(open)?)
    };
    work().expect("cannot work on a mount");
    mounted.kill();
    mounted.detach();
}
