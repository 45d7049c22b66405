//! The registry of consistency mechanisms: the one place that names them.
//!
//! A mechanism is one file or crate: a [`MechanismKind`], which says what it is called and what it
//! promises, and the [`Mechanism`] that it makes. It is registered here by a line in
//! [`Ordering::ALL`]. The log of a mechanism that has one has a life before a mount, a [`LogKind`],
//! which the same line names; [`logs`] are all of them. Those above choose a mechanism by the name
//! that a user gives, by what an image has recorded, or by what they need, and then go by its
//! [`Promises`]. Depends on all mechanisms; they know nothing of it.
//!
//! The constants of [`Ordering`] are for tests and measurements, which are about one mechanism.
//! Other code asks for what it needs: [`usual_for`], [`fastest`], [`in_order`], [`interchangeable`].

pub mod jbd2;
pub mod lffs;

use std::fmt;
use std::str::FromStr;

use backstitch_device::BlockDevice;
use backstitch_journal::JournalMode;
use backstitch_layout::tools::JournalFeatures;
use backstitch_layout::{LogDevice, LogKind};
use backstitch_lffs::Variant;
use backstitch_ordering::{
    AMOM_DELAYED, AMOM_IMMEDIATE, AMOM_PERIODIC, ASYNC, AmomKind, CrashRecord, INTERBUFFER,
    LogPlace, Mechanism, MechanismKind, NoLog, Promises, SCHEDULER, SOFT, SYNC,
};
use backstitch_rules::{Id, Site};
use thiserror::Error;

pub use backstitch_journal::rules::Rule as JournalRule;
pub use backstitch_lffs::rules::Rule as LffsRule;
pub use backstitch_ordering::rules::Rule as OrderingRule;

/// The order rules of all mechanisms, and those that each of them states.
pub const RULES: &[&[Site]] = &[OrderingRule::SITES, JournalRule::SITES, LffsRule::SITES];

/// A registered mechanism.
#[derive(Clone, Copy)]
pub struct Ordering {
    kind: &'static dyn MechanismKind,
    /// The kind of its log.
    log: Option<&'static dyn LogKind>,
}

/// There is no mechanism of this name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "unknown ordering '{name}': this version has {}, with group commit {}, and amom=delayed:TICKS and \
     amom=periodic:TICKS with 1 to 360000 ticks of 10 ms",
    Ordering::ALL.map(Ordering::name).join(", "),
    Ordering::WITH_GROUP_COMMIT.map(Ordering::name).join(", ")
)]
pub struct Unknown {
    /// The name.
    pub name: String,
}

impl Ordering {
    /// Soft updates.
    pub const SOFT: Ordering = Ordering::alone(&SOFT);
    /// No order.
    pub const ASYNC: Ordering = Ordering::alone(&ASYNC);
    /// Conventional FFS.
    pub const SYNC: Ordering = Ordering::alone(&SYNC);
    /// The device's queue keeps the order.
    pub const SCHEDULER: Ordering = Ordering::alone(&SCHEDULER);
    /// Order between whole blocks.
    pub const INTERBUFFER: Ordering = Ordering::alone(&INTERBUFFER);
    /// A ring of batches, each begun as soon as the one before is on stable storage.
    pub const AMOM_IMMEDIATE: Ordering = Ordering::alone(&AMOM_IMMEDIATE);
    /// The same, each begun a second after that.
    pub const AMOM_DELAYED: Ordering = Ordering::alone(&AMOM_DELAYED);
    /// The same, one begun every three seconds.
    pub const AMOM_PERIODIC: Ordering = Ordering::alone(&AMOM_PERIODIC);
    /// A journal of metadata.
    pub const JOURNAL_WRITEBACK: Ordering =
        Ordering::logging(JournalMode::Writeback.kind(), &jbd2::Jbd2);
    /// A journal of metadata, contents first.
    pub const JOURNAL_ORDERED: Ordering =
        Ordering::logging(JournalMode::Ordered.kind(), &jbd2::Jbd2);
    /// A journal of metadata and contents.
    pub const JOURNAL_FULL: Ordering = Ordering::logging(JournalMode::Full.kind(), &jbd2::Jbd2);

