//! The records of a trace, and how each is coded.
//!
//! `docs/FORMAT.md` has the table of them; a test holds it to [`KINDS`].

use std::time::Duration;

use backstitch_store::{BlockClass, PatchKind};

use crate::Damage;
use crate::codec::{Context, Rest, put};

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
    /// More happened than could be taken down: the trace ends here.
    Lost,
    /// The patch has no undo data any more.
    Harden { patch: u64 },
    /// What no write has taken up of the block never will be written.
    Discard { block: u32 },
}

/// The kinds of records, by their code.
pub const KINDS: [&str; 27] = [
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
];

impl Record<'_> {
    /// The record's code.
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
            Record::Lost => 24,
            Record::Harden { .. } => 25,
            Record::Discard { .. } => 26,
        }
    }

    /// A word for what it is.
    pub fn word(&self) -> &'static str {
        KINDS[usize::from(self.code())]
    }

    pub(crate) fn encode(&self, cx: &mut Context, out: &mut Vec<u8>) {
        out.push(self.code());
        match *self {
            Record::Time(time) => {
                let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                put(out, time_ns.saturating_sub(cx.time_ns));
                cx.time_ns = cx.time_ns.max(time_ns);
            }
            Record::Place { block, place } => {
                put(out, u64::from(block));
                put(out, u64::from(place.volume));
                put(out, place.offset_bytes);
                put(out, u64::from(place.len_bytes));
                out.push(class_code(place.class));
            }
            Record::Begin {
                scope,
                word,
                objects,
                names,
                range_bytes,
            } => {
                put(out, scope);
                put_bytes(out, word);
                put(out, objects.len() as u64);
                objects.iter().for_each(|object| put(out, *object));
                put(out, names.iter().flatten().count() as u64);
                names.iter().flatten().for_each(|name| put_bytes(out, name));
                put(out, range_bytes.0);
                put(out, range_bytes.1);
            }
            Record::End | Record::Lost => {}
            Record::Made { object } => put(out, object),
            Record::Create {
                patch,
                kind,
                held,
                block,
                change,
                stated,
            } => {
                cx.put_patch(out, patch);
                out.push(kind_code(kind) | u8::from(held) << 3);
                put(out, block.map_or(0, |block| u64::from(block) + 1));
                put_change(out, change);
                cx.put_patches(out, stated);
            }
            Record::Merge {
                into,
                kind,
                block,
                change,
                stated,
            } => {
                cx.put_patch(out, into);
                out.push(kind_code(kind));
                put(out, u64::from(block));
                put_change(out, change);
                cx.put_patches(out, stated);
            }
            Record::Forward { from: a, to: b }
            | Record::Wait {
                after: a,
                before: b,
            }
            | Record::StopWaiting {
                after: a,
                before: b,
            } => {
                cx.put_patch(out, a);
                cx.put_patch(out, b);
            }
            Record::Split { from, block, to }
            | Record::Leave { from, block, to }
            | Record::Supersede { from, block, to } => {
                cx.put_patch(out, from);
                put(out, u64::from(block));
                cx.put_patch(out, to);
            }
            Record::Release { patch } | Record::Commit { patch } | Record::Harden { patch } => {
                cx.put_patch(out, patch);
            }
            Record::Discard { block } => put(out, u64::from(block)),
            Record::Settle { patches } => cx.put_patches(out, patches),
            Record::Write {
                block,
                rolled_back,
                patches,
            } => {
                put(out, u64::from(block));
                put(out, u64::from(rolled_back));
                cx.put_patches(out, patches);
            }
            Record::Present {
                patch,
                kind,
                held,
                in_flight,
                block,
                offset_bytes,
                len_bytes,
            } => {
                cx.put_patch(out, patch);
                out.push(kind_code(kind) | u8::from(held) << 3 | u8::from(in_flight) << 4);
                put(out, block.map_or(0, |block| u64::from(block) + 1));
                put(out, u64::from(offset_bytes));
                put(out, u64::from(len_bytes));
            }
            Record::Batch {
                number,
                goal,
                requests,
                bytes,
            } => {
                put(out, number);
                put_bytes(out, goal);
                put(out, requests);
                put(out, bytes);
            }
            Record::Contents {
                volume,
                offset_bytes,
                bytes,
            } => {
                put(out, u64::from(volume));
                put(out, offset_bytes);
                put_bytes(out, bytes);
            }
            Record::Flushed { number } | Record::Failed { number } => put(out, number),
            Record::Reached { ticket } => put(out, ticket),
            Record::Awaited { ticket, patches } => {
                put(out, ticket);
                cx.put_patches(out, patches);
            }
        }
    }

    /// Reads a record. Its lists are in `list`.
    pub(crate) fn decode<'a>(
        rest: &mut Rest<'a>,
        cx: &mut Context,
        list: &'a mut Vec<u64>,
    ) -> Result<Record<'a>, Damage> {
        Ok(match rest.byte()? {
            0 => {
                let step = rest.number()?;
                cx.time_ns = cx.time_ns.checked_add(step).ok_or(Damage::Number)?;
                Record::Time(Duration::from_nanos(cx.time_ns))
            }
            1 => Record::Place {
                block: rest.small()?,
                place: Place {
                    volume: rest.small()?,
                    offset_bytes: rest.number()?,
                    len_bytes: rest.small()?,
                    class: class_of(rest.byte()?)?,
                },
            },
            2 => decode_begin(rest, list)?,
            3 => Record::End,
            4 => Record::Made {
                object: rest.number()?,
            },
            code @ (5 | 6) => decode_change_of(code, rest, cx, list)?,
            code @ (7 | 11 | 12) => {
                let (a, b) = (cx.patch(rest)?, cx.patch(rest)?);
                match code {
                    7 => Record::Forward { from: a, to: b },
                    11 => Record::Wait {
                        after: a,
                        before: b,
                    },
                    _ => Record::StopWaiting {
                        after: a,
                        before: b,
                    },
                }
            }
            code @ 8..=10 => {
                let (from, block, to) = (cx.patch(rest)?, rest.small()?, cx.patch(rest)?);
                match code {
                    8 => Record::Split { from, block, to },
                    9 => Record::Leave { from, block, to },
                    _ => Record::Supersede { from, block, to },
                }
            }
            13 => Record::Release {
                patch: cx.patch(rest)?,
            },
            14 => {
                cx.patches(rest, list)?;
                Record::Settle { patches: list }
            }
            15 => {
                let (block, rolled_back) = (rest.small()?, rest.small()?);
                cx.patches(rest, list)?;
                Record::Write {
                    block,
                    rolled_back,
                    patches: list,
                }
            }
            16 => Record::Commit {
                patch: cx.patch(rest)?,
            },
            17 => decode_present(rest, cx)?,
            18 => Record::Batch {
                number: rest.number()?,
                goal: bytes_of(rest)?,
                requests: rest.number()?,
                bytes: rest.number()?,
            },
            19 => Record::Contents {
                volume: rest.small()?,
                offset_bytes: rest.number()?,
                bytes: bytes_of(rest)?,
            },
            20 => Record::Flushed {
                number: rest.number()?,
            },
            21 => Record::Failed {
                number: rest.number()?,
            },
            22 => {
                let ticket = rest.number()?;
                cx.patches(rest, list)?;
                Record::Awaited {
                    ticket,
                    patches: list,
                }
            }
            23 => Record::Reached {
                ticket: rest.number()?,
            },
            24 => Record::Lost,
            25 => Record::Harden {
                patch: cx.patch(rest)?,
            },
            26 => Record::Discard {
                block: rest.small()?,
            },
            code => return Err(Damage::Kind(code)),
        })
    }
}

