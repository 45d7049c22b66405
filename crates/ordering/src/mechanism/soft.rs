//! Soft updates: the layout's dependencies, as they are (Ganger et al. 2000).

use super::Mechanism;
use crate::kind::{CrashLeaves, CrashRecord, LogPlace, MechanismKind, NoLog, Promises};

/// `soft`.
pub static SOFT: SoftKind = SoftKind;

/// The kind of [`SOFT`].
pub struct SoftKind;

struct Soft;

impl MechanismKind for SoftKind {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn promises(&self) -> Promises {
        Promises::leaving(CrashLeaves::Excess)
    }

    fn crash_record(&self) -> Option<CrashRecord> {
        Some(CrashRecord::SOFT)
    }

    fn make(&self, _log: Option<LogPlace>) -> Result<Box<dyn Mechanism>, NoLog> {
        Ok(Box::new(Soft))
    }
}

impl Mechanism for Soft {
    fn kind(&self) -> &'static dyn MechanismKind {
        &SOFT
    }
}
