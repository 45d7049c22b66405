//! The tree of directories, as a check has gathered it: who contains whom, and how many names
//! everything has. The same for all layouts whose directories name inodes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, Finding, Findings, Location};
use crate::InodeNumber;

/// No parent is known.
const NO_PARENT: u32 = u32::MAX;

/// What a check found of each inode, by number.
pub type ByInode = BTreeMap<InodeNumber, BTreeSet<Code>>;

/// The directories that a check has found. Each has a *place*: it is the first, second, … of them in
/// the order of their inodes.
pub trait Directories {
    /// How many there are.
    fn directory_count(&self) -> usize;

    /// The inode of the one at this place.
    fn directory_at(&self, place: usize) -> InodeNumber;

    /// The place of the one with this inode.
    fn directory_index(&self, inode: InodeNumber) -> Option<usize>;
}

/// The names of directories, and their `..`.
#[derive(Debug, Default)]
pub struct Names {
    /// `..` of each directory, by its place; [`InodeNumber::NONE`] where there is none.
    pub parents: Vec<InodeNumber>,
    /// The names of directories: the place of the named one, and the inode of the one that contains
    /// the name. In that order.
    pub named: Vec<(u32, InodeNumber)>,
}

impl Names {
    /// The names of the directory at a place, each with the inode of the directory that contains it.
    pub fn of(&self, place: usize) -> &[(u32, InodeNumber)] {
        let place = place as u32;
        let start = self.named.partition_point(|(child, _)| *child < place);
        let own = &self.named[start..];
        &own[..own.partition_point(|(child, _)| *child <= place)]
    }

    /// The directories that can be reached from the root, by their places.
    pub fn reachable(&self, directories: &impl Directories, root: InodeNumber) -> Vec<bool> {
        let mut below: Vec<(InodeNumber, u32)> =
            (self.named.iter().map(|(child, parent)| (*parent, *child))).collect();
        below.sort_unstable();
        let mut is_reached = vec![false; directories.directory_count()];
        let mut open: Vec<usize> = directories.directory_index(root).into_iter().collect();
        while let Some(place) = open.pop() {
            if std::mem::replace(&mut is_reached[place], true) {
                continue;
            }
            let inode = directories.directory_at(place);
            let start = below.partition_point(|(parent, _)| *parent < inode);
            let own = (below[start..].iter()).take_while(|(parent, _)| *parent == inode);
            open.extend(own.map(|(_, child)| *child as usize));
        }
        is_reached
    }

    /// The inodes of `found` in layers, directories from the innermost ones out: no inode of a layer
    /// is the `..` of one in a later layer. What contains itself is in none.
    pub fn from_within(
        &self,
        directories: &impl Directories,
        found: &ByInode,
    ) -> Vec<Vec<InodeNumber>> {
        let parent_of = |number: InodeNumber| {
            let parent = self.parents[directories.directory_index(number)?];
            (parent != number && found.contains_key(&parent)).then_some(parent)
        };
        let mut children: BTreeMap<InodeNumber, u32> = BTreeMap::new();
        for parent in found.keys().filter_map(|number| parent_of(*number)) {
            *children.entry(parent).or_default() += 1;
        }
        let is_leaf = |number: &InodeNumber| !children.contains_key(number);
        let mut layer: Vec<InodeNumber> = found.keys().copied().filter(is_leaf).collect();
        let mut layers = Vec::new();
        while !layer.is_empty() {
            let mut next = Vec::new();
            for parent in layer.iter().filter_map(|number| parent_of(*number)) {
                if let Some(left) = children.get_mut(&parent) {
                    *left -= 1;
                    next.extend((*left == 0).then_some(parent));
                }
            }
            layers.push(std::mem::replace(&mut layer, next));
        }
        layers
    }
}

/// What is known of an inode in use.
#[derive(Clone, Copy, Debug)]
pub struct Linked {
    /// Its number.
    pub inode: InodeNumber,
    /// The names found.
    pub names: u32,
    /// The names that it counts itself.
    pub links: u16,
    /// It is a directory.
    pub is_directory: bool,
    /// A directory with more names than this counts 1, which stands for "many".
    pub most_counted: u32,
}

/// How the directories hang together.
pub struct Tree {
    /// For each directory the one that contains it, by their places.
    parents: Vec<u32>,
    /// The inodes of those that were being moved, in order.
    moved: Vec<InodeNumber>,
    /// The inodes of those without a name, in order.
    unconnected: Vec<InodeNumber>,
}