fn decode_begin<'a>(rest: &mut Rest<'a>, list: &'a mut Vec<u64>) -> Result<Record<'a>, Damage> {
    let (scope, word) = (rest.number()?, bytes_of(rest)?);
    let objects = rest.number()?;
    if objects > rest.0.len() as u64 {
        return Err(Damage::Short);
    }
    list.clear();
    for _ in 0..objects {
        list.push(rest.number()?);
    }
    let names = match rest.number()? {
        0 => [None, None],
        1 => [Some(bytes_of(rest)?), None],
        2 => [Some(bytes_of(rest)?), Some(bytes_of(rest)?)],
        _ => return Err(Damage::Number),
    };
    Ok(Record::Begin {
        scope,
        word,
        objects: list,
        names,
        range_bytes: (rest.number()?, rest.number()?),
    })
}

/// A change that became a patch, or a part of one.
fn decode_change_of<'a>(
    code: u8,
    rest: &mut Rest<'a>,
    cx: &mut Context,
    list: &'a mut Vec<u64>,
) -> Result<Record<'a>, Damage> {
    let (patch, flags) = (cx.patch(rest)?, rest.byte()?);
    let kind = kind_of(flags & 7)?;
    let block = rest.number()?;
    let change = change_of(rest)?;
    cx.patches(rest, list)?;
    Ok(match code {
        5 => Record::Create {
            patch,
            kind,
            held: flags & 8 != 0,
            block: optional_block(block)?,
            change,
            stated: list,
        },
        _ => Record::Merge {
            into: patch,
            kind,
            block: u32::try_from(block).map_err(|_| Damage::Number)?,
            change,
            stated: list,
        },
    })
}

