//! The workloads: what each does, its default size, and how it is drawn from a seed.

mod andrew;
mod connectathon;
mod fsync;
mod imap;
mod micro;
mod netnews;
mod postmark;
mod sdet;
mod ssh;
mod tar;
mod zero;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use backstitch_drives::DriveSpec;

use crate::contents::Contents;
use crate::files::{Files, Node};
use crate::tree::PlannedDirectory;
use crate::{Error, Phase, Result};

pub use imap::ImapVariant;
pub(crate) use micro::{SIZES, file_bytes};
pub(crate) use sdet::SCRIPTS;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Unpack a source tree as tar does, and sync.
    Untar,
    /// Mount again, remove that tree, depth first, and sync.
    Delete,
    /// Katcher's: a pool of small files, transactions on it, removal, sync; with the numbers of
    /// Frost et al. 2007, §8.1.
    Postmark,
    /// The same with the numbers of Ganger et al. 2000, §4.3: small files in ten directories.
    PostmarkSmall,
    /// The same with those of Seltzer et al. 2000, §7.3.4: more than a cache of that time holds.
    PostmarkLarge,
    /// The modified Andrew benchmark: directories, copy, stat, read, compile, sync; on the tree of
    /// Frost et al. 2007, §8.1.
    Andrew,
    /// The same on that of Howard et al. 1988, which Feng and Chang 1997, §5.2, have.
    AndrewSmall,
    /// Create and delete empty files, one after the other, and sync.
    Zero,
    /// Create files of one size, 50 in a directory, and sync.
    MicroCreate,
    /// Read such files, none of which is in memory.
    MicroRead,
    /// Overwrite such files, likewise.
    MicroWrite,
    /// Delete such files, likewise.
    MicroDelete,
    /// Scripts of user commands, several at a time.
    Sdet,
    /// Unpack, configure and build a program.
    Ssh,
    /// Add articles to a news server's spool, and remove old ones.
    Netnews,
    /// The nine basic tests of the Connectathon suite.
    Connectathon,
    /// Create small files and fsync each, with one or more writers at a time.
    Fsync,
    /// Move messages from one mailbox to another as a mail server does, in one of three ways.
    Imap(ImapVariant),
}

impl Workload {
    /// All workloads; of `imap`, the first variant.
    pub const ALL: [Workload; 18] = [
        Workload::Untar,
        Workload::Delete,
        Workload::Postmark,
        Workload::PostmarkSmall,
        Workload::PostmarkLarge,
        Workload::Andrew,
        Workload::AndrewSmall,
        Workload::Zero,
        Workload::MicroCreate,
        Workload::MicroRead,
        Workload::MicroWrite,
        Workload::MicroDelete,
        Workload::Sdet,
        Workload::Ssh,
        Workload::Netnews,
        Workload::Connectathon,
        Workload::Fsync,
        Workload::Imap(ImapVariant::Fsync),
    ];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Untar => "untar",
            Workload::Delete => "delete",
            Workload::Postmark => "postmark",
            Workload::PostmarkSmall => "postmark-small",
            Workload::PostmarkLarge => "postmark-large",
            Workload::Andrew => "andrew",
            Workload::AndrewSmall => "andrew-small",
            Workload::Zero => "zero",
            Workload::MicroCreate => "micro-create",
            Workload::MicroRead => "micro-read",
            Workload::MicroWrite => "micro-write",
            Workload::MicroDelete => "micro-delete",
            Workload::Sdet => "sdet",
            Workload::Ssh => "ssh",
            Workload::Netnews => "netnews",
            Workload::Connectathon => "connectathon",
            Workload::Fsync => "fsync",
            Workload::Imap(_) => "imap",
        }
    }

    /// Whether it has files of one size, and is run for several sizes.
    pub fn is_micro(self) -> bool {
        self.name().starts_with("micro-")
    }

    /// Whether several clients work at the same time.
    pub fn has_clients(self) -> bool {
        matches!(self, Workload::Fsync | Workload::Sdet)
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

/// The size of a workload. Where a field is `None`, the papers' number is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scale {
    /// Files of the tree, of PostMark's pool, or to create and delete: 13,000, 500, 1,000
    /// (`postmark-small`), 150,000 (`postmark-large`), 200 (`andrew`), 70 (`andrew-small`), 250 (`ssh`), 50,000 (`zero`),
    /// 2,000 (`fsync`), 32,500 (`netnews`), 1,000 messages (`imap`); as many as hold the megabytes (`micro-…`;
    /// if both are given, whichever makes more).
    pub files: Option<u64>,
    /// The size of all files together in MiB: 265, 2 (`andrew`), 0.2 (`andrew-small`), 4.5 (`ssh`), 32 (`micro-…`).
    pub megabytes: Option<f64>,
    /// PostMark's transactions: 500, 30,000 (`postmark-small`), 20,000 (`postmark-large`).
    pub transactions: Option<u64>,
    /// PostMark's smallest file: 500, 512 in its other scales. The size of each file of `micro-…`:
    /// 2 KiB, and of each message of `imap`.
    pub min_bytes: Option<u64>,
    /// PostMark's largest file: 4 MiB, 16 KiB in its other scales.
    pub max_bytes: Option<u64>,
    /// The writers of `fsync`: 1. The scripts of `sdet` at a time: 5.
    pub writers: Option<u64>,
    /// The part of the default numbers of files, transactions and megabytes.
    pub fraction: Option<f64>,
}

