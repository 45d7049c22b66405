//! What a program can rely on under a mechanism, measured: every crash of small scripts is tried,
//! and the states that it leaves are looked at, not judged.
//!
//! The explorer knows what a mechanism promises and looks for a state that breaks it. Here nothing
//! is known in advance. A script asks whether a call is on the disk when it returns, whether a call
//! can be lost while a later one is there, or what a rename shows half way. The answer is what
//! *all* crash states have in common. These are tables 1 and 2 of Seltzer et al. 2000, for our
//! mechanisms.
//!
//! The result is then compared with what the mechanism promises ([`Semantics::broken`]).

mod promised;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use backstitch_crash_core::classes::Choices;
use backstitch_crash_core::closed::{self, Bounds, Coverage};
use backstitch_crash_core::formatted::ImageOptions;
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Mount, Nobody, Watcher, replayed};
use backstitch_crash_core::operation::{Operation, parse_script};
use backstitch_crash_core::parts::parts;
use backstitch_crash_core::schedule::Schedule;
use backstitch_layout::tools::{CheckOptions, Kind};
use backstitch_layout::{Attributes, Error, InodeNumber};
use backstitch_mechanisms::Ordering;
use backstitch_store::{Batch, Optimisations};
use fastrand::Rng as Random;
use rustc_hash::FxHashSet;

use crate::arrival::{Pieces, arriving};
use crate::explore::{Plan, Spectator, run};
use crate::model::Model;
use crate::promises::read_file;

/// Calls: name, operations before it, the call, and what shows that it was done.
const CALLS: &[(&str, &str, &str, Look)] = &[
    ("creat", "mkdir d", "creat d/f", Look::There("d/f")),
    ("mkdir", "mkdir d", "mkdir d/e", Look::There("d/e")),
    ("symlink", "mkdir d", "symlink to d/s", Look::There("d/s")),
    ("link", "mkdir d; creat f", "link f d/g", Look::There("d/g")),
    (
        "rename",
        "mkdir d; creat f",
        "rename f d/g",
        Look::Moved("f", "d/g"),
    ),
    (
        "unlink",
        "mkdir d; creat d/f",
        "unlink d/f",
        Look::Gone("d/f"),
    ),
    (
        "rmdir",
        "mkdir d; mkdir d/e",
        "rmdir d/e",
        Look::Gone("d/e"),
    ),
    ("chmod", "creat f", "chmod f 600", Look::Mode("f", 0o600)),
];

/// Operations before a call, and the call, after which contents should be on the disk.
const FSYNC: (&str, &str) = ("creat f", "write f 0 900; fsync f");
/// The same without `fsync`.
const WRITE: (&str, &str) = ("creat f", "write f 0 900");
/// A new file with contents.
const NEW_FILE: &str = "creat f; write f 0 900";
/// Replacing a file's contents by a rename, as programs do without an fsync: the old file, and the
/// calls.
const REPLACED: &str = "creat g; write g 0 700";
const REPLACING: &str = "creat f; write f 0 900; rename f g";
/// The same where the new file's name is on the disk before its contents: whatever may be written
/// back was, while the program did something else.
const REPLACED_LATER: &str = "creat g; write g 0 700; creat f";
const REPLACING_LATER: &str = "write f 0 900; rename f g";
/// A file that is recognised by its permissions, and a rename of it over another file.
const RENAMED: (&str, &str) = ("creat f; creat g; chmod f 600", "rename f g");
const RENAMED_MODE: u16 = 0o600;
/// Up to this many sets of patches of a moment are all looked at; of more, this many samples.
const EXHAUSTIVE: usize = 4096;
const SAMPLES: usize = 256;

/// Pairs of calls: name, operations before them, both calls, what shows the second, what shows the
/// first.
const PAIRS: &[(&str, &str, &str, Look, Look)] = &[
    (
        "names in two directories",
        "mkdir a; mkdir b",
        "creat a/f; creat b/g",
        Look::There("b/g"),
        Look::There("a/f"),
    ),
    (
        "a removal after a name",
        "mkdir a; mkdir b; creat a/f",
        "creat b/g; unlink a/f",
        Look::Gone("a/f"),
        Look::There("b/g"),
    ),
];

