//! What an exploration found: the same for a file system, a program and a device.
//!
//! A report serialises to JSON, and [`Report::to_html`] makes a page of it. The page is the same
//! for the same seed, byte for byte: rates are in the JSON only.

pub mod graph;
mod html;

use graph::Graph;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Our own file system.
    Fs,
    /// A program on a mount.
    App,
    /// The recorded writes of any device.
    Device,
}

/// How far an exploration has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// States that were visited.
    pub done: u64,
    /// States to visit.
    pub of: u64,
    /// Those that failed so far.
    pub failed: u64,
}

/// What became of a block in a failing state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockState {
    /// It reached the disk.
    #[serde(rename = "on disk")]
    OnDisk,
    /// It did not.
    #[serde(rename = "missing")]
    Missing,
    /// Some of its sectors did.
    #[serde(rename = "torn")]
    Torn,
}

impl BlockState {
    /// The word that JSON and people see.
    pub fn word(self) -> &'static str {
        match self {
            BlockState::OnDisk => "on disk",
            BlockState::Missing => "missing",
            BlockState::Torn => "torn",
        }
    }
}

/// A block that was in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its number. For a recording of a device, the write's offset in units of 4,096 bytes.
    pub block: u64,
    /// What it was to hold, or which write of the recording it was.
    pub what: String,
    /// What became of it.
    pub state: BlockState,
}

/// A state that is not right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What is wrong, in the judge's words.
    pub verdict: String,
    /// What was done before the cut.
    pub operations: Vec<String>,
    /// The moment of the power cut, in words.
    pub cut: String,
    /// What was in flight, and what became of it.
    pub blocks: Vec<Block>,
    /// The command that makes this state again.
    pub replay: String,
    /// Whether nothing smaller was found to fail.
    pub minimised: bool,
    /// The patches of that moment, and the order that is missing among them. `None` where the mount
    /// has no patch graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Graph>,
}

/// How often the code came to a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounts {
    /// In all.
    pub reached: u64,
    /// Where what had to be waited for was not on stable storage yet.
    pub pending: u64,
    /// Where because of it something was left out of a write.
    pub rolled_back: u64,
    /// In recovery, or in the life after a crash.
    pub after_remount: u64,
    /// Where the code says that other rules imply it, and they did.
    pub implied: u64,
    /// Where the code says so and they did not: the code is wrong.
    pub not_implied: u64,
}

impl RuleCounts {
    /// Adds what another exploration counted.
    pub fn add(&mut self, more: &RuleCounts) {
        self.reached += more.reached;
        self.pending += more.pending;
        self.rolled_back += more.rolled_back;
        self.after_remount += more.after_remount;
        self.implied += more.implied;
        self.not_implied += more.not_implied;
    }
}

/// What an exploration found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was explored.
    pub kind: Kind,
    /// The command that makes this report.
    pub command: String,
    /// The seed of the samples.
    pub seed: u64,
    /// States that were looked at.
    pub states: u64,
    /// States that differ from each other, each of which was checked.
    pub distinct: u64,
    /// Whether these are all there are.
    pub exhaustive: bool,
    /// A sentence: exhaustive or sampled, and of what.
    pub explored: String,
    /// States that are not right, reduced to the smallest that were found.
    pub failures: Vec<Failure>,
    /// The most leaks of any state, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaks_max: Option<u64>,
    /// States visited in a second. Not shown on the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states_per_second: Option<f64>,
    /// How often something was seen, by names with underscores between words.
    pub coverage: BTreeMap<String, u64>,
    /// How often the code came to each rule of the file system, by the rule's name; `None` if that
    /// was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<BTreeMap<String, RuleCounts>>,
    /// What a reader has to know about these results.
    pub notes: Vec<String>,
}

impl Report {
    /// An empty report.
    pub fn new(kind: Kind, command: String, seed: u64) -> Self {
        Self {
            kind,
            command,
            seed,
            states: 0,
            distinct: 0,
            exhaustive: false,
            explored: String::new(),
            failures: Vec::new(),
            leaks_max: None,
            states_per_second: None,
            coverage: BTreeMap::new(),
            rules: None,
            notes: Vec::new(),
        }
    }

    /// How many states failed. Where many failed, only one of each kind is among the failures.
    pub fn failed_states(&self) -> u64 {
        let counted = self.coverage.get("states_that_failed").copied();
        let shown = self.failures.len() as u64;
        counted.map_or(shown, |counted| counted.max(shown))
    }

    /// Whether every state is right.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty()
    }

    /// The report as an HTML page that needs no other files.
    pub fn to_html(&self) -> String {
        html::page(self)
    }
}
