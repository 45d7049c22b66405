//! Katcher's PostMark, like version 1.5 with its default settings (biases 5 and 5, buffered I/O),
//! with the numbers of three papers.

use crate::files::Node;
use crate::random::Random;
use crate::workload::{Scale, Session};
use crate::{Error, Result};

/// Bytes that stdio writes at once, starting at the file's end, wherever that is.
const STDIO_BYTES: u64 = 4096;

/// The numbers that a paper gives.
pub(super) struct Full {
    files: u64,
    transactions: u64,
    least_bytes: u64,
    largest_bytes: u64,
    /// Directories below the pool's in which the files are; with 0 they are in the pool's
    /// directory.
    directories: u64,
}

/// Frost et al. 2007, §8.1.
pub(super) const FROST: Full = Full {
    files: 500,
    transactions: 500,
    least_bytes: 500,
    largest_bytes: 4 << 20,
    directories: 0,
};
/// Ganger et al. 2000, §4.3.
pub(super) const GANGER: Full = Full {
    files: 1_000,
    transactions: 30_000,
    least_bytes: 512,
    largest_bytes: 16 << 10,
    directories: 10,
};
/// Seltzer et al. 2000, §7.3.4, the larger of its two configurations.
pub(super) const SELTZER: Full = Full {
    files: 150_000,
    transactions: 20_000,
    least_bytes: 512,
    largest_bytes: 16 << 10,
    directories: 0,
};

/// A step on one file, which is named by its number.
enum Step {
    Create { file: u64, bytes: u64 },
    Delete { file: u64 },
    Read { file: u64, bytes: u64 },
    Append { file: u64, at: u64, bytes: u64 },
}

/// All that a run does.
pub(super) struct Plan {
    directories: u64,
    create: Vec<Step>,
    transactions: Vec<Step>,
    delete: Vec<Step>,
}

/// The pool, while the steps are drawn.
struct Pool {
    random: Random,
    /// Number and size of each existing file.
    files: Vec<(u64, u64)>,
    next: u64,
    sizes: (u64, u64),
}

impl Pool {
    fn create(&mut self) -> Step {
        let bytes = self.random.between(self.sizes.0, self.sizes.1);
        let file = self.next;
        self.next += 1;
        self.files.push((file, bytes));
        Step::Create { file, bytes }
    }

    fn pick(&mut self) -> usize {
        self.random.below(self.files.len() as u64) as usize
    }

    /// A transaction: a file is created or deleted, then one is read or appended to.
    fn transact(&mut self, steps: &mut Vec<Step>) {
        if self.random.below(10) < 5 || self.files.len() < 2 {
            steps.push(self.create());
        } else {
            let victim = self.pick();
            let (file, _) = self.files.swap_remove(victim);
            steps.push(Step::Delete { file });
        }
        let chosen = self.pick();
        let (file, bytes) = self.files[chosen];
        if self.random.below(10) < 5 {
            steps.push(Step::Read { file, bytes });
        } else if bytes < self.sizes.1 {
            let more = self.random.between(1, self.sizes.1 - bytes);
            self.files[chosen].1 += more;
            steps.push(Step::Append {
                file,
                at: bytes,
                bytes: more,
            });
        }
    }
}

impl Plan {
    pub(super) fn draw(scale: &Scale, full: &Full, seed: u64) -> Result<Plan> {
        let sizes = (
            scale.min_bytes.unwrap_or(full.least_bytes),
            scale.max_bytes.unwrap_or(full.largest_bytes),
        );
        if sizes.0 > sizes.1 {
            let why = format!("files of {} bytes to {} bytes", sizes.0, sizes.1);
            return Err(Error::Scale(why));
        }
        let mut pool = Pool {
            random: Random::new(seed, 3),
            files: Vec::new(),
            next: 0,
            sizes,
        };
        let create = (0..scale.count(scale.files, full.files))
            .map(|_| pool.create())
            .collect();
        let mut transactions = Vec::new();
        for _ in 0..scale.count(scale.transactions, full.transactions) {
            pool.transact(&mut transactions);
        }
        let delete = pool
            .files
            .iter()
            .map(|(file, _)| Step::Delete { file: *file });
        Ok(Plan {
            directories: full.directories,
            create,
            transactions,
            delete: delete.collect(),
        })
    }

    pub(super) fn most_files(&self) -> u64 {
        let (mut files, mut most) = (0, 0);
        for step in self.create.iter().chain(&self.transactions) {
            match step {
                Step::Create { .. } => files += 1,
                Step::Delete { .. } => files -= 1,
                Step::Read { .. } | Step::Append { .. } => {}
            }
            most = most.max(files);
        }
        self.directories + 1 + most
    }

    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let at = session
            .files
            .make_directory(session.root, "postmark", 0o755)?;
        let mut places = vec![at];
        for directory in 0..self.directories {
            let name = format!("s{directory}");
            places.push(session.files.make_directory(at, &name, 0o755)?);
        }
        let in_directories = if places.len() > 1 {
            &places[1..]
        } else {
            &places
        };
        let place = |file: u64| in_directories[file as usize % in_directories.len()];
        for (name, steps) in [
            ("create", &self.create),
            ("transactions", &self.transactions),
            ("delete", &self.delete),
        ] {
            session.phase(name, |s| {
                let run = |step: &Step| step.run(s, place(step.file()));
                steps.iter().try_for_each(run)
            })?;
        }
        (places.into_iter()).try_for_each(|place| session.files.close(place))
    }
}

impl Step {
    fn file(&self) -> u64 {
        match *self {
            Step::Create { file, .. }
            | Step::Delete { file }
            | Step::Read { file, .. }
            | Step::Append { file, .. } => file,
        }
    }

    fn run(&self, session: &mut Session<'_>, at: Node) -> Result<()> {
        session.operations += 1;
        match *self {
            Step::Create { file, bytes } => {
                let node = session.files.create(at, &name(file), 0o644)?;
                session.write_contents(node, file, 0, bytes, STDIO_BYTES)?;
                session.files.close(node)
            }
            Step::Delete { file } => session.files.unlink(at, &name(file)),
            Step::Read { file, bytes } => {
                let name = name(file);
                let node = session.files.lookup(at, &name)?.node;
                session.read_file(node, &name, bytes, STDIO_BYTES as usize)?;
                session.files.close(node)
            }
            Step::Append {
                file,
                at: end,
                bytes,
            } => {
                let node = session.files.lookup(at, &name(file))?.node;
                session.write_contents(node, file, end, bytes, STDIO_BYTES)?;
                session.files.close(node)
            }
        }
    }
}

fn name(file: u64) -> String {
    format!("{file}")
}
