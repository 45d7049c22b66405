//! The workloads: what each is, how large it is by default, and how it is drawn from a seed.

mod andrew;
mod fsync;
mod micro;
mod postmark;
mod tar;
mod zero;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::contents::Contents;
use crate::files::{Files, Node};
use crate::tree::PlannedDirectory;
use crate::{Error, Phase, Result};

pub(crate) use micro::{SIZES, file_bytes};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Unpack a source tree as tar does, and sync.
    Untar,
    /// Remove that tree after mounting anew, depth first, and sync.
    Delete,
    /// Katcher's: a pool of small files, transactions on it, removal, sync.
    Postmark,
    /// The modified Andrew benchmark: directories, copy, stat, read, compile, sync.
    Andrew,
    /// Create and delete empty files, one after the other, and sync.
    Zero,
    /// Create files of one size, 50 in a directory, and sync.
    MicroCreate,
    /// Create small files and fsync each, with some writers at a time.
    Fsync,
}

impl Workload {
    /// All that there are.
    pub const ALL: [Workload; 7] = [
        Workload::Untar,
        Workload::Delete,
        Workload::Postmark,
        Workload::Andrew,
        Workload::Zero,
        Workload::MicroCreate,
        Workload::Fsync,
    ];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Untar => "untar",
            Workload::Delete => "delete",
            Workload::Postmark => "postmark",
            Workload::Andrew => "andrew",
            Workload::Zero => "zero",
            Workload::MicroCreate => "micro-create",
            Workload::Fsync => "fsync",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == text)
            .ok_or_else(|| format!("unknown workload '{text}'"))
    }
}

/// How large a workload is. What is `None` is as the papers have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scale {
    /// Files of the tree, of PostMark's pool, or to create and delete: 13,000, 500, 200 (`andrew`),
    /// 50,000 (`zero`), 2,000 (`fsync`); as many as hold the megabytes (`micro-create`).
    pub files: Option<u64>,
    /// What the files hold together, in MiB: 265, 2 (`andrew`), 32 (`micro-create`).
    pub megabytes: Option<f64>,
    /// PostMark's transactions: 500.
    pub transactions: Option<u64>,
    /// PostMark's smallest file: 500. The size of each file of `micro-create`: 2 KiB.
    pub min_bytes: Option<u64>,
    /// PostMark's largest file: 4 MiB.
    pub max_bytes: Option<u64>,
    /// The writers of `fsync`: 1.
    pub writers: Option<u64>,
    /// This part of the default numbers of files, transactions and megabytes.
    pub fraction: Option<f64>,
}

impl Scale {
    /// Whether it is the papers'.
    pub fn is_full(&self) -> bool {
        *self == Scale::default()
    }

    fn count(&self, asked: Option<u64>, full: u64) -> u64 {
        let part = (full as f64 * self.fraction.unwrap_or(1.0)).round() as u64;
        asked.unwrap_or(part.max(1))
    }

    fn tree_bytes(&self, full: f64) -> u64 {
        let part = full * self.fraction.unwrap_or(1.0);
        (self.megabytes.unwrap_or(part) * f64::from(1 << 20)) as u64
    }
}

/// A workload drawn from its seed: everything it will do.
pub(crate) struct Plan {
    kind: PlanKind,
    contents: Arc<Contents>,
}

enum PlanKind {
    Untar(PlannedDirectory),
    Delete(PlannedDirectory),
    Postmark(postmark::Plan),
    Andrew(PlannedDirectory),
    Zero(u64),
    MicroCreate(micro::Plan),
    Fsync(fsync::Plan),
}

impl Plan {
    pub(crate) fn draw(workload: Workload, scale: &Scale, seed: u64) -> Result<Plan> {
        let tree = |name, files, megabytes| {
            let (files, bytes) = (scale.count(scale.files, files), scale.tree_bytes(megabytes));
            PlannedDirectory::draw(name, seed, files, bytes)
        };
        let contents = Arc::new(Contents::new(seed));
        Ok(Plan {
            contents: contents.clone(),
            kind: match workload {
                Workload::Untar => PlanKind::Untar(tree("linux", 13_000, 265.0)?),
                Workload::Delete => PlanKind::Delete(tree("linux", 13_000, 265.0)?),
                Workload::Postmark => PlanKind::Postmark(postmark::Plan::draw(scale, seed)?),
                Workload::Andrew => PlanKind::Andrew(tree("ion", 200, 2.0)?),
                Workload::Zero => PlanKind::Zero(scale.count(scale.files, 50_000)),
                Workload::MicroCreate => PlanKind::MicroCreate(micro::Plan::of(scale)?),
                Workload::Fsync => PlanKind::Fsync(fsync::Plan::of(scale, contents)),
            },
        })
    }

