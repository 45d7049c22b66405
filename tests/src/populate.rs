//! A tree that has one of everything.

use crate::acl;
use crate::random::Random;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, makedev,
};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Result;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// What the file system can hold.
#[derive(Clone, Copy, Debug)]
pub struct Ability {
    /// The block size. Files end just before, at and just after every change of the block map.
    pub block_bytes: u64,
    /// Extended attributes and ACLs.
    pub attributes: bool,
    /// Times with nanoseconds, and after 2038.
    pub wide_times: bool,
    /// Files of 2 GiB and more.
    pub large_files: bool,
}

/// Fills a directory with one of everything. Needs root, for owners and device nodes.
///
/// # Errors
///
/// The first error.
pub fn populate(dir: &Path, seed: u64, ability: Ability) -> Result<()> {
    let mut random = Random::new(seed);
    files(&dir.join("files"), &mut random, ability)?;
    names(&dir.join("names"))?;
    links(&dir.join("links"), ability)?;
    special(&dir.join("special"))?;
    modes_and_owners(&dir.join("modes"))?;
    crowded(&dir.join("crowded"))?;
    if ability.attributes {
        attributes(&dir.join("attributes"), &mut random, ability)?;
    }
    // Last, since everything else would change the times.
    times(&dir.join("times"), ability)
}

fn files(dir: &Path, random: &mut Random, ability: Ability) -> Result<()> {
    fs::create_dir(dir)?;
    let block = ability.block_bytes;
    let pointers = block / 4;
    let double = 12 + pointers;
    let triple = double + pointers * pointers;
    // The edges of the direct, indirect and double-indirect maps.
    for blocks in [0, 1, 12, 13, double, double + 1, double + pointers] {
        for size in [
            (blocks * block).saturating_sub(1),
            blocks * block,
            blocks * block + 1,
        ] {
            fs::write(
                dir.join(format!("size-{size}")),
                random.bytes(size as usize),
            )?;
        }
    }
    // A hole at every level, and a triple-indirect block where files may be that large.
    let sparse = File::create(dir.join("sparse"))?;
    for number in [
        3,
        12 + 7,
        double + 5,
        double + pointers + 9,
        triple - 1,
        triple + 3,
    ] {
        let end = (number + 1) * block;
        if end < 1 << 31 || ability.large_files {
            sparse.write_all_at(&random.bytes(block as usize), number * block)?;
        }
    }
    File::create(dir.join("only-a-hole"))?.set_len(1_000_000)?;
    // Written, truncated inside a block, extended again: the removed part must read as zeros.
    let cut = File::create(dir.join("cut"))?;
    cut.write_all_at(&random.bytes(50_000), 0)?;
    cut.set_len(20_001)?;
    cut.set_len(45_000)?;
    let appended = dir.join("appended");
    for _ in 0..40 {
        let mut bytes = fs::read(&appended).unwrap_or_default();
        bytes.extend(random.bytes(777));
        fs::write(&appended, bytes)?;
    }
    Ok(())
}

fn names(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    for name in [
        "x",
        " ",
        "a b",
        "ü ñ 日本語",
        "new\nline",
        "-dash",
        "…",
        "tab\t\"quote'\\",
    ] {
        fs::write(dir.join(name), name)?;
    }
    fs::write(
        dir.join(OsStr::from_bytes(b"\xff\xfe not UTF-8 \x80")),
        "bytes",
    )?;
    for len in [1, 2, 3, 4, 5, 254, 255] {
        fs::write(dir.join("n".repeat(len)), len.to_string())?;
    }
    let mut deep = dir.to_owned();
    for level in 0..30 {
        deep.push(format!("level-{level}"));
        fs::create_dir(&deep)?;
    }
    fs::write(deep.join("bottom"), "bottom")
}

fn links(dir: &Path, ability: Ability) -> Result<()> {
    fs::create_dir(dir)?;
    fs::create_dir(dir.join("other"))?;
    fs::write(dir.join("one"), "linked")?;
    fs::hard_link(dir.join("one"), dir.join("two"))?;
    fs::hard_link(dir.join("one"), dir.join("other/three"))?;
    symlink("one", dir.join("short"))?;
    symlink("nowhere/at/all", dir.join("dangling"))?;
    // A target of up to 59 bytes is stored in the inode, a longer one in a block.
    for len in [1, 58, 59, 60, 61, 500, (ability.block_bytes - 1).min(4095)] {
        symlink("t".repeat(len as usize), dir.join(format!("target-{len}")))?;
    }
    fs::hard_link(dir.join("short"), dir.join("other/short-too"))
}

fn special(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let nodes = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("loop", FileType::BlockDevice, makedev(7, 200)),
        ("wide", FileType::BlockDevice, makedev(259, 70_000)),
    ];
    for (name, kind, device) in nodes {
        rustix::fs::mknodat(
            CWD,
            dir.join(name),
            kind,
            Mode::from_raw_mode(0o640),
            device,
        )?;
    }
    fs::hard_link(dir.join("fifo"), dir.join("fifo-too"))
}

