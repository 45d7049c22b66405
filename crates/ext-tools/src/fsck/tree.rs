//! Passes 3 and 4: which directories hang together, and how many names everything has.

use super::directories::Names;
use super::state::{Context, Gathered, InodeInfo};
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::type_code;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{FileType, GroupNumber, InodeNumber};
use std::sync::atomic::Ordering;

/// A directory with more links than this has a count of 1, which says "many" (ext4's `dir_nlink`).
const MANY_LINKS: u32 = 65_000;
/// No parent is known.
const NO_PARENT: u32 = u32::MAX;

/// Checks the tree and the link counts.
pub(super) fn check<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    names: &Names,
    findings: &mut Findings,
) {
    if gathered.inode(context.sb, ROOT_INODE).is_none() {
        findings.add(Code::RootInvalid, Location::inode(ROOT_INODE), || {
            "the root is not in use".into()
        });
    }
    let tree = check_parents(gathered, names, findings);
    check_cycles(gathered, &tree.parents, findings);
    check_links(context, gathered, &tree, findings);
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
fn check_parents(gathered: &Gathered, names: &Names, findings: &mut Findings) -> Tree {
    let parents = vec![NO_PARENT; gathered.directories.len()];
    let mut tree = Tree {
        parents,
        moved: Vec::new(),
        unconnected: Vec::new(),
    };
    let mut rest = names.named.as_slice();
    for (index, directory) in gathered.directories.iter().enumerate() {
        let count = rest
            .iter()
            .take_while(|(child, _)| *child == index as u32)
            .count();
        let (own, behind) = rest.split_at(count);
        rest = behind;
        let inode = directory.inode;
        let dot_dot = names.parents[index];
        let place = Location::inode(inode);
        let parent = if inode == ROOT_INODE {
            ROOT_INODE
        } else {
            match own {
                [] => {
                    findings.add(Code::UnconnectedDirectory, place, || {
                        "a directory without a name".into()
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
                    findings.add(Code::DirectoryManyNames, place, || {
                        format!("has {count} names, .. is {dot_dot}")
                    });
                    *first
                }
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
fn check_cycles(gathered: &Gathered, parents: &[u32], findings: &mut Findings) {
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
                findings.add(Code::DirectoryCycle, place, || "contains itself".into());
            }
        }
    }
}

/// Compares link counts with names.
fn check_links<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    tree: &Tree,
    findings: &mut Findings,
) {
    let sb = context.sb;
    for (group, infos) in gathered.inodes.iter().enumerate() {
        let Some(infos) = infos else { continue };
        let first = sb.group_first_inode(GroupNumber::at(group));
        for (index, info) in infos.iter().enumerate() {
            let inode = first + index as u32;
            let is_exempt = inode < sb.first_inode && inode != ROOT_INODE;
            if info.is_used && !is_exempt && !info.is_imagic {
                let place_of = |list: &[InodeNumber]| list.binary_search(&inode).is_ok();
                let (is_moved, is_lost) = (place_of(&tree.moved), place_of(&tree.unconnected));
                check_inode(inode, info, is_moved, is_lost, findings);
            }
        }
    }
}

fn check_inode(
    inode: InodeNumber,
    info: &InodeInfo,
    is_moved: bool,
    is_lost: bool,
    findings: &mut Findings,
) {
    let place = Location::inode(inode);
    // The second name of a moved directory is not meant to stay.
    let mut names = info.names.load(Ordering::Relaxed) - u32::from(is_moved);
    let is_directory = info.type_code == type_code(FileType::Directory);
    if names == 0 {
        // Directories without names were found before.
        if !is_directory {
            findings.add(Code::UnconnectedInode, place, || {
                "in use without a name".into()
            });
        }
        return;
    }
    if is_directory && names > MANY_LINKS {
        names = 1;
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
