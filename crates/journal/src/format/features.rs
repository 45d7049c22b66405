//! Feature bits of a journal.

/// Commit blocks have a CRC-32 over the transaction ("checksum v1").
pub const COMPAT_CHECKSUM: u32 = 0x1;
/// There are revoke blocks.
pub const INCOMPAT_REVOKE: u32 = 0x1;
/// Block numbers have 64 bits.
pub const INCOMPAT_64BIT: u32 = 0x2;
/// The commit block may be written together with what it commits.
pub const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
/// CRC-32C of every block, 16 bits of it in tags.
pub const INCOMPAT_CSUM_V2: u32 = 0x8;
/// CRC-32C of every block, all of it in tags.
pub const INCOMPAT_CSUM_V3: u32 = 0x10;
/// The end of the journal is a log of its own, of small changes.
pub const INCOMPAT_FAST_COMMIT: u32 = 0x20;

const COMPAT_NAMES: &[(u32, &str)] = &[(COMPAT_CHECKSUM, "journal_checksum")];
const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (INCOMPAT_REVOKE, "journal_incompat_revoke"),
    (INCOMPAT_64BIT, "journal_64bit"),
    (INCOMPAT_ASYNC_COMMIT, "journal_async_commit"),
    (INCOMPAT_CSUM_V2, "journal_checksum_v2"),
    (INCOMPAT_CSUM_V3, "journal_checksum_v3"),
    (INCOMPAT_FAST_COMMIT, "fast_commit"),
];
/// All features that recovery knows. Fast commits are among them: recovery refuses only a log that
/// has some.
pub(super) const INCOMPAT_REPLAYED: u32 = INCOMPAT_REVOKE
    | INCOMPAT_64BIT
    | INCOMPAT_ASYNC_COMMIT
    | INCOMPAT_CSUM_V2
    | INCOMPAT_CSUM_V3
    | INCOMPAT_FAST_COMMIT;

/// The three feature words of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`
    pub compat: u32,
    /// `s_feature_incompat`
    pub incompat: u32,
    /// `s_feature_ro_compat`
    pub ro_compat: u32,
}

impl Features {
    /// The features with these names; `None` where one is unknown.
    pub fn named(names: &[&str]) -> Option<Features> {
        let mut features = Features::default();
        for wanted in names {
            let bit = |known: &[(u32, &str)]| {
                let found = known.iter().find(|(_, name)| name == wanted);
                found.map(|(bit, _)| *bit)
            };
            match (bit(COMPAT_NAMES), bit(INCOMPAT_NAMES)) {
                (Some(bit), _) => features.compat |= bit,
                (None, Some(bit)) => features.incompat |= bit,
                (None, None) => return None,
            }
        }
        Some(features)
    }

    /// Whether all of these compat bits are set.
    pub fn has_compat(&self, bits: u32) -> bool {
        self.compat & bits == bits
    }

    /// Whether all of these incompat bits are set.
    pub fn has_incompat(&self, bits: u32) -> bool {
        self.incompat & bits == bits
    }

    /// Whether blocks have checksums of their own (v2 or v3).
    pub fn has_block_checksums(&self) -> bool {
        self.incompat & (INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3) != 0
    }

    /// The names of all features, as dumpe2fs writes them; unknown bits as `FEATURE_I30` and so on.
    pub fn names(&self) -> Vec<String> {
        let mut names = names_of(self.compat, COMPAT_NAMES, 'C');
        names.extend(names_of(self.incompat, INCOMPAT_NAMES, 'I'));
        names.extend(names_of(self.ro_compat, &[], 'R'));
        names
    }

    /// The features that keep a journal from being replayed; empty where it can be.
    pub fn unreplayable(&self) -> Vec<String> {
        let mut names = names_of(self.incompat & !INCOMPAT_REPLAYED, INCOMPAT_NAMES, 'I');
        if self.has_incompat(INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3) {
            names.push("journal_checksum_v2 together with journal_checksum_v3".into());
        }
        names
    }

    /// The features that keep us from adding transactions to a journal; empty where we can.
    pub fn unwritable(&self) -> Vec<String> {
        let mut names = self.unreplayable();
        // An unknown compat feature may state something about transactions that is not true of
        // ours.
        names.extend(names_of(self.compat & !COMPAT_CHECKSUM, COMPAT_NAMES, 'C'));
        names.extend(names_of(self.ro_compat, &[], 'R'));
        names.extend(names_of(
            self.incompat & INCOMPAT_FAST_COMMIT,
            INCOMPAT_NAMES,
            'I',
        ));
        names
    }
}

/// The names of the set bits of one feature word.
fn names_of(bits: u32, known: &[(u32, &str)], kind: char) -> Vec<String> {
    let name = |shift: u32| match known.iter().find(|(bit, _)| *bit == 1 << shift) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("FEATURE_{kind}{shift}"),
    };
    (0..32)
        .filter(|shift| bits & (1 << shift) != 0)
        .map(name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(compat: u32, incompat: u32, ro_compat: u32) -> Features {
        Features {
            compat,
            incompat,
            ro_compat,
        }
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let usual = of(
            COMPAT_CHECKSUM,
            INCOMPAT_REVOKE | INCOMPAT_64BIT | INCOMPAT_ASYNC_COMMIT,
            0,
        );
        assert!(usual.unreplayable().is_empty() && usual.unwritable().is_empty());
        let fast = of(0, INCOMPAT_FAST_COMMIT, 0);
        assert!(fast.unreplayable().is_empty());
        assert_eq!(fast.unwritable(), ["fast_commit"]);
        assert_eq!(of(0, 1 << 30, 0).unreplayable(), ["FEATURE_I30"]);
        assert_eq!(of(2, 0, 4).unwritable(), ["FEATURE_C1", "FEATURE_R2"]);
        assert_eq!(of(0, 0x18, 0).unreplayable().len(), 1);
    }
}
