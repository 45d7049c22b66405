//! Small files, each made durable before its writer makes the next, as in a mail spool or a message
//! queue.
//!
//! The files are divided among the writers. Each writer has a directory of its own.

use std::sync::Arc;

use crate::Result;
use crate::client::{Call, Clients};
use crate::contents::Contents;
use crate::workload::{Scale, Session};

/// Bytes of each file.
const FILE_BYTES: u64 = 4096;
/// The number of files.
const FILES: u64 = 2000;

/// The work of the writers.
pub(super) struct Plan {
    files: u64,
    clients: Arc<Clients>,
}

impl Plan {
    pub(super) fn of(scale: &Scale, contents: Arc<Contents>) -> Plan {
        let files = scale.count(scale.files, FILES);
        let writers = scale.writers.unwrap_or(1).max(1);
        let scripts = (0..writers).map(|writer| script(files, writers, writer));
        let scripts = scripts.collect();
        Plan {
            files,
            clients: Arc::new(Clients { scripts, contents }),
        }
    }
}

/// The script of one writer: each `writers`-th file, in a directory of its own.
fn script(files: u64, writers: u64, writer: u64) -> Vec<Call> {
    const DIRECTORY: u32 = 1;
    const FILE: u32 = 2;
    let mut calls = vec![Call::Open {
        parent: 0,
        name: directory(writer),
        node: DIRECTORY,
    }];
    for number in (writer..files).step_by(writers as usize) {
        let (node, parent) = (FILE, DIRECTORY);
        let name = format!("f{number:06}");
        calls.push(Call::Create { parent, name, node });
        calls.push(Call::Write {
            node,
            salt: number,
            offset_bytes: 0,
            len_bytes: FILE_BYTES,
        });
        calls.push(Call::Fsync { node });
        calls.push(Call::Close { node });
    }
    calls.push(Call::Close { node: DIRECTORY });
    calls
}

fn directory(writer: u64) -> String {
    format!("w{writer}")
}

pub(super) fn run(session: &mut Session<'_>, plan: &Plan) -> Result<()> {
    for (writer, _) in (0..).zip(&plan.clients.scripts) {
        let name = directory(writer);
        let made = session.files.make_directory(session.root, &name, 0o755)?;
        session.files.close(made)?;
    }
    session.files.run_clients(session.root, &plan.clients)?;
    session.operations += plan.files;
    Ok(())
}
