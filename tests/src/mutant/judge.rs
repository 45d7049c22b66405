//! Compares our repair with e2fsck's, for the same damaged image.

use super::base::Base;
use super::child::{Ended, Memory, run};
use super::damage::damage;
use super::walk::{Kept, Tree};
use crate::command::{backstitch, tool};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time limit of each command.
const LIMIT: Duration = Duration::from_secs(20);
/// The memory limit of each command.
pub const MEMORY_BYTES: u64 = 300 << 20;

/// How much we kept, compared with e2fsck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// More than e2fsck.
    More,
    /// As much.
    Same,
    /// As much, but less of it at its path.
    FewerNamed,
    /// Less, but e2fsck ignored the journal's checksums and replayed a transaction that is damaged
    /// according to them.
    Unchecked,
    /// Less.
    Fewer,
    /// Neither we nor e2fsck would repair it.
    BothRefused,
    /// We would not repair what e2fsck repairs.
    Refused,
}

/// A fault of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Less was kept than e2fsck keeps.
    Fewer,
    /// As much was kept, but less of it at its path.
    FewerNamed,
    /// Something that e2fsck repairs was not repaired.
    Refused,
    /// Something was left that e2fsck repairs.
    Left,
    /// We called it clean, e2fsck does not.
    NotCleanForE2fsck,
    /// We called it clean, and afterwards no longer.
    NotCleanForUs,
    /// We ended by a panic or a signal.
    Died,
    /// A command took too long.
    Hang,
    /// A command used too much memory.
    Memory,
}

/// The judgement on a mutant.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The kind of its base.
    pub kind: &'static str,
    /// The seed of its damages.
    pub seed: u64,
    /// What was damaged.
    pub damages: Vec<String>,
    /// How much we kept.
    pub class: Class,
    /// Our faults, each with a description.
    pub faults: Vec<(Fault, String)>,
    /// The number of names before the damage.
    pub whole: usize,
    /// What we kept.
    pub ours: Kept,
    /// What e2fsck kept.
    pub theirs: Kept,
    /// Our repair.
    pub repair: Ended,
    /// e2fsck's repair.
    pub e2fsck: Ended,
    /// Some of the paths that we lost.
    pub missing: Vec<String>,
}

impl Judgement {
    /// A line of JSON, for mutants with faults.
    pub fn line(&self) -> Value {
        let names = |list: &[(Fault, String)]| -> Vec<String> {
            list.iter()
                .map(|(fault, why)| format!("{fault:?}: {why}"))
                .collect()
        };
        let mutant = format!("{}:{}", self.kind, self.seed);
        json!({
            "mutant": mutant,
            "damages": self.damages,
            "faults": names(&self.faults),
            "class": format!("{:?}", self.class),
            "whole": self.whole,
            "ours": [self.ours.named, self.ours.kept],
            "e2fsck": [self.theirs.named, self.theirs.kept],
            "exit": [self.repair.code, self.e2fsck.code],
            "missing": self.missing.iter().take(5).collect::<Vec<_>>(),
            "repeat": format!("MUTANT={mutant} KEEP=DIR cargo test -p backstitch-tests --test mutants -- --nocapture"),
        })
    }
}

/// The directory for the images of one mutant, and the measurement of memory.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Where the images are.
    pub dir: PathBuf,
    /// The memory of all commands.
    pub memory: &'a Memory,
}

