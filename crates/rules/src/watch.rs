//! The rules as one thread sees them: it may switch one off, and count which of them it comes by.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::Id;

/// Whether any thread of the process watches rules.
pub(crate) static ANY: AtomicBool = AtomicBool::new(false);

/// In which way a rule is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// It does not hold at all: nothing is waited for; what is not committed counts as committed.
    Whole,
    /// Of several patches the first one is not waited for.
    First,
    /// Of several patches the last one is not waited for.
    Last,
    /// Of several patches only the first one is waited for.
    OnlyFirst,
    /// Of several patches only the last one, the newest, is waited for.
    OnlyLast,
    /// A patch that was merged into another one counts as committed.
    Merged,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 6] = [
        Form::Whole,
        Form::First,
        Form::Last,
        Form::OnlyFirst,
        Form::OnlyLast,
        Form::Merged,
    ];

    /// The forms in which only a part of a rule is off.
    pub const HALF: [Form; 5] = [
        Form::First,
        Form::Last,
        Form::OnlyFirst,
        Form::OnlyLast,
        Form::Merged,
    ];

    /// Of `count` patches that a rule waits for, those that are waited for in this form, by their
    /// order alone. ([`Merged`](Form::Merged) does not go by the order, and so keeps all here.)
    pub fn kept(self, count: usize) -> Range<usize> {
        match self {
            Form::Whole => 0..0,
            _ if count < 2 => 0..count,
            Form::First => 1..count,
            Form::Last => 0..count - 1,
            Form::OnlyFirst => 0..1,
            Form::OnlyLast => count - 1..count,
            Form::Merged => 0..count,
        }
    }

    /// Its name, as it stands behind the name of a site and a `#`.
    pub fn name(self) -> &'static str {
        match self {
            Form::Whole => "whole",
            Form::First => "first",
            Form::Last => "last",
            Form::OnlyFirst => "only-oldest",
            Form::OnlyLast => "only-newest",
            Form::Merged => "merged",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> Result<Form, String> {
        let found = Form::ALL.into_iter().find(|form| form.name() == name);
        found.ok_or_else(|| format!("there is no form '{name}' of a rule"))
    }
}

/// What was counted of a site, as a thread came by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Times that the thread came by.
    pub reached: u64,
    /// Times with something to wait for that was not on stable storage; of conditions, times that
    /// they decided something.
    pub pending: u64,
    /// Of those, with a patch that had been merged into another one.
    pub merged: u64,
    /// Times that something was left out of a write because of the rule.
    pub rolled_back: u64,
    /// Times after a crash: in recovery and in the life after it.
    pub remounted: u64,
    /// The most patches that were waited for at once.
    pub most: u64,
    /// Whether the rule waits for patches.
    pub is_of_patches: bool,
    /// Times that something pending was waited for, and that something else that was waited for
    /// came after it anyway.
    pub covered: u64,
    /// Times that nothing else that was waited for came after it: without the rule it would not
    /// have been waited for.
    pub essential: u64,
    /// As `covered`, of what the rule does not wait for in each form of [`Form::HALF`].
    pub half_covered: [u64; Form::HALF.len()],
    /// As `essential`, likewise.
    pub half_essential: [u64; Form::HALF.len()],
    /// Times that the rule was said to be implied by others, and was.
    pub implied: u64,
    /// Times that it was said to be implied, and was not: the statement is wrong.
    pub not_implied: u64,
}

impl Passes {
    /// Adds what another thread, or another run, counted.
    pub fn add(&mut self, other: &Passes) {
        self.reached += other.reached;
        self.pending += other.pending;
        self.merged += other.merged;
        self.rolled_back += other.rolled_back;
        self.remounted += other.remounted;
        self.most = self.most.max(other.most);
        self.is_of_patches |= other.is_of_patches;
        self.covered += other.covered;
        self.essential += other.essential;
        for form in 0..Form::HALF.len() {
            self.half_covered[form] += other.half_covered[form];
            self.half_essential[form] += other.half_essential[form];
        }
        self.implied += other.implied;
        self.not_implied += other.not_implied;
    }
}

/// The passes of all sites that a thread came by, by number.
pub type Counts = std::collections::BTreeMap<Id, Passes>;

thread_local! {
    static OFF: Cell<Option<(Id, Form)>> = const { Cell::new(None) };
    static RECORDS: Cell<bool> = const { Cell::new(false) };
    static IS_REMOUNTED: Cell<bool> = const { Cell::new(false) };
    static COUNTS: RefCell<Vec<Passes>> = const { RefCell::new(Vec::new()) };
}

/// Some thread is about to watch: from here on every site asks its thread.
pub fn begin() {
    ANY.store(true, Relaxed);
}