impl Tree {
    /// Checks that each directory but the root has one name, that `..` agrees with it, and that none
    /// contains itself.
    pub fn check(
        directories: &impl Directories,
        names: &Names,
        root: InodeNumber,
        findings: &mut Findings,
    ) -> Tree {
        let count = directories.directory_count();
        let mut tree = Tree {
            parents: vec![NO_PARENT; count],
            moved: Vec::new(),
            unconnected: Vec::new(),
        };
        for place in 0..count {
            let inode = directories.directory_at(place);
            let parent = match inode == root {
                true => Some(root),
                false => tree.parent(inode, names.parents[place], names.of(place), findings),
            };
            let Some(parent) = parent else { continue };
            // A missing `..` was found before.
            let dot_dot = names.parents[place];
            if dot_dot != InodeNumber::NONE && dot_dot != parent {
                findings.add(Code::DotDotWrong, Location::inode(inode), || {
                    format!(".. is {dot_dot}, not {parent}")
                });
            }
            if let Some(parent) = directories.directory_index(parent) {
                tree.parents[place] = parent as u32;
            }
        }
        tree.check_cycles(directories, findings);
        tree
    }

    /// The directory that contains this one, by its names; `None` where it has none.
    fn parent(
        &mut self,
        inode: InodeNumber,
        dot_dot: InodeNumber,
        own: &[(u32, InodeNumber)],
        findings: &mut Findings,
    ) -> Option<InodeNumber> {
        let place = Location::inode(inode);
        match own {
            [] => {
                findings.add(Code::UnconnectedDirectory, place, || {
                    "a directory without a name".to_owned()
                });
                self.unconnected.push(inode);
                None
            }
            [(_, parent)] => Some(*parent),
            [(_, one), (_, other)] if dot_dot == *one || dot_dot == *other => {
                findings.add(Code::DirectoryTwoNames, place, || {
                    format!("named in {one} and {other}, .. is {dot_dot}")
                });
                self.moved.push(inode);
                Some(dot_dot)
            }
            [(_, first), ..] => {
                let count = own.len();
                findings.add(Code::DirectoryManyNames, place, || {
                    format!("has {count} names, .. is {dot_dot}")
                });
                Some(*first)
            }
        }
    }

    /// Climbs from every directory until the root, an unconnected directory, or a place where an
    /// earlier climb came by.
    fn check_cycles(&self, directories: &impl Directories, findings: &mut Findings) {
        // The climb that came by first, counted from 1.
        let mut visits = vec![0_u32; self.parents.len()];
        for start in 0..self.parents.len() {
            let climb = start as u32 + 1;
            let mut at = start;
            while visits[at] == 0 {
                visits[at] = climb;
                match self.parents[at] {
                    NO_PARENT => break,
                    parent if parent as usize == at => break,
                    parent => at = parent as usize,
                }
                if visits[at] == climb {
                    let place = Location::inode(directories.directory_at(at));
                    findings.add(Code::DirectoryCycle, place, || "contains itself".to_owned());
                }
            }
        }
    }

    /// Compares the links of an inode in use with its names.
    pub fn check_links(&self, of: &Linked, findings: &mut Findings) {
        let is_in = |list: &[InodeNumber]| list.binary_search(&of.inode).is_ok();
        let place = Location::inode(of.inode);
        // The second name of a moved directory is not meant to stay.
        let mut names = of.names - u32::from(is_in(&self.moved));
        if names == 0 {
            // Directories without names were found before, but for those that were about to be
            // cleared.
            if !of.is_directory || of.links == 0 {
                findings.add(Code::UnconnectedInode, place, || {
                    "in use without a name".to_owned()
                });
            }
            return;
        }
        if of.is_directory && names > of.most_counted {
            names = 1;
        }
        let links = u32::from(of.links);
        // The name that an unconnected directory has lost is still counted.
        let lost = u32::from(is_in(&self.unconnected));
        let code = match links {
            _ if links > names + lost => Code::LinksTooHigh,
            _ if links < names => Code::LinksTooLow,
            _ => return,
        };
        findings.add(code, place, || format!("counts {links} links, has {names}"));
    }
}

/// Directories whose names or `..` a repair changes, one kind of damage in a round.
#[derive(Debug, PartialEq, Eq)]
pub enum NameRepairs {
    /// They have more than one name.
    Many(BTreeSet<InodeNumber>),
    /// They contain themselves.
    Cycles(BTreeSet<InodeNumber>),
    /// Their `..` leads elsewhere.
    DotDots(BTreeSet<InodeNumber>),
}

impl NameRepairs {
    /// The repair that comes first among those that the findings call for.
    pub fn of(findings: &[&Finding]) -> NameRepairs {
        let with = |wanted: &[Code]| -> BTreeSet<InodeNumber> {
            let mine = (findings.iter()).filter(|finding| wanted.contains(&finding.code));
            mine.filter_map(|finding| finding.location.inode).collect()
        };
        let many = with(&[Code::DirectoryTwoNames, Code::DirectoryManyNames]);
        let cycles = with(&[Code::DirectoryCycle]);
        match (many.is_empty(), cycles.is_empty()) {
            (false, _) => NameRepairs::Many(many),
            (true, false) => NameRepairs::Cycles(cycles),
            (true, true) => NameRepairs::DotDots(with(&[Code::DotDotWrong])),
        }
    }
}
