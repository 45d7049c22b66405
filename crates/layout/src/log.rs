//! The life of a log outside a mount: how it is found, recovered and made.
//!
//! A mechanism that writes a log needs it in order before there is a mechanism: what an earlier
//! mount left in it is brought home before the layout opens the file system. A [`LogKind`] does
//! that, and stands in the registry beside the mechanisms that write such logs. It meets the layout
//! as a [`JournalHost`], which knows where a log inside the file system is and nothing of what is in
//! it; a log elsewhere (a file, a device of its own) needs none.
//!
//! A mount asks all registered kinds to [`recover`](LogKind::recover), whatever mechanism it will
//! use: an image may come from another one. Then it has the mechanism's own kind
//! [find](LogKind::find) the log that is to be written.

use std::ops::Range;

use backstitch_device::BlockDevice;
use backstitch_ordering::LogPlace;

use crate::{JournalHost, Result, Timestamp};

/// What tools call the file in the root directory that a log of operations lies in, where a layout
/// has no inode of its own for one.
pub const LOG_FILE_NAME: &str = ".lffs-log";

/// Where a log may be: devices on which nothing is mounted, and what their layout says of a log.
#[derive(Clone, Copy)]
pub struct LogSite<'a> {
    /// The file system's device.
    pub device: &'a dyn BlockDevice,
    /// The device of a log of its own, where one is given.
    pub log_device: Option<&'a dyn BlockDevice>,
    /// How the layout hosts a log inside the file system; `None` where it never does.
    pub host: Option<&'a dyn JournalHost>,
}

/// What a recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// What was done, in words.
    pub actions: Vec<String>,
    /// Why the log is not known to be empty now, in words; `None` where it is empty.
    pub not_empty: Option<String>,
    /// The transactions, or records, that were brought home.
    pub replayed: u64,
}

/// What is done where a log contradicts itself, or what leads to it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDamage {
    /// Nothing is brought home: the recovery fails.
    Refuse,
    /// What cannot be believed is given up, and the file system marked as one that must be checked.
    /// For a repair, which looks at everything afterwards.
    GiveUp,
}

/// A log that a mechanism can write.
pub struct FoundLog {
    /// What the mechanism is made with.
    pub place: LogPlace,
    /// It is on the log's own device, whose blocks the place numbers behind the file system's: both
    /// are to be used as one.
    pub is_on_log_device: bool,
}

/// A log that can be written, or why it cannot be, in words.
pub type Findable = std::result::Result<FoundLog, String>;

/// A device that holds a log and no file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDevice {
    /// The number by which a file system names it.
    pub uuid: [u8; 16],
    /// The size of a block.
    pub block_bytes: u32,
    /// Its blocks.
    pub blocks: u32,
}

/// What is in a log: a line of text for each record, and the record as JSON.
pub struct LogRecord {
    /// As the tool of the log's own system prints it; ends with a line feed.
    pub text: String,
    /// The same for programs.
    pub json: serde_json::Value,
}

/// What an experiment wants of an empty log that no `mkfs` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTrial {
    /// The log has only this many blocks, at the end of its place.
    Blocks(u32),
    /// The next transaction has this number.
    Sequence(u32),
}

/// A kind of log. All of it works on devices on which nothing is mounted.
pub trait LogKind: Sync {
    /// What it is called, `jbd2`: no two kinds have the same name.
    fn name(&self) -> &'static str;

    /// The features with which [`Tools::make`](crate::tools::Tools::make) makes such a log inside a
    /// file system; none where it is made otherwise.
    fn features(&self) -> &'static [&'static str];

    /// Whether the log must be recovered before the file system is used; `None` where it has no such
    /// log.
    ///
    /// # Errors
    /// Where the log cannot be found.
    fn needs_recovery(&self, site: LogSite<'_>) -> Result<Option<bool>>;

    /// Whether there is such a log at hand that this version writes.
    ///
    /// # Errors
    /// Where the log cannot be found, or cannot be believed.
    fn is_writable(&self, site: LogSite<'_>) -> Result<bool>;

    /// Brings home what the log holds, and ends what a crash interrupted; `None` where there is no
    /// such log. A crash at any point leaves what a second call brings to the same state.
    ///
    /// # Errors
    /// Where the log cannot be found or recovered; nothing was written then.
    fn recover(
        &self,
        site: LogSite<'_>,
        now: Timestamp,
        damage: LogDamage,
    ) -> Result<Option<LogReport>>;

    /// The log of a file system that was recovered, for the mechanism that is to write it.
    ///
    /// # Errors
    /// Where the log cannot be found, or cannot be believed.
    fn find(&self, site: LogSite<'_>) -> Result<Findable>;

    /// A file system that was recovered is about to be written through its log: notes in both what
    /// the recovery after a crash goes by, where that is not there yet. Comes before
    /// [`find`](Self::find), and does nothing where that would refuse.
    ///
    /// # Errors
    /// Where the log cannot be found, or cannot be believed; the device's.
    fn claim(&self, _site: LogSite<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether a log can be another file system's: [`claim`](Self::claim) makes it this one's.
    fn is_claimed(&self) -> bool {
        false
    }

    /// The blocks that writers of the log fill, those of the log's own device numbered behind the
    /// file system's; none where it cannot be written.
    fn blocks(&self, site: LogSite<'_>) -> Vec<Range<u64>>;

    /// The log of a device that holds one and nothing else; `None` where it holds something else.
    ///
    /// # Errors
    /// Where it says that it holds one, and its numbers cannot be; the device's.
    fn device(&self, _device: &dyn BlockDevice) -> Result<Option<LogDevice>> {
        Ok(None)
    }

    /// What a person may want to know of the log, by name: of a file system, or of a device that
    /// holds nothing else. `None` where there is no such log, or where nothing is told of its kind.
    ///
    /// # Errors
    /// Where the log cannot be found, or cannot be believed.
    fn describe(
        &self,
        _site: LogSite<'_>,
    ) -> Result<Option<serde_json::Map<String, serde_json::Value>>> {
        Ok(None)
    }

    /// Shows the records of the log from its tail on. Whether there is such a log, of a kind whose
    /// records can be shown.
    ///
    /// # Errors
    /// Where the log cannot be found, or read.
    fn records(&self, _site: LogSite<'_>, _show: &mut dyn FnMut(LogRecord)) -> Result<bool> {
        Ok(false)
    }

    /// The features with which a log writes a transaction and what commits it together, with one
    /// flush instead of two; none where no feature does that.
    fn one_flush_features(&self) -> &'static [&'static str] {
        &[]
    }

    /// A block of the empty log of a file system, and its bytes as an experiment wants them; `None`
    /// where there is no such log, or nothing can be tried with it.
    ///
    /// # Errors
    /// Where the log cannot be found, or cannot be believed.
    fn trial(&self, _site: LogSite<'_>, _trial: LogTrial) -> Result<Option<(u64, Vec<u8>)>> {
        Ok(None)
    }
}
