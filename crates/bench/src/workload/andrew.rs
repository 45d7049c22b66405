//! The modified Andrew benchmark, on a tree like the Ion window manager's: 200 files, 2 MiB.
//!
//! The compiler is simulated: it reads each source and writes an object of the same size, and the
//! linker reads the objects and writes a binary of half their size. So it writes less than the
//! papers' compilers, which added debugging symbols.

use crate::Result;
use crate::files::Node;
use crate::tree::{PlannedDirectory, PlannedEntry, PlannedFile};
use crate::workload::Session;

/// Bytes that cp, cat and compilers read and write at once.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes that the linker and the assembler write at once: stdio's buffer.
const STDIO_BYTES: u64 = 4096;

pub(super) fn run(session: &mut Session<'_>, tree: &PlannedDirectory) -> Result<()> {
    let mut open = Vec::new();
    session.phase("make-directories", |s| {
        make_directories(s, s.root, tree, &mut open)
    })?;
    session.phase("copy", |s| each(s, &open, copy))?;
    session.phase("stat", |s| {
        each(s, &open, |s, directory, file| {
            s.files.stat(directory, &file.name).map(drop)
        })
    })?;
    session.phase("read", |s| each(s, &open, read))?;
    session.phase("compile", |s| {
        each(s, &open, compile)?;
        link(s, &open)
    })?;
    for (_, node) in open {
        session.files.close(node)?;
    }
    Ok(())
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

fn compile(session: &mut Session<'_>, directory: Node, file: &PlannedFile) -> Result<()> {
    read(session, directory, file)?;
    let node = session.files.create(directory, &object(file), 0o644)?;
    let salt = file.salt.wrapping_add(1);
    session.write_contents(node, salt, 0, file.size_bytes, STDIO_BYTES)?;
    session.files.close(node)
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
