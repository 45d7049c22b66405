//! Everything that can be seen of a directory tree, and the differences between two.

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::{Path, PathBuf};

/// Files up to this size are read whole; of larger ones the parts that `SEEK_DATA` finds.
const READ_WHOLE_BYTES: u64 = 16 << 20;

/// What can be seen of one name.
#[derive(Clone, Debug)]
pub struct Entry {
    stat: Stat,
    /// A hash of the non-zero bytes and their offsets, for regular files.
    content: u64,
    /// The target, for symbolic links.
    target: PathBuf,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same inode, which is the same for all of its hard links.
    first_name: PathBuf,
}

/// A tree, by the names below its root (the root itself is the empty name).
#[derive(Clone, Debug, Default)]
pub struct Tree(BTreeMap<PathBuf, Entry>);

/// What to compare beyond what must always be equal (kind, mode, owners, size, link structure,
/// device numbers, contents, targets, attributes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Two views of one image: also inode numbers, blocks, link counts, sizes of directories, every
    /// time.
    SameImage,
    /// As `SameImage`, but reading may have happened between the two, which changes access times.
    SameImageRead,
    /// A copy: also modification times, which the copier has set.
    Copy,
    /// Two file systems on which the same was done at about the same time, beginning at that
    /// second: times before it were set explicitly and must be equal, later ones must be near each
    /// other. Files on the left must not use more blocks, except for attributes, which may be
    /// stored in several places. They may use fewer, since the kernel keeps empty indirect blocks
    /// when it punches holes.
    Lockstep(i64),
    /// As `Lockstep`, for two formats: the space that files take is not compared.
    LockstepOfFormats(i64),
}

impl Tree {
    /// Reads everything below `root`.
    ///
    /// # Errors
    ///
    /// With the name at which it failed.
    pub fn try_capture(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        let mut inodes = HashMap::new();
        tree.add(root, Path::new(""), &mut inodes)?;
        Ok(tree)
    }

    /// Reads everything below `root`.
    ///
    /// # Panics
    ///
    /// With the name at which it failed.
    #[track_caller]
    pub fn capture(root: &Path) -> Self {
        Self::try_capture(root).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The number of names, without the root.
    pub fn len(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names below the root.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.0
            .keys()
            .map(PathBuf::as_path)
            .filter(|name| !name.as_os_str().is_empty())
    }

    /// The names of regular files with their sizes.
    pub fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.0
            .iter()
            .filter(|(_, entry)| kind(&entry.stat) == 'f')
            .map(|(name, entry)| (name.as_path(), entry.stat.st_size as u64))
    }

    /// The result of `stat` for a name.
    pub fn stat(&self, name: &Path) -> Option<&Stat> {
        self.0.get(name).map(|entry| &entry.stat)
    }

    /// Leaves out a name and what is below it.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|path, _| !path.starts_with(name));
        self
    }

    fn add(
        &mut self,
        root: &Path,
        name: &Path,
        inodes: &mut HashMap<u64, PathBuf>,
    ) -> Result<(), String> {
        let path = if name.as_os_str().is_empty() {
            root.to_owned()
        } else {
            root.join(name)
        };
        let failed = |what: &str, error: String| format!("{what} {}: {error}", path.display());
        let stat = rustix::fs::lstat(&path).map_err(|e| failed("stat", e.to_string()))?;
        let first_name = inodes
            .entry(stat.st_ino)
            .or_insert_with(|| name.to_owned())
            .clone();
        let attributes = attributes(&path).map_err(|e| failed("attributes of", e.to_string()))?;
        let mut entry = Entry {
            stat,
            content: 0,
            target: PathBuf::new(),
            attributes,
            first_name,
        };
        match kind(&stat) {
            'f' => {
                let size = stat.st_size as u64;
                entry.content = content(&path, size).map_err(|e| failed("read", e.to_string()))?;
            }
            'l' => {
                entry.target =
                    fs::read_link(&path).map_err(|e| failed("readlink", e.to_string()))?;
            }
            _ => {}
        }
        self.0.insert(name.to_owned(), entry);
        if kind(&stat) == 'd' {
            for child in children(&path).map_err(|e| failed("list", e))? {
                self.add(root, &name.join(child), inodes)?;
            }
        }
        Ok(())
    }
}

/// The names in a directory, sorted. What the directory says of their inodes must be what `stat`
/// says.
fn children(path: &Path) -> Result<Vec<std::ffi::OsString>, String> {
    let mut names = Vec::new();
    for child in fs::read_dir(path).map_err(|error| error.to_string())? {
        let child = child.map_err(|error| error.to_string())?;
        let stat = rustix::fs::lstat(child.path()).map_err(|error| error.to_string())?;
        let listed = child.file_type().map_err(|error| error.to_string())?;
        let same_kind = listed.is_dir() == (kind(&stat) == 'd')
            && listed.is_symlink() == (kind(&stat) == 'l')
            && listed.is_file() == (kind(&stat) == 'f');
        if child.ino() != stat.st_ino || !same_kind {
            let name = child.file_name();
            return Err(format!(
                "{name:?} is listed with another inode or type than it has"
            ));
        }
        names.push(child.file_name());
    }
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{:?} is listed twice", pair[0])),
        None => Ok(names),
    }
}