impl Scale {
    /// Whether all numbers are the papers'.
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

/// A workload with all that it will do, drawn from a seed.
pub(crate) struct Plan {
    kind: PlanKind,
    contents: Arc<Contents>,
}

enum PlanKind {
    Untar(PlannedDirectory),
    Delete(PlannedDirectory),
    Postmark(postmark::Plan),
    Andrew(andrew::Plan),
    Zero(u64),
    Micro(micro::Plan),
    Sdet(sdet::Plan),
    Ssh(ssh::Plan),
    Netnews(netnews::Plan),
    Connectathon(connectathon::Plan),
    Fsync(fsync::Plan),
    Imap(imap::Plan),
}

impl Plan {
    pub(crate) fn draw(workload: Workload, scale: &Scale, seed: u64) -> Result<Plan> {
        let tree = |name, files, megabytes| {
            let (files, bytes) = (scale.count(scale.files, files), scale.tree_bytes(megabytes));
            PlannedDirectory::draw(name, seed, files, bytes)
        };
        let micro = |action| micro::Plan::of(scale, action).map(PlanKind::Micro);
        let andrew = |full| andrew::Plan::draw(scale, full, seed).map(PlanKind::Andrew);
        let postmark = |full| postmark::Plan::draw(scale, full, seed).map(PlanKind::Postmark);
        let contents = Arc::new(Contents::new(seed));
        Ok(Plan {
            contents: contents.clone(),
            kind: match workload {
                Workload::Untar => PlanKind::Untar(tree("linux", 13_000, 265.0)?),
                Workload::Delete => PlanKind::Delete(tree("linux", 13_000, 265.0)?),
                Workload::Postmark => postmark(&postmark::FROST)?,
                Workload::PostmarkSmall => postmark(&postmark::GANGER)?,
                Workload::PostmarkLarge => postmark(&postmark::SELTZER)?,
                Workload::Andrew => andrew(&andrew::FROST)?,
                Workload::AndrewSmall => andrew(&andrew::FENG)?,
                Workload::Zero => PlanKind::Zero(scale.count(scale.files, 50_000)),
                Workload::MicroCreate => micro(micro::Action::Create)?,
                Workload::MicroRead => micro(micro::Action::Read)?,
                Workload::MicroWrite => micro(micro::Action::Write)?,
                Workload::MicroDelete => micro(micro::Action::Delete)?,
                Workload::Sdet => PlanKind::Sdet(sdet::Plan::draw(scale, seed, contents)?),
                Workload::Ssh => PlanKind::Ssh(ssh::Plan::draw(scale, seed)?),
                Workload::Netnews => PlanKind::Netnews(netnews::Plan::draw(scale, seed)?),
                Workload::Connectathon => PlanKind::Connectathon(connectathon::Plan::of(scale)),
                Workload::Fsync => PlanKind::Fsync(fsync::Plan::of(scale, contents)),
                Workload::Imap(variant) => PlanKind::Imap(imap::Plan::of(scale, variant)),
            },
        })
    }