    /// A log of operations in a file of the file system.
    pub const LFFS_FILE: Ordering = Ordering::logging(Variant::File.kind(), &lffs::LffsFile);
    /// The same on the same device, outside the file system; each operation waits for it.
    pub const LFFS_WAFS_1SYNC: Ordering =
        Ordering::logging(Variant::OneSync.kind(), &lffs::LffsWafs::SAME);
    /// The same, and nobody waits.
    pub const LFFS_WAFS_1ASYNC: Ordering =
        Ordering::logging(Variant::OneAsync.kind(), &lffs::LffsWafs::SAME);
    /// The same on another device; each operation waits for it.
    pub const LFFS_WAFS_2SYNC: Ordering =
        Ordering::logging(Variant::TwoSync.kind(), &lffs::LffsWafs::OTHER);
    /// The same, and nobody waits.
    pub const LFFS_WAFS_2ASYNC: Ordering =
        Ordering::logging(Variant::TwoAsync.kind(), &lffs::LffsWafs::OTHER);

    /// A journal with group commit: each operation waits for its transaction, together with others
    /// that come within some milliseconds.
    pub const JOURNAL_WRITEBACK_GROUP: Ordering =
        Ordering::logging(JournalMode::Writeback.gathered(), &jbd2::Jbd2);
    /// The same, contents first.
    pub const JOURNAL_ORDERED_GROUP: Ordering =
        Ordering::logging(JournalMode::Ordered.gathered(), &jbd2::Jbd2);
    /// The same, of metadata and contents.
    pub const JOURNAL_FULL_GROUP: Ordering =
        Ordering::logging(JournalMode::Full.gathered(), &jbd2::Jbd2);
    /// A log of operations on the same device with group commit.
    pub const LFFS_WAFS_1GROUP: Ordering =
        Ordering::logging(Variant::OneGroup.kind(), &lffs::LffsWafs::SAME);
    /// The same on another device.
    pub const LFFS_WAFS_2GROUP: Ordering =
        Ordering::logging(Variant::TwoGroup.kind(), &lffs::LffsWafs::OTHER);

    /// Variants of those in [`ALL`](Self::ALL) with group commit. They differ from them only in
    /// that several callers share a write of the log.
    pub const WITH_GROUP_COMMIT: [Ordering; 5] = [
        Ordering::JOURNAL_WRITEBACK_GROUP,
        Ordering::JOURNAL_ORDERED_GROUP,
        Ordering::JOURNAL_FULL_GROUP,
        Ordering::LFFS_WAFS_1GROUP,
        Ordering::LFFS_WAFS_2GROUP,
    ];

    /// All of them. Of mechanisms with a number in their names, those that the papers measured
    /// most.
    pub const ALL: [Ordering; 16] = [
        Ordering::SOFT,
        Ordering::ASYNC,
        Ordering::SYNC,
        Ordering::SCHEDULER,
        Ordering::INTERBUFFER,
        Ordering::AMOM_IMMEDIATE,
        Ordering::AMOM_DELAYED,
        Ordering::AMOM_PERIODIC,
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
        Ordering::LFFS_FILE,
        Ordering::LFFS_WAFS_1SYNC,
        Ordering::LFFS_WAFS_1ASYNC,
        Ordering::LFFS_WAFS_2SYNC,
        Ordering::LFFS_WAFS_2ASYNC,
    ];

    /// A mechanism that is not registered, for a test of one.
    pub const fn unregistered(kind: &'static dyn MechanismKind) -> Ordering {
        Ordering::alone(kind)
    }

    const fn alone(kind: &'static dyn MechanismKind) -> Ordering {
        Ordering { kind, log: None }
    }

