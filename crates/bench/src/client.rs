//! What clients do that work beside each other: scripts, drawn before the measurement.
//!
//! On the engine in this process and in directories each client is a thread. On a simulated disk
//! each is a task in virtual time: where one waits for the disk, another one runs.

use std::sync::Arc;
use std::time::Duration;

use crate::contents::Contents;
use crate::files::{Files, Node};
use crate::{Error, Result};

/// One call of a client. It knows what it has open by numbers of its own; 0 is the directory that
/// it works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Makes a directory, which is open then.
    MakeDirectory {
        /// Where.
        parent: u32,
        /// Its name.
        name: String,
        /// Its number.
        node: u32,
    },
    /// Makes a file, which is open then.
    Create {
        /// Where.
        parent: u32,
        /// Its name.
        name: String,
        /// Its number.
        node: u32,
    },
    /// Opens what is there.
    Open {
        /// Where.
        parent: u32,
        /// Its name.
        name: String,
        /// Its number.
        node: u32,
    },
    /// Asks for attributes.
    Stat {
        /// Where.
        parent: u32,
        /// Of which name.
        name: String,
    },
    /// Writes.
    Write {
        /// Into which file.
        node: u32,
        /// Which contents.
        salt: u64,
        /// From where on.
        offset_bytes: u64,
        /// How much.
        len_bytes: u64,
    },
    /// Reads.
    Read {
        /// From which file.
        node: u32,
        /// From where on.
        offset_bytes: u64,
        /// How much at most.
        len_bytes: u64,
    },
    /// Lists a directory.
    List {
        /// Which.
        node: u32,
    },
    /// Takes a file's name away.
    Unlink {
        /// Where.
        parent: u32,
        /// Which name.
        name: String,
    },
    /// Takes an empty directory away.
    RemoveDirectory {
        /// Where.
        parent: u32,
        /// Which name.
        name: String,
    },
    /// Puts a file onto stable storage.
    Fsync {
        /// Which.
        node: u32,
    },
    /// Closes a file or directory.
    Close {
        /// Which.
        node: u32,
    },
    /// Computes what takes so long at [reference speed](crate::REFERENCE_HOST).
    Compute(Duration),
}

/// Clients, with what they write.
pub struct Clients {
    /// What each of them does, one call after the other.
    pub scripts: Vec<Vec<Call>>,
    pub(crate) contents: Arc<Contents>,
}

/// What a client has open.
pub(crate) struct Nodes(Vec<Option<Node>>);

impl Nodes {
    /// Nothing but the directory that it works in.
    pub(crate) fn at(root: Node) -> Nodes {
        Nodes(vec![Some(root)])
    }

    pub(crate) fn put(&mut self, number: u32, node: Node) {
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize(number + 1, None);
        }
        self.0[number] = Some(node);
    }

    /// # Errors
    /// Where the script has a fault.
    pub(crate) fn get(&self, number: u32) -> Result<Node> {
        let node = self.0.get(number as usize).copied().flatten();
        node.ok_or_else(|| Error::Scale(format!("a client has nothing open as {number}")))
    }
}

/// Runs each client in a thread. `files` makes each of them its own files, in its thread.
pub(crate) fn on_threads(
    clients: &Clients,
    files: impl Fn() -> Result<Box<dyn Files>> + Sync,
) -> Result<()> {
    let (files, contents) = (&files, &clients.contents);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (clients.scripts.iter())
            .map(|script| scope.spawn(move || run(files()?, script, contents)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            let panicked = |_| Err(Error::Scale("a client panicked".to_owned()));
            thread.join().unwrap_or_else(panicked)
        };
        let ended: Vec<_> = threads.into_iter().map(join).collect();
        ended.into_iter().collect()
    })
}

fn run(mut files: Box<dyn Files>, script: &[Call], contents: &Contents) -> Result<()> {
    let mut nodes = Nodes::at(files.root());
    let mut buffer = Vec::new();
    for call in script {
        perform(&mut *files, &mut nodes, call, contents, &mut buffer)?;
    }
    Ok(())
}

fn perform(
    files: &mut dyn Files,
    nodes: &mut Nodes,
    call: &Call,
    contents: &Contents,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    match call {
        Call::MakeDirectory { parent, name, node } => {
            let made = files.make_directory(nodes.get(*parent)?, name, 0o755)?;
            nodes.put(*node, made);
        }
        Call::Create { parent, name, node } => {
            let made = files.create(nodes.get(*parent)?, name, 0o644)?;
            nodes.put(*node, made);
        }
        Call::Open { parent, name, node } => {
            let found = files.lookup(nodes.get(*parent)?, name)?.node;
            nodes.put(*node, found);
        }
        Call::Stat { parent, name } => drop(files.stat(nodes.get(*parent)?, name)?),
        Call::Write {
            node,
            salt,
            offset_bytes,
            len_bytes,
        } => {
            let mut done = 0;
            while done < *len_bytes {
                let piece = contents.piece(*salt, offset_bytes + done, len_bytes - done);
                files.write(nodes.get(*node)?, offset_bytes + done, piece)?;
                done += piece.len() as u64;
            }
        }
        Call::Read {
            node,
            offset_bytes,
            len_bytes,
        } => files.read(
            nodes.get(*node)?,
            *offset_bytes,
            *len_bytes as usize,
            buffer,
        )?,
        Call::List { node } => drop(files.list(nodes.get(*node)?)?),
        Call::Unlink { parent, name } => files.unlink(nodes.get(*parent)?, name)?,
        Call::RemoveDirectory { parent, name } => {
            files.remove_directory(nodes.get(*parent)?, name)?;
        }
        Call::Fsync { node } => files.fsync(nodes.get(*node)?)?,
        Call::Close { node } => files.close(nodes.get(*node)?)?,
        Call::Compute(work) => files.compute(*work)?,
    }
    Ok(())
}