/// Switches a rule off for this thread, and whatever was off on again.
pub fn switch_off(rule: Option<(Id, Form)>) {
    if rule.is_some() {
        begin();
    }
    OFF.set(rule);
}

/// Does something with every rule in force, whichever this thread has switched off.
pub fn with_every_rule<T>(body: impl FnOnce() -> T) -> T {
    let off = OFF.take();
    let done = body();
    OFF.set(off);
    done
}

/// Runs each test with its rule switched off, on this thread. Returns the rules whose test passes
/// all the same.
pub fn not_missed<R: Copy + Into<Id>>(tests: &[(R, fn())]) -> Vec<R> {
    let is_noticed = |(rule, test): &(R, fn())| {
        switch_off(Some(((*rule).into(), Form::Whole)));
        let done = std::panic::catch_unwind(test);
        switch_off(None);
        done.is_err()
    };
    let passed = tests.iter().filter(|one| !is_noticed(one));
    passed.map(|(rule, _)| *rule).collect()
}

/// The rule that this thread has switched off.
pub fn off() -> Option<(Id, Form)> {
    OFF.get()
}

/// Has this thread count, or not.
pub fn record(records: bool) {
    if records {
        begin();
    }
    RECORDS.set(records);
}

/// Whether this thread counts.
pub fn records() -> bool {
    RECORDS.get()
}

/// From here on this thread is in recovery after a crash, or in the life after it; returns whether
/// it was before.
pub fn set_remounted(is_remounted: bool) -> bool {
    IS_REMOUNTED.replace(is_remounted)
}

/// Whether this thread is in recovery after a crash, or in the life after it.
pub fn is_remounted() -> bool {
    IS_REMOUNTED.get()
}

/// Takes what this thread has counted, of the sites that it came by.
pub fn take() -> Counts {
    let counts = COUNTS.take();
    let all = (0..).map(Id).zip(counts);
    let is_seen = |passes: &Passes| passes.reached + passes.implied + passes.not_implied > 0;
    all.filter(|(_, passes)| is_seen(passes)).collect()
}

/// Counts something of a site.
pub fn count(rule: Id, add: impl FnOnce(&mut Passes)) {
    if !RECORDS.get() {
        return;
    }
    COUNTS.with_borrow_mut(|counts| {
        let at = usize::from(rule.0);
        if counts.len() <= at {
            counts.resize(at + 1, Passes::default());
        }
        add(&mut counts[at]);
    });
}

/// A site was passed.
pub fn pass(rule: Id) {
    let again = IS_REMOUNTED.get();
    count(rule, |passes| {
        passes.reached += 1;
        passes.remounted += u64::from(again);
    });
}

/// Asks whether a rule is implied by others, where this thread counts and has switched nothing off.
#[cold]
pub(crate) fn implied(rule: Id, condition: impl FnOnce() -> bool) {
    if !RECORDS.get() || OFF.get().is_some() {
        return;
    }
    let is_implied = condition();
    count(rule, |passes| match is_implied {
        true => passes.implied += 1,
        false => passes.not_implied += 1,
    });
}

/// Whether the rule holds for this thread.
#[cold]
pub(crate) fn holds(rule: Id) -> bool {
    pass(rule);
    OFF.get() != Some((rule, Form::Whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_off_for_its_thread_only() {
        let (rule, other) = (Id(7), Id(8));
        assert!(crate::holds(rule));
        switch_off(Some((rule, Form::Whole)));
        record(true);
        assert!(!crate::holds(rule) && crate::holds(other));
        std::thread::spawn(move || assert!(crate::holds(rule)))
            .join()
            .unwrap();
        switch_off(Some((rule, Form::Merged)));
        assert!(crate::holds(rule));
        switch_off(None);
        set_remounted(true);
        assert!(crate::holds(rule));
        let counts = take();
        assert_eq!((counts[&rule].reached, counts[&rule].remounted), (3, 1));
        assert_eq!(counts[&other].reached, 1);
        assert!(take().is_empty());
    }

    #[test]
    fn what_is_implied_is_asked_where_rules_are_counted_and_all_hold() {
        let rule = Id(9);
        crate::implied(rule, || panic!("nobody watches"));
        record(true);
        switch_off(Some((Id(1), Form::Whole)));
        crate::implied(rule, || panic!("something is off"));
        switch_off(None);
        crate::implied(rule, || true);
        crate::implied(rule, || false);
        let passes = take()[&rule];
        assert_eq!((passes.implied, passes.not_implied), (1, 1));
    }

    #[test]
    fn forms_are_known_by_their_names() {
        for form in Form::ALL {
            assert_eq!(form.name().parse(), Ok(form));
        }
        assert!("half".parse::<Form>().is_err());
    }
}
