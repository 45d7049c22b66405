//! A state in words: what the program had done, which of it is on the disk and which is missing,
//! and why a crash may leave it like that.

use backstitch_crash_core::geography::Blocks;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_crash_core::report::{Block, BlockState};
use backstitch_crash_core::schedule::Schedule;
use backstitch_layout::InodeNumber;
use backstitch_layout::tools::Use;
use std::collections::BTreeMap;

use crate::trace::Trace;
use crate::tree::Tree;
use crate::variant::WriteBack;

/// The most operations that a report shows.
const OPERATIONS: usize = 24;
/// The most sentences that give reasons.
const REASONS: usize = 3;

/// What the program did up to operation number `begun`, the last operations of it, and when
/// everything was written back.
pub(crate) fn operations(trace: &Trace, begun: usize, write_back: WriteBack) -> Vec<String> {
    // The recording numbers inodes in its own way, and has no number for the root.
    let root = InodeNumber(0);
    let mut names = Names(Tree::new(root));
    let mut lines = Vec::new();
    for (at, operation) in trace.operations.iter().take(begun).enumerate() {
        if at >= trace.setup {
            lines.extend(names.describe(operation));
        }
        names.follow(operation);
        if write_back == WriteBack::Once(at + 1) {
            lines.push("(what was done up to here is written back)".to_owned());
        }
    }
    let surplus = lines.len().saturating_sub(OPERATIONS);
    if surplus > 0 {
        lines.drain(..surplus);
        lines.insert(0, format!("… {surplus} operations before"));
    }
    lines
}

/// What had been written back before the moment of a state, if that is no matter of a schedule.
pub(crate) fn written_back(trace: &Trace, write_back: WriteBack) -> String {
    let WriteBack::Once(number) = write_back else {
        return String::new();
    };
    let schedule = WriteBack::Always(Schedule::Nothing, 0);
    let operations = operations(trace, number, schedule);
    let last = operations.last().map_or("the setup", String::as_str);
    format!("; what was done up to operation {number}, {last}, had been written back before")
}

/// The names of a trace's files at an operation.
struct Names(Tree);

impl Names {
    fn file(&self, path: &Path) -> String {
        let mut shown = match path.label {
            None if path.names.is_empty() => return "/".to_owned(),
            None => String::new(),
            Some(label) => self.0.path(InodeNumber(label)),
        };
        for name in &path.names {
            if !shown.is_empty() {
                shown.push('/');
            }
            shown += &String::from_utf8_lossy(name);
        }
        shown
    }

    fn describe(&self, operation: &Operation) -> Option<String> {
        let file = |path: &Path| self.file(path);
        Some(match operation {
            Operation::Create(path, _) => format!("create {}", file(path)),
            Operation::Tmpfile(path, _) => {
                format!("create a file without a name in {}", file(path))
            }
            Operation::Mkdir(path, _) => format!("mkdir {}", file(path)),
            Operation::Symlink(_, path, _) => format!("symlink {}", file(path)),
            Operation::Write(path, at, data) => {
                let len = match data {
                    Data::Bytes(bytes) => bytes.len(),
                    Data::Pattern(len) => *len,
                };
                format!("write {}: {len} bytes at {at}", file(path))
            }
            Operation::Truncate(path, size) => format!("truncate {} to {size} bytes", file(path)),
            Operation::Allocate(path, _, at, len) => {
                format!("allocate {}: {len} bytes at {at}", file(path))
            }
            Operation::Link(from, to) => format!("link {} to {}", file(from), file(to)),
            Operation::Unlink(path) => format!("unlink {}", file(path)),
            Operation::Rmdir(path) => format!("rmdir {}", file(path)),
            Operation::Rename(from, to) => format!("rename {} to {}", file(from), file(to)),
            Operation::Exchange(from, to) => format!("exchange {} and {}", file(from), file(to)),
            Operation::Fsync(path) => format!("fsync {}", file(path)),
            Operation::Fdatasync(path) => format!("fdatasync {}", file(path)),
            Operation::Engage(group) => format!("from here on under patchgroup {group}"),
            Operation::Disengage(group) => format!("no longer under patchgroup {group}"),
            Operation::Depend(after, before) => {
                format!("patchgroup {after} comes after patchgroup {before}")
            }
            Operation::SyncGroup(group) => format!("sync patchgroup {group}"),
            Operation::Said(bytes) => {
                let said = String::from_utf8_lossy(bytes);
                let mut said: String = said.trim_end().chars().take(60).collect();
                said = said.replace('\n', "\\n");
                format!("said \"{said}\"")
            }
            Operation::Open(_) | Operation::Close(_) | Operation::As(..) => return None,
            other => other.to_string(),
        })
    }

