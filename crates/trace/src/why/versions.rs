//! Why was this written again?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::words;
use crate::graph::block_text;
use crate::record::Record;
use crate::state::{Keep, State};
use crate::{Error, Trace};

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
    /// What was new.
    pub new: Vec<New>,
    /// Patches that were left out.
    pub left_out: Vec<u64>,
}

/// The times that the blocks with this number were written: the number in blocks of their own size.
///
/// # Errors
/// Where the trace is damaged.
pub fn versions(trace: &Trace<'_>, wanted: u64) -> Result<Vec<Version>, Error> {
    let mut state = State::of(trace, Keep::Live);
    let (mut records, mut list) = (trace.records(), Vec::new());
    // Of a block: what its last version left out, and for what.
    let mut left: BTreeMap<u32, BTreeMap<u64, String>> = BTreeMap::new();
    let mut found = Vec::new();
    while let Some((number, record)) = records.next(&mut list)? {
        if let Record::Write { block, patches, .. } = record
            && is_wanted(&state, block, wanted)
        {
            let before = left.remove(&block).unwrap_or_default();
            let new = patches.iter().map(|patch| New {
                patch: *patch,
                what: words(&state, *patch),
                cause: match before.get(patch) {
                    Some(why) => Cause::LeftOut(why.clone()),
                    None => Cause::Made,
                },
            });
            let left_out = state.left_out(block, patches);
            found.push(Version {
                record: number,
                time: state.time,
                block: block_text(&state, block),
                new: new.collect(),
                left_out: left_out.clone(),
            });
            let why = left_out
                .into_iter()
                .map(|patch| (patch, obstacle(&state, block, patch)));
            left.insert(block, why.collect());
        }
        state.apply(&record);
    }
    Ok(found)
}

fn is_wanted(state: &State, block: u32, wanted: u64) -> bool {
    let place = state.place(block);
    place.is_some_and(|at| at.offset_bytes / u64::from(at.len_bytes.max(1)) == wanted)
}

/// What keeps a patch out of a version of its block: the nearest patch elsewhere that it waits for.
fn obstacle(state: &State, block: u32, patch: u64) -> String {
    let (mut queue, mut at) = (vec![patch], 0);
    let mut seen = BTreeSet::from([patch]);
    while let Some(number) = queue.get(at).copied() {
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
        if version.new.is_empty() {
            out += "  with nothing new\n";
        }
        if !version.left_out.is_empty() {
            out += &format!("  without {}\n", list(&version.left_out));
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
