//! What a repair is asked, and what it comes to.

use std::fmt;

use backstitch_device::{BlockDevice, DeviceError};
use serde::Serialize;

use super::check::{CheckOptions, EXIT_CLEAN, EXIT_UNCORRECTED, Report};
use super::finding::Location;

/// fsck(8)'s exit status: errors were corrected.
pub const EXIT_CORRECTED: i32 = 1;

/// How much to repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What soft updates may leave; nothing where there is more.
    Preen,
    /// Everything.
    All,
}

/// How to repair.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// How much.
    pub mode: Mode,
    /// Whether a geometry may be guessed where neither the superblock nor a backup tells one. A
    /// wrong guess destroys what a right one would have saved.
    pub guess_geometry: bool,
    /// The time of this repair, in seconds since 1970.
    pub now_seconds: u32,
    /// The options of the check before.
    pub check: CheckOptions,
}

/// One thing that was repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Where.
    #[serde(rename = "where")]
    pub location: Location,
    /// What was done.
    pub what: String,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "repaired: {}: {}", self.location, self.what)
    }
}

/// What a repair came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the check found before; `None` where superblock or features kept it from looking, until
    /// a backup was put in place.
    pub before: Option<Report>,
    /// What was done.
    pub repairs: Vec<Repair>,
    /// Repairs beyond those that are listed.
    pub omitted: u64,
    /// What is left; `None` where nothing was tried, since preening must not.
    pub after: Option<Report>,
    /// What the repair takes away; `None` where nothing was damaged, or nothing could be compared.
    pub losses: Option<Losses>,
}

impl Outcome {
    /// Whether nothing is wrong now.
    pub fn is_clean(&self) -> bool {
        match (&self.after, &self.before) {
            (Some(report), _) | (None, Some(report)) => report.is_clean(),
            (None, None) => false,
        }
    }

    /// fsck(8)'s exit status.
    pub fn exit_status(&self) -> i32 {
        let corrected = if self.repairs.is_empty() {
            EXIT_CLEAN
        } else {
            EXIT_CORRECTED
        };
        let left = if self.is_clean() {
            EXIT_CLEAN
        } else {
            EXIT_UNCORRECTED
        };
        corrected | left
    }
}

/// What a repair has done so far, up to a limit.
#[derive(Debug, Default)]
pub struct RepairLog {
    /// The first ten thousand repairs.
    pub list: Vec<Repair>,
    /// How many there are beyond them.
    pub omitted: u64,
    /// [`Losses::pointers_cleared`].
    pub pointers_cleared: u64,
}

/// Further repairs are only counted.
const MAX_REPAIRS: usize = 10_000;

impl RepairLog {
    /// Notes a repair.
    pub fn add(&mut self, location: Location, what: impl Into<String>) {
        if self.list.len() < MAX_REPAIRS {
            let what = what.into();
            self.list.push(Repair { location, what });
        } else {
            self.omitted += 1;
        }
    }

    /// How many there are.
    #[expect(
        clippy::len_without_is_empty,
        reason = "nobody asks whether there is none"
    )]
    pub fn len(&self) -> u64 {
        self.list.len() as u64 + self.omitted
    }
}

/// What a repair takes away or moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Names that could be reached before.
    pub names_before: u64,
    /// Of those, the ones that are gone afterwards.
    pub names_gone: u64,
    /// The paths of the first hundred of them.
    pub gone: Vec<String>,
    /// Files and directories that are in `lost+found` afterwards and were not before.
    pub moved_to_lost_found: u64,
    /// Of those, the ones that keep a name: they are in a directory that was moved.
    pub moved_with_names: u64,
    /// Pointers to blocks cleared: each leaves a hole in a file, or cuts it.
    pub pointers_cleared: u64,
}

impl Losses {
    /// Whether nothing goes and nothing moves.
    pub fn is_empty(&self) -> bool {
        self.names_gone == 0 && self.moved_to_lost_found == 0 && self.pointers_cleared == 0
    }
}

/// A superblock to replay a journal under where the one in place does not lead to it.
#[derive(Clone, Debug)]
pub struct ReplaySuperblock {
    /// How it was come by, for the report.
    pub source: &'static str,
    /// Where superblocks are.
    pub offset_bytes: u64,
    /// Its bytes, which say that there is something to be replayed.
    pub bytes: Vec<u8>,
    /// The bytes in place, where the others differ in a field that follows from others: one choice
    /// of several, which the repair makes later with more to go by.
    pub former: Option<Vec<u8>>,
}

impl ReplaySuperblock {
    /// Puts it in place, stable.
    ///
    /// # Errors
    /// Those of the device.
    pub fn put(&self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        device.write(self.offset_bytes, &self.bytes)?;
        device.flush()
    }

    /// After the replay: gives derived fields their former values back, unless the journal held a
    /// copy of the superblock that sets them. What has no former values stays.
    ///
    /// # Errors
    /// Those of the device.
    pub fn restore_former(&self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        let Some(former) = &self.former else {
            return Ok(());
        };
        let mut bytes = vec![0; self.bytes.len()];
        device.read(self.offset_bytes, &mut bytes)?;
        let pairs = self.bytes.iter().zip(former);
        for (byte, (derived, former)) in bytes.iter_mut().zip(pairs) {
            if byte == derived {
                *byte = *former;
            }
        }
        device.write(self.offset_bytes, &bytes)?;
        device.flush()
    }
}
