//! Small files, each made durable before its writer makes the next: what a mail spool or a message
//! queue does.
//!
//! The writers share the files among them, each in a directory of its own.

use crate::contents::Contents;
use crate::files::Files;
use crate::workload::{Scale, Session};
use crate::{Error, Result};

/// What a file holds.
const FILE_BYTES: u64 = 4096;
/// How many files there are.
const FILES: u64 = 2000;

/// How many files, of how many writers.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    files: u64,
    writers: u64,
}

impl Plan {
    pub(super) fn of(scale: &Scale) -> Plan {
        Plan {
            files: scale.count(scale.files, FILES),
            writers: scale.writers.unwrap_or(1).max(1),
        }
    }
}

pub(super) fn run(session: &mut Session<'_>, plan: Plan) -> Result<()> {
    let contents = session.contents;
    let mut writers = Vec::new();
    for writer in 0..plan.writers {
        let name = format!("w{writer}");
        let directory = session.files.make_directory(session.root, &name, 0o755)?;
        writers.push(session.files.another(directory)?);
        session.files.close(directory)?;
    }
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (writers.into_iter().zip(0..))
            .map(|(files, writer)| scope.spawn(move || write(files, contents, plan, writer)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            let panicked = |_| Err(Error::Scale("a writer panicked".to_owned()));
            thread.join().unwrap_or_else(panicked)
        };
        threads.into_iter().map(join).collect()
    });
    session.operations += plan.files;
    ended.into_iter().collect()
}

/// The files of one writer: every so-manieth.
fn write(
    mut files: Box<dyn Files + Send>,
    contents: &Contents,
    plan: Plan,
    writer: u64,
) -> Result<()> {
    for number in (writer..plan.files).step_by(plan.writers as usize) {
        let node = files.create(files.root(), &format!("f{number:06}"), 0o644)?;
        let mut done = 0;
        while done < FILE_BYTES {
            let piece = contents.piece(number, done, FILE_BYTES - done);
            files.write(node, done, piece)?;
            done += piece.len() as u64;
        }
        files.fsync(node)?;
        files.close(node)?;
    }
    Ok(())
}
