//! Passes 3 and 4: which directories hang together, and how many names everything has.

use super::Names;
use super::state::{Context, Gathered};
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::type_code;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::tree::{Linked, Tree};
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{FileType, GroupNumber};
use std::sync::atomic::Ordering;

/// A directory with more links than this has a count of 1, which says "many" (ext4's `dir_nlink`).
const MANY_LINKS: u32 = 65_000;

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
    let tree = Tree::check(gathered, names, ROOT_INODE, findings);
    check_links(context, gathered, &tree, findings);
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
                let linked = Linked {
                    inode,
                    names: info.names.load(Ordering::Relaxed),
                    links: info.links,
                    is_directory: info.type_code == type_code(FileType::Directory),
                    most_counted: MANY_LINKS,
                };
                tree.check_links(&linked, findings);
            }
        }
    }
}