fn kind(stat: &Stat) -> char {
    match stat.st_mode & 0o170_000 {
        0o040_000 => 'd',
        0o100_000 => 'f',
        0o120_000 => 'l',
        0o010_000 => 'p',
        0o140_000 => 's',
        0o020_000 => 'c',
        0o060_000 => 'b',
        _ => '?',
    }
}

/// Hashes the blocks of 4 KiB that are not all zero, so that holes and zeros are the same.
fn content(path: &Path, size: u64) -> std::io::Result<u64> {
    let file = File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut at = 0;
    while at < size {
        let end = if size <= READ_WHOLE_BYTES {
            size
        } else {
            // Blocks may be smaller than 4 KiB, so data may begin inside the piece that is hashed.
            let data = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            at = data / 4096 * 4096;
            rustix::fs::seek(&file, SeekFrom::Hole(data))?
        };
        hash_range(&file, at, end.min(size), &mut hasher)?;
        at = end.next_multiple_of(4096);
    }
    Ok(hasher.finish())
}

fn hash_range(file: &File, from: u64, to: u64, hasher: &mut DefaultHasher) -> std::io::Result<()> {
    let mut buffer = vec![0; (to - from).min(1 << 20) as usize];
    let mut at = from;
    while at < to {
        let part = &mut buffer[..(to - at).min(1 << 20) as usize];
        file.read_exact_at(part, at)?;
        for (number, block) in part.chunks(4096).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                (at + number as u64 * 4096).hash(hasher);
                block.hash(hasher);
            }
        }
        at += part.len() as u64;
    }
    Ok(())
}

/// The extended attributes of a name, without following symbolic links.
///
/// # Errors
///
/// The host's errors. A file system without attributes has none.
pub fn attributes(path: &Path) -> rustix::io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(error) => return Err(error),
    };
    let mut found = BTreeMap::new();
    for name in list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// What differs between two trees, one line for each difference; at most a hundred.
pub fn differences(left: &Tree, right: &Tree, compare: Compare) -> Vec<String> {
    let mut found = Vec::new();
    for (name, entry) in &left.0 {
        match right.0.get(name) {
            None => found.push(format!("{}: only on the left", name.display())),
            Some(other) => {
                let whats = differing_fields(entry, other, compare);
                found.extend(
                    whats
                        .into_iter()
                        .map(|what| format!("{}: {what}", name.display())),
                );
            }
        }
    }
    let only_right = right.0.keys().filter(|name| !left.0.contains_key(*name));
    found.extend(only_right.map(|name| format!("{}: only on the right", name.display())));
    found.truncate(100);
    found
}

