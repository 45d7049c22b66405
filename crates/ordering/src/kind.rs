//! Kinds of mechanisms: the name, the promises and the record of one, known before one is made.

use backstitch_rules::Id;
use std::any::Any;
use std::fmt;

use thiserror::Error;

use crate::mechanism::Mechanism;

/// What a crash may leave, once the recovery that belongs to the mechanism has run. A judge of
/// crash states holds the mechanism to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashLeaves {
    /// Anything: no order is kept.
    Anything,
    /// What soft updates may leave, and nothing else: space, inodes and link counts that are marked
    /// used or too high. The file system can be used at once; the excess is reclaimed meanwhile.
    Excess,
    /// Each scope as a whole or not at all, and no excess.
    WholeScopes,
}

/// What a mechanism promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// What a crash may leave.
    pub crash_leaves: CrashLeaves,
    /// It cannot be made without a log, and a mount that finds one replays it.
    pub has_log: bool,
    /// What an operation changed of the metadata is on stable storage when its caller is answered.
    pub answers_once_stable: bool,
    /// Beside what `crash_leaves` says, a block that a file has just been given may show what it
    /// held before.
    pub contents_may_be_stale: bool,
    /// What a scope writes into files is a part of it as well. Then what the scope freed may be given
    /// to a file at once.
    pub scopes_hold_contents: bool,
    /// Order is kept between batches of blocks of this one volume, not between the changes that the
    /// layout has stated it for. So no change can make up for another one, and no volume can lie on
    /// another one, since their orders would have to agree.
    pub orders_by_batches: bool,
}

impl Promises {
    /// The promises of a mechanism after which a crash leaves this, and that promises nothing more.
    pub const fn leaving(crash_leaves: CrashLeaves) -> Promises {
        Promises {
            crash_leaves,
            has_log: false,
            answers_once_stable: false,
            contents_may_be_stale: false,
            scopes_hold_contents: false,
            orders_by_batches: false,
        }
    }

    /// Whether what a scope changes reaches the disk as a whole or not at all.
    pub fn scopes_are_atomic(&self) -> bool {
        self.crash_leaves == CrashLeaves::WholeScopes
    }

    /// Whether what is to be on stable storage earlier is there earlier. Where not, empty patches
    /// are dead at once, and deferred work starts at once.
    pub fn keeps_order(&self) -> bool {
        self.crash_leaves != CrashLeaves::Anything
    }

    /// Whether order is kept between volumes that lie in each other's files.
    pub fn spans_volumes(&self) -> bool {
        self.keeps_order_in_place() && !self.orders_by_batches
    }

    /// Whether the blocks themselves reach the disk in order: then the unit that the device writes
    /// as a whole matters.
    pub fn keeps_order_in_place(&self) -> bool {
        self.crash_leaves == CrashLeaves::Excess && !self.has_log
    }
}

/// What a mounted image has in its superblock, so that the next mount knows what a crash may have
/// left there.
///
/// The codes are part of the image formats (`docs/FORMAT.md`): a new one is a change of those, as a
/// new feature bit is. All but [`ANYTHING`](Self::ANYTHING) and [`IN_LOG`](Self::IN_LOG) stand for
/// mechanisms after which a crash leaves [`CrashLeaves::Excess`]. Mechanisms may share a code where
/// one may follow the other after a crash; what is shown of such an image is then the name of the
/// first of them in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrashRecord(u8);

impl CrashRecord {
    /// `async`: a crash may have left anything. Such an image is never trusted.
    pub const ANYTHING: CrashRecord = CrashRecord(0);

    /// `soft`.
    pub const SOFT: CrashRecord = CrashRecord(1);

    /// `sync`.
    pub const SYNC: CrashRecord = CrashRecord(2);

    /// `scheduler`.
    pub const SCHEDULER: CrashRecord = CrashRecord(3);

    /// `interbuffer`.
    pub const INTERBUFFER: CrashRecord = CrashRecord(4);

    /// Batches of operations, one after the other: `amom` under any policy.
    pub const BATCHES: CrashRecord = CrashRecord(5);

    /// A log beside the layout's own journal. What a crash leaves is in order once the log that the
    /// mount wrote is brought home, and not before.
    pub const IN_LOG: CrashRecord = CrashRecord(6);

    /// All of them; the index is the code.
    pub const ALL: [CrashRecord; 7] = [
        CrashRecord::ANYTHING,
        CrashRecord::SOFT,
        CrashRecord::SYNC,
        CrashRecord::SCHEDULER,
        CrashRecord::INTERBUFFER,
        CrashRecord::BATCHES,
        CrashRecord::IN_LOG,
    ];

    /// The record with this code; `None` where this version knows of none.
    pub fn from_code(code: u8) -> Option<CrashRecord> {
        CrashRecord::ALL.get(usize::from(code)).copied()
    }

    /// The code on the disk.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Whether a crash left only what a trusted recovery may find.
    pub fn is_trusted(self) -> bool {
        self != CrashRecord::ANYTHING && self != CrashRecord::IN_LOG
    }
}

/// Where a mechanism's log is. Each kind of log has its own description of that: only the code that
/// finds such a log and the mechanism that writes it know what is in here.
pub struct LogPlace(Box<dyn Any + Send>);

impl LogPlace {
    /// A place, as the log's own crate describes it.
    pub fn new<T: Any + Send>(place: T) -> LogPlace {
        LogPlace(Box::new(place))
    }

    /// The place, where it is one of a log of this kind.
    pub fn into_place<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|place| *place)
    }
}

/// The mechanism cannot be made without a log of its kind.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the ordering {0} needs a log of its own kind")]
pub struct NoLog(pub &'static str);

/// A mechanism as the registry lists it: everything that others may know of it. A mechanism is this
/// and a [`Mechanism`], in one file or crate, and a line in the registry.
pub trait MechanismKind: Sync {
    /// Its name, as `--ordering` takes it.
    fn name(&self) -> &'static str;

    /// What it promises.
    fn promises(&self) -> Promises;

    /// What is recorded in the image while it is mounted with it. `None` only where the layout's own
    /// journal tells how the image was left. (Without such a journal the layout records
    /// [`CrashRecord::ANYTHING`] then, and the image is not trusted after a crash.)
    fn crash_record(&self) -> Option<CrashRecord>;

    /// The rules that this mechanism alone states. An ablation of the mechanism is about these.
    fn own_rules(&self) -> &'static [Id] {
        &[]
    }

    /// Makes one for a volume. `log`: where its log is.
    ///
    /// # Errors
    /// [`NoLog`]: it has one, and `log` is none of its kind.
    fn make(&self, log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog>;
}

impl fmt::Debug for dyn MechanismKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
