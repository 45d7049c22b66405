//! The names of files: those that they have, and those that they had last.

use backstitch_layout::{InodeNumber, Rename, RenameMode};
use rustc_hash::FxHashMap;

/// The names of a mount, as a program gave them.
#[derive(Debug)]
pub(crate) struct Tree {
    root: InodeNumber,
    entries: FxHashMap<(InodeNumber, Vec<u8>), InodeNumber>,
    /// The name that each inode got last, and whether it was removed since.
    last: FxHashMap<InodeNumber, (InodeNumber, Vec<u8>, bool)>,
}

/// Deeper paths are cut off.
const DEPTH: usize = 32;

impl Tree {
    pub(crate) fn new(root: InodeNumber) -> Tree {
        Tree {
            root,
            entries: FxHashMap::default(),
            last: FxHashMap::default(),
        }
    }

    pub(crate) fn enter(&mut self, directory: InodeNumber, name: &[u8], inode: InodeNumber) {
        self.remove(directory, name);
        self.entries.insert((directory, name.to_vec()), inode);
        self.last.insert(inode, (directory, name.to_vec(), false));
    }

    pub(crate) fn remove(&mut self, directory: InodeNumber, name: &[u8]) {
        let Some(inode) = self.entries.remove(&(directory, name.to_vec())) else {
            return;
        };
        if let Some((at, last, gone)) = self.last.get_mut(&inode)
            && (*at, last.as_slice()) == (directory, name)
        {
            *gone = true;
        }
    }

    pub(crate) fn moved(&mut self, rename: &Rename<'_>) {
        let get = |directory: InodeNumber, name: &[u8]| {
            self.entries.get(&(directory, name.to_vec())).copied()
        };
        let from = get(rename.from, rename.from_name);
        let to = get(rename.to, rename.to_name);
        let Some(from) = from.filter(|_| from != to) else {
            return;
        };
        self.remove(rename.from, rename.from_name);
        self.enter(rename.to, rename.to_name, from);
        if let Some(to) = to.filter(|_| rename.mode == RenameMode::Exchange) {
            self.enter(rename.from, rename.from_name, to);
        }
    }

    /// The path of a file, or the last one that it had.
    pub(crate) fn path(&self, inode: InodeNumber) -> String {
        if inode == self.root {
            return "/".to_owned();
        }
        let mut names = Vec::new();
        let mut removed = false;
        let mut at = inode;
        while at != self.root && names.len() < DEPTH {
            let Some((directory, name, gone)) = self.last.get(&at) else {
                return format!("inode {inode}");
            };
            names.push(String::from_utf8_lossy(name).into_owned());
            removed |= gone;
            at = *directory;
        }
        names.reverse();
        let path = names.join("/");
        if removed {
            format!("{path} (removed)")
        } else {
            path
        }
    }

    /// The path of a name in a directory.
    pub(crate) fn child(&self, directory: InodeNumber, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        match directory == self.root {
            true => name.into_owned(),
            false => format!("{}/{name}", self.path(directory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_what_happens() {
        let [root, dir, file, other] = [2, 11, 12, 13].map(InodeNumber);
        let mut tree = Tree::new(root);
        tree.enter(root, b"d", dir);
        tree.enter(dir, b"new", file);
        assert_eq!(tree.path(file), "d/new");
        tree.enter(root, b"name", other);
        let rename = Rename {
            from: dir,
            from_name: b"new",
            to: root,
            to_name: b"name",
            mode: RenameMode::Replace,
        };
        tree.moved(&rename);
        assert_eq!(tree.path(file), "name");
        assert_eq!(tree.path(other), "name (removed)");
        tree.remove(root, b"name");
        assert_eq!(tree.path(file), "name (removed)");
        assert_eq!(tree.path(InodeNumber(99)), "inode 99");
        assert_eq!(tree.child(dir, b"x"), "d/x");
    }
}