    /// Makes what must exist before the measurement.
    pub(crate) fn prepare(&self, files: &mut dyn Files, at: Node) -> Result<()> {
        let mut session = Session::new(files, &self.contents, at);
        match &self.kind {
            PlanKind::Delete(tree) => tar::unpack(&mut session, tree)?,
            PlanKind::Micro(plan) => plan.create(&mut session)?,
            PlanKind::Netnews(plan) => plan.prepare(&mut session)?,
            PlanKind::Imap(plan) => plan.prepare(&mut session)?,
            _ => {}
        }
        session.files.sync()
    }

    /// Files and directories that exist at the same time at most; 0 where they are few however
    /// large the workload is.
    pub(crate) fn most_files(&self) -> u64 {
        match &self.kind {
            PlanKind::Untar(tree) | PlanKind::Delete(tree) => tree.files() + tree.directories(),
            PlanKind::Andrew(plan) => plan.most_files(),
            PlanKind::Postmark(plan) => plan.most_files(),
            PlanKind::Micro(plan) => plan.files + 1,
            PlanKind::Netnews(plan) => plan.most_files(),
            _ => 0,
        }
    }

    /// Whether there is anything to [`prepare`](Self::prepare). The file system is mounted again
    /// after that.
    pub(crate) fn needs_preparation(&self) -> bool {
        match &self.kind {
            PlanKind::Delete(_) | PlanKind::Netnews(_) | PlanKind::Imap(_) => true,
            PlanKind::Micro(plan) => plan.action != micro::Action::Create,
            _ => false,
        }
    }

    /// Does everything except the sync at the end.
    pub(crate) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        match &self.kind {
            PlanKind::Untar(tree) => session.phase("unpack", |s| tar::unpack(s, tree)),
            PlanKind::Delete(tree) => {
                session.phase("remove", |s| tar::remove_tree(s, s.root, &tree.name))
            }
            PlanKind::Postmark(plan) => plan.run(session),
            PlanKind::Andrew(plan) => plan.run(session),
            PlanKind::Zero(files) => session.phase("create-delete", |s| zero::run(s, *files)),
            PlanKind::Micro(plan) => session.phase(plan.action.name(), |s| plan.run(s)),
            PlanKind::Sdet(plan) => session.phase("scripts", |s| plan.run(s)),
            PlanKind::Ssh(plan) => plan.run(session),
            PlanKind::Netnews(plan) => plan.run(session),
            PlanKind::Connectathon(plan) => plan.run(session),
            PlanKind::Fsync(plan) => session.phase("write", |s| fsync::run(s, plan)),
            PlanKind::Imap(plan) => plan.run(session),
        }
    }

    /// Checks the result of a workload that could go wrong unnoticed.
    pub(crate) fn verify(&self, files: &mut dyn Files, at: Node) -> Result<()> {
        match &self.kind {
            PlanKind::Imap(plan) => plan.verify(&mut self.session(files, at)),
            _ => Ok(()),
        }
    }

    pub(crate) fn session<'a>(&'a self, files: &'a mut dyn Files, at: Node) -> Session<'a> {
        Session::new(files, &self.contents, at)
    }
}

/// The time on the [reference](crate::REFERENCE_HOST) for a computation that took this long on the
/// computer of a preset.
fn reference_time(preset: &str, seconds: f64) -> Result<Duration> {
    let speed = DriveSpec::preset(preset)?
        .host
        .map_or(1.0, |host| host.speed);
    Ok(Duration::from_secs_f64(seconds * speed))
}

/// A workload that is running.
pub(crate) struct Session<'a> {
    pub(crate) files: &'a mut dyn Files,
    contents: &'a Contents,
    /// The directory in which it works.
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

    /// Does a part of the work, and notes its duration.
    pub(crate) fn phase(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (started, operations) = (self.files.now(), self.operations);
        let busy_before = self.files.processor_busy();
        work(self)?;
        self.phases.push(Phase {
            name,
            started,
            processor: self.files.processor_busy() - busy_before,
            elapsed_seconds: (self.files.now() - started).as_secs_f64(),
            operations: self.operations - operations,
        });
        Ok(())
    }

    /// The sync that every workload ends with.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.phase("sync", |s| s.files.sync())
    }

    /// Does something that counts as one operation.
    fn counted<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.operations += 1;
        work(self)
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

    /// Reads a whole file, and checks its length.
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
