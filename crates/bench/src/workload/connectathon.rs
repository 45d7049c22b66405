//! The nine basic tests of the Connectathon suite (Feng and Chang 1997, §5.2, tables 3 and 4).
//!
//! The paper names the calls. It gives their numbers only for tests 5 (1 MB), 6 (200 creations and
//! removals around the reading), 8 (400 symlinks, on 10 files) and 9 (1,500). The other numbers are
//! the defaults of the suite's `basic` tests, quoted from memory: trees of 5 levels with 5 files
//! and 2 directories each, and 10 files with 50 rounds. Test 2 removes what test 1 makes.

use crate::Result;
use crate::files::Node;
use crate::workload::{Scale, Session};

const LEVELS: u32 = 5;
const FILES_PER_DIRECTORY: u32 = 5;
const DIRECTORIES_PER_DIRECTORY: u32 = 2;
const STATS: u64 = 250;
const FILES: u32 = 10;
const ROUNDS: u64 = 50;
const FILE_BYTES: u64 = 1 << 20;
const PIECE_BYTES: u64 = 8 << 10;
const ENTRIES: u64 = 200;
const LINKS: u64 = 40;
const STATISTICS: u64 = 1500;

/// How often the repeated calls are made.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    stats: u64,
    rounds: u64,
    entries: u64,
    links: u64,
    statistics: u64,
}

impl Plan {
    pub(super) fn of(scale: &Scale) -> Plan {
        let count = |full| scale.count(None, full);
        Plan {
            stats: count(STATS),
            rounds: count(ROUNDS),
            entries: count(ENTRIES),
            links: count(LINKS),
            statistics: count(STATISTICS),
        }
    }

    pub(super) fn run(self, session: &mut Session<'_>) -> Result<()> {
        let top = session.files.make_directory(session.root, "cthon", 0o755)?;
        session.phase("test-1", |s| make_tree(s, top, LEVELS))?;
        session.phase("test-2", |s| remove_tree(s, top, LEVELS))?;
        session.phase("test-3", |s| {
            (0..self.stats).try_for_each(|_| s.counted(|s| s.files.stat(s.root, "cthon").map(drop)))
        })?;
        session.phase("test-4", |s| self.change_modes(s, top))?;
        session.phase("test-5", |s| write_and_read(s, top))?;
        session.phase("test-6", |s| self.read_directory(s, top))?;
        session.phase("test-7", |s| self.rename_and_link(s, top))?;
        session.phase("test-8", |s| self.symlinks(s, top))?;
        session.phase("test-9", |s| {
            (0..self.statistics).try_for_each(|_| s.counted(|s| s.files.free_blocks().map(drop)))
        })?;
        session.files.close(top)
    }

    fn change_modes(self, session: &mut Session<'_>, top: Node) -> Result<()> {
        for file in 0..FILES {
            let name = format!("mode{file}");
            let node = session.files.create(top, &name, 0o644)?;
            for _ in 0..self.rounds {
                for permissions in [0o000, 0o644] {
                    session.files.set_permissions(node, permissions)?;
                    session.counted(|s| s.files.stat(top, &name).map(drop))?;
                }
            }
            session.files.close(node)?;
            session.files.unlink(top, &name)?;
        }
        Ok(())
    }

    fn read_directory(self, session: &mut Session<'_>, top: Node) -> Result<()> {
        for entry in 0..self.entries {
            let made = session.files.create(top, &format!("e{entry}"), 0o644)?;
            session.files.close(made)?;
        }
        for entry in 0..self.entries {
            // The test lists the directory again after every twenty removals.
            if entry % 20 == 0 {
                session.counted(|s| s.files.list(top).map(drop))?;
            }
            session.files.unlink(top, &format!("e{entry}"))?;
        }
        Ok(())
    }

    fn rename_and_link(self, session: &mut Session<'_>, top: Node) -> Result<()> {
        for file in 0..FILES {
            let (old, new) = (format!("old{file}"), format!("new{file}"));
            let node = session.files.create(top, &old, 0o644)?;
            for _ in 0..self.rounds / 5 {
                session.counted(|s| s.files.rename(top, &old, &new))?;
                session.files.stat(top, &new)?;
                session.counted(|s| s.files.link(node, top, &old))?;
                session.files.unlink(top, &new)?;
            }
            session.files.close(node)?;
            session.files.unlink(top, &old)?;
        }
        Ok(())
    }

    fn symlinks(self, session: &mut Session<'_>, top: Node) -> Result<()> {
        for file in 0..FILES {
            let name = format!("link{file}");
            for _ in 0..self.links {
                session.counted(|s| s.files.symlink(top, &name, "where/it/points"))?;
                session.files.read_link(top, &name)?;
                session.files.unlink(top, &name)?;
            }
        }
        Ok(())
    }
}

fn make_tree(session: &mut Session<'_>, at: Node, levels: u32) -> Result<()> {
    for file in 0..FILES_PER_DIRECTORY {
        let name = format!("file{file}");
        let made = session.counted(|s| s.files.create(at, &name, 0o644))?;
        session.files.close(made)?;
    }
    for directory in (0..DIRECTORIES_PER_DIRECTORY).filter(|_| levels > 1) {
        let name = format!("dir{directory}");
        let made = session.counted(|s| s.files.make_directory(at, &name, 0o755))?;
        make_tree(session, made, levels - 1)?;
        session.files.close(made)?;
    }
    Ok(())
}

fn remove_tree(session: &mut Session<'_>, at: Node, levels: u32) -> Result<()> {
    for file in 0..FILES_PER_DIRECTORY {
        session.counted(|s| s.files.unlink(at, &format!("file{file}")))?;
    }
    for directory in (0..DIRECTORIES_PER_DIRECTORY).filter(|_| levels > 1) {
        let name = format!("dir{directory}");
        let below = session.files.lookup(at, &name)?.node;
        remove_tree(session, below, levels - 1)?;
        session.files.close(below)?;
        session.counted(|s| s.files.remove_directory(at, &name))?;
    }
    Ok(())
}

fn write_and_read(session: &mut Session<'_>, top: Node) -> Result<()> {
    let node = session.files.create(top, "big", 0o644)?;
    session.counted(|s| s.write_contents(node, 0, 0, FILE_BYTES, PIECE_BYTES))?;
    session.counted(|s| s.read_file(node, "big", FILE_BYTES, PIECE_BYTES as usize))?;
    session.files.close(node)?;
    session.files.unlink(top, "big")
}