/// A question about a state.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// This name exists.
    There(&'static str),
    /// This name does not exist.
    Gone(&'static str),
    /// The second name exists, and the first one does not.
    Moved(&'static str, &'static str),
    /// The object with this name has these permissions.
    Mode(&'static str, u16),
}

/// What was measured of a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semantics {
    /// The mechanism.
    pub ordering: Ordering,
    /// The calls on names and attributes that were tried, each with whether it is on the disk when
    /// it returns.
    pub durable: Vec<(&'static str, bool)>,
    /// Whether contents are on the disk when `fsync` returns.
    pub fsync_is_durable: bool,
    /// Whether contents are on the disk when `write` returns.
    pub write_is_durable: bool,
    /// For each pair of calls, whether the second is never there without the first.
    pub ordered: Vec<(&'static str, bool)>,
    /// Whether a new file can have its length without its contents.
    pub shows_stale: bool,
    /// Whether a name that was replaced by a rename without an fsync can have neither the old
    /// contents nor the new ones.
    pub replacing_loses: bool,
    /// The same where the file that is renamed was on the disk, empty, before it was written to.
    pub replacing_later_loses: bool,
    /// What a rename over a name can show besides the state before it and the one after it.
    pub half_renamed: BTreeSet<Half>,
    /// The worst that a check finds in a state that a crash left.
    pub left: Damage,
    /// The same after the replay of the log, if there is one.
    pub recovered: Damage,
    /// The number of crash states that were looked at.
    pub states: u64,
    /// Moments of which only a sample of the states was looked at.
    pub sampled_moments: u64,
}

/// What a crash may show of a rename that is half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// Both names, of the same file.
    BothNames,
    /// The name that is replaced is missing.
    NoTarget,
    /// Neither name leads to the renamed file.
    NoFile,
}

/// How bad the findings of a check are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// A check finds nothing.
    #[default]
    None,
    /// Space that nothing uses, or counts that can be recomputed.
    Leaks,
    /// Anything else.
    Corruption,
    /// The image cannot even be checked or mounted.
    Unreadable,
}

/// Measures a mechanism.
///
/// # Errors
/// If the engine fails, which is a fault of this program.
pub fn measure(ordering: Ordering) -> Result<Semantics, Error> {
    let mut lab = Lab::new(ordering)?;
    let mut durable = Vec::new();
    for (name, setup, call, look) in CALLS {
        let is_durable = lab.always(When::After, setup, call, &|mount| look.holds(mount))?;
        durable.push((*name, is_durable));
    }
    let mut contents_durable = Vec::new();
    for (setup, call) in [FSYNC, WRITE] {
        let wanted = written(setup, call);
        let is_durable = lab.always(When::After, setup, call, &|mount| {
            Ok(contents(mount, "f")? == Some(wanted.clone()))
        })?;
        contents_durable.push(is_durable);
    }
    let mut ordered = Vec::new();
    for (name, setup, calls, second, first) in PAIRS {
        let is_ordered = lab.always(When::During, setup, calls, &|mount| {
            Ok(!second.holds(mount)? || first.holds(mount)?)
        })?;
        ordered.push((*name, is_ordered));
    }
    let shows_stale = !lab.always(When::During, "creat g", NEW_FILE, &|mount| {
        let seen = contents(mount, "f")?.unwrap_or_default();
        Ok(seen.is_empty() || seen == written("creat g", NEW_FILE))
    })?;
    let replacing_loses = lab.replacing_loses(REPLACED, REPLACING)?;
    let replacing_later_loses = lab.replacing_loses(REPLACED_LATER, REPLACING_LATER)?;
    let half_renamed = lab.half_renamed()?;
    Ok(Semantics {
        ordering,
        durable,
        fsync_is_durable: contents_durable[0],
        write_is_durable: contents_durable[1],
        ordered,
        shows_stale,
        replacing_loses,
        replacing_later_loses,
        half_renamed,
        left: lab.left,
        recovered: lab.recovered,
        states: lab.states,
        sampled_moments: lab.sampled_moments,
    })
}

impl Look {
    fn holds(self, mount: &mut Mount) -> Result<bool, Error> {
        Ok(match self {
            Look::There(path) => find(mount, path)?.is_some(),
            Look::Gone(path) => find(mount, path)?.is_none(),
            Look::Moved(from, to) => find(mount, from)?.is_none() && find(mount, to)?.is_some(),
            Look::Mode(path, bits) => match find(mount, path)? {
                Some(inode) => attributes(mount, inode)?.permissions == bits,
                None => false,
            },
        })
    }
}

/// The operations of a script of this module.
fn parsed(script: &str) -> Vec<Operation> {
    parse_script(script).unwrap_or_else(|error| unreachable!("{error}"))
}

/// The bytes that the calls write into a file. They depend on the number of the operation.
fn written(setup: &str, calls: &str) -> Vec<u8> {
    let first = parsed(setup).len() + usize::from(!setup.is_empty());
    let mut bytes = Vec::new();
    for (number, operation) in parsed(calls).iter().enumerate() {
        if let Operation::Write(_, at, data) = operation {
            bytes = data.bytes(first + number, *at);
        }
    }
    bytes
}

/// The inode at a path.
fn find(mount: &mut Mount, path: &str) -> Result<Option<InodeNumber>, Error> {
    let mut inode = mount.fs.root();
    for name in path.split('/') {
        match mount.look(|fs, v, _| fs.lookup(v, inode, name.as_bytes())) {
            Ok(found) => inode = found,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(inode))
}

fn attributes(mount: &mut Mount, inode: InodeNumber) -> Result<Attributes, Error> {
    mount.look(|fs, v, _| fs.attributes(v, inode))
}

/// All bytes of a file; `None` if there is no such name.
fn contents(mount: &mut Mount, path: &str) -> Result<Option<Vec<u8>>, Error> {
    let Some(inode) = find(mount, path)? else {
        return Ok(None);
    };
    let size_bytes = attributes(mount, inode)?.size_bytes;
    let read = read_file(mount, inode, 0..size_bytes)?;
    let bytes = (0..size_bytes).map(|at| read.byte(at).unwrap_or(0));
    Ok(Some(bytes.collect()))
}

/// From when on states are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// From the first of the calls on.
    During,
    /// Once all of them have returned.
    After,
}

/// Runs scripts under a mechanism, and keeps what all of them showed.
struct Lab {
    plan: Plan,
    image: Fork,
    left: Damage,
    recovered: Damage,
    states: u64,
    sampled_moments: u64,
}

impl Lab {
    fn new(ordering: Ordering) -> Result<Lab, Error> {
        let image = ImageOptions::default().make_for(ordering);
        let image = image.map_err(|error| Error::Unsupported(error.to_string()))?;
        Ok(Lab {
            plan: Plan {
                ordering,
                optimisations: Optimisations::BOTH,
                schedule: Schedule::Nothing,
                seed: 1,
                torn: false,
                drive: None,
                unit_bytes: None,
                exhaustive: EXHAUSTIVE,
                samples: SAMPLES,
                whole_every: 0,
                in_use_every: 0,
                most_states: u64::MAX,
                most_new: u64::MAX,
            },
            image,
            left: Damage::None,
            recovered: Damage::None,
            states: 0,
            sampled_moments: 0,
        })
    }

    /// Whether something holds in every state that a crash can leave. States that cannot be mounted
    /// are left out, since they show nothing.
    fn always(
        &mut self,
        when: When,
        setup: &str,
        calls: &str,
        holds: &dyn Fn(&mut Mount) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut always = true;
        self.each(when, setup, calls, &mut |mount| {
            always &= holds(mount)?;
            Ok(())
        })?;
        Ok(always)
    }

    /// Whether `g`, which the setup writes and the calls replace, can have neither the old bytes
    /// nor the new ones.
    fn replacing_loses(&mut self, setup: &str, calls: &str) -> Result<bool, Error> {
        let (old, new) = (written("", setup), written(setup, calls));
        let is_either = self.always(When::During, setup, calls, &|mount| {
            let seen = contents(mount, "g")?;
            Ok([Some(&old), Some(&new)].contains(&seen.as_ref()))
        })?;
        Ok(!is_either)
    }

    fn half_renamed(&mut self) -> Result<BTreeSet<Half>, Error> {
        let mut halves = BTreeSet::new();
        let (setup, calls) = RENAMED;
        self.each(When::During, setup, calls, &mut |mount| {
            let mut is_file = [false; 2];
            let mut is_there = [false; 2];
            for (at, name) in ["f", "g"].into_iter().enumerate() {
                if let Some(inode) = find(mount, name)? {
                    is_there[at] = true;
                    is_file[at] = attributes(mount, inode)?.permissions == RENAMED_MODE;
                }
            }
            halves.extend(match (is_file, is_there) {
                (_, [_, false]) => Some(Half::NoTarget),
                ([false, false], _) => Some(Half::NoFile),
                ([_, true], [true, _]) => Some(Half::BothNames),
                _ => None,
            });
            Ok(())
        })?;
        Ok(halves)
    }

    /// Calls `look` with each state that a crash can leave.
    fn each(
        &mut self,
        when: When,
        setup: &str,
        calls: &str,
        look: &mut dyn FnMut(&mut Mount) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut operations = parsed(setup);
        operations.push(Operation::Sync);
        let first = operations.len();
        operations.extend(parsed(calls));
        let last = operations.len();
        // An operation must follow, so that the last call has returned before the run ends. A log
        // is tried in both ways: closed before that, and not.
        for end in ["round", "log-close; round"] {
            operations.truncate(last);
            operations.extend(parsed(end));
            self.run(when, (first, last), &operations, look)?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        when: When,
        (first, last): (usize, usize),
        operations: &[Operation],
        look: &mut dyn FnMut(&mut Mount) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let plan = self.plan.clone();
        let image = self.image.clone();
        let mut observer = Observer {
            setup: match when {
                When::During => first,
                When::After => last,
            },
            begun: 0,
            random: Random::with_seed(plan.seed),
            seen: FxHashSet::default(),
            look,
            lab: self,
            refused: None,
        };
        run(&image, operations, &plan, &mut observer)?;
        match observer.refused {
            Some(what) => Err(Error::Unsupported(what)),
            None => Ok(()),
        }
    }

    fn examine(&mut self, state: &Fork, look: &mut dyn FnMut(&mut Mount) -> Result<(), Error>) {
        self.states += 1;
        let ordering = self.plan.ordering;
        self.left = self.left.max(damage(state));
        let brought_home = match ordering.has_log() {
            true => replayed(state).map_or(Damage::Unreadable, |home| damage(&home)),
            false => damage(state),
        };
        let is_read_only = !ordering.promises().keeps_order();
        let looked = Mount::open(state.clone(), self.plan.engine(), is_read_only, &mut Nobody)
            .and_then(|mut mount| look(&mut mount));
        let shown = match looked {
            Ok(()) => Damage::None,
            Err(_) => Damage::Unreadable,
        };
        self.recovered = self.recovered.max(brought_home).max(shown);
    }
}

/// What a check finds.
fn damage(state: &Fork) -> Damage {
    let Ok(report) = state.kind().tools().check(state, &CheckOptions::QUICK) else {
        return Damage::Unreadable;
    };
    match report.findings.iter().map(|finding| finding.kind).max() {
        None => Damage::None,
        Some(Kind::Leak | Kind::Count) => Damage::Leaks,
        Some(Kind::Corruption) => Damage::Corruption,
    }
}

/// Sees the moments of a run.
struct Observer<'l> {
    /// Operations at the beginning that are not looked at.
    setup: usize,
    begun: usize,
    random: Random,
    /// States that were looked at.
    seen: FxHashSet<u128>,
    look: &'l mut dyn FnMut(&mut Mount) -> Result<(), Error>,
    lab: &'l mut Lab,
    /// An operation that failed. No script has one that may.
    refused: Option<String>,
}

impl Spectator for Observer<'_> {
    fn begin(&mut self, _model: Rc<RefCell<Model>>, _engine: Engine) {}

    fn begun(&mut self, operations: usize) {
        self.begun = operations;
    }

    fn refused(&mut self, operation: &Operation, error: &Error) {
        self.refused = Some(format!("{operation}: {error}"));
    }

    fn is_done(&self) -> bool {
        self.refused.is_some()
    }
}

