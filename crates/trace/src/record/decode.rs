//! How each record is read.

use std::time::Duration;

use backstitch_store::{BlockClass, PatchKind};

use super::{CLASSES, Change, PATCH_KINDS, Place, Record};
use crate::Damage;
use crate::codec::{Context, Rest};

impl Record<'_> {
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
            24 => Record::Lost {
                events: rest.number()?,
            },
            25 => Record::Harden {
                patch: cx.patch(rest)?,
            },
            26 => Record::Discard {
                block: rest.small()?,
            },
            27 => Record::Finished,
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

fn bytes_of<'a>(rest: &mut Rest<'a>) -> Result<&'a [u8], Damage> {
    let len = rest.number()?;
    rest.bytes(len)
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

fn class_of(code: u8) -> Result<BlockClass, Damage> {
    let found = CLASSES.get(usize::from(code)).copied();
    found.ok_or(Damage::Kind(code))
}

fn kind_of(code: u8) -> Result<PatchKind, Damage> {
    let found = PATCH_KINDS.get(usize::from(code)).copied();
    found.ok_or(Damage::Kind(code))
}
