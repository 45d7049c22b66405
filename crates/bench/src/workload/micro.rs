//! Many files of one size: create, read, write, delete (Ganger et al. 2000, figures 3 to 6; Seltzer
//! et al. 2000, §7.2); at most 50 in a directory, 32 MiB together. If a number of files and a size of
//! all are given, it is whichever makes more files: 512 files and 128 MiB are the numbers of Seltzer
//! et al.
//!
//! Files to read, write or delete are made before the measurement, and the file system is mounted
//! again, so that nothing is in memory. Files are taken in the order in which they were made.

use crate::files::Node;
use crate::workload::{Scale, Session};
use crate::{Error, Result};

/// The sizes in the paper's figures: 2 KiB to 4 MiB, doubling.
pub(crate) const SIZES: [u64; 12] = {
    let mut sizes = [2048; 12];
    let mut i = 1;
    while i < sizes.len() {
        sizes[i] = sizes[i - 1] * 2;
        i += 1;
    }
    sizes
};
const FILES_PER_DIRECTORY: u64 = 50;
/// The size of all files together, in MiB.
const MEGABYTES: f64 = 32.0;
/// Bytes that a program reads or writes with one system call.
const PIECE_BYTES: u64 = 64 << 10;

/// The size of each file.
pub(crate) fn file_bytes(scale: &Scale) -> u64 {
    scale.min_bytes.unwrap_or(SIZES[0])
}

/// What is done to each file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Create,
    Read,
    Write,
    Delete,
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Read => "read",
            Action::Write => "write",
            Action::Delete => "delete",
        }
    }
}

/// The number and the size of the files.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) action: Action,
    pub(super) files: u64,
    file_bytes: u64,
}

impl Plan {
    pub(super) fn of(scale: &Scale, action: Action) -> Result<Plan> {
        let file_bytes = file_bytes(scale);
        if file_bytes == 0 {
            return Err(Error::Scale("files of no bytes: see zero".to_owned()));
        }
        let fitting = (scale.tree_bytes(MEGABYTES) / file_bytes).max(1);
        Ok(Plan {
            action,
            files: match (scale.files, scale.megabytes) {
                (Some(files), None) => files,
                (files, _) => fitting.max(files.unwrap_or(0)),
            },
            file_bytes,
        })
    }

    /// Makes the files.
    pub(super) fn create(self, session: &mut Session<'_>) -> Result<()> {
        let create = Plan {
            action: Action::Create,
            ..self
        };
        create.run(session)
    }

    /// Does the action to each file.
    pub(super) fn run(self, session: &mut Session<'_>) -> Result<()> {
        for first in (0..self.files).step_by(FILES_PER_DIRECTORY as usize) {
            let name = format!("d{:05}", first / FILES_PER_DIRECTORY);
            let directory = match self.action {
                Action::Create => session.files.make_directory(session.root, &name, 0o755)?,
                _ => session.files.lookup(session.root, &name)?.node,
            };
            for number in first..self.files.min(first + FILES_PER_DIRECTORY) {
                self.act(session, directory, number)?;
                session.operations += 1;
            }
            session.files.close(directory)?;
        }
        Ok(())
    }

    fn act(self, session: &mut Session<'_>, directory: Node, number: u64) -> Result<()> {
        let name = format!("f{number:06}");
        let node = match self.action {
            Action::Delete => return session.files.unlink(directory, &name),
            Action::Create => session.files.create(directory, &name, 0o644)?,
            Action::Read | Action::Write => session.files.lookup(directory, &name)?.node,
        };
        match self.action {
            Action::Read => {
                session.read_file(node, &name, self.file_bytes, PIECE_BYTES as usize)?;
            }
            _ => session.write_contents(node, number, 0, self.file_bytes, PIECE_BYTES)?,
        }
        session.files.close(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_files_as_the_papers_have() {
        let files = |kib: u64, files, megabytes| {
            let scale = Scale {
                min_bytes: Some(kib << 10),
                files,
                megabytes,
                ..Scale::default()
            };
            Plan::of(&scale, Action::Create).unwrap().files
        };
        assert_eq!(files(2, None, None), 16_384);
        assert_eq!(files(4096, None, None), 8);
        assert_eq!(files(4096, Some(3), None), 3);
        let seltzer = |kib| files(kib, Some(512), Some(128.0));
        assert_eq!(
            [2, 128, 256, 512, 4096].map(seltzer),
            [65_536, 1024, 512, 512, 512]
        );
    }
}