fn decode_present<'a>(rest: &mut Rest<'a>, cx: &mut Context) -> Result<Record<'a>, Damage> {
    let (patch, flags) = (cx.patch(rest)?, rest.byte()?);
    Ok(Record::Present {
        patch,
        kind: kind_of(flags & 7)?,
        held: flags & 8 != 0,
        in_flight: flags & 16 != 0,
        block: optional_block(rest.number()?)?,
        offset_bytes: rest.small()?,
        len_bytes: rest.small()?,
    })
}

fn optional_block(coded: u64) -> Result<Option<u32>, Damage> {
    match coded.checked_sub(1) {
        None => Ok(None),
        Some(block) => u32::try_from(block).map(Some).map_err(|_| Damage::Number),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn bytes_of<'a>(rest: &mut Rest<'a>) -> Result<&'a [u8], Damage> {
    let len = rest.number()?;
    rest.bytes(len)
}

fn put_change(out: &mut Vec<u8>, change: Change) {
    let (code, a, b) = match change {
        Change::Nothing => {
            out.push(0);
            return;
        }
        Change::Bytes {
            offset_bytes,
            len_bytes,
        } => (1, offset_bytes, len_bytes),
        Change::Flip { offset_bytes, mask } => (2, offset_bytes, mask),
    };
    out.push(code);
    put(out, u64::from(a));
    put(out, u64::from(b));
}

fn change_of(rest: &mut Rest<'_>) -> Result<Change, Damage> {
    Ok(match rest.byte()? {
        0 => Change::Nothing,
        1 => Change::Bytes {
            offset_bytes: rest.small()?,
            len_bytes: rest.small()?,
        },
        2 => Change::Flip {
            offset_bytes: rest.small()?,
            mask: rest.small()?,
        },
        code => return Err(Damage::Kind(code)),
    })
}

const CLASSES: [BlockClass; 4] = [
    BlockClass::Data,
    BlockClass::Metadata,
    BlockClass::Directory,
    BlockClass::Journal,
];

const PATCH_KINDS: [PatchKind; 5] = [
    PatchKind::Soft,
    PatchKind::Bits,
    PatchKind::Hard,
    PatchKind::Empty,
    PatchKind::Run,
];

fn class_code(class: BlockClass) -> u8 {
    CLASSES.iter().position(|c| *c == class).unwrap_or(0) as u8
}

fn class_of(code: u8) -> Result<BlockClass, Damage> {
    let found = CLASSES.get(usize::from(code)).copied();
    found.ok_or(Damage::Kind(code))
}

fn kind_code(kind: PatchKind) -> u8 {
    PATCH_KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u8
}

fn kind_of(code: u8) -> Result<PatchKind, Damage> {
    let found = PATCH_KINDS.get(usize::from(code)).copied();
    found.ok_or(Damage::Kind(code))
}

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
