//! Why was this written again?

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::words;
use crate::graph::block_text;
use crate::record::Record;
use crate::state::{Keep, State};
use crate::{Error, Trace};

/// Steps from one patch to what it waits for, for each patch that is kept, in the search for the reason
/// of one.
const STEPS_PER_PATCH: usize = 8;
/// The reason where it has not been looked for, or not found so near.
const FAR: &str = "others, which are far away";

/// Why a patch is in a version of its block, and was in none before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was made after the version before.
    Made,
    /// It was left out of the version before, for it waited for the patch in these words.
    LeftOut(String),
}

/// A patch that a version has for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// Its number.
    pub patch: u64,
    /// What it is, in words.
    pub what: String,
    /// Why it was not there before.
    pub cause: Cause,
}

/// A time that a block was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The record.
    pub record: u64,
    /// When.
    pub time: Duration,
    /// The block in words.
    pub block: String,
    /// What was new; the first ones.
    pub new: Vec<New>,
    /// How many were new.
    pub new_count: usize,
    /// Patches that were left out; the first ones.
    pub left_out: Vec<u64>,
    /// How many were left out.
    pub left_out_count: usize,
}

/// Which blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Those with this number, in blocks of their own size.
    WithNumber(u64),
    /// The one that the trace calls so.
    One(u32),
}

/// How far is read, and how much is kept of it.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records that are read, from the first on.
    pub records: u64,
    /// Versions that are kept: the last ones.
    pub versions: usize,
    /// Patches of each of them.
    pub patches: usize,
}

impl Bounds {
    /// All that there is.
    pub const NONE: Bounds = Bounds {
        records: u64::MAX,
        versions: usize::MAX,
        patches: usize::MAX,
    };
}

/// The times that the blocks with this number were written.
///
/// # Errors
/// Where the trace is damaged.
pub fn versions(trace: &Trace<'_>, number: u64) -> Result<Vec<Version>, Error> {
    let found = last_versions(trace, Blocks::WithNumber(number), Bounds::NONE)?;
    Ok(found.1)
}

/// How many times these blocks were written, and the last of these times, within bounds.
///
/// # Errors
/// Where the trace is damaged within them.
pub fn last_versions(
    trace: &Trace<'_>,
    wanted: Blocks,
    bounds: Bounds,
) -> Result<(usize, Vec<Version>), Error> {
    let mut state = State::of(trace, Keep::Live);
    let (mut records, mut list, mut passed) = (trace.records(), Vec::new(), 0);
    // Of a block: what its last version left out, and for what.
    let mut left: BTreeMap<u32, Reasons> = BTreeMap::new();
    let (mut count, mut found) = (0, VecDeque::new());
    while passed < bounds.records
        && let Some((number, record)) = records.next(&mut list)?
    {
        passed += 1;
        if let Record::Write { block, patches, .. } = record
            && is_wanted(&state, block, wanted)
        {
            let before = left.remove(&block).unwrap_or_default();
            let new = patches.iter().take(bounds.patches).map(|patch| New {
                patch: *patch,
                what: words(&state, *patch),
                cause: match before.get(patch) {
                    Some(why) => Cause::LeftOut(why.clone().into_owned()),
                    None => Cause::Made,
                },
            });
            let new = new.collect();
            let mut left_out = state.left_out(block, patches);
            let left_out_count = left_out.len();
            left.insert(block, reasons(&state, block, &left_out, bounds));
            left_out.truncate(bounds.patches);
            count += 1;
            found.push_back(Version {
                record: number,
                time: state.time,
                block: block_text(&state, block),
                new,
                new_count: patches.len(),
                left_out,
                left_out_count,
            });
            if found.len() > bounds.versions {
                found.pop_front();
            }
        }
        state.apply(&record);
    }
    Ok((count, found.into()))
}

fn is_wanted(state: &State, block: u32, wanted: Blocks) -> bool {
    match wanted {
        Blocks::One(wanted) => block == wanted,
        Blocks::WithNumber(wanted) => state
            .place(block)
            .is_some_and(|at| at.offset_bytes / u64::from(at.len_bytes.max(1)) == wanted),
    }
}

/// Of each patch that a version left out, for what.
type Reasons = BTreeMap<u64, Cow<'static, str>>;

/// Of each patch that a version left out, for what. Of those beyond the bounds that is not looked for.
fn reasons(state: &State, block: u32, left_out: &[u64], bounds: Bounds) -> Reasons {
    let most_steps = bounds.patches.saturating_mul(STEPS_PER_PATCH);
    let all = left_out.iter().enumerate();
    let each = all.map(|(place, patch)| {
        let why = match place < bounds.patches {
            true => obstacle(state, block, *patch, most_steps).into(),
            false => FAR.into(),
        };
        (*patch, why)
    });
    each.collect()
}

/// What keeps a patch out of a version of its block: the nearest patch elsewhere that it waits for,
/// if it is not further away than so many steps.
fn obstacle(state: &State, block: u32, patch: u64, most_steps: usize) -> String {
    let (mut queue, mut at) = (vec![patch], 0);
    let mut seen = BTreeSet::from([patch]);
    while let Some(number) = queue.get(at).copied() {
        if at == most_steps {
            return FAR.to_owned();
        }
        at += 1;
        let Some(patch) = state.patch(number) else {
            continue;
        };
        if patch.is_held {
            return "a transaction that is open".to_owned();
        }
        if !patch.parts.is_empty() && patch.parts.iter().all(|part| part.block != block) {
            return words(state, number);
        }
        for before in &patch.befores {
            let before = state.resolved(*before);
            if seen.insert(before) {
                queue.push(before);
            }
        }
    }
    "the version that was on its way".to_owned()
}

/// For people.
pub fn text(versions: &[Version]) -> String {
    if versions.is_empty() {
        return "it was not written\n".to_owned();
    }
    let mut out = format!("{} versions were written\n", versions.len());
    for version in versions {
        let seconds = version.time.as_secs_f64();
        out += &format!(
            "\n#{} at {seconds:.6}s, {}:\n",
            version.record, version.block
        );
        for new in &version.new {
            out += &match &new.cause {
                Cause::Made => format!("  with {}\n", new.what),
                Cause::LeftOut(why) => format!(
                    "  with {}, which the version before left out: it waited for {why}\n",
                    new.what
                ),
            };
        }
        if version.new_count > version.new.len() {
            out += &format!("  with {} more\n", version.new_count - version.new.len());
        }
        if version.new.is_empty() {
            out += "  with nothing new\n";
        }
        if !version.left_out.is_empty() {
            let more = match version.left_out_count - version.left_out.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            out += &format!("  without {}{more}\n", list(&version.left_out));
        }
    }
    out
}

fn list(patches: &[u64]) -> String {
    let words: Vec<String> = patches.iter().map(|patch| format!("p{patch}")).collect();
    words.join(" ")
}

/// For programs: the keys stay.
pub fn json(versions: &[Version]) -> Value {
    let versions = versions.iter().map(|version| {
        let new = version.new.iter().map(|new| {
            json!({
                "patch": new.patch,
                "what": new.what,
                "left_out_before_for": match &new.cause {
                    Cause::Made => Value::Null,
                    Cause::LeftOut(why) => why.as_str().into(),
                },
            })
        });
        json!({
            "record": version.record,
            "seconds": version.time.as_secs_f64(),
            "block": version.block,
            "new": new.collect::<Vec<_>>(),
            "left_out": version.left_out,
        })
    });
    json!({"versions": versions.collect::<Vec<_>>()})
}
