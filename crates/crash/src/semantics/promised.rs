//! Compares what was measured of a mechanism with what it promises.

use backstitch_ordering::{CrashLeaves, Promises};

use super::{Damage, Semantics};

impl Semantics {
    /// In words, what was seen that these promises exclude; empty if they hold. Usually they are
    /// the promises of the mechanism that was measured. Showing less than the promises allow breaks
    /// none of them.
    pub fn broken(&self, promises: &Promises) -> Vec<String> {
        if !promises.keeps_order() {
            return Vec::new();
        }
        let mut broken = Vec::new();
        let mut must = |holds: bool, what: &str| {
            if !holds {
                broken.push(what.to_owned());
            }
        };
        must(self.fsync_is_durable, "contents that were synced are lost");
        must(
            self.half_renamed.is_empty(),
            "a rename within a block shows something between",
        );
        must(
            promises.contents_may_be_stale || !self.shows_stale,
            "a new file shows old blocks",
        );
        // If a new file is on the disk as soon as its name is, a rename brings its contents along.
        let brings_contents = !promises.contents_may_be_stale && !promises.answers_once_stable;
        must(
            !brings_contents || !self.replacing_loses,
            "a file that was replaced by a new one has neither contents",
        );
        // Where calls are on the disk in their order, the name of the new one changes nothing.
        let brings_later = promises.scopes_are_atomic() && !promises.contents_may_be_stale;
        must(
            !brings_later || !self.replacing_later_loses,
            "a file that was replaced by one whose name was on the disk before has neither contents",
        );
        let worst = match promises.crash_leaves {
            CrashLeaves::Anything => Damage::Unreadable,
            CrashLeaves::Excess => Damage::Leaks,
            CrashLeaves::WholeScopes => Damage::None,
        };
        must(self.recovered <= worst, "recovery leaves too much");
        must(
            promises.has_log || self.left <= worst,
            "a crash leaves too much",
        );
        for (call, is_durable) in &self.durable {
            must(
                !promises.answers_once_stable || *is_durable,
                &format!("{call} is not on the disk when it returns"),
            );
        }
        for (pair, is_ordered) in &self.ordered {
            must(
                !promises.scopes_are_atomic() || *is_ordered,
                &format!("the order of two calls is not kept: {pair}"),
            );
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Half, measure};
    use super::*;
    use backstitch_mechanisms::Ordering;
    use std::collections::BTreeSet;

    #[test]
    fn mechanisms_show_no_worse_than_they_promise() {
        for ordering in [Ordering::SOFT, Ordering::SYNC] {
            let seen = measure(ordering).unwrap();
            let broken = seen.broken(&ordering.promises());
            assert!(broken.is_empty(), "{ordering}: {broken:?}");
        }
    }

    /// Compares what one mechanism shows with what a stricter one promises, so that each promise
    /// counts.
    #[test]
    fn what_is_worse_than_promised_is_told() {
        let soft = measure(Ordering::SOFT).unwrap();
        let broken = |seen: &Semantics, ordering: Ordering| seen.broken(&ordering.promises());
        let under_sync = broken(&soft, Ordering::SYNC);
        let calls = under_sync
            .iter()
            .filter(|what| what.ends_with("when it returns"));
        assert_eq!((calls.count(), under_sync.len()), (8, 8), "{under_sync:?}");
        let under_journal = broken(&soft, Ordering::JOURNAL_ORDERED);
        assert_eq!(under_journal.len(), 4, "{under_journal:?}");
        type Change = fn(&mut Semantics);
        let changes: [(Change, &str); 6] = [
            (|seen| seen.fsync_is_durable = false, "synced"),
            (|seen| seen.shows_stale = true, "old blocks"),
            (|seen| seen.replacing_loses = true, "neither"),
            (
                |seen| seen.half_renamed = BTreeSet::from([Half::NoFile]),
                "between",
            ),
            (|seen| seen.left = Damage::Corruption, "a crash leaves"),
            (
                |seen| seen.recovered = Damage::Corruption,
                "recovery leaves",
            ),
        ];
        for (change, what) in changes {
            let mut seen = soft.clone();
            change(&mut seen);
            let broken = broken(&seen, Ordering::SOFT);
            assert!(
                broken.len() == 1 && broken[0].contains(what),
                "{what}: {broken:?}"
            );
            assert!(seen.broken(&Ordering::ASYNC.promises()).is_empty());
        }
    }
}
