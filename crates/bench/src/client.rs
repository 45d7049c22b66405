//! Clients that work at the same time: scripts of calls, drawn before the measurement.
//!
//! On the engine in this process and in directories each client is a thread. On a simulated disk
//! each is a task in virtual time: while one waits for the disk, another one runs.

use std::sync::Arc;
use std::time::Duration;

use crate::contents::Contents;
use crate::files::{Files, Node};
use crate::{Error, Result};

/// A call of a client. Nodes that the client has open have numbers of its own; 0 is the directory
/// in which it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Makes a directory, and opens it.
    MakeDirectory {
        /// The directory in which it is made.
        parent: u32,
        /// Its name.
        name: String,
        /// The new node's number.
        node: u32,
    },
    /// Makes a file, and opens it.
    Create {
        /// The directory in which it is made.
        parent: u32,
        /// Its name.
        name: String,
        /// The new node's number.
        node: u32,
    },
    /// Opens an existing file or directory.
    Open {
        /// Its directory.
        parent: u32,
        /// Its name.
        name: String,
        /// The new node's number.
        node: u32,
    },
    /// Asks for attributes.
    Stat {
        /// Its directory.
        parent: u32,
        /// Its name.
        name: String,
    },
    /// Writes.
    Write {
        /// The file.
        node: u32,
        /// Identifies the contents, see `Contents`.
        salt: u64,
        /// The offset in the file.
        offset_bytes: u64,
        /// The length.
        len_bytes: u64,
    },
    /// Reads.
    Read {
        /// The file.
        node: u32,
        /// The offset in the file.
        offset_bytes: u64,
        /// The largest length.
        len_bytes: u64,
    },
    /// Lists a directory.
    List {
        /// The directory.
        node: u32,
    },
    /// Removes a file's name.
    Unlink {
        /// The name's directory.
        parent: u32,
        /// The name.
        name: String,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The directory in which it is.
        parent: u32,
        /// Its name.
        name: String,
    },
    /// Puts a file onto stable storage.
    Fsync {
        /// The file.
        node: u32,
    },
    /// Closes a file or directory.
    Close {
        /// Its number.
        node: u32,
    },
    /// Computes for this long at [reference speed](crate::REFERENCE_HOST).
    Compute(Duration),
}

/// Clients, and the contents that they write.
pub struct Clients {
    /// The calls of each client, in order.
    pub scripts: Vec<Vec<Call>>,
    pub(crate) contents: Arc<Contents>,
}

/// The nodes that a client has open, by its numbers.
pub(crate) struct Nodes(Vec<Option<Node>>);

impl Nodes {
    /// Only the directory in which the client works.
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
    /// If the script has an error: the number is not open.
    pub(crate) fn get(&self, number: u32) -> Result<Node> {
        let node = self.0.get(number as usize).copied().flatten();
        node.ok_or_else(|| Error::Scale(format!("a client has nothing open as {number}")))
    }
}

/// Runs each client in a thread. `files` is called in each thread, and makes its [`Files`].
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