    fn follow(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(path, Some(label))
            | Operation::Mkdir(path, Some(label))
            | Operation::Symlink(_, path, Some(label)) => self.enter(path, *label),
            Operation::Link(
                Path {
                    label: Some(label), ..
                },
                to,
            ) => self.enter(to, *label),
            Operation::Unlink(path) | Operation::Rmdir(path) => {
                if let Some((directory, name)) = entry(path) {
                    self.0.remove(directory, name);
                }
            }
            Operation::Rename(from, to) => self.moved(from, to, false),
            Operation::Exchange(from, to) => self.moved(from, to, true),
            _ => {}
        }
    }

    fn enter(&mut self, path: &Path, label: u32) {
        if let Some((directory, name)) = entry(path) {
            self.0.enter(directory, name, InodeNumber(label));
        }
    }

    fn moved(&mut self, from: &Path, to: &Path, exchange: bool) {
        use backstitch_layout::{Rename, RenameMode};
        let (Some((from, from_name)), Some((to, to_name))) = (entry(from), entry(to)) else {
            return;
        };
        self.0.moved(&Rename {
            from,
            from_name,
            to,
            to_name,
            mode: match exchange {
                true => RenameMode::Exchange,
                false => RenameMode::Replace,
            },
        });
    }
}

/// The directory of an entry, by its number in the recording, and the name.
fn entry(path: &Path) -> Option<(InodeNumber, &[u8])> {
    let [name] = path.names.as_slice() else {
        return None;
    };
    Some((InodeNumber(path.label.unwrap_or(0)), name))
}

/// A change of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    what: String,
    /// The file whose contents it changes.
    contents: Option<InodeNumber>,
    /// The file whose inode or pointers it changes.
    inodes: Vec<InodeNumber>,
    /// Names that it adds, each with its file.
    given: Vec<(String, InodeNumber)>,
    /// Names that it removes.
    taken: Vec<String>,
    /// A reason, if on the disk these contents are in a block of another file.
    overwritten: Option<String>,
}

/// Three images: the disk as it was, the state, and the disk with everything that was in memory.
pub(crate) struct Images {
    pub(crate) disk: Fork,
    pub(crate) state: Fork,
    pub(crate) newest: Fork,
}

/// The changes in memory, each on the disk or missing; and reasons why a crash may leave that.
pub(crate) fn blocks(images: &Images, numbers: &[u64], tree: &Tree) -> (Vec<Block>, Vec<String>) {
    let view = View {
        geography: Blocks::of(&[&images.newest, &images.state, &images.disk]),
        left: Blocks::of(&[&images.state]),
        tree,
    };
    let mut rows = Vec::new();
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for number in numbers {
        let bytes = |image: &Fork| image.block(*number).to_vec();
        let (disk, state, newest) = (
            bytes(&images.disk),
            bytes(&images.state),
            bytes(&images.newest),
        );
        for (from, to, word) in [
            (&disk, &state, BlockState::OnDisk),
            (&state, &newest, BlockState::Missing),
        ] {
            if from == to {
                continue;
            }
            let change = view.change(*number, from, to);
            rows.push(Block {
                block: *number,
                what: change.what.clone(),
                state: word,
            });
            match word {
                BlockState::OnDisk => there.push(change),
                _ => missing.push(change),
            }
        }
    }
    let mut why: Vec<String> = there.iter().filter_map(|c| c.overwritten.clone()).collect();
    why.extend(reasons(&there, &missing, tree));
    why.truncate(REASONS);
    (rows, why)
}

/// Why the state is not what the program expects: what is on the disk without something else, or is
/// not there yet.
fn reasons(there: &[Change], missing: &[Change], tree: &Tree) -> Vec<String> {
    let mut reasons = names_before_contents(there, missing);
    reasons.extend(names_still_there(missing));
    reasons.extend(names_not_there_yet(missing));
    let mut lost: Vec<InodeNumber> = Vec::new();
    for change in missing {
        lost.extend(change.contents.iter().chain(&change.inodes));
    }
    lost.sort_unstable();
    lost.dedup();
    let kept = lost.iter().map(|inode| tree.path(*inode));
    let kept: Vec<String> = kept.filter(|path| is_named(path)).collect();
    if reasons.is_empty() {
        reasons.extend(removed_before_contents(there, &kept));
    }
    if reasons.is_empty() {
        for inode in &lost {
            reasons.extend(unordered(*inode, there, tree));
        }
    }
    reasons.dedup();
    reasons
}

fn is_named(path: &str) -> bool {
    path != "/" && !path.ends_with(" (removed)") && !path.starts_with("inode ")
}

