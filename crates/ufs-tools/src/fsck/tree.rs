//! Passes 3 and 4: which directories hang together, and how many names everything has.

use super::state::{Context, Gathered};
use super::{Code, Location, Names, Source};
use backstitch_layout::tools::Findings;
use backstitch_layout::tools::tree::{Directories, Linked, Tree};
use backstitch_ufs::format::ROOT_INODE;

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
    let tree = Tree::check(gathered, names, ROOT_INODE, findings);
    for (inode, info) in gathered.used_inodes(context.sb) {
        let linked = Linked {
            inode,
            names: info.names.get(),
            links: info.links,
            is_directory: info.is_directory(),
            most_counted: u32::MAX,
        };
        tree.check_links(&linked, findings);
    }
}
