//! A news server's spool: articles arrive, old ones expire (Seltzer et al. 2000, §7.3.2; Swartz
//! 1996).
//!
//! At first the spool holds 2 GB in 520,000 files and 7,000 directories. 78,000 articles with 270
//! MB arrive, and 91,000 with 250 MB expire. Consecutive ones are seldom in the same directory. By
//! default a sixteenth of this is done; `--scale 16` is the paper's size.

use crate::random::Random;
use crate::workload::{Scale, Session};
use crate::{Error, Result};

/// The paper's numbers divided by the default ones.
const PART: u64 = 16;
const DIRECTORIES: u64 = 7_000 / PART;
const FILES: u64 = 520_000 / PART;
const NEW_FILES: u64 = 78_000 / PART;
const OLD_FILES: u64 = 91_000 / PART;
/// Average bytes of the articles that exist, and of those that arrive.
const SPOOL_BYTES: u64 = 2_000_000_000 / 520_000;
const NEW_BYTES: u64 = 270_000_000 / 78_000;
/// Directories in each upper directory: newsgroups form hierarchies.
const GROUPS: u64 = 50;
/// Bytes that a server writes at once.
const STDIO_BYTES: u64 = 4096;

/// An article: its directory, its number, its length.
#[derive(Clone, Copy)]
struct Article {
    directory: u64,
    number: u64,
    bytes: u64,
}

/// The articles that exist, that arrive, and that expire.
pub(super) struct Plan {
    directories: u64,
    there: Vec<Article>,
    new: Vec<Article>,
    old: Vec<Article>,
}

impl Plan {
    pub(super) fn draw(scale: &Scale, seed: u64) -> Result<Plan> {
        let mut random = Random::new(seed, 5);
        let directories = scale.count(None, DIRECTORIES);
        let files = scale.count(scale.files, FILES);
        let part = files as f64 / FILES as f64;
        let some = |full: u64| ((full as f64 * part).round() as u64).max(1);
        let (new, old) = (some(NEW_FILES), some(OLD_FILES));
        if old > files {
            return Err(Error::Scale(format!("{old} of {files} articles expire")));
        }
        let mut article = |number: u64, average: u64| Article {
            directory: random.below(directories),
            number,
            // Between half and one and a half of the average.
            bytes: random.between(average / 2, average + average / 2),
        };
        let there: Vec<_> = (0..files).map(|n| article(n, SPOOL_BYTES)).collect();
        let new = (files..files + new).map(|n| article(n, NEW_BYTES));
        Ok(Plan {
            directories,
            new: new.collect(),
            // The oldest ones are those that arrived first.
            old: there[..old as usize].to_vec(),
            there,
        })
    }

    /// Articles come before old ones go.
    pub(super) fn most_files(&self) -> u64 {
        let hierarchies = self.directories.div_ceil(GROUPS);
        let articles = self.there.len() + self.new.len();
        self.directories + hierarchies + articles as u64
    }

    /// Makes the spool.
    pub(super) fn prepare(&self, session: &mut Session<'_>) -> Result<()> {
        for directory in 0..self.directories {
            if directory % GROUPS == 0 {
                let made =
                    session
                        .files
                        .make_directory(session.root, &hierarchy(directory), 0o755)?;
                session.files.close(made)?;
            }
            let above = session.files.lookup(session.root, &hierarchy(directory))?;
            let name = group(directory);
            let made = session.files.make_directory(above.node, &name, 0o755)?;
            session.files.close(made)?;
            session.files.close(above.node)?;
        }
        // Directory by directory, since making the spool is not measured. (The papers do not say how
        // theirs was filled. In the order of arrival more figures differ from theirs.)
        let mut there = self.there.clone();
        there.sort_by_key(|article| article.directory);
        there.iter().try_for_each(|article| article.come(session))
    }

    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.phase("unbatch", |s| {
            self.new.iter().try_for_each(|article| article.come(s))
        })?;
        session.phase("expire", |s| {
            self.old.iter().try_for_each(|article| article.go(s))
        })
    }
}

fn hierarchy(directory: u64) -> String {
    format!("h{:03}", directory / GROUPS)
}

fn group(directory: u64) -> String {
    format!("g{directory:05}")
}

impl Article {
    fn come(&self, session: &mut Session<'_>) -> Result<()> {
        self.within(session, |session, directory| {
            let name = self.number.to_string();
            let node = session.files.create(directory, &name, 0o644)?;
            session.write_contents(node, self.number, 0, self.bytes, STDIO_BYTES)?;
            session.files.close(node)
        })
    }

    fn go(&self, session: &mut Session<'_>) -> Result<()> {
        self.within(session, |session, directory| {
            session.files.unlink(directory, &self.number.to_string())
        })
    }

    fn within(
        &self,
        session: &mut Session<'_>,
        act: impl FnOnce(&mut Session<'_>, crate::files::Node) -> Result<()>,
    ) -> Result<()> {
        session.operations += 1;
        let above = session
            .files
            .lookup(session.root, &hierarchy(self.directory))?;
        let directory = session
            .files
            .lookup(above.node, &group(self.directory))?
            .node;
        act(session, directory)?;
        session.files.close(directory)?;
        session.files.close(above.node)
    }
}