impl Watcher for Observer<'_> {
    fn at_rest(&mut self, mount: &Mount) {
        if self.begun <= self.setup {
            return;
        }
        let Frontier { nodes, mut states } = Frontier::new(&mount.store, mount.fork());
        let bounds = Bounds {
            exhaustive: EXHAUSTIVE,
            samples: SAMPLES,
        };
        let (seen, lab, look) = (&mut self.seen, &mut *self.lab, &mut *self.look);
        let coverage = closed::visit(&nodes, bounds, &mut self.random, &mut |included| {
            if seen.insert(states.fingerprint(&nodes, included)) {
                lab.examine(&states.fork(&nodes, included), look);
            }
        });
        let is_all = coverage == Coverage::Everything && states.is_complete;
        self.lab.sampled_moments += u64::from(!is_all);
    }

    fn in_flight(&mut self, mount: &Mount, batch: &Batch) {
        if self.begun <= self.setup {
            return;
        }
        let disk = mount.fork();
        let arriving = arriving(batch, &disk);
        let is_contents = |part: &crate::arrival::Arriving| mount.holds_contents(part.block);
        let contents: Vec<bool> = arriving.iter().map(is_contents).collect();
        let mut pieces = Pieces::of(&arriving, &contents, &disk, false);
        let (sets, is_all) = parts(&contents, SAMPLES, &mut self.random);
        self.lab.sampled_moments += u64::from(!is_all);
        for included in sets {
            let (state, fingerprint) = pieces.state(&included);
            if self.seen.insert(fingerprint) {
                self.lab.examine(&state, self.look);
            }
        }
    }
}
