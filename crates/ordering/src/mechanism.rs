//! The trait that every mechanism implements, and the three that need no disk space of their own.

use std::fmt;
use std::str::FromStr;

use backstitch_store::{BlockClass, BlockKind, PatchId, Store};

use crate::log::Log;
use crate::rules::{Rule, holds};

/// What an operation is about, for mechanisms that log operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A change of one or more names (create, link, unlink, rename).
    Names,
    /// A change of an inode's attributes.
    Attributes,
    /// A change of a file's contents or length.
    Contents,
    /// Deferred frees and other work that nobody waits for.
    Background,
    /// Mounting, recovery, unmounting.
    Administration,
}

/// A patch that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchSpec {
    /// The block, in the volume.
    pub block: u64,
    /// What the block holds.
    pub kind: BlockKind,
    /// It changes nothing but times that move along with something else: nobody asked for them.
    pub is_implied_times: bool,
    /// It is made under a patchgroup, whose order must hold.
    pub is_grouped: bool,
    /// Nothing on the disk leads to it yet.
    pub is_hidden: bool,
    /// It is to stand apart from others of its block.
    pub is_apart: bool,
}

impl PatchSpec {
    pub(crate) fn new(block: u64, kind: impl Into<BlockKind>) -> PatchSpec {
        PatchSpec {
            block,
            kind: kind.into(),
            is_implied_times: false,
            is_grouped: false,
            is_hidden: false,
            is_apart: false,
        }
    }
}

/// A consistency mechanism of one volume.
pub trait Mechanism: Send {
    /// Its name, as `--ordering` takes it.
    fn name(&self) -> &'static str;

    /// An operation begins to change things.
    fn begin(&mut self, _operation: Operation) {}

    /// A patch is about to be made; `dependencies` are the layout's and may be changed.
    fn transform(
        &mut self,
        _store: &mut Store,
        _spec: &PatchSpec,
        _dependencies: &mut Vec<PatchId>,
    ) {
    }

    /// The run that a change which depends on `dependencies` is to join (`PatchId::COMMITTED`: a
    /// new one), or `None` where it is to be a patch of its own; see `Graph::create_in_run`.
    /// `offered`: the layout makes what depends on it depend on this run anyhow.
    fn run(
        &mut self,
        _store: &Store,
        _spec: &PatchSpec,
        offered: Option<PatchId>,
        dependencies: &[PatchId],
    ) -> Option<PatchId> {
        offered.filter(|_| dependencies.is_empty())
    }

    /// Whether the patch keeps its undo data where it could do without: its block can then be
    /// written without it, and without what it depends on. Worth it where some changes of a block
    /// are waited for and others are not.
    fn keeps_undo(&self, _spec: &PatchSpec) -> bool {
        false
    }

    /// The patch was made (or the change merged into a patch that existed). Returns what the layout
    /// is to know it by: whatever is on stable storage only once the change is there *for good*.
    fn created(&mut self, _spec: &PatchSpec, id: PatchId) -> PatchId {
        id
    }

    /// The layout puts something off, under this token. True where the mechanism will report it
    /// itself, by [`take_fired`](Self::take_fired).
    fn watch(&mut self, _token: u64) -> bool {
        false
    }

    /// The tokens of [`watch`](Self::watch) whose time has come.
    fn take_fired(&mut self, _into: &mut Vec<u64>) {}

    /// Whether what a scope changes reaches the disk as a whole or not at all.
    fn scopes_are_atomic(&self) -> bool {
        false
    }

    /// Blocks that the scope under way may change, where what reaches the disk as a whole is
    /// bounded; when that is being ended, what was put off until then.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// What was put off until the end of what reaches the disk as a whole will change this block.
    fn expect(&mut self, _block: u64) {}

    /// The mechanism's log, for the driver of its commits; `None` where it has none.
    fn log(&mut self) -> Option<&mut dyn Log> {
        None
    }

    /// The operation ends. Appends what must be on stable storage before its caller may be
    /// answered.
    fn end(&mut self, _wait_for: &mut Vec<PatchId>) {}

    /// A block was freed, and mechanisms that copied it must not bring it back. Whether nothing of
    /// it is worth writing any more; not so where the disk may come to show what was freed without
    /// showing that it was.
    fn forget(&mut self, _block: u64) -> bool {
        true
    }

    /// Whether empty patches made by the layout keep their dependencies. Where not, deferred work
    /// starts at once.
    fn keeps_order(&self) -> bool {
        true
    }

