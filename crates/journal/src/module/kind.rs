//! The three journals as the registry lists them.

use backstitch_ordering::{
    CrashLeaves, CrashRecord, LogPlace, Mechanism, MechanismKind, NoLog, Promises,
};

use super::{JournalMechanism, Setup};

/// Which contents of files go through a journal, and when the others are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMode {
    /// Metadata only; contents at any time.
    Writeback,
    /// Metadata only; contents before the transaction that refers to them.
    Ordered,
    /// Contents too.
    Full,
}

impl JournalMode {
    /// The mechanism with this mode.
    pub const fn kind(self) -> &'static dyn MechanismKind {
        match self {
            JournalMode::Writeback => &JournalMode::Writeback,
            JournalMode::Ordered => &JournalMode::Ordered,
            JournalMode::Full => &JournalMode::Full,
        }
    }

    /// The same, and each operation waits for its transaction, together with others that come within
    /// some time: a group commit, as section 3.2 of Seltzer et al. 2000 describes it.
    pub const fn gathered(self) -> &'static dyn MechanismKind {
        match self {
            JournalMode::Writeback => &Gathered(JournalMode::Writeback),
            JournalMode::Ordered => &Gathered(JournalMode::Ordered),
            JournalMode::Full => &Gathered(JournalMode::Full),
        }
    }
}

/// A journal with group commit.
struct Gathered(JournalMode);

impl MechanismKind for JournalMode {
    fn name(&self) -> &'static str {
        match self {
            JournalMode::Writeback => "journal=writeback",
            JournalMode::Ordered => "journal=ordered",
            JournalMode::Full => "journal=full",
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            contents_may_be_stale: *self == JournalMode::Writeback,
            scopes_hold_contents: *self == JournalMode::Full,
            has_log: true,
            ..Promises::leaving(CrashLeaves::WholeScopes)
        }
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        None
    }

    /// `log`: a [`Setup`].
    fn make(&self, log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        let setup = log.and_then(LogPlace::into_place::<Setup>);
        let setup = setup.ok_or(NoLog(self.name()))?;
        Ok(Box::new(JournalMechanism::new(setup, *self)))
    }
}

impl MechanismKind for Gathered {
    fn name(&self) -> &'static str {
        match self.0 {
            JournalMode::Writeback => "journal=writeback:group",
            JournalMode::Ordered => "journal=ordered:group",
            JournalMode::Full => "journal=full:group",
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            answers_once_stable: true,
            ..self.0.promises()
        }
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        self.0.crash_record()
    }

    /// `log`: a [`Setup`].
    fn make(&self, log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        let setup = log.and_then(LogPlace::into_place::<Setup>);
        let setup = setup.ok_or(NoLog(self.name()))?;
        Ok(Box::new(JournalMechanism::new(setup, self.0).gathered()))
    }
}
