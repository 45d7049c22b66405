//! Changes to a file system before another driver reads it: all special cases of the format, and
//! changes of all of them.

use backstitch_tests::operations::{Choice, Generator};
use backstitch_tests::player::Player;
use backstitch_tests::random::Random;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The longest target of a symbolic link in UFS.
const LONGEST_TARGET: usize = 1_023;

/// The block and fragment sizes of a UFS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// 1 or 2.
    pub(crate) version: u32,
    pub(crate) block_bytes: u64,
    pub(crate) fragment_bytes: u64,
}

impl Geometry {
    /// The number of pointers in a block.
    fn pointers(&self) -> u64 {
        self.block_bytes / if self.version == 1 { 4 } else { 8 }
    }
}

/// Makes one of everything in an empty directory, except large sparse files; as root also what only
/// root may make.
pub(crate) fn fill(dir: &Path, random: &mut Random, geometry: Geometry) -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    names(&dir.join("names"), random)?;
    tails(&dir.join("tails"), random, geometry)?;
    growing(&dir.join("growing"), random, geometry)?;
    links(&dir.join("links"))?;
    special(&dir.join("special"), is_root)?;
    modes_and_owners(&dir.join("modes"), is_root)?;
    times(&dir.join("times"), geometry)
}

/// A name of any possible length, with a number that makes it unique.
fn name(random: &mut Random, number: u64) -> String {
    let start = format!("{number}-");
    let len = random.below(256 - start.len() as u64) as usize;
    start + &"n".repeat(len)
}

/// A directory that, with small blocks, is larger than its direct blocks, and has free places; and
/// one so deep that its path has thousands of bytes.
fn names(dir: &Path, random: &mut Random) -> Result<()> {
    fs::create_dir(dir)?;
    let many = dir.join("many");
    fs::create_dir(&many)?;
    let mut files: Vec<PathBuf> = (0..450)
        .map(|number| many.join(name(random, number)))
        .collect();
    for (number, file) in files.iter().enumerate() {
        match number % 16 {
            0 => fs::create_dir(file)?,
            _ => fs::write(file, random.bytes(number))?,
        }
    }
    for number in 0..150 {
        let removed = files.swap_remove(random.below(files.len() as u64) as usize);
        match fs::remove_file(&removed) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_dir(&removed)?,
            Err(error) if gone(&error) => {}
            result => result?,
        }
        if number % 3 == 0 {
            let to = many.join(name(random, 1_000 + number));
            match fs::rename(random.pick(&files), &to) {
                // It was renamed before.
                Err(error) if gone(&error) => {}
                result => result?,
            }
        }
    }
    let mut deep = dir.to_owned();
    for number in 0..12 {
        let more = "deep".repeat(random.below(50) as usize);
        deep.push(format!("{number}-{more}"));
        fs::create_dir(&deep)?;
        fs::write(deep.join("file"), random.bytes(100))?;
    }
    // A directory moves to another place in the tree, with all that is in it.
    let (from, to) = (dir.join("from"), dir.join("to"));
    fs::create_dir_all(from.join("moved/inner"))?;
    fs::write(from.join("moved/inner/file"), random.bytes(3_000))?;
    fs::create_dir(&to)?;
    fs::rename(from.join("moved"), to.join("moved"))?;
    fs::write(dir.join("a name that is taken"), random.bytes(9_000))?;
    fs::write(dir.join("another"), random.bytes(5_000))?;
    fs::rename(dir.join("another"), dir.join("a name that is taken"))
}

/// Files that end at every number of fragments, and a byte before and after.
fn tails(dir: &Path, random: &mut Random, geometry: Geometry) -> Result<()> {
    fs::create_dir(dir)?;
    let (block, fragment) = (geometry.block_bytes, geometry.fragment_bytes);
    let mut ends: Vec<u64> = (0..=block / fragment).map(|n| n * fragment).collect();
    // There are no fragments beyond the direct blocks.
    ends.extend([
        block * 3 + fragment,
        block * 11 + fragment,
        block * 12,
        block * 12 + fragment,
    ]);
    for end in ends {
        for size in [end.saturating_sub(1), end, end + 1] {
            let path = dir.join(format!("size-{size}"));
            fs::write(path, random.bytes(size as usize))?;
        }
    }
    Ok(())
}