    /// What is recorded in the image while it is mounted, so that the next mount knows what a crash
    /// may have left; `None` where a crash may leave anything.
    fn crash_record(&self) -> Option<u32>;
}

/// Soft updates: the layout's dependencies, as they are.
#[derive(Debug, Default)]
pub struct Soft;

impl Mechanism for Soft {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn crash_record(&self) -> Option<u32> {
        Some(1)
    }
}

/// No order at all: the upper bound on speed, and no promise after a crash.
#[derive(Debug, Default)]
pub struct Async;

impl Mechanism for Async {
    fn name(&self) -> &'static str {
        "async"
    }

    fn transform(
        &mut self,
        _store: &mut Store,
        _spec: &PatchSpec,
        dependencies: &mut Vec<PatchId>,
    ) {
        dependencies.clear();
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn crash_record(&self) -> Option<u32> {
        None
    }
}

/// Conventional FFS: what an operation changed of the metadata is on stable storage, in the order
/// that the layout states, before the operation returns. Contents are delayed, as they are there,
/// and so are the pointers to them, the size, frees, and the times that move along with something
/// else.
#[derive(Debug, Default)]
pub struct SyncMechanism {
    made: Vec<PatchId>,
    delayed: bool,
}

impl Mechanism for SyncMechanism {
    fn name(&self) -> &'static str {
        "sync"
    }

    fn begin(&mut self, operation: Operation) {
        self.made.clear();
        self.delayed = matches!(operation, Operation::Background | Operation::Contents);
    }

    fn created(&mut self, spec: &PatchSpec, id: PatchId) -> PatchId {
        if spec.kind.class != BlockClass::Data && !spec.is_implied_times && !self.delayed {
            self.made.push(id);
        }
        id
    }

    /// Creating a file waits for its inode, not for the contents of the one beside it in the table,
    /// which the other's pointers wait for.
    fn keeps_undo(&self, spec: &PatchSpec) -> bool {
        spec.kind.class != BlockClass::Data
    }

    fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        if holds(Rule::SyncAnswersOnceStable) {
            wait_for.append(&mut self.made);
        }
    }

    fn crash_record(&self) -> Option<u32> {
        Some(2)
    }
}

/// What of a file's contents goes through a journal, and when the rest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMode {
    /// Metadata only; contents at any time.
    Writeback,
    /// Metadata only; contents before the transaction that refers to them.
    Ordered,
    /// Contents too.
    Full,
}

/// The mechanisms by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MechanismKind {
    /// [`Soft`].
    #[default]
    Soft,
    /// [`Async`].
    Async,
    /// [`SyncMechanism`].
    Sync,
    /// A journal of the file system's own, which each mount of it finds.
    Journal(JournalMode),
}

impl MechanismKind {
    /// All of them.
    pub const ALL: [MechanismKind; 6] = [
        MechanismKind::Soft,
        MechanismKind::Async,
        MechanismKind::Sync,
        MechanismKind::Journal(JournalMode::Writeback),
        MechanismKind::Journal(JournalMode::Ordered),
        MechanismKind::Journal(JournalMode::Full),
    ];

    /// Makes one; `None` for a journal, which cannot be made without its place.
    pub fn make(self) -> Option<Box<dyn Mechanism>> {
        Some(match self {
            MechanismKind::Soft => Box::new(Soft),
            MechanismKind::Async => Box::new(Async),
            MechanismKind::Sync => Box::<SyncMechanism>::default(),
            MechanismKind::Journal(_) => return None,
        })
    }

    /// Its name, as `--ordering` takes it.
    pub fn name(self) -> &'static str {
        match self {
            MechanismKind::Soft => "soft",
            MechanismKind::Async => "async",
            MechanismKind::Sync => "sync",
            MechanismKind::Journal(JournalMode::Writeback) => "journal=writeback",
            MechanismKind::Journal(JournalMode::Ordered) => "journal=ordered",
            MechanismKind::Journal(JournalMode::Full) => "journal=full",
        }
    }
}

impl fmt::Display for MechanismKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MechanismKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = MechanismKind::ALL.into_iter().find(|k| k.name() == name);
        found.ok_or_else(|| {
            let known = MechanismKind::ALL.map(MechanismKind::name).join(", ");
            format!("unknown ordering '{name}': this version has {known}")
        })
    }
}
