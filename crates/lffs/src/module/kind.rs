//! The mechanisms as the registry lists them.

use std::sync::Arc;

use backstitch_ordering::{
    CrashLeaves, CrashRecord, LogPlace, Mechanism, MechanismKind, NoLog, Promises,
};
use backstitch_rules::Id;

use super::LffsMechanism;
use crate::pen::Pen;
use crate::place::LogMap;
use crate::rules::Rule;

/// Where the log is, and which operations wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// In a file of the file system.
    File,
    /// A write-ahead file system on the same device, which each operation waits for.
    OneSync,
    /// The same without waiting: only `fsync` and the like wait for the log.
    OneAsync,
    /// The same, which each operation waits for together with others that come within some time.
    OneGroup,
    /// A write-ahead file system on another device, which each operation waits for.
    TwoSync,
    /// The same without waiting: only `fsync` and the like wait for the log.
    TwoAsync,
    /// The same, which each operation waits for together with others that come within some time.
    TwoGroup,
}

impl Variant {
    /// All of them.
    pub const ALL: [Variant; 7] = [
        Variant::File,
        Variant::OneSync,
        Variant::OneAsync,
        Variant::OneGroup,
        Variant::TwoSync,
        Variant::TwoAsync,
        Variant::TwoGroup,
    ];

    /// The mechanism.
    pub const fn kind(self) -> &'static dyn MechanismKind {
        match self {
            Variant::File => &Variant::File,
            Variant::OneSync => &Variant::OneSync,
            Variant::OneAsync => &Variant::OneAsync,
            Variant::OneGroup => &Variant::OneGroup,
            Variant::TwoSync => &Variant::TwoSync,
            Variant::TwoAsync => &Variant::TwoAsync,
            Variant::TwoGroup => &Variant::TwoGroup,
        }
    }

    /// Whether operations wait for their records.
    pub const fn is_sync(self) -> bool {
        matches!(self, Variant::OneSync | Variant::TwoSync) || self.gathers()
    }

    /// Whether these operations first wait a moment for others to share the write.
    pub const fn gathers(self) -> bool {
        matches!(self, Variant::OneGroup | Variant::TwoGroup)
    }
}

/// Where a mechanism's log is.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The writer of the log, which is empty.
    pub pen: Pen,
    /// Where its blocks are: in blocks of the volume.
    pub map: Arc<LogMap>,
    /// Whether they are blocks of the file system, and not behind it.
    pub is_inside: bool,
}

impl MechanismKind for Variant {
    fn name(&self) -> &'static str {
        match self {
            Variant::File => "lffs-file",
            Variant::OneSync => "lffs-wafs=1sync",
            Variant::OneAsync => "lffs-wafs=1async",
            Variant::OneGroup => "lffs-wafs=1group",
            Variant::TwoSync => "lffs-wafs=2sync",
            Variant::TwoAsync => "lffs-wafs=2async",
            Variant::TwoGroup => "lffs-wafs=2group",
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            has_log: true,
            answers_once_stable: self.is_sync(),
            contents_may_be_stale: true,
            ..Promises::leaving(CrashLeaves::WholeScopes)
        }
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::IN_LOG)
    }

    fn own_rules(&self) -> &'static [Id] {
        const { &Rule::IDS }
    }

    /// `log`: a [`Setup`].
    fn make(&self, log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        let setup = log.and_then(LogPlace::into_place::<Setup>);
        let setup = setup.ok_or(NoLog(self.name()))?;
        Ok(Box::new(LffsMechanism::new(setup, *self)))
    }
}