    const fn logging(kind: &'static dyn MechanismKind, log: &'static dyn LogKind) -> Ordering {
        let log = Some(log);
        Ordering { kind, log }
    }

    /// Its name, as `--ordering` takes it.
    pub fn name(self) -> &'static str {
        self.kind.name()
    }

    /// What it promises.
    pub fn promises(self) -> Promises {
        self.kind.promises()
    }

    /// Whether it cannot be made without a log.
    pub fn has_log(self) -> bool {
        self.promises().has_log
    }

    /// What finds, recovers and makes its log; `None` where it has none.
    pub fn log_kind(self) -> Option<&'static dyn LogKind> {
        self.log
    }

    /// The features with which its log writes a transaction and what commits it together; none
    /// where it cannot, or there is no log.
    pub fn one_flush_features(self) -> JournalFeatures {
        self.log_kind().map_or(&[][..], LogKind::one_flush_features)
    }

    /// The features with which an image is made that has what the mechanism needs.
    pub fn image_features(self) -> Vec<String> {
        let words = self.log_kind().map_or(&[][..], |kind| kind.features());
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Whether its log is on a device of its own, and on no other one.
    pub fn needs_log_device(self) -> bool {
        self.log_kind()
            .is_some_and(|kind| kind.features().is_empty())
    }

    /// Whether its log may be on a device of its own: those of journals, and those of mechanisms
    /// that need one.
    pub fn takes_log_device(self) -> bool {
        let name = |ordering: Ordering| ordering.log.map(LogKind::name);
        self.needs_log_device() || (self.has_log() && name(self) == name(usual_for(true)))
    }

    /// The rules that it states itself; see [`MechanismKind::own_rules`].
    pub fn own_rules(self) -> &'static [Id] {
        self.kind.own_rules()
    }

    /// What is recorded in an image that is mounted with it; see [`MechanismKind::crash_record`].
    pub fn crash_record(self) -> Option<CrashRecord> {
        self.kind.crash_record()
    }

    /// Makes one for a volume. `log`: where its log is.
    ///
    /// # Errors
    /// [`NoLog`]: it has one, and `log` is none of its kind.
    pub fn make(self, log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        self.kind.make(log)
    }

    /// Makes one for a volume that is only read. Where this one needs a log it is the
    /// [usual](usual_for) one without: nothing is changed, and all are the same then.
    pub fn make_read_only(self) -> Box<dyn Mechanism> {
        self.make(None).unwrap_or_else(|_| make_without_log())
    }
}

impl fmt::Debug for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ordering").field(&self.name()).finish()
    }
}

impl PartialEq for Ordering {
    fn eq(&self, other: &Ordering) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Ordering {}

impl fmt::Display for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Ordering {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Self, Unknown> {
        named(name).ok_or_else(|| Unknown { name: name.into() })
    }
}

/// The kinds of logs that there are: those of the registered mechanisms, each once.
pub fn logs() -> Vec<&'static dyn LogKind> {
    let mut found: Vec<&dyn LogKind> = Vec::new();
    for kind in Ordering::ALL.into_iter().filter_map(Ordering::log_kind) {
        if found.iter().all(|known| known.name() != kind.name()) {
            found.push(kind);
        }
    }
    found
}

/// The features with which a log writes a transaction and what commits it together, of the kind
/// that can: see [`LogKind::one_flush_features`].
pub fn one_flush_features() -> JournalFeatures {
    let of_kinds = logs().into_iter().map(LogKind::one_flush_features);
    of_kinds
        .into_iter()
        .find(|words| !words.is_empty())
        .unwrap_or_default()
}