/// Asserts that two trees are equal.
///
/// # Panics
///
/// With the differences.
#[track_caller]
pub fn expect_equal(what: &str, left: &Tree, right: &Tree, compare: Compare) {
    let found = differences(left, right, compare);
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

fn differing_fields(left: &Entry, right: &Entry, compare: Compare) -> Vec<String> {
    let (a, b) = (&left.stat, &right.stat);
    let same_image = matches!(compare, Compare::SameImage | Compare::SameImageRead);
    let directory = kind(a) == 'd' && kind(b) == 'd';
    let mut found = Vec::new();
    let mut check = |what: &str, equal: bool, x: String, y: String| {
        if !equal {
            found.push(format!("{what} {x} ≠ {y}"));
        }
    };
    let mut number = |what: &str, x: i128, y: i128| {
        check(what, x == y, x.to_string(), y.to_string());
    };
    number("uid", a.st_uid.into(), b.st_uid.into());
    number("gid", a.st_gid.into(), b.st_gid.into());
    if matches!(kind(a), 'c' | 'b') {
        number("device", a.st_rdev.into(), b.st_rdev.into());
    }
    if !directory || same_image {
        number("size", a.st_size.into(), b.st_size.into());
    }
    if same_image || (!directory && compare != Compare::Copy) {
        number("link count", a.st_nlink.into(), b.st_nlink.into());
    }
    if same_image {
        number("inode", a.st_ino.into(), b.st_ino.into());
        number("blocks", a.st_blocks.into(), b.st_blocks.into());
    }
    check(
        "mode",
        a.st_mode == b.st_mode,
        format!("{:o}", a.st_mode),
        format!("{:o}", b.st_mode),
    );
    check(
        "contents",
        left.content == right.content,
        String::new(),
        String::new(),
    );
    check(
        "target",
        left.target == right.target,
        debug(&left.target),
        debug(&right.target),
    );
    let (x, y) = (&left.first_name, &right.first_name);
    check("hard link of", x == y, debug(x), debug(y));
    let (x, y) = (&left.attributes, &right.attributes);
    check("attributes", x == y, printable(x), printable(y));
    let of_attributes = if left.attributes.is_empty() { 0 } else { 8 };
    let wasteful = matches!(compare, Compare::Lockstep(_))
        && !directory
        && (a.st_blocks > b.st_blocks + of_attributes || b.st_blocks > a.st_blocks + 4 * 8);
    check(
        "blocks",
        !wasteful,
        a.st_blocks.to_string(),
        b.st_blocks.to_string(),
    );
    differing_times(a, b, compare, directory, &mut check);
    found
}

type Time = (i64, i64);

fn differing_times(
    a: &Stat,
    b: &Stat,
    compare: Compare,
    directory: bool,
    check: &mut dyn FnMut(&str, bool, String, String),
) {
    let mut times: Vec<(&str, Time, Time)> = Vec::new();
    let modified = |s: &Stat| (s.st_mtime, s.st_mtime_nsec as i64);
    let changed = |s: &Stat| (s.st_ctime, s.st_ctime_nsec as i64);
    let accessed = |s: &Stat| (s.st_atime, s.st_atime_nsec as i64);
    // Copying into a directory changes it, and copiers set its time last or not at all.
    if compare != Compare::Copy || !directory {
        times.push(("mtime", modified(a), modified(b)));
    }
    if compare != Compare::Copy {
        times.push(("ctime", changed(a), changed(b)));
    }
    if compare == Compare::SameImage {
        times.push(("atime", accessed(a), accessed(b)));
    }
    for (what, x, y) in times {
        let equal = match compare {
            Compare::Lockstep(start) | Compare::LockstepOfFormats(start)
                if x.0 >= start - 1 && y.0 >= start - 1 =>
            {
                (x.0 - y.0).abs() <= 30
            }
            _ => x == y,
        };
        check(
            what,
            equal,
            format!("{}.{:09}", x.0, x.1),
            format!("{}.{:09}", y.0, y.1),
        );
    }
}

fn debug(path: &Path) -> String {
    let text = format!("{path:?}");
    if text.chars().count() > 80 {
        text.chars().take(80).chain("…".chars()).collect()
    } else {
        text
    }
}

fn printable(attributes: &BTreeMap<Vec<u8>, Vec<u8>>) -> String {
    let one = |(name, value): (&Vec<u8>, &Vec<u8>)| {
        let start = value
            .escape_ascii()
            .take(64)
            .map(char::from)
            .collect::<String>();
        format!("{}=({} bytes){start}", name.escape_ascii(), value.len())
    };
    format!(
        "{{{}}}",
        attributes.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), "abc").unwrap();
        fs::hard_link(dir.path().join("d/f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("d/f", dir.path().join("l")).unwrap();
        dir
    }

    #[test]
    fn a_tree_equals_itself() {
        let dir = sample();
        let (one, two) = (Tree::capture(dir.path()), Tree::capture(dir.path()));
        assert_eq!(one.len(), 4);
        assert!(differences(&one, &two, Compare::SameImageRead).is_empty());
    }

    #[test]
    fn every_change_is_seen() {
        let dir = sample();
        let path = |name: &str| dir.path().join(name);
        let before = Tree::capture(dir.path());
        let seen = |what: &str| {
            let found = differences(&before, &Tree::capture(dir.path()), Compare::SameImageRead);
            assert!(
                found.iter().any(|line| line.contains(what)),
                "{what} not in {found:?}"
            );
        };
        fs::write(path("g"), "abd").unwrap();
        seen("contents");
        fs::set_permissions(path("g"), PermissionsExt::from_mode(0o600)).unwrap();
        seen("mode");
        fs::write(path("g"), "abcd").unwrap();
        seen("size");
        fs::remove_file(path("g")).unwrap();
        seen("g: only on the left");
        fs::write(path("g"), "abc").unwrap();
        seen("g: hard link of");
        seen("d/f: link count");
        fs::remove_file(path("l")).unwrap();
        std::os::unix::fs::symlink("d", path("l")).unwrap();
        seen("l: target");
        fs::write(path("new"), "").unwrap();
        seen("new: only on the right");
    }

    #[test]
    fn holes_and_zeros_have_the_same_contents() {
        let dir = tempfile::tempdir().unwrap();
        let (zeros, hole) = (dir.path().join("zeros"), dir.path().join("hole"));
        fs::write(&zeros, vec![0; 20 << 20]).unwrap();
        File::create(&hole).unwrap().set_len(20 << 20).unwrap();
        assert_eq!(
            content(&zeros, 20 << 20).unwrap(),
            content(&hole, 20 << 20).unwrap()
        );
        File::options()
            .write(true)
            .open(&hole)
            .unwrap()
            .write_at(b"x", 17 << 20)
            .unwrap();
        assert_ne!(
            content(&zeros, 20 << 20).unwrap(),
            content(&hole, 20 << 20).unwrap()
        );
    }
}
