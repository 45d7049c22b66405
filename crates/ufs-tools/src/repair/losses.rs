//! What a repair takes away, for people to read before anything is written.
//!
//! The names that can be reached before and after are compared, by their paths. A name for an inode
//! that is not in use is none: nobody could open it.

use super::lost::NAME as LOST_AND_FOUND;
use crate::entries;
use crate::fsck::{CheckError, Facts, Source};
use backstitch_layout::tools::Losses;
use backstitch_layout::tools::tree::Directories;
use backstitch_ufs::format::ROOT_INODE;
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

/// Shows the path of every name below the root that leads to an inode in use, each directory once.
fn walk<S: Source + ?Sized>(
    source: &S,
    facts: &Facts,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<(), CheckError> {
    let (sb, gathered) = (&facts.sb, &facts.gathered);
    let mut seen = FxHashSet::default();
    let mut open = vec![(ROOT_INODE, Vec::new())];
    let mut scratch = Vec::new();
    while let Some((directory, path)) = open.pop() {
        let Some(index) = gathered.directory_index(directory) else {
            continue;
        };
        if !seen.insert(directory) || path.len() > MAX_PATH_BYTES {
            continue;
        }
        for piece in &gathered.pieces[gathered.directories[index].pieces.clone()] {
            let Some(fragment) = piece.fragment else {
                continue;
            };
            let at = fragment * u64::from(sb.fragment_bytes);
            let bytes = source.bytes(at, piece.bytes as usize, &mut scratch)?;
            for entry in entries::live(sb.order, bytes) {
                let is_used = gathered.inode(sb, entry.inode).is_some();
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
