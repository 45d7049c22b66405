//! Rule sites: the places where the code states a dependency, a wait, a note for `fsync`, a
//! condition of deferred work, a flush, a revoke, a condition of the journal's tail, or a check of
//! recovery. Each has a name, and a line that says **what goes wrong without it**.
//!
//! In normal life a rule holds: a site costs one relaxed load of one flag. The explorer of crash
//! states switches one rule of its own thread off ([`watch::switch_off`]) and looks for a state
//! that the rule prevents; a rule whose absence nothing shows is not needed, or not tested. It also
//! counts which sites its workloads reach ([`watch::record`]).
//!
//! Nothing outside the process reaches these switches: no mount option, no environment variable, no
//! file.
//!
//! # Invariants
//!
//! * A thread that has switched nothing off has every rule.
//! * Sites have numbers that are unique over all registries: each crate's begin at a base of its
//!   own: `unixfs` 0, `ext` 256, `ufs` 288, `ordering` 512, `journal` 640, `wafs` 768, `lffs` 832.

mod site;
pub mod watch;

pub use site::{Class, Id, Site};

use std::sync::atomic::Ordering::Relaxed;

/// Whether the rule holds here: always, except on a thread that has switched it off.
#[inline(always)]
pub fn holds(rule: impl Into<Id>) -> bool {
    !are_watched() || watch::holds(rule.into())
}

/// States that a rule is implied here by other rules: without it nothing wrong could be seen. The
/// explorer asks `condition`, with every rule on, each time its workloads pass here; in normal life
/// it is not asked.
#[inline(always)]
pub fn implied(rule: impl Into<Id>, condition: impl FnOnce() -> bool) {
    if are_watched() {
        watch::implied(rule.into(), condition);
    }
}

/// Whether any thread of the process switches rules off or counts them. Everything that costs more
/// than this question is behind it.
#[inline(always)]
pub fn are_watched() -> bool {
    watch::ANY.load(Relaxed)
}