fn names_before_contents(there: &[Change], missing: &[Change]) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, inode) in there.iter().flat_map(|change| &change.given) {
        let contents = missing.iter().any(|m| m.contents == Some(*inode));
        let inodes = missing.iter().any(|m| m.inodes.contains(inode));
        let what = match (contents, inodes) {
            (true, true) => "contents, and the size and pointers in its inode, are",
            (true, false) => "contents are",
            (false, true) => "last change of its inode is",
            (false, false) => continue,
        };
        reasons.push(format!(
            "the name {name} reached the disk, but the file's {what} missing: without an fsync of the file first, the name does \
             not wait for them"
        ));
    }
    reasons
}

fn removed_before_contents(there: &[Change], kept: &[String]) -> Vec<String> {
    let removed = there.iter().flat_map(|change| &change.taken);
    let why = |name: &String| {
        let file = kept.iter().find(|path| *path != name)?;
        Some(format!(
            "the name {name} was removed on the disk, but changes of {file} are missing: without an fsync of {file} first, the \
             removal does not wait for them"
        ))
    };
    removed.filter_map(why).collect()
}

fn names_still_there(missing: &[Change]) -> Vec<String> {
    let all = missing.iter().flat_map(|change| &change.taken);
    all.map(|name| {
        format!(
            "the file that was {name} still has that name on the disk: only an fsync of the directory makes a removal last"
        )
    })
    .collect()
}

fn names_not_there_yet(missing: &[Change]) -> Vec<String> {
    let new = missing.iter().flat_map(|change| {
        let replaces = |name: &String| change.taken.contains(name);
        change.given.iter().filter(move |(name, _)| !replaces(name))
    });
    new.map(|(name, _)| {
        format!(
            "the name {name} is not on the disk yet: only an fsync of the file or of the directory makes a new name last"
        )
    })
    .collect()
}

/// The reason for a file for which there is no other: what was written since its last fsync reaches
/// the disk in any order, or not at all.
fn unordered(inode: InodeNumber, there: &[Change], tree: &Tree) -> Option<String> {
    let path = tree.path(inode);
    if !is_named(&path) {
        return None;
    }
    let touches =
        |change: &&Change| change.contents == Some(inode) || change.inodes.contains(&inode);
    Some(match there.iter().any(|change| touches(&change)) {
        true => format!(
            "some changes of {path} reached the disk and others are missing: without an fsync between them, any of them may \
             reach the disk first"
        ),
        false => {
            format!("changes of {path} are missing: it was not synced after they were made")
        }
    })
}

struct View<'a> {
    /// The use of blocks, once everything is on the disk.
    geography: Blocks,
    /// The use of blocks in the state.
    left: Blocks,
    tree: &'a Tree,
}

impl View<'_> {
    fn change(&self, block: u64, from: &[u8], to: &[u8]) -> Change {
        let mut change = Change {
            what: String::new(),
            contents: None,
            inodes: Vec::new(),
            given: Vec::new(),
            taken: Vec::new(),
            overwritten: None,
        };
        let size = to.len() as u64;
        change.what = match self.geography.what(block) {
            None => {
                let (start, end) = difference(from, to);
                let at = block * size;
                format!("bytes {}–{} of the volume", at + start, at + end - 1)
            }
            Some(Use::Superblock) => "superblock".to_owned(),
            Some(Use::Descriptors) => "group descriptors".to_owned(),
            Some(Use::Backup) => "a backup of superblock or group descriptors".to_owned(),
            Some(Use::BlockBitmap(_)) => format!("block bitmap: {}", bits(from, to)),
            Some(Use::InodeBitmap(_)) => format!("inode bitmap: {}", bits(from, to)),
            Some(Use::Inodes(first)) => self.inodes(first, from, to, &mut change),
            Some(Use::Names(directory)) => self.names(directory, from, to, &mut change),
            Some(Use::Contents(inode, at)) => {
                change.contents = Some(inode);
                change.overwritten = self.overwritten(block, inode);
                let (start, end) = difference(from, to);
                format!(
                    "contents of {}, bytes {}–{}",
                    self.tree.path(inode),
                    at * size + start,
                    at * size + end - 1
                )
            }
            Some(Use::Pointers(inode)) => {
                change.inodes.push(inode);
                format!("pointers to blocks of {}", self.tree.path(inode))
            }
            Some(Use::Attributes(inode)) => {
                format!("extended attributes of {}", self.tree.path(inode))
            }
            Some(Use::Unknown) => "a block of a file that is gone".to_owned(),
        };
        change
    }

    fn overwritten(&self, block: u64, inode: InodeNumber) -> Option<String> {
        match self.left.what(block) {
            Some(Use::Contents(other, _)) if other != inode => Some(format!(
                "contents of {} went into block {block}, which on the disk still belongs to inode {other}, {}: the block was \
                 reused before its release had reached the disk",
                self.tree.path(inode),
                self.tree.path(other)
            )),
            _ => None,
        }
    }

    fn inodes(&self, first: InodeNumber, from: &[u8], to: &[u8], change: &mut Change) -> String {
        let Some(reader) = self.geography.reader() else {
            return String::new();
        };
        let bytes = reader.inode_bytes() as usize;
        let mut parts = Vec::new();
        for (at, (before, after)) in from.chunks(bytes).zip(to.chunks(bytes)).enumerate() {
            if before == after {
                continue;
            }
            let number = first + at as u32;
            let what = reader.inode_difference(before, after);
            if !what.is_empty() {
                change.inodes.push(number);
            }
            let what = if what.is_empty() {
                "times".to_owned()
            } else {
                what
            };
            parts.push(format!(
                "inode {number} ({}): {what}",
                self.tree.path(number)
            ));
        }
        parts.join("; ")
    }

    fn names(&self, directory: InodeNumber, from: &[u8], to: &[u8], change: &mut Change) -> String {
        let entries = |block| -> BTreeMap<Vec<u8>, InodeNumber> {
            let reader = self.geography.reader();
            let names = reader.map(|reader| reader.names(block));
            names.into_iter().flatten().collect()
        };
        let (before, after) = (entries(from), entries(to));
        let mut parts = Vec::new();
        for (name, inode) in &after {
            if before.get(name) == Some(inode) {
                continue;
            }
            let shown = self.tree.child(directory, name);
            parts.push(match before.get(name) {
                None => format!("name {shown} → inode {inode}"),
                Some(old) => format!("name {shown} → inode {inode}, before it inode {old}"),
            });
            if before.contains_key(name) {
                change.taken.push(shown.clone());
            }
            change.given.push((shown, *inode));
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            let shown = self.tree.child(directory, name);
            parts.push(format!("name {shown} taken away"));
            change.taken.push(shown);
        }
        match parts.is_empty() {
            true => format!("directory {}", self.tree.path(directory)),
            false => parts.join("; "),
        }
    }
}

