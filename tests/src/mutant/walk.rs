//! What can be reached in an image, and how much of it is right.

use super::volume::{Inode, ROOT, Role, Volume};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use twox_hash::XxHash3_128;

/// The most names of an image: this ends a cycle of directories.
const MOST_NAMES: usize = 100_000;
const LOST: &[u8] = b"lost+found";

/// Everything that can be reached, by path, with a digest of each.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    names: BTreeMap<Vec<u8>, u128>,
}

/// How much of a tree is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// How many are right at their paths.
    pub named: usize,
    /// How many are right at their paths, or elsewhere with their contents: in `lost+found`, or
    /// renamed.
    pub kept: usize,
}

impl Tree {
    /// The tree of an image; empty if it cannot be read.
    pub fn of(image: &Path) -> Tree {
        let mut tree = Tree::default();
        let Some(volume) = File::open(image).ok().and_then(Volume::open) else {
            return tree;
        };
        let mut known = HashMap::new();
        let mut seen = HashSet::from([ROOT]);
        let mut open = vec![(ROOT, Vec::new())];
        while let Some((number, path)) = open.pop() {
            let Some(inode) = volume.inode(number).filter(|inode| inode.kind() == 4) else {
                continue;
            };
            for entry in volume.entries(&inode) {
                let is_none = entry.inode == 0 || entry.name == b"." || entry.name == b"..";
                if is_none || tree.names.len() > MOST_NAMES {
                    continue;
                }
                let Some(target) = volume.inode(entry.inode) else {
                    continue;
                };
                let path = [path.as_slice(), b"/", &entry.name].concat();
                if target.kind() == 4 && seen.insert(entry.inode) {
                    open.push((entry.inode, path.clone()));
                }
                let digest = *known
                    .entry(entry.inode)
                    .or_insert_with(|| digest(&volume, entry.inode, &target));
                tree.names.insert(path, digest);
            }
        }
        tree
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// How much of `right` is here.
    pub fn kept(&self, right: &Tree) -> Kept {
        let mut elsewhere: HashMap<u128, usize> = HashMap::new();
        for (path, digest) in self.names.iter().filter(|(path, _)| path[1..] != *LOST) {
            if right.names.get(path) != Some(digest) {
                *elsewhere.entry(*digest).or_default() += 1;
            }
        }
        let mut kept = Kept::default();
        // `lost+found` itself does not count.
        for (path, digest) in right.names.iter().filter(|(path, _)| path[1..] != *LOST) {
            if self.names.get(path) == Some(digest) {
                kept.named += 1;
                kept.kept += 1;
            } else if let Some(count) = elsewhere.get_mut(digest).filter(|count| **count > 0) {
                *count -= 1;
                kept.kept += 1;
            }
        }
        kept
    }

    /// Paths of `right` that are not here or not right, for people.
    pub fn missing(&self, right: &Tree) -> Vec<String> {
        let is_missing = |path: &[u8], digest| self.names.get(path) != Some(digest);
        let missing = right.names.iter().filter(|(p, d)| is_missing(p, d));
        missing
            .map(|(path, _)| String::from_utf8_lossy(path).into_owned())
            .collect()
    }
}

/// A digest of what a person sees in a file: its type, and its contents or target. Blocks of zeros
/// count as holes. A directory, and everything else without contents, is identified by its inode
/// number, so no other one can stand for it; the names in a directory have digests of their own.
fn digest(volume: &Volume, number: u32, inode: &Inode) -> u128 {
    let mut seen = vec![inode.kind() as u8];
    match inode.kind() {
        1 | 4 | 12 => seen.extend_from_slice(&number.to_le_bytes()),
        8 if inode.size() == 0 => seen.extend_from_slice(&number.to_le_bytes()),
        8 | 10 if !inode.is_fast_link() => {
            let size = inode.size();
            seen.extend_from_slice(&size.to_le_bytes());
            for (block, role) in volume.file_blocks(inode) {
                let Role::Data(index) = role else {
                    continue;
                };
                let start = index * volume.block_bytes;
                let Some(mut bytes) = volume.block(block).filter(|_| start < size) else {
                    continue;
                };
                bytes.truncate((size - start).min(volume.block_bytes) as usize);
                let part = XxHash3_128::oneshot(&bytes);
                bytes.fill(0);
                if part != XxHash3_128::oneshot(&bytes) {
                    seen.extend_from_slice(&index.to_le_bytes());
                    seen.extend_from_slice(&part.to_le_bytes());
                }
            }
        }
        10 => seen.extend_from_slice(&inode.bytes[40..40 + inode.size() as usize]),
        // The numbers of a device.
        _ => seen.extend_from_slice(&inode.bytes[40..48]),
    }
    XxHash3_128::oneshot(&seen)
}