fn modes_and_owners(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    for mode in [
        0o000, 0o400, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1777, 0o2644,
    ] {
        let file = dir.join(format!("file-{mode:o}"));
        fs::write(&file, "mode")?;
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
        let sub = dir.join(format!("dir-{mode:o}"));
        fs::create_dir(&sub)?;
        fs::set_permissions(&sub, Permissions::from_mode(mode))?;
    }
    for (number, (user, group)) in [(1, 2), (65_535, 65_534), (70_000, 4_000_000_000)]
        .iter()
        .enumerate()
    {
        let file = dir.join(format!("owned-{number}"));
        fs::write(&file, "owned")?;
        chown(&file, *user, *group)?;
    }
    // A setgid directory gives its group to what is made inside.
    let shared = dir.join("setgid");
    fs::create_dir(&shared)?;
    chown(&shared, 0, 5)?;
    fs::set_permissions(&shared, Permissions::from_mode(0o2775))?;
    fs::write(shared.join("inherits"), "")?;
    fs::create_dir(shared.join("inherits-too"))?;
    let link = dir.join("owned-link");
    symlink("owned-0", &link)?;
    chown(&link, 3, 4)
}

fn chown(path: &Path, user: u32, group: u32) -> Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    Ok(rustix::fs::chownat(
        CWD,
        path,
        Some(user),
        Some(group),
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// A directory of many blocks with free space in the middle (indexed, if the kernel makes it).
fn crowded(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let name = |number: usize| dir.join(format!("{number:04}-{}", "y".repeat(number % 50)));
    for number in 0..600 {
        fs::write(name(number), "")?;
    }
    for number in (0..600).step_by(3) {
        fs::remove_file(name(number))?;
    }
    for number in 0..40 {
        fs::create_dir(dir.join(format!("sub-{number}")))?;
    }
    fs::rename(dir.join("sub-1"), dir.join("sub-2/moved"))?;
    fs::rename(name(1), name(2))
}

fn attributes(dir: &Path, random: &mut Random, ability: Ability) -> Result<()> {
    fs::create_dir(dir)?;
    let set = |path: &Path, name: &str, value: &[u8]| -> Result<()> {
        Ok(rustix::fs::lsetxattr(
            path,
            name,
            value,
            XattrFlags::empty(),
        )?)
    };
    // Equal attributes share one block.
    let large = random.bytes(ability.block_bytes as usize / 2);
    for number in 0..6 {
        let file = dir.join(format!("shares-{number}"));
        fs::write(&file, "shares")?;
        set(&file, "user.large", &large)?;
        set(&file, "trusted.also", b"the same")?;
    }
    set(&dir.join("shares-0"), "user.large", b"no longer")?;
    rustix::fs::lremovexattr(dir.join("shares-1"), "user.large")?;
    let many = dir.join("many");
    fs::write(&many, "many")?;
    for number in 0..12 {
        set(
            &many,
            &format!("user.{}", "k".repeat(number + 1)),
            &random.bytes(number * 3),
        )?;
    }
    set(&many, "security.something", b"\0binary\xff")?;
    set(&many, "user.empty", b"")?;
    set(dir, "user.on-a-directory", b"yes")?;
    let link = dir.join("link");
    symlink("many", &link)?;
    set(&link, "trusted.on-a-link", b"yes")?;
    let file = dir.join("acl");
    fs::write(&file, "acl")?;
    set(&file, acl::ACCESS, &acl::with_named(0o640, 1000, 1001, 6))?;
    let parent = dir.join("default-acl");
    fs::create_dir(&parent)?;
    set(
        &parent,
        acl::DEFAULT,
        &acl::with_named(0o750, 1000, 1001, 5),
    )?;
    fs::write(parent.join("inherits"), "")?;
    fs::create_dir(parent.join("inherits-too"))?;
    fs::write(parent.join("inherits-too/again"), "")
}

fn times(dir: &Path, ability: Ability) -> Result<()> {
    fs::create_dir(dir)?;
    let mut moments = vec![
        (0, 0),
        (1, 0),
        (-1, 0),
        (-2_147_483_648, 0),
        (2_147_483_647, 0),
    ];
    if ability.wide_times {
        moments.extend([
            (1, 1),
            (1_000_000_000, 999_999_999),
            (4_102_444_800, 5),
            (-5, 500_000_000),
        ]);
    }
    for (number, (seconds, nanoseconds)) in moments.into_iter().enumerate() {
        let file = dir.join(number.to_string());
        fs::write(&file, "times")?;
        let one = |tv_sec| Timespec {
            tv_sec,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: one(seconds / 2),
            last_modification: one(seconds),
        };
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())?;
    }
    Ok(())
}
