//! The trait that every mechanism implements, and the three that need no disk space of their own.

use std::fmt;
use std::str::FromStr;

use backstitch_store::{BlockClass, PatchId};

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
    pub class: BlockClass,
    /// It changes nothing but times that move along with something else: nobody asked for them.
    pub is_implied_times: bool,
}

impl PatchSpec {
    pub(crate) fn new(block: u64, class: BlockClass) -> PatchSpec {
        PatchSpec {
            block,
            class,
            is_implied_times: false,
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
    fn transform(&mut self, _spec: &PatchSpec, _dependencies: &mut Vec<PatchId>) {}

    /// Whether the patch keeps its undo data where it could do without: its block can then be written without it, and without
    /// what it depends on. Worth it where some changes of a block are waited for and others are not.
    fn keeps_undo(&self, _spec: &PatchSpec) -> bool {
        false
    }

    /// The patch was made (or the change merged into a patch that existed).
    fn created(&mut self, _spec: &PatchSpec, _id: PatchId) {}

    /// The operation ends. Appends what must be on stable storage before its caller may be answered.
    fn end(&mut self, _wait_for: &mut Vec<PatchId>) {}

    /// A block was freed: nothing of it is worth writing any more, and mechanisms that copied it must not bring it back.
    fn forget(&mut self, _block: u64) {}

    /// Whether empty patches made by the layout keep their dependencies. Where not, deferred work starts at once.
    fn keeps_order(&self) -> bool {
        true
    }

    /// What is recorded in the image while it is mounted, so that the next mount knows what a crash may have left; `None` where a
    /// crash may leave anything.
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

    fn transform(&mut self, _spec: &PatchSpec, dependencies: &mut Vec<PatchId>) {
        dependencies.clear();
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn crash_record(&self) -> Option<u32> {
        None
    }
}

/// Conventional FFS: what an operation changed of the metadata is on stable storage, in the order that the layout states,
/// before the operation returns. Contents are delayed, as they are there, and so are the pointers to them, the size, frees, and the
/// times that move along with something else.
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

    fn created(&mut self, spec: &PatchSpec, id: PatchId) {
        if spec.class != BlockClass::Data && !spec.is_implied_times && !self.delayed {
            self.made.push(id);
        }
    }

    /// Creating a file waits for its inode, not for the contents of the one beside it in the table, which the other's pointers
    /// wait for.
    fn keeps_undo(&self, spec: &PatchSpec) -> bool {
        spec.class != BlockClass::Data
    }

    fn end(&mut self, wait_for: &mut Vec<PatchId>) {
        wait_for.append(&mut self.made);
    }

    fn crash_record(&self) -> Option<u32> {
        Some(2)
    }
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
}

impl MechanismKind {
    /// Makes one.
    pub fn make(self) -> Box<dyn Mechanism> {
        match self {
            MechanismKind::Soft => Box::new(Soft),
            MechanismKind::Async => Box::new(Async),
            MechanismKind::Sync => Box::<SyncMechanism>::default(),
        }
    }
}

impl fmt::Display for MechanismKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.make().name())
    }
}

impl FromStr for MechanismKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "soft" => Ok(MechanismKind::Soft),
            "async" => Ok(MechanismKind::Async),
            "sync" => Ok(MechanismKind::Sync),
            _ => Err(format!(
                "unknown ordering '{name}': this version has soft, async, sync"
            )),
        }
    }
}