/// Files that grow in turn, so that their ends are in each other's way and must move; one that is
/// truncated and grows again; and one with two levels of indirect blocks, if that is cheap.
fn growing(dir: &Path, random: &mut Random, geometry: Geometry) -> Result<()> {
    fs::create_dir(dir)?;
    let fragment = geometry.fragment_bytes;
    let mut files = (0..6)
        .map(|number| File::create(dir.join(format!("grows-{number}"))))
        .collect::<Result<Vec<_>>>()?;
    for round in 0..30 {
        for file in &mut files {
            let len = 1 + random.below(2 * fragment);
            file.write_all(&random.bytes(len as usize))?;
        }
        if round % 10 == 3 {
            rustix::fs::syncfs(&files[0])?;
        }
    }
    let cut = File::create(dir.join("cut"))?;
    for round in 0..16 {
        let at = random.below(14 * geometry.block_bytes);
        let len = random.below(20_000);
        cut.write_all_at(&random.bytes(len as usize), at)?;
        cut.set_len(random.below(14 * geometry.block_bytes))?;
        if round % 4 == 3 {
            cut.sync_all()?;
        }
    }
    let blocks = 12 + geometry.pointers() + 20;
    let bytes = blocks * geometry.block_bytes + 5;
    if bytes < 10 << 20 {
        fs::write(dir.join("two-levels"), random.bytes(bytes as usize))?;
    }
    Ok(())
}

/// Files with data at the borders of each level of indirect blocks and holes between. One of them
/// gets more holes.
pub(crate) fn holes(dir: &Path, random: &mut Random, geometry: Geometry) -> Result<()> {
    fs::create_dir(dir)?;
    let (block, pointers) = (geometry.block_bytes, geometry.pointers());
    let (two, three) = (12 + pointers, 12 + pointers + pointers * pointers);
    let places = [
        ("one-level", vec![0, 3, 11, 12, 13, two - 1]),
        (
            "two-levels",
            vec![5, two, two + 1, two + pointers, three - 1],
        ),
        ("three-levels", vec![three, three + 1, three + pointers + 7]),
        (
            "all-levels",
            vec![2, 14, two + 9, three + pointers * pointers],
        ),
    ];
    for (name, blocks) in places {
        let file = File::create(dir.join(name))?;
        for number in blocks {
            let len = 1 + random.below(block);
            let within = random.below(block - len + 1);
            file.write_all_at(&random.bytes(len as usize), number * block + within)?;
        }
    }
    let file = File::create(dir.join("punched"))?;
    file.write_all_at(&random.bytes(20 * block as usize), 0)?;
    for _ in 0..6 {
        let (at, len) = (random.below(20 * block), 1 + random.below(3 * block));
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, at, len)?;
    }
    File::create(dir.join("nothing-else"))?.set_len(1_000_000)
}

fn links(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("other"))?;
    fs::write(dir.join("one"), "linked")?;
    for number in 0..20 {
        fs::hard_link(dir.join("one"), dir.join(format!("other/{number}")))?;
    }
    // A short target is stored in the inode: up to 59 bytes in UFS1, up to 119 in UFS2.
    for len in [1, 58, 59, 60, 61, 118, 119, 120, 121, 500, LONGEST_TARGET] {
        let path = dir.join(format!("target-{len}"));
        symlink("t".repeat(len), &path)?;
        fs::hard_link(&path, dir.join(format!("other/target-{len}")))?;
    }
    Ok(())
}

fn special(dir: &Path, is_root: bool) -> Result<()> {
    fs::create_dir(dir)?;
    let make = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, dir.join(name), kind, mode, device)
    };
    make("fifo", FileType::Fifo, 0)?;
    make("socket", FileType::Socket, 0)?;
    fs::hard_link(dir.join("fifo"), dir.join("fifo-too"))?;
    if is_root {
        // The kernel's `ufs` supports numbers up to 255.
        for (name, major, minor) in [("null", 1, 3), ("last", 255, 255), ("first", 0, 0)] {
            let device = rustix::fs::makedev(major, minor);
            make(name, FileType::CharacterDevice, device)?;
            make(&format!("{name}-block"), FileType::BlockDevice, device)?;
        }
    }
    Ok(())
}

fn modes_and_owners(dir: &Path, is_root: bool) -> Result<()> {
    fs::create_dir(dir)?;
    // Ordinary users must be able to read them.
    for mode in [0o400, 0o644, 0o777, 0o4755, 0o2755, 0o6711, 0o2644] {
        let file = dir.join(format!("file-{mode:o}"));
        fs::write(&file, "mode")?;
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
    }
    for mode in [0o500, 0o755, 0o2775, 0o1777] {
        let inner = dir.join(format!("dir-{mode:o}"));
        fs::create_dir(&inner)?;
        fs::set_permissions(&inner, Permissions::from_mode(mode))?;
    }
    if is_root {
        for (user, group) in [(1, 2), (65_535, 65_536), (4_000_000_000, 70_000)] {
            let file = dir.join(format!("owner-{user}"));
            fs::write(&file, "owner")?;
            chown(&file, user, group)?;
        }
        symlink("nowhere", dir.join("link"))?;
        chown(&dir.join("link"), 3, 4)?;
    }
    Ok(())
}

