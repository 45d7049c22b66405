//! Passes 3 and 4: which directories hang together, and how many names everything has.

use super::directories::Names;
use super::state::{Context, Gathered, InodeInfo};
use super::{Code, Location, Source};
use backstitch_layout::InodeNumber;
use backstitch_layout::tools::Findings;
use backstitch_ufs::format::ROOT_INODE;

/// No parent is known.
const NO_PARENT: u32 = u32::MAX;

/// Checks the tree and the link counts.
pub(super) fn check<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    names: &Names,
    findings: &mut Findings,
) {
    if gathered.directory_index(ROOT_INODE).is_none() {
        findings.add(Code::RootInvalid, Location::inode(ROOT_INODE), || {
            "the root is no directory".to_owned()
        });
    }
    let tree = parents(gathered, names, findings);
    cycles(gathered, &tree.parents, findings);
    for (inode, info) in gathered.used_inodes(context.sb) {
        let is_in = |list: &[InodeNumber]| list.binary_search(&inode).is_ok();
        links(
            inode,
            info,
            is_in(&tree.moved),
            is_in(&tree.unconnected),
            findings,
        );
    }
}

/// How the directories hang together.
struct Tree {
    /// For each directory the one that contains it, as places in the list of directories.
    parents: Vec<u32>,
    /// The inodes of those that were being moved, in order.
    moved: Vec<InodeNumber>,
    /// The inodes of those without a name, in order.
    unconnected: Vec<InodeNumber>,
}

/// Finds for each directory the one that contains it.
fn parents(gathered: &Gathered, names: &Names, findings: &mut Findings) -> Tree {
    let mut tree = Tree {
        parents: vec![NO_PARENT; gathered.directories.len()],
        moved: Vec::new(),
        unconnected: Vec::new(),
    };
    for (index, directory) in gathered.directories.iter().enumerate() {
        let inode = directory.inode;
        let dot_dot = names.parents[index];
        let place = Location::inode(inode);
        let own = names.of(index);
        let parent = match own {
            _ if inode == ROOT_INODE => ROOT_INODE,
            [] => {
                findings.add(Code::UnconnectedDirectory, place, || {
                    "a directory without a name".to_owned()
                });
                tree.unconnected.push(inode);
                continue;
            }
            [(_, parent)] => *parent,
            [(_, one), (_, other)] if dot_dot == *one || dot_dot == *other => {
                findings.add(Code::DirectoryTwoNames, place, || {
                    format!("named in {one} and {other}, .. is {dot_dot}")
                });
                tree.moved.push(inode);
                dot_dot
            }
            [(_, first), ..] => {
                let count = own.len();
                findings.add(Code::DirectoryManyNames, place, || {
                    format!("has {count} names, .. is {dot_dot}")
                });
                *first
            }
        };
        // A missing `..` was found before.
        if dot_dot != InodeNumber::NONE && dot_dot != parent {
            findings.add(Code::DotDotWrong, place, || {
                format!(".. is {dot_dot}, not {parent}")
            });
        }
        if let Some(parent) = gathered.directory_index(parent) {
            tree.parents[index] = parent as u32;
        }
    }
    tree
}

/// Climbs from every directory until the root, an unconnected directory, or a place where somebody
/// was before.
fn cycles(gathered: &Gathered, parents: &[u32], findings: &mut Findings) {
    // The climb that came by first, counted from 1.
    let mut visits = vec![0_u32; parents.len()];
    for start in 0..parents.len() {
        let climb = start as u32 + 1;
        let mut at = start;
        while visits[at] == 0 {
            visits[at] = climb;
            match parents[at] {
                NO_PARENT => break,
                parent if parent as usize == at => break,
                parent => at = parent as usize,
            }
            if visits[at] == climb {
                let place = Location::inode(gathered.directories[at].inode);
                findings.add(Code::DirectoryCycle, place, || "contains itself".to_owned());
            }
        }
    }
}

fn links(
    inode: InodeNumber,
    info: &InodeInfo,
    is_moved: bool,
    is_lost: bool,
    findings: &mut Findings,
) {
    let place = Location::inode(inode);
    // The second name of a moved directory is not meant to stay.
    let names = info.names.get() - u32::from(is_moved);
    if names == 0 {
        // Directories without names were found before, but for those that were about to be cleared.
        if !info.is_directory() || info.links == 0 {
            findings.add(Code::UnconnectedInode, place, || {
                "in use without a name".to_owned()
            });
        }
        return;
    }
    let links = u32::from(info.links);
    // The name that an unconnected directory has lost is still counted.
    if links > names + u32::from(is_lost) {
        findings.add(Code::LinksTooHigh, place, || {
            format!("counts {links} links, has {names}")
        });
    } else if links < names {
        findings.add(Code::LinksTooLow, place, || {
            format!("counts {links} links, has {names}")
        });
    }
}
