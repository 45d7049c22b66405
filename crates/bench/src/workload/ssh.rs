//! A program is unpacked, configured and built (Seltzer et al. 2000, §7.3.1: ssh 1.2.26).
//!
//! The paper states times, not the work. With FFS-async unpacking took 1.02 s, configuring 10.38 s
//! and building 42.60 s (table 4); with FFS 6.3, 5.3 and 7.5 s more. The difference is FFS's
//! synchronous writes, which take about 12.4 ms each (table 4 of the short version: 80.4 pairs of
//! creation and removal in a second). So there are about 500, 430 and 600 of them, two for a
//! creation and one or two for a removal. The numbers below follow from that. The computing time is
//! nearly all of the time of FFS-async.

use std::time::Duration;

use crate::Result;
use crate::files::Node;
use crate::tree::{PlannedDirectory, PlannedEntry, PlannedFile};
use crate::workload::{Scale, Session, reference_time, tar};

/// The number of files that are unpacked.
pub(super) const FILES: u64 = 250;
/// Their size together in MiB: assumed.
pub(super) const MEGABYTES: f64 = 4.5;
/// Programs that configuring compiles and runs. For each a source, an object and a program are
/// made, and then removed.
const TESTS: u64 = 45;
/// The part of the unpacked files that is compiled.
const COMPILED_PART: (u64, u64) = (1, 2);
/// Computing time of unpacking, all tests, and building, in seconds of the paper's processor.
const UNPACK_SECONDS: f64 = 0.7;
const CONFIGURE_SECONDS: f64 = 10.0;
const BUILD_SECONDS: f64 = 41.0;
/// Bytes of a test program's source, object and binary: assumed.
const TEST_BYTES: [(&str, u64); 3] = [
    ("conftest.c", 500),
    ("conftest.o", 1200),
    ("conftest", 9000),
];
/// Bytes that the compiler and other programs write at once.
const STDIO_BYTES: u64 = 4096;
const PIECE_BYTES: usize = 64 << 10;

/// The tree, and the amount of work.
pub(super) struct Plan {
    tree: PlannedDirectory,
    tests: u64,
    unpack: Duration,
    test: Duration,
    build: Duration,
}

impl Plan {
    pub(super) fn draw(scale: &Scale, seed: u64) -> Result<Plan> {
        let files = scale.count(scale.files, FILES);
        let tree = PlannedDirectory::draw("ssh", seed, files, scale.tree_bytes(MEGABYTES))?;
        let part = scale.fraction.unwrap_or(1.0);
        let time = |seconds: f64| reference_time("cheetah9", seconds);
        Ok(Plan {
            tree,
            tests: scale.count(None, TESTS),
            unpack: time(UNPACK_SECONDS * part)?,
            test: time(CONFIGURE_SECONDS / TESTS as f64)?,
            build: time(BUILD_SECONDS * part)?,
        })
    }

    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.phase("unpack", |s| {
            s.files.compute(self.unpack)?;
            tar::unpack(s, &self.tree)
        })?;
        let top = session.files.lookup(session.root, &self.tree.name)?.node;
        session.phase("configure", |s| {
            (0..self.tests).try_for_each(|_| self.test(s, top))
        })?;
        session.phase("build", |s| self.make(s, top))?;
        session.files.close(top)
    }

    /// A configuration test: compiles, runs and removes a program.
    fn test(&self, session: &mut Session<'_>, top: Node) -> Result<()> {
        for (name, bytes) in TEST_BYTES {
            let node = session.files.create(top, name, 0o644)?;
            session.files.compute(self.test / TEST_BYTES.len() as u32)?;
            session.write_contents(node, bytes, 0, bytes, STDIO_BYTES)?;
            session.files.close(node)?;
        }
        for (name, _) in TEST_BYTES {
            session.files.unlink(top, name)?;
        }
        session.operations += 1;
        Ok(())
    }

    /// Compiles every second file, through a temporary file, and links the objects.
    fn make(&self, session: &mut Session<'_>, top: Node) -> Result<()> {
        let mut sources = Vec::new();
        sources_of(&self.tree, &mut sources);
        let (of, each) = COMPILED_PART;
        let compiled = sources.len() as u64 * of / each;
        let compute = self.build / (compiled as u32).max(1);
        let mut bytes = 0;
        for (number, file) in (0..compiled).zip(sources) {
            let object = format!("object{number}.o");
            let assembler = format!("cc{number}.s");
            for (name, part) in [(&assembler, 2), (&object, 1)] {
                let node = session.files.create(top, name, 0o644)?;
                session.files.compute(compute / 2)?;
                session.write_contents(node, file.salt, 0, file.size_bytes * part, STDIO_BYTES)?;
                session.files.close(node)?;
            }
            session.files.unlink(top, &assembler)?;
            session.operations += 1;
            bytes += file.size_bytes;
        }
        for number in 0..compiled {
            let object = format!("object{number}.o");
            let found = session.files.lookup(top, &object)?;
            session.read_file(found.node, &object, found.size_bytes, PIECE_BYTES)?;
            session.files.close(found.node)?;
        }
        let program = session.files.create(top, "ssh", 0o755)?;
        session.write_contents(program, 0, 0, bytes, STDIO_BYTES)?;
        session.files.close(program)
    }
}

fn sources_of<'t>(tree: &'t PlannedDirectory, sources: &mut Vec<&'t PlannedFile>) {
    for entry in &tree.entries {
        match entry {
            PlannedEntry::File(file) => sources.push(file),
            PlannedEntry::Directory(below) => sources_of(below, sources),
        }
    }
}