    /// What is to be there before a measurement: true where something was made, so that the file
    /// system is to be mounted anew.
    pub(crate) fn prepare(&self, files: &mut dyn Files, at: Node) -> Result<bool> {
        match &self.kind {
            PlanKind::Delete(tree) => {
                let mut session = Session::new(files, &self.contents, at);
                tar::unpack(&mut session, tree)?;
                session.files.sync()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether there is anything to [`prepare`](Self::prepare).
    pub(crate) fn needs_preparation(&self) -> bool {
        matches!(self.kind, PlanKind::Delete(_))
    }

    /// Does it all, but for the sync at the end.
    pub(crate) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        match &self.kind {
            PlanKind::Untar(tree) => session.phase("unpack", |s| tar::unpack(s, tree)),
            PlanKind::Delete(tree) => {
                session.phase("remove", |s| tar::remove_tree(s, s.root, &tree.name))
            }
            PlanKind::Postmark(plan) => plan.run(session),
            PlanKind::Andrew(tree) => andrew::run(session, tree),
            PlanKind::Zero(files) => session.phase("create-delete", |s| zero::run(s, *files)),
            PlanKind::MicroCreate(plan) => session.phase("create", |s| micro::create(s, *plan)),
            PlanKind::Fsync(plan) => session.phase("write", |s| fsync::run(s, plan)),
        }
    }

    pub(crate) fn session<'a>(&'a self, files: &'a mut dyn Files, at: Node) -> Session<'a> {
        Session::new(files, &self.contents, at)
    }
}

/// A run of a workload under way.
pub(crate) struct Session<'a> {
    pub(crate) files: &'a mut dyn Files,
    contents: &'a Contents,
    /// Where the workload works.
    root: Node,
    pub(crate) operations: u64,
    pub(crate) phases: Vec<Phase>,
}

impl<'a> Session<'a> {
    fn new(files: &'a mut dyn Files, contents: &'a Contents, root: Node) -> Session<'a> {
        Session {
            files,
            contents,
            root,
            operations: 0,
            phases: Vec::new(),
        }
    }

    /// Does a part of the work and notes how long it took.
    pub(crate) fn phase(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (started, operations) = (self.files.now(), self.operations);
        work(self)?;
        self.phases.push(Phase {
            name,
            elapsed_seconds: (self.files.now() - started).as_secs_f64(),
            operations: self.operations - operations,
        });
        Ok(())
    }

    /// The sync that every workload ends with.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.phase("sync", |s| s.files.sync())
    }

    /// Writes `len_bytes` of the contents `salt` from `offset_bytes` on, in pieces of at most
    /// `piece_bytes`.
    fn write_contents(
        &mut self,
        node: Node,
        salt: u64,
        offset_bytes: u64,
        len_bytes: u64,
        piece_bytes: u64,
    ) -> Result<()> {
        let mut done = 0;
        while done < len_bytes {
            let at = offset_bytes + done;
            let len = piece_bytes.min(len_bytes - done);
            let piece = self.contents.piece(salt, at, len);
            self.files.write(node, at, piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads a file from end to end and makes sure that it has its length.
    fn read_file(&mut self, node: Node, name: &str, size_bytes: u64, piece: usize) -> Result<()> {
        let mut buffer = Vec::with_capacity(piece);
        let mut found = 0;
        loop {
            self.files.read(node, found, piece, &mut buffer)?;
            found += buffer.len() as u64;
            if buffer.is_empty() || found >= size_bytes {
                break;
            }
        }
        if found == size_bytes {
            return Ok(());
        }
        Err(Error::ShortRead {
            what: name.to_owned(),
            expected: size_bytes,
            found,
        })
    }
}
