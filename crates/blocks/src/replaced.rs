//! The mark of a directory that is about to be replaced by another one.
//!
//! Where a directory takes the name of an empty one, and the names lie apart, a crash may leave it
//! with both of its names, and the replaced directory with none. Recovery has to keep the *new*
//! name, which has been there all the time, but nothing tells it which that is: `..` may not be
//! rewritten yet, and where both names are in one directory it never is. So before the new name the
//! replaced directory's `i_version` is written, a field that nothing else reads: a sum over which
//! directory was to get its name, and where both names are. The directory keeps it until it is
//! freed, and that comes after the old name's removal.
//!
//! A directory that has a name is not looked at, whatever the field says: a mark that a crash
//! before the move left does no harm.

use backstitch_layout::InodeNumber;

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The inode of the directory that has it.
    pub directory: InodeNumber,
    /// Where its entry begins, in bytes from the start of the directory. Entries stay where they
    /// are.
    pub position_bytes: u64,
}

/// The mark of a directory that `moved` replaces as it moves between two places. Never 0.
pub fn mark(moved: InodeNumber, generation: u32, from: Place, to: Place) -> u32 {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(&moved.0.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    for place in [from, to] {
        bytes.extend_from_slice(&place.directory.0.to_le_bytes());
        bytes.extend_from_slice(&place.position_bytes.to_le_bytes());
    }
    crc32c::crc32c(&bytes).max(1)
}

/// Of a directory's names the one that must stay: where it moved to from another of them, if there
/// is a mark of that move (`is_marked`).
pub fn name_to_keep(
    directory: InodeNumber,
    generation: u32,
    names: &[Place],
    is_marked: impl Fn(u32) -> bool,
) -> Option<Place> {
    let moves = names
        .iter()
        .flat_map(|from| names.iter().map(move |to| (*from, *to)));
    moves
        .filter(|(from, to)| from != to)
        .find(|(from, to)| is_marked(mark(directory, generation, *from, *to)))
        .map(|(_, to)| to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(directory: u32, position_bytes: u64) -> Place {
        Place {
            directory: InodeNumber(directory),
            position_bytes,
        }
    }

    #[test]
    fn a_mark_tells_the_direction_of_a_move() {
        let (old, new, third) = (at(2, 24), at(2, 1024), at(12, 24));
        let written = mark(InodeNumber(13), 7, old, new);
        assert_ne!(written, 0);
        for names in [[old, new], [new, old]] {
            assert_eq!(
                name_to_keep(InodeNumber(13), 7, &names, |m| m == written),
                Some(new)
            );
        }
        let kept = name_to_keep(InodeNumber(13), 7, &[third, new, old], |m| m == written);
        assert_eq!(kept, Some(new));
        // One of the two is gone; another directory; the number used anew.
        assert_eq!(
            name_to_keep(InodeNumber(13), 7, &[third, new], |m| m == written),
            None
        );
        assert_eq!(
            name_to_keep(InodeNumber(14), 7, &[old, new], |m| m == written),
            None
        );
        assert_eq!(
            name_to_keep(InodeNumber(13), 8, &[old, new], |m| m == written),
            None
        );
    }
}
