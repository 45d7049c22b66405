//! The records of a trace, and how each is coded.
//!
//! `docs/FORMAT.md` has the table of them; a test holds it to [`KINDS`].

mod decode;
mod encode;

use std::time::Duration;

use backstitch_store::{BlockClass, PatchKind};

/// Where a block is, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The volume; 0 is the first one of a mount.
    pub volume: u32,
    /// Where it begins there.
    pub offset_bytes: u64,
    /// Its size.
    pub len_bytes: u32,
    /// What it holds.
    pub class: BlockClass,
}

/// What a change does to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is of an empty patch.
    Nothing,
    /// Writes bytes from `offset_bytes` on.
    Bytes {
        /// The first byte.
        offset_bytes: u32,
        /// How many.
        len_bytes: u32,
    },
    /// Flips bits of the word at `offset_bytes`.
    Flip {
        /// The word's first byte.
        offset_bytes: u32,
        /// The bits.
        mask: u32,
    },
}

/// A record. Patches have numbers, from 1 on in the order in which they are first named, never used
/// twice. Blocks have the numbers that the patch graph gives them, which a [`Place`](Self::Place)
/// says the meaning of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the fields are those of the events of `backstitch_patch::Event`"
)]
pub enum Record<'a> {
    /// What follows happened at this time, counted from the mount.
    Time(Duration),
    /// The block is this one from now on.
    Place { block: u32, place: Place },
    /// An operation begins. Those that change nothing are not recorded.
    Begin {
        scope: u64,
        word: &'a [u8],
        objects: &'a [u64],
        names: [Option<&'a [u8]>; 2],
        range_bytes: (u64, u64),
    },
    /// It ends.
    End,
    /// It made this object.
    Made { object: u64 },
    /// A change became a patch.
    Create {
        patch: u64,
        kind: PatchKind,
        held: bool,
        block: Option<u32>,
        change: Change,
        stated: &'a [u64],
    },
    /// A change became a part of a patch.
    Merge {
        into: u64,
        kind: PatchKind,
        block: u32,
        change: Change,
        stated: &'a [u64],
    },
    /// The first patch is a part of the second from now on.
    Forward { from: u64, to: u64 },
    /// The block's part of the run `from` is the patch `to` from now on, which the run waits for.
    Split { from: u64, block: u32, to: u64 },
    /// As before, and the run does not wait for it.
    Leave { from: u64, block: u32, to: u64 },
    /// The first patch need not be written any more; the second stands for it.
    Supersede { from: u64, block: u32, to: u64 },
    /// The first patch waits for the second.
    Wait { after: u64, before: u64 },
    /// It does not any more.
    StopWaiting { after: u64, before: u64 },
    /// A held empty patch is released.
    Release { patch: u64 },
    /// These, and what they wait for, take on nothing more to wait for.
    Settle { patches: &'a [u64] },
    /// A version of a block is put into the next batch, with these patches for the first time.
    Write {
        block: u32,
        rolled_back: u32,
        patches: &'a [u64],
    },
    /// The patch is on stable storage, or never will be and nobody minds.
    Commit { patch: u64 },
    /// A patch that there was when the recording began, on one of its blocks.
    Present {
        patch: u64,
        kind: PatchKind,
        held: bool,
        in_flight: bool,
        block: Option<u32>,
        offset_bytes: u32,
        len_bytes: u32,
    },
    /// The versions since the last batch are handed to the device.
    Batch {
        number: u64,
        goal: &'a [u8],
        requests: u64,
        bytes: u64,
    },
    /// What the batch writes at this place; only in traces with contents.
    Contents {
        volume: u32,
        offset_bytes: u64,
        bytes: &'a [u8],
    },
    /// The batch is on stable storage.
    Flushed { number: u64 },
    /// The batch never will be, as far as anybody knows.
    Failed { number: u64 },
    /// Somebody waits for these patches.
    Awaited { ticket: u64, patches: &'a [u64] },
    /// Nobody waits under this ticket any more.
    Reached { ticket: u64 },
    /// The trace ends here although more happened: this many events could not be kept.
    Lost { events: u64 },
    /// The patch has no undo data any more.
    Harden { patch: u64 },
    /// What no write has taken up of the block never will be written.
    Discard { block: u32 },
    /// The trace ends here, and has all of the recording.
    Finished,
}

/// The kinds of records, by their code.
pub const KINDS: [&str; 28] = [
    "time",
    "place",
    "begin",
    "end",
    "made",
    "create",
    "merge",
    "forward",
    "split",
    "leave",
    "supersede",
    "wait",
    "stop-waiting",
    "release",
    "settle",
    "write",
    "commit",
    "present",
    "batch",
    "contents",
    "flushed",
    "failed",
    "awaited",
    "reached",
    "lost",
    "harden",
    "discard",
    "finished",
];

impl Record<'_> {
    /// The record's code.
    #[inline(always)]
    pub fn code(&self) -> u8 {
        match self {
            Record::Time(_) => 0,
            Record::Place { .. } => 1,
            Record::Begin { .. } => 2,
            Record::End => 3,
            Record::Made { .. } => 4,
            Record::Create { .. } => 5,
            Record::Merge { .. } => 6,
            Record::Forward { .. } => 7,
            Record::Split { .. } => 8,
            Record::Leave { .. } => 9,
            Record::Supersede { .. } => 10,
            Record::Wait { .. } => 11,
            Record::StopWaiting { .. } => 12,
            Record::Release { .. } => 13,
            Record::Settle { .. } => 14,
            Record::Write { .. } => 15,
            Record::Commit { .. } => 16,
            Record::Present { .. } => 17,
            Record::Batch { .. } => 18,
            Record::Contents { .. } => 19,
            Record::Flushed { .. } => 20,
            Record::Failed { .. } => 21,
            Record::Awaited { .. } => 22,
            Record::Reached { .. } => 23,
            Record::Lost { .. } => 24,
            Record::Harden { .. } => 25,
            Record::Discard { .. } => 26,
            Record::Finished => 27,
        }
    }

    /// A word for what it is.
    pub fn word(&self) -> &'static str {
        KINDS[usize::from(self.code())]
    }
}

/// What a block can hold, by its code.
const CLASSES: [BlockClass; 4] = [
    BlockClass::Data,
    BlockClass::Metadata,
    BlockClass::Directory,
    BlockClass::Journal,
];

/// What a patch can be made of, by its code.
const PATCH_KINDS: [PatchKind; 5] = [
    PatchKind::Soft,
    PatchKind::Bits,
    PatchKind::Hard,
    PatchKind::Empty,
    PatchKind::Run,
];

/// A word for what a block holds.
pub fn class_word(class: BlockClass) -> &'static str {
    match class {
        BlockClass::Data => "data",
        BlockClass::Metadata => "metadata",
        BlockClass::Directory => "directory",
        BlockClass::Journal => "journal",
    }
}

/// A word for what a patch is made of.
pub fn kind_word(kind: PatchKind) -> &'static str {
    match kind {
        PatchKind::Soft => "soft",
        PatchKind::Bits => "bits",
        PatchKind::Hard => "hard",
        PatchKind::Empty => "empty",
        PatchKind::Run => "run",
    }
}