/// The offsets of the first byte that differs, and after the last one.
fn difference(from: &[u8], to: &[u8]) -> (u64, u64) {
    let differs = |at: &usize| from.get(*at) != to.get(*at);
    let start = (0..to.len()).find(differs).unwrap_or(0);
    let end = (start..to.len())
        .rfind(differs)
        .map_or(to.len(), |at| at + 1);
    (start as u64, end as u64)
}

/// How many bits are set and how many cleared, in words.
fn bits(from: &[u8], to: &[u8]) -> String {
    let is_set = |bytes: &[u8], bit: usize| bytes[bit / 8] >> (bit % 8) & 1 != 0;
    let count = from.len().min(to.len()) * 8;
    let (mut taken, mut freed) = (0, 0);
    for bit in 0..count {
        match (is_set(from, bit), is_set(to, bit)) {
            (false, true) => taken += 1,
            (true, false) => freed += 1,
            _ => {}
        }
    }
    match (taken, freed) {
        (taken, 0) => format!("{taken} taken"),
        (0, freed) => format!("{freed} freed"),
        (taken, freed) => format!("{taken} taken, {freed} freed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Geometry, Start};
    use backstitch_crash_core::operation::parse_script;

    #[test]
    fn operations_are_told_by_names() {
        let script = "mkdir /d #12; open #12; creat #12/new #13; write #13 0 hex:0102; fsync #13; rename #12/new /name; \
                      chmod #13 644; said done%0a; unlink /name; write #13 4 3";
        let trace = Trace {
            geometry: Geometry {
                size_bytes: 0,
                block_bytes: 1024,
                uid: 0,
                gid: 0,
                start: Start::Empty,
            },
            setup: 1,
            operations: parse_script(script).unwrap(),
            notes: Vec::new(),
        };
        assert_eq!(
            operations(&trace, 100, WriteBack::Always(Schedule::Nothing, 0)),
            [
                "create d/new",
                "write d/new: 2 bytes at 0",
                "fsync d/new",
                "rename d/new to name",
                "chmod #13 644",
                "said \"done\"",
                "unlink name",
                "write name (removed): 3 bytes at 4",
            ]
        );
        let once = WriteBack::Once(3);
        assert_eq!(
            operations(&trace, 4, once),
            [
                "create d/new",
                "(what was done up to here is written back)",
                "write d/new: 2 bytes at 0",
            ]
        );
        assert_eq!(
            written_back(&trace, once),
            "; what was done up to operation 3, create d/new, had been written back before"
        );
    }

    #[test]
    fn differences_are_found() {
        assert_eq!(difference(&[1, 2, 3, 4], &[1, 9, 9, 4]), (1, 3));
        assert_eq!(bits(&[0b0011], &[0b0101]), "1 taken, 1 freed");
    }
}
