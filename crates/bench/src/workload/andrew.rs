//! The Andrew benchmark: on a tree like the Ion window manager's (200 files, 2 MiB), as Frost et al.
//! 2007 have it (§8.1), or like that of Howard et al. 1988 (70 files, 200 KB), as Feng and Chang 1997
//! (§5.2).
//!
//! The compiler is simulated: it reads each source, computes, and writes an object of the same size;
//! the linker reads the objects and writes a binary of half their size. So it writes less than the
//! papers' compilers, which added debugging symbols.
//!
//! # How long the compiler computes
//!
//! Nearly all of the papers' time is the compiler's, which they do not state. It is taken from the
//! times of their fastest systems: 36.4 s under async (Frost et al., figure 10), of which what
//! remains here takes 0.24 s, and 44.57 s for the last phase under AUFS (Feng and Chang, table 2),
//! of which it takes 1.16 s. So these two figures are fitted; those of the other mechanisms follow.
//! Only a simulated processor computes that. Without one the benchmark is about the file system
//! alone.

use std::time::Duration;

use crate::Result;
use crate::files::Node;
use crate::tree::{PlannedDirectory, PlannedEntry, PlannedFile};
use crate::workload::{Scale, Session, reference_time};

/// Bytes that cp, cat and compilers read and write at once.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes that the linker and the assembler write at once: stdio's buffer.
const STDIO_BYTES: u64 = 4096;

/// A paper's numbers.
pub(super) struct Numbers {
    name: &'static str,
    files: u64,
    megabytes: f64,
    /// If they are known.
    directories: Option<u64>,
    /// The compiler's time in seconds, on the computer of a preset.
    compile_seconds: f64,
    preset: &'static str,
}

pub(super) const FROST: Numbers = Numbers {
    name: "ion",
    files: 200,
    megabytes: 2.0,
    directories: None,
    compile_seconds: 36.2,
    preset: "st3320620as",
};

/// The paper's first phase takes 2.57 s under UFS, with five writes for each directory (its table
/// 1). At 19 ms a write, half a turn and the drive's average seek for a part of the way, these are
/// 27 directories.
pub(super) const FENG: Numbers = Numbers {
    name: "andrew",
    files: 70,
    megabytes: 0.2,
    directories: Some(27),
    compile_seconds: 43.4,
    preset: "st2383",
};

/// The tree, and the compiler's time for each file.
pub(super) struct Plan {
    tree: PlannedDirectory,
    compile: Duration,
}

impl Plan {
    pub(super) fn draw(scale: &Scale, full: &Numbers, seed: u64) -> Result<Plan> {
        let files = scale.count(scale.files, full.files);
        let bytes = scale.tree_bytes(full.megabytes);
        let directories = full
            .directories
            .map(|all| (all * files / full.files).max(1));
        Ok(Plan {
            tree: PlannedDirectory::draw_in(full.name, seed, files, bytes, directories)?,
            compile: reference_time(full.preset, full.compile_seconds / full.files as f64)?,
        })
    }

    /// Source tree, copy and objects.
    pub(super) fn most_files(&self) -> u64 {
        3 * (self.tree.files() + self.tree.directories())
    }

    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let mut open = Vec::new();
        session.phase("make-directories", |s| {
            make_directories(s, s.root, &self.tree, &mut open)
        })?;
        session.phase("copy", |s| each(s, &open, copy))?;
        session.phase("stat", |s| {
            each(s, &open, |s, directory, file| {
                s.files.stat(directory, &file.name).map(drop)
            })
        })?;
        session.phase("read", |s| each(s, &open, read))?;
        session.phase("compile", |s| {
            each(s, &open, |s, directory, file| {
                self.compile(s, directory, file)
            })?;
            link(s, &open)
        })?;
        for (_, node) in open {
            session.files.close(node)?;
        }
        Ok(())
    }

    fn compile(
        &self,
        session: &mut Session<'_>,
        directory: Node,
        file: &PlannedFile,
    ) -> Result<()> {
        read(session, directory, file)?;
        session.files.compute_if_simulated(self.compile)?;
        let node = session.files.create(directory, &object(file), 0o644)?;
        let salt = file.salt.wrapping_add(1);
        session.write_contents(node, salt, 0, file.size_bytes, STDIO_BYTES)?;
        session.files.close(node)
    }
}

/// A directory of the tree, and the one that was made for it.
type Made<'t> = (&'t PlannedDirectory, Node);

fn make_directories<'t>(
    session: &mut Session<'_>,
    parent: Node,
    planned: &'t PlannedDirectory,
    made: &mut Vec<Made<'t>>,
) -> Result<()> {
    let node = session.files.make_directory(parent, &planned.name, 0o755)?;
    session.operations += 1;
    made.push((planned, node));
    for entry in &planned.entries {
        if let PlannedEntry::Directory(below) = entry {
            make_directories(session, node, below, made)?;
        }
    }
    Ok(())
}

fn each(
    session: &mut Session<'_>,
    directories: &[Made<'_>],
    mut work: impl FnMut(&mut Session<'_>, Node, &PlannedFile) -> Result<()>,
) -> Result<()> {
    for (planned, node) in directories {
        for entry in &planned.entries {
            if let PlannedEntry::File(file) = entry {
                work(session, *node, file)?;
                session.operations += 1;
            }
        }
    }
    Ok(())
}

fn copy(session: &mut Session<'_>, directory: Node, file: &PlannedFile) -> Result<()> {
    let node = session
        .files
        .create(directory, &file.name, file.permissions)?;
    session.write_contents(node, file.salt, 0, file.size_bytes, PIECE_BYTES)?;
    session.files.close(node)
}

fn read(session: &mut Session<'_>, directory: Node, file: &PlannedFile) -> Result<()> {
    let found = session.files.lookup(directory, &file.name)?;
    session.read_file(
        found.node,
        &file.name,
        file.size_bytes,
        PIECE_BYTES as usize,
    )?;
    session.files.close(found.node)
}

fn object(file: &PlannedFile) -> String {
    format!("{}.o", file.name)
}

fn link(session: &mut Session<'_>, directories: &[Made<'_>]) -> Result<()> {
    let mut bytes = 0;
    each(session, directories, |s, directory, file| {
        bytes += file.size_bytes;
        let found = s.files.lookup(directory, &object(file))?;
        let piece = PIECE_BYTES as usize;
        s.read_file(found.node, &file.name, file.size_bytes, piece)?;
        s.files.close(found.node)
    })?;
    let binary = session.files.create(directories[0].1, "ion", 0o755)?;
    session.write_contents(binary, 0, 0, bytes / 2, STDIO_BYTES)?;
    session.files.close(binary)
}