impl Bench<'_> {
    /// Damages a base by a seed, repairs it in both ways, and compares. The images are kept until
    /// the next mutant; `damaged.img` only with `keep`.
    ///
    /// # Panics
    ///
    /// If the host fails.
    pub fn judge(&self, base: &Base, seed: u64, keep: bool) -> Judgement {
        let by_seed = |file: &File| damage(file, &base.atlas, seed);
        let judgement = self.judge_damage(base, &by_seed, keep);
        Judgement { seed, ..judgement }
    }

    /// As [`judge`](Self::judge), with damage made by hand.
    ///
    /// # Panics
    ///
    /// If the host fails.
    pub fn judge_damage(
        &self,
        base: &Base,
        damage: &dyn Fn(&File) -> Vec<String>,
        keep: bool,
    ) -> Judgement {
        let (ours, theirs) = (self.dir.join("ours.img"), self.dir.join("theirs.img"));
        let make = |path: &Path| damage(&base.copy(path));
        let damages = make(&ours);
        make(&theirs);
        if keep {
            make(&self.dir.join("damaged.img"));
        }
        let repair = self.run(backstitch().args(["fsck", "-y"]).arg(&ours));
        let e2fsck = self.run(tool("e2fsck").arg("-fy").arg(&theirs));
        let (ours_tree, theirs_tree) = (Tree::of(&ours), Tree::of(&theirs));
        let mut judgement = Judgement {
            kind: base.name,
            seed: 0,
            damages,
            class: Class::Same,
            faults: Vec::new(),
            whole: base.right.kept(&base.right).kept,
            ours: ours_tree.kept(&base.right),
            theirs: theirs_tree.kept(&base.right),
            missing: ours_tree.missing(&base.right),
            repair,
            e2fsck,
        };
        judgement.class = class(&judgement);
        self.faults(&mut judgement, &ours);
        judgement
    }

    fn run(&self, command: &mut Command) -> Ended {
        run(command.env("TMPDIR", &self.dir), LIMIT, self.memory)
    }

    fn faults(&self, judgement: &mut Judgement, ours: &Path) {
        let mut faults = endings("fsck -y", &judgement.repair);
        let (o, t) = (judgement.ours, judgement.theirs);
        let repaired = is_repaired(&judgement.e2fsck);
        match judgement.class {
            Class::More | Class::Same | Class::Unchecked | Class::BothRefused => {}
            Class::FewerNamed => {
                faults.push((
                    Fault::FewerNamed,
                    format!("{} at their path, e2fsck {}", o.named, t.named),
                ));
            }
            Class::Fewer => faults.push((Fault::Fewer, format!("{}, e2fsck {}", o.kept, t.kept))),
            Class::Refused => {
                let words = judgement.repair.output.lines().last().unwrap_or_default();
                faults.push((Fault::Refused, words.to_owned()));
            }
        }
        match judgement.repair.code {
            Some(code) if code & 4 != 0 && repaired => {
                let words = judgement.repair.output.lines().last().unwrap_or_default();
                faults.push((Fault::Left, words.to_owned()));
            }
            Some(0 | 1) => {
                let check = self.run(tool("e2fsck").arg("-fn").arg(ours));
                if check.code != Some(0) {
                    faults.push((Fault::NotCleanForE2fsck, complaint(&check)));
                }
                let check = self.run(backstitch().args(["fsck", "-n"]).arg(ours));
                faults.extend(endings("fsck -n", &check));
                if check.code != Some(0) {
                    faults.push((Fault::NotCleanForUs, complaint(&check)));
                }
            }
            _ => {}
        }
        judgement.faults = faults;
    }

    /// Moves the images to a user's directory.
    ///
    /// # Panics
    ///
    /// If the host refuses.
    pub fn keep(&self, to: &Path) {
        fs::create_dir_all(to).expect("cannot make a directory");
        for name in ["damaged.img", "ours.img", "theirs.img"] {
            let (from, to) = (self.dir.join(name), to.join(name));
            let mut copy = tool("cp");
            crate::command::run(copy.arg("--sparse=always").arg(from).arg(to)).expect_success();
        }
    }
}

fn is_repaired(e2fsck: &Ended) -> bool {
    e2fsck.code.is_some_and(|code| code & !3 == 0)
}

fn class(judgement: &Judgement) -> Class {
    let (ours, theirs) = (judgement.ours, judgement.theirs);
    let refused = judgement.repair.code.is_none_or(|code| code & !7 != 0);
    match (refused, is_repaired(&judgement.e2fsck)) {
        // e2fsck knows a feature that we do not. The refusal leaves the image for tools that do.
        (true, true)
            if ours == theirs && judgement.repair.output.contains("unsupported feature") =>
        {
            Class::BothRefused
        }
        (true, true) => Class::Refused,
        (true, false) => Class::BothRefused,
        // e2fsck gave the image up, so what can still be seen in it does not count as kept.
        (false, false) if ours.kept > 0 => Class::More,
        _ if ours.kept < theirs.kept && is_unchecked(judgement) => Class::Unchecked,
        _ if ours.kept < theirs.kept => Class::Fewer,
        _ if ours.kept > theirs.kept => Class::More,
        _ if ours.named < theirs.named => Class::FewerNamed,
        _ if ours.named > theirs.named => Class::More,
        _ => Class::Same,
    }
}

/// Whether only e2fsck replayed a transaction with a wrong checksum. If a journal inside a file
/// system has several users, e2fsck takes it for one of version 1, which has no checksums. What it
/// writes home then may be anything.
fn is_unchecked(judgement: &Judgement) -> bool {
    let (ours, theirs) = (&judgement.repair.output, &judgement.e2fsck.output);
    theirs.contains("Clearing fields beyond the V1 journal superblock")
        && ours.contains("a torn transaction at the journal's end does not count")
}

/// Faults in the way a command ended.
fn endings(what: &str, ended: &Ended) -> Vec<(Fault, String)> {
    let mut faults = Vec::new();
    if ended.timed_out {
        faults.push((Fault::Hang, format!("{what}: {:.0?}", ended.elapsed)));
    } else if ended.code.is_none_or(|code| code > 31) || ended.output.contains("panicked") {
        faults.push((Fault::Died, format!("{what}: {}", complaint(ended))));
    }
    if let Some(bytes) = ended.memory_bytes {
        faults.push((
            Fault::Memory,
            format!("{what}, or e2fsck, had {} MiB", bytes >> 20),
        ));
    }
    faults
}

/// The first lines that say something.
fn complaint(ended: &Ended) -> String {
    let is_said = |line: &&str| {
        let is_chatter = ["e2fsck ", "Pass ", "Warning! "]
            .iter()
            .any(|start| line.starts_with(start));
        !line.trim().is_empty() && !is_chatter
    };
    let lines: Vec<&str> = ended.output.lines().filter(is_said).take(3).collect();
    format!("exit {:?}: {}", ended.code, lines.join(" | "))
}
