//! How often a run came by the rules of all crates below.

use std::collections::BTreeMap;

use backstitch_crash_core::report::RuleCounts;
use backstitch_crash_workloads::rules::sites;
use backstitch_rules::watch::Counts;

/// The counts of all sites by their names, with zeros where no run came by.
pub(crate) fn of_rules(counts: &Counts) -> BTreeMap<String, RuleCounts> {
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
