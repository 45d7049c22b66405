//! Whether a file's size and bytes are those of versions that a crash may leave.

use crate::contents::{Contents, PIECE};

/// Whether a file may have this size: that of a version, or a number of whole blocks between one
/// and the next, since long writes are done in steps. So are long truncations, unless these are
/// atomic (`cuts_are_atomic`).
pub(super) fn is_size_of(versions: &[Contents], size: u64, cuts_are_atomic: bool) -> bool {
    /// Bytes mapped by an indirect block of the smallest blocks: no step of a truncation is
    /// shorter.
    const STEP: u64 = 256 << 10;
    let is_between = |two: &[Contents]| {
        let (before, after) = (two[0].len(), two[1].len());
        let is_cut = !cuts_are_atomic && before.saturating_sub(after) > STEP;
        before < size && size < after || is_cut && after < size && size < before
    };
    versions.iter().any(|version| version.len() == size)
        || size.is_multiple_of(1024) && versions.windows(2).any(is_between)
}

/// The first byte that no version of the file explains, apart from those that are excused in a
/// version of the size shown.
///
/// A file shows the size of one version. Each byte is that version's, or one that an earlier or
/// later version has at this offset. It cannot be of an earlier version if a version between was
/// too short to have the offset: that truncation removed the byte. What was written there
/// afterwards may show while the file still has its old size, unless truncations are atomic
/// (`cuts_are_atomic`).
pub(super) fn first_foreign(
    shown: &Contents,
    versions: &[Contents],
    cuts_are_atomic: bool,
    is_excused: impl Fn(usize, u64, u8) -> bool,
) -> Option<(u64, u8)> {
    let len = shown.len();
    // A size between two versions: a long write is done in steps.
    let is_between = versions.iter().all(|version| version.len() != len);
    let sized: Vec<usize> = (0..versions.len())
        .filter(|at| versions[*at].len() == len || is_between && versions[*at].len() > len)
        .collect();
    let explained = |at: u64, byte: u8| {
        sized.iter().any(|sized| {
            let has = |version: &&Contents| version.len() > at;
            let older = versions[..=*sized].iter().rev().take_while(has);
            let newer = versions[*sized..].iter();
            let newer = newer.take_while(|version| has(version) || !cuts_are_atomic);
            older
                .chain(newer.filter(has))
                .any(|version| version.byte(at) == Some(byte))
        })
    };
    // In all other pieces everything is zero.
    let mut pieces: Vec<u64> = versions.iter().flat_map(Contents::written).collect();
    pieces.extend(shown.written());
    pieces.sort_unstable();
    pieces.dedup();
    // Most pieces are, as a whole, the same as in one version.
    let differs = |number: &u64| {
        let (piece, end) = (shown.piece(*number), len.min((*number + 1) * PIECE));
        let has = |version: &&Contents| version.len() >= end;
        let is_same = |version: &Contents| version.piece(*number)[..] == piece[..];
        !sized.iter().any(|sized| {
            let older = versions[..=*sized].iter().rev().take_while(has);
            let newer = versions[*sized..].iter().take_while(has);
            older.chain(newer).any(is_same)
        })
    };
    let mut bytes = pieces.into_iter().filter(differs).flat_map(|number| {
        let end = len.min((number + 1) * PIECE);
        (number * PIECE..end).map(move |at| (at, shown.piece(number)[(at % PIECE) as usize]))
    });
    let excused = |at: u64, byte: u8| sized.iter().any(|sized| is_excused(*sized, at, byte));
    bytes.find(|(at, byte)| !explained(*at, *byte) && !excused(*at, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_foreign_and_what_was_written_there_since_is_not() {
        let contents = |bytes: &[u8]| {
            let mut contents = Contents::default();
            contents.write(0, bytes);
            contents
        };
        let versions = [vec![1; 20], vec![1; 10], vec![2; 30]].map(|bytes| contents(&bytes));
        let first_foreign = |shown: &[u8], cuts_are_atomic| {
            super::first_foreign(&contents(shown), &versions, cuts_are_atomic, |_, _, _| {
                false
            })
        };
        // The old size with the newest contents, unless truncations are atomic.
        let mut shown = vec![1; 20];
        shown[15] = 2;
        assert_eq!(first_foreign(&shown, false), None);
        assert_eq!(first_foreign(&shown, true), Some((15, 2)));
        // The new size never goes with contents from before the truncation.
        let mut shown = vec![2; 30];
        shown[5] = 1;
        assert_eq!(first_foreign(&shown, false), None);
        shown[15] = 1;
        assert_eq!(first_foreign(&shown, false), Some((15, 1)));
    }

    /// A file was truncated and made longer at once. It shows all that it held before, or what it
    /// held after; not its old size with what was written after the truncation.
    #[test]
    fn a_size_from_before_a_cut_comes_again_only_if_a_version_has_it() {
        let contents = |written: usize, len: u64| {
            let mut contents = Contents::default();
            contents.write(0, &vec![1; written]);
            contents.resize(len);
            contents
        };
        let versions = [
            contents(2048, 2048),
            contents(4096, 4096),
            contents(1500, 1500),
            contents(1500, 6144),
        ];
        let torn = contents(1500, 2048);
        let first_foreign = |versions: &[Contents], shown: &Contents| {
            super::first_foreign(shown, versions, true, |_, _, _| false)
        };
        assert_eq!(first_foreign(&versions, &torn), Some((1500, 0)));
        assert_eq!(first_foreign(&versions, &contents(2048, 2048)), None);
        // The file grew in steps, and the crash came after one of them.
        let [first, second, third, last] = versions;
        let versions = [first, second, third, torn.clone(), last];
        assert_eq!(first_foreign(&versions, &torn), None);
    }

    /// Bytes that a truncated file shows again are excused in the version that was given their
    /// block, and in no other one of its size.
    #[test]
    fn what_is_excused_is_excused_in_a_version_of_the_size() {
        let contents = |byte: u8, len: usize| {
            let mut contents = Contents::default();
            contents.write(0, &vec![byte; len]);
            contents
        };
        let versions = [contents(1, 1024), contents(1, 0), contents(2, 3000)];
        let excused_in = |given: usize, shown: &Contents| {
            super::first_foreign(shown, &versions, true, |version, _, _| version >= given)
        };
        // What was written since is in the block that the file had.
        assert_eq!(excused_in(2, &contents(2, 1024)), Some((0, 2)));
        assert_eq!(excused_in(2, &contents(7, 3000)), None);
        assert_eq!(excused_in(3, &contents(7, 3000)), Some((0, 7)));
    }

    #[test]
    fn only_where_a_cut_is_done_in_steps_it_leaves_sizes_between() {
        let sized = |len: u64| {
            let mut contents = Contents::default();
            contents.resize(len);
            contents
        };
        let cut = [sized(1 << 20), sized(1024)];
        assert!(is_size_of(&cut, 512 << 10, false) && !is_size_of(&cut, 512 << 10, true));
        let grown = [sized(1024), sized(1 << 20)];
        assert!(is_size_of(&grown, 512 << 10, true) && !is_size_of(&grown, 1500, true));
        assert!(is_size_of(&cut, 1024, true));
    }
}
