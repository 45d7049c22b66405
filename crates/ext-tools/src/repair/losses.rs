//! What a repair takes away, for people to read before anything is written.
//!
//! Compares by their paths the names that can be reached before and after. A name of an inode that
//! is not in use does not count: nobody could open it.

use super::lost::NAME as LOST_AND_FOUND;
use crate::fsck::{CheckError, Facts, Source};
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::entries;
use backstitch_layout::InodeNumber;
use backstitch_layout::tools::Losses;
use backstitch_layout::tools::tree::Directories;
use rustc_hash::FxHashSet;

/// Bytes of a path. Longer ones, which only a damaged tree has, are not followed.
const MAX_PATH_BYTES: usize = 4096;

/// Compares the names of an image before a repair with those after it.
pub(super) fn compare<B: Source + ?Sized, A: Source + ?Sized>(
    before: (&B, &Facts),
    after: (&A, &Facts),
) -> Result<Losses, CheckError> {
    let lost_and_found = [b"/", LOST_AND_FOUND.as_bytes(), b"/"].concat();
    Losses::between(
        |visit| walk(before.0, before.1, visit),
        |visit| walk(after.0, after.1, visit),
        &lost_and_found,
    )
}

/// The number of names that can be reached from the root.
pub(super) fn reached<S: Source + ?Sized>(source: &S, facts: &Facts) -> Result<u64, CheckError> {
    let mut names = 0;
    walk(source, facts, &mut |_| names += 1)?;
    Ok(names)
}

/// Passes to a closure the path of every name below the root that leads to an inode in use; enters
/// each directory once.
fn walk<S: Source + ?Sized>(
    source: &S,
    facts: &Facts,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<(), CheckError> {
    let mut seen = FxHashSet::default();
    let mut open = vec![(ROOT_INODE, Vec::new())];
    let mut scratch = Vec::new();
    while let Some((directory, path)) = open.pop() {
        let Some(index) = facts.gathered.directory_index(directory) else {
            continue;
        };
        if !seen.insert(directory) || path.len() > MAX_PATH_BYTES {
            continue;
        }
        let blocks = facts.gathered.directories[index].blocks.clone();
        let blocks = &facts.gathered.directory_blocks[blocks];
        for block in blocks.iter().filter(|block| block.block != 0) {
            let at = u64::from(block.block) << facts.sb.block_size_bits;
            let bytes = source.bytes(at, facts.sb.block_size as usize, &mut scratch)?;
            for entry in entries(bytes, facts.sb.inodes_count).map_while(Result::ok) {
                let is_used = entry.inode != InodeNumber::NONE
                    && facts.gathered.inode(&facts.sb, entry.inode).is_some();
                if !is_used || entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let path = [path.as_slice(), b"/", entry.name].concat();
                visit(&path);
                open.push((entry.inode, path));
            }
        }
    }
    Ok(())
}