/// The log of a device that holds one and nothing else; `None` where it holds something else.
///
/// # Errors
/// Where it says that it holds one, and its numbers cannot be; the device's.
pub fn log_device(device: &dyn BlockDevice) -> backstitch_layout::Result<Option<LogDevice>> {
    for kind in logs() {
        if let Some(found) = kind.device(device)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The mechanism of this name.
pub fn named(name: &str) -> Option<Ordering> {
    let mut listed = Ordering::ALL.into_iter().chain(Ordering::WITH_GROUP_COMMIT);
    let listed = listed.find(|o| o.name() == name);
    listed.or_else(|| AmomKind::named(name).map(|kind| Ordering::alone(kind)))
}

/// The mechanism that has this record in an image; one of several where they leave the same behind.
pub fn recorded(record: CrashRecord) -> Option<Ordering> {
    let is_of = |o: &Ordering| o.crash_record() == Some(record);
    Ordering::ALL.into_iter().find(is_of)
}

/// The mechanism where nobody names one: of a file system that has a log that can be written, or
/// that has none.
pub const fn usual_for(has_log: bool) -> Ordering {
    match has_log {
        true => Ordering::JOURNAL_ORDERED,
        false => Ordering::SOFT,
    }
}

/// The [`usual_for`] mechanism without a log.
pub fn make_without_log() -> Box<dyn Mechanism> {
    let made = usual_for(false).make(None);
    made.expect("the usual mechanism needs no log")
}

/// The mechanism that costs nothing, for images that nobody needs after a crash.
pub fn fastest() -> Ordering {
    Ordering::ASYNC
}

/// The mechanisms after which a crash leaves what can be trusted.
pub fn in_order() -> impl Iterator<Item = Ordering> {
    let keeps = |o: &Ordering| o.promises().keeps_order();
    Ordering::ALL.into_iter().filter(keeps)
}

/// The mechanisms with which an image can be mounted that was unmounted from this one, the
/// [`usual_for`] one first.
pub fn interchangeable(with: Ordering) -> Vec<Ordering> {
    let name = |o: Ordering| o.log_kind().map(LogKind::name);
    let usual = Some(usual_for(with.has_log())).filter(|usual| name(*usual) == name(with));
    let others = in_order().filter(|o| name(*o) == name(with) && Some(*o) != usual);
    let mut all: Vec<Ordering> = others.chain(usual).collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn who_needs_a_log_names_its_kind_and_nobody_else() {
        for ordering in Ordering::ALL {
            let kind = ordering.log_kind();
            assert_eq!(ordering.has_log(), kind.is_some(), "{ordering}");
            let listed = |kind: &dyn LogKind| logs().iter().any(|log| log.name() == kind.name());
            assert!(kind.is_none_or(listed), "{ordering}");
        }
        let mut names: Vec<&str> = logs().iter().map(|log| log.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), logs().len());
    }

    #[test]
    fn own_rules_are_registered_and_stated_by_the_mechanisms_alone() {
        let listed = |id: &Id| RULES.iter().copied().flatten().any(|site| site.id == *id);
        for ordering in Ordering::ALL {
            let own = ordering.own_rules();
            assert!(own.iter().all(listed), "{ordering}");
            // Mechanisms of one kind share them, others do not.
            for other in Ordering::ALL
                .iter()
                .filter(|other| other.own_rules() != own)
            {
                let shared = other.own_rules().iter().any(|id| own.contains(id));
                assert!(!shared, "{ordering} and {other}");
            }
        }
        assert!(!Ordering::SCHEDULER.own_rules().is_empty());
        assert!(Ordering::SOFT.own_rules().is_empty());
    }

    #[test]
    fn names_are_those_of_the_command_line_and_lead_back() {
        let names = Ordering::ALL.map(Ordering::name);
        assert_eq!(
            names,
            [
                "soft",
                "async",
                "sync",
                "scheduler",
                "interbuffer",
                "amom=immediate",
                "amom=delayed:100",
                "amom=periodic:300",
                "journal=writeback",
                "journal=ordered",
                "journal=full",
                "lffs-file",
                "lffs-wafs=1sync",
                "lffs-wafs=1async",
                "lffs-wafs=2sync",
                "lffs-wafs=2async"
            ]
        );
        for ordering in Ordering::ALL {
            assert_eq!(ordering.name().parse(), Ok(ordering));
            assert_eq!(ordering.to_string(), ordering.name());
        }
        let error = "journal".parse::<Ordering>().unwrap_err().to_string();
        assert!(error.contains("'journal'") && error.contains("sync, scheduler, interbuffer"));
    }

    #[test]
    fn policies_have_a_number_of_ticks_and_are_each_one_mechanism() {
        for name in ["amom=delayed:3", "amom=periodic:4", "amom=delayed:360000"] {
            let ordering = named(name).unwrap();
            assert_eq!(ordering.name(), name);
            assert_eq!(named(name), Some(ordering));
            assert_eq!(
                ordering.crash_record(),
                Ordering::AMOM_DELAYED.crash_record()
            );
        }
        assert_eq!(named("amom=delayed:100"), Some(Ordering::AMOM_DELAYED));
        for ordering in Ordering::WITH_GROUP_COMMIT {
            assert_eq!(named(ordering.name()), Some(ordering));
            assert!(ordering.promises().answers_once_stable);
            let alike = Ordering::ALL.into_iter().filter(|o| {
                o.log_kind().map(LogKind::name) == ordering.log_kind().map(LogKind::name)
            });
            assert!(alike.count() > 0, "{ordering}");
        }
        for name in [
            "amom",
            "amom=",
            "amom=delayed",
            "amom=delayed:0",
            "amom=delayed:-1",
        ] {
            assert_eq!(named(name), None, "{name}");
        }
        for name in [
            "amom=periodic:03",
            "amom=periodic:+3",
            "amom=immediate:3",
            "amom=delayed:360001",
        ] {
            assert_eq!(named(name), None, "{name}");
        }
    }

    #[test]
    fn records_are_told_apart_and_trusted_where_order_is_kept() {
        let mut codes = BTreeSet::new();
        for ordering in Ordering::ALL {
            let promises = ordering.promises();
            if let Some(record) = ordering.crash_record() {
                let is_trusted = promises.keeps_order() && !promises.has_log;
                assert_eq!(record.is_trusted(), is_trusted);
                assert_eq!(record == CrashRecord::IN_LOG, promises.has_log);
                match codes.insert(record.code()) {
                    true => assert_eq!(recorded(record), Some(ordering)),
                    false => {
                        // Whichever of them a mount takes for the last one, it finds the same.
                        let first = recorded(record).map(|first| first.promises().crash_leaves);
                        assert_eq!(first, Some(promises.crash_leaves), "{ordering}");
                    }
                }
            }
        }
        assert_eq!(codes, BTreeSet::from([0, 1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn a_log_is_needed_by_those_that_have_one_and_only_for_changes() {
        for ordering in Ordering::ALL {
            assert_eq!(ordering.make(None).is_err(), ordering.has_log());
            let foreign = LogPlace::new(7_u32);
            assert_eq!(ordering.make(Some(foreign)).is_err(), ordering.has_log());
            assert!(ordering.make_read_only().log().is_none());
        }
    }

    #[test]
    fn what_can_follow_on_an_image_has_a_log_or_not_as_before() {
        let after = |with| interchangeable(with).into_iter().map(Ordering::name);
        assert!(after(Ordering::SYNC).eq([
            "soft",
            "amom=periodic:300",
            "amom=delayed:100",
            "amom=immediate",
            "interbuffer",
            "scheduler",
            "sync"
        ]));
        assert!(after(Ordering::JOURNAL_FULL).eq([
            "journal=ordered",
            "journal=full",
            "journal=writeback"
        ]));
        assert!(after(Ordering::LFFS_FILE).eq(["lffs-file"]));
        assert!(after(Ordering::LFFS_WAFS_1SYNC).eq(["lffs-wafs=1async", "lffs-wafs=1sync"]));
        assert!(!in_order().any(|o| o == fastest()));
    }
}