fn chown(path: &Path, user: u32, group: u32) -> Result<()> {
    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::chownat(CWD, path, user, group, flags)?)
}

fn times(dir: &Path, geometry: Geometry) -> Result<()> {
    fs::create_dir(dir)?;
    let mut moments = vec![0, 1, -1, i64::from(i32::MIN), i64::from(i32::MAX)];
    if geometry.version == 2 {
        moments.extend([4_102_444_800, -10_000_000_000, 100_000_000_000]);
    }
    for seconds in moments {
        let file = dir.join(seconds.to_string());
        fs::write(&file, "times")?;
        set_times(&file, seconds, 123_456_789)?;
    }
    Ok(())
}

fn set_times(path: &Path, seconds: i64, nanoseconds: i64) -> Result<()> {
    let one = |tv_sec| Timespec {
        tv_sec,
        tv_nsec: nanoseconds as _,
    };
    let times = Timestamps {
        last_access: one(seconds / 2),
        last_modification: one(seconds),
    };
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::utimensat(CWD, path, &times, flags)?)
}

/// Changes about half of what is below a directory. Returns the number of changes.
pub(crate) fn change(dir: &Path, random: &mut Random, geometry: Geometry) -> Result<u64> {
    let mut all = Vec::new();
    collect(dir, &mut all)?;
    // Contents come before their directory, since the others could not be found after it is
    // renamed.
    all.sort_by(|one, other| other.cmp(one));
    let mut changes = 0;
    for (number, path) in all.iter().enumerate() {
        if random.one_in(2) {
            continue;
        }
        let to = dir.join(name(random, 10_000 + number as u64));
        match change_one(path, &to, random, geometry) {
            Ok(()) => changes += 1,
            // It was removed with its directory, or an ordinary user may not change it.
            Err(error) if gone(&error) || error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(changes)
}

fn gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn collect(dir: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        all.push(entry.path());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), all)?;
        }
    }
    Ok(())
}

fn change_one(path: &Path, to: &Path, random: &mut Random, geometry: Geometry) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    match random.below(8) {
        0 => return fs::rename(path, to),
        1 => return set_times(path, random.below(1 << 31) as i64, 987_654_321),
        _ => {}
    }
    if meta.is_dir() {
        let mut below = Vec::new();
        collect(path, &mut below)?;
        return match random.below(6) {
            0 if below.len() < 50 => fs::remove_dir_all(path),
            1 => fs::set_permissions(path, Permissions::from_mode(0o700)),
            2 => fs::create_dir(path.join("made later")),
            _ => fs::write(path.join("written later"), random.bytes(2_000)),
        };
    }
    if meta.is_symlink() {
        fs::remove_file(path)?;
        return symlink("c".repeat(1 + random.below(200) as usize), path);
    }
    if !meta.is_file() || random.one_in(5) {
        return match random.below(2) {
            0 => fs::remove_file(path),
            _ => fs::hard_link(path, to),
        };
    }
    change_file(path, meta.len(), random, geometry)
}

fn change_file(path: &Path, size: u64, random: &mut Random, geometry: Geometry) -> Result<()> {
    let len = random.below(3 * geometry.block_bytes);
    let bytes = random.bytes(len as usize);
    let open = || {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(File::from)
    };
    let file = match open() {
        Err(rustix::io::Errno::ACCESS) => {
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            open()?
        }
        result => result?,
    };
    match random.below(4) {
        0 => file.write_all_at(&bytes, size),
        1 => file.set_len(random.below(size + 1)),
        2 => file.write_all_at(&bytes, random.below(size.min(1 << 20) + 1)),
        _ => {
            file.set_len(random.below(size / 2 + 1))?;
            file.set_len(size / 2 + random.below(100_000))
        }
    }
}

/// Random system calls on few names. Returns the number of those that were not refused.
pub(crate) fn play(dir: &Path, seed: u64, operations: u64) -> Result<u64> {
    fs::create_dir(dir)?;
    let choice = Choice {
        attributes: false,
        attribute_bytes: 0,
        holes: true,
    };
    let (mut generator, mut player) = (Generator::new(seed, choice), Player::new(dir));
    let mut done = 0;
    for _ in 0..operations {
        let operation = generator.operation();
        if !player.play(&operation).starts_with("error") {
            generator.learn(&operation);
            done += 1;
        }
    }
    Ok(done)
}

/// Lets an ordinary user read all their files; root can already.
pub(crate) fn make_readable(dir: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_symlink() {
            continue;
        }
        let mode = meta.permissions().mode() | if meta.is_dir() { 0o700 } else { 0o400 };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        if meta.is_dir() {
            make_readable(&path)?;
        }
    }
    Ok(())
}
