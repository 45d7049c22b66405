//! The rules of all crates below: one list.

use std::collections::BTreeMap;

use backstitch_crash_core::report::RuleCounts;
use backstitch_rules::Site;
use backstitch_rules::watch::Counts;

/// Every site, in the order of the layers.
pub fn sites() -> impl Iterator<Item = &'static Site> {
    let mechanisms = backstitch_mechanisms::RULES.iter().copied();
    (backstitch_formats::RULES.iter().copied())
        .chain(mechanisms)
        .flatten()
}

/// The counts of all sites by their names, with zeros for those that nothing came by.
pub(crate) fn counts(counts: &Counts) -> BTreeMap<String, RuleCounts> {
    let all = sites().map(|site| {
        let passes = counts.get(&site.id).copied().unwrap_or_default();
        let counts = RuleCounts {
            reached: passes.reached,
            pending: passes.pending,
            rolled_back: passes.rolled_back,
            after_remount: passes.remounted,
            implied: passes.implied,
            not_implied: passes.not_implied,
        };
        (site.name(), counts)
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_numbers_are_unique() {
        let all: Vec<&Site> = sites().collect();
        let names: BTreeSet<String> = all.iter().map(|site| site.name()).collect();
        let numbers: BTreeSet<u16> = all.iter().map(|site| site.id.0).collect();
        assert_eq!((names.len(), numbers.len()), (all.len(), all.len()));
        assert!(all.len() > 200, "{}", all.len());
        assert!(all.iter().all(|site| site.without.trim().ends_with('.')));
    }
}
