//! Many files of one size (Ganger et al. 2000, figures 3 and 6): at most 50 in a directory, 32 MiB
//! together.

use crate::workload::{Scale, Session};
use crate::{Error, Result};

/// The sizes of the paper's figures: 2 KiB to 4 MiB, doubling.
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
/// What all files hold together, in MiB.
const MEGABYTES: f64 = 32.0;
/// What a program writes with one system call.
const PIECE_BYTES: u64 = 64 << 10;

/// The size of each file.
pub(crate) fn file_bytes(scale: &Scale) -> u64 {
    scale.min_bytes.unwrap_or(SIZES[0])
}

/// How many files of which size.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    files: u64,
    file_bytes: u64,
}

impl Plan {
    pub(super) fn of(scale: &Scale) -> Result<Plan> {
        let file_bytes = file_bytes(scale);
        if file_bytes == 0 {
            return Err(Error::Scale("files of no bytes: see zero".to_owned()));
        }
        let fitting = scale.tree_bytes(MEGABYTES) / file_bytes;
        Ok(Plan {
            files: scale.files.unwrap_or(fitting.max(1)),
            file_bytes,
        })
    }
}

pub(super) fn create(session: &mut Session<'_>, plan: Plan) -> Result<()> {
    for first in (0..plan.files).step_by(FILES_PER_DIRECTORY as usize) {
        let name = format!("d{:05}", first / FILES_PER_DIRECTORY);
        let directory = session.files.make_directory(session.root, &name, 0o755)?;
        for number in first..plan.files.min(first + FILES_PER_DIRECTORY) {
            let node = session
                .files
                .create(directory, &format!("f{number:06}"), 0o644)?;
            session.write_contents(node, number, 0, plan.file_bytes, PIECE_BYTES)?;
            session.files.close(node)?;
            session.operations += 1;
        }
        session.files.close(directory)?;
    }
    Ok(())
}
