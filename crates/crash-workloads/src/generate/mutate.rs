//! Draws random workloads of all operations, and mutates workloads.

use backstitch_crash_core::operation::{Data, Operation, Path, parse_script};
use backstitch_layout::{Allocate, flags};
use backstitch_mechanisms::interchangeable;

use fastrand::Rng as Random;

use super::guided::{Candidate, Image};
use super::random::Grown;
use super::tree;

/// The most operations of a workload after those that only prepare.
const MOST_OPERATIONS: usize = 24;

/// The most operations of a new workload.
const DRAWN: usize = 10;

/// The most changes that one mutation makes.
const MOST_CHANGES: usize = 4;

/// The most blocks of a write: each block costs states at every moment.
const MOST_BLOCKS: u64 = 24;

/// The largest image of which a single file may take a large part.
const SMALL_IMAGE_BYTES: u64 = 2 << 20;

/// Operations that prepare: trees with something in them that random operations seldom make.
const SETUPS: [&str; 6] = [
    "",
    // Its old contents must not show in other files.
    "creat old; write old 0 40000; sync; unlink old; sync",
    "write foo 300000 1000; setxattr foo user.a one; setxattr A/foo user.a one; link foo B/l; sync",
    "setacl A; creat A/g; mkdir A/D; creat A/D/x; chattr B/bar A; sync",
    "truncate foo 20000; append A/foo 700; creat x; truncate x 500; symlink target s; open A/foo; sync",
    // A directory without room in its block, see `long_name`.
    "creat B/LONG1; creat B/LONG2; creat B/LONG3; creat B/LONG4; mkdir B/D; sync",
];

/// Operations that come before all others and change the image's journal, if it has one.
const JOURNALS: [&str; 4] = [
    "",
    "log-blocks 32",
    "log-blocks 64",
    "log-sequence 4294967293",
];

/// Few values of attributes, so that attribute blocks are shared.
const VALUES: [&[u8]; 3] = [b"one", b"two", &[b'v'; 300]];
const ATTRIBUTES: [&[u8]; 2] = [b"user.a", b"user.b"];

/// Flags of files, and owners.
const FLAGS: [u32; 4] = [
    0,
    flags::NOATIME,
    flags::SYNC | flags::DIRSYNC,
    flags::APPEND,
];
const OWNERS: [(u32, u32); 2] = [(0, 0), (7, 8)];

/// Numbers of patchgroups.
const GROUPS: u32 = 3;

/// A name so long that a block of 1024 bytes has room for only four.
fn long_name(number: usize) -> String {
    format!("{}{number}", "n".repeat(200))
}

/// Makes candidates.
pub(super) struct Mutator {
    image: Image,
    setups: Vec<Vec<Operation>>,
}

impl Mutator {
    pub(super) fn new(image: Image) -> Mutator {
        let mut setups = Vec::new();
        let is_journal = image.ordering.has_log();
        for journal in JOURNALS
            .iter()
            .take(if is_journal { JOURNALS.len() } else { 1 })
        {
            for more in SETUPS {
                let more = more.replace("LONG", &long_name(0));
                let parse = |text: &str| parse_script(text).expect("a script of our own");
                let parts = [parse(journal), tree(), parse(&more)];
                setups.push(parts.concat());
            }
        }
        Mutator { image, setups }
    }

    /// A new random candidate.
    pub(super) fn draw(&self, random: &mut Random) -> Candidate {
        let operations = self.setups[random.usize(..self.setups.len())].clone();
        let setup = operations.len();
        let mut candidate = Candidate { operations, setup };
        let wanted = setup + 2 + random.usize(..DRAWN - 1);
        let mut names = Grown::new();
        candidate.operations.iter().for_each(|op| names.follow(op));
        while candidate.operations.len() < wanted {
            for operation in self.some(&mut names, random) {
                candidate.operations.push(operation);
            }
        }
        self.cut(&mut candidate);
        candidate
    }

    /// A candidate made from `parent` by a few changes, some of which take operations of `other`.
    pub(super) fn mutate(
        &self,
        parent: &Candidate,
        other: &Candidate,
        random: &mut Random,
    ) -> Candidate {
        let mut child = parent.clone();
        for _ in 0..1 + random.usize(..MOST_CHANGES) {
            self.change(&mut child, other, random);
        }
        if child.operations.len() == child.setup {
            child.operations.push(Operation::Sync);
        }
        self.cut(&mut child);
        child
    }

    fn cut(&self, candidate: &mut Candidate) {
        candidate
            .operations
            .truncate(candidate.setup + MOST_OPERATIONS);
    }

    fn change(&self, child: &mut Candidate, other: &Candidate, random: &mut Random) {
        let (setup, len) = (child.setup, child.operations.len());
        let at = setup + random.usize(..len - setup + 1);
        match random.usize(..16) {
            0..=5 => {
                let mut names = names_before(&child.operations[..at]);
                let some = self.some(&mut names, random);
                child.operations.splice(at..at, some);
            }
            6 | 7 if at < len => drop(child.operations.remove(at)),
            8..=10 if at < len => self.change_argument(&mut child.operations, at, random),
            11 => {
                // The rest is taken from the other candidate.
                let from = other.setup + random.usize(..other.operations.len() - other.setup + 1);
                child.operations.truncate(at);
                child
                    .operations
                    .extend_from_slice(&other.operations[from..]);
            }
            12 => {
                let from = other.setup + random.usize(..other.operations.len() - other.setup + 1);
                let to = (from + 1 + random.usize(..4)).min(other.operations.len());
                let some = other.operations[from..to].to_vec();
                child.operations.splice(at..at, some);
            }
            13 => {
                // Some of its operations are repeated.
                let from = setup + random.usize(..len - setup + 1);
                let to = (from + 1 + random.usize(..4)).min(len);
                let some = child.operations[from..to].to_vec();
                child.operations.splice(at..at, some);
            }
            14 if at + 1 < len => child.operations.swap(at, at + 1),
            15 => {
                let rest = child.operations.split_off(setup);
                child.operations = self.setups[random.usize(..self.setups.len())].clone();
                child.setup = child.operations.len();
                child.operations.extend(rest);
            }
            _ => {
                let names = names_before(&child.operations[..at]);
                child.operations.insert(at, self.flush(&names, random));
            }
        }
    }

    /// Changes a path, offset, length or value of an operation.
    fn change_argument(&self, operations: &mut [Operation], at: usize, random: &mut Random) {
        let names = names_before(&operations[..at]);
        let (file, new) = (names.file(random), names.new_name(random));
        let (file, new) = (Path::plain(&file), Path::plain(&new));
        let is_path = random.bool();
        match &mut operations[at] {
            Operation::Create(path, _)
            | Operation::Mkdir(path, _)
            | Operation::Symlink(_, path, _) => {
                *path = new;
            }
            Operation::Write(path, ..)
            | Operation::Append(path, _)
            | Operation::Truncate(path, _)
            | Operation::Allocate(path, ..)
            | Operation::SetXattr(path, ..)
            | Operation::Chmod(path, _)
                if is_path =>
            {
                *path = file;
            }
            Operation::Write(_, offset, data) => match random.bool() {
                true => *offset = self.offset(random),
                false => *data = Data::Pattern(self.length(random)),
            },
            Operation::Append(_, data) => *data = Data::Pattern(self.length(random)),
            Operation::Truncate(_, size) => *size = self.offset(random),
            Operation::Allocate(_, how, offset, len) => match random.usize(..3) {
                0 => *how = allocation(random),
                1 => *offset = self.offset(random),
                _ => *len = self.length(random) as u64,
            },
            Operation::SetXattr(_, name, value) => match random.bool() {
                true => *name = ATTRIBUTES[random.usize(..ATTRIBUTES.len())].to_vec(),
                false => *value = VALUES[random.usize(..VALUES.len())].to_vec(),
            },
            Operation::Link(from, to) | Operation::Rename(from, to) => match is_path {
                true => *from = file,
                false => *to = new,
            },
            Operation::Exchange(one, other) => match is_path {
                true => *one = file,
                false => *other = file,
            },
            Operation::Unlink(path)
            | Operation::Open(path)
            | Operation::Close(path)
            | Operation::Fsync(path)
            | Operation::Fdatasync(path) => *path = file,
            Operation::Crash(number) => *number = random.u32(..8),
            other => *other = self.flush(&names, random),
        }
    }

    fn flush(&self, names: &Grown, random: &mut Random) -> Operation {
        let directory = Path::plain(&names.directory(random));
        match random.usize(..6) {
            0 => Operation::Sync,
            1 => Operation::Fsync(directory),
            _ => names.flush(random),
        }
    }

    /// A random size of, or offset in, a file: near the borders of blocks, near the borders of what
    /// the inode and each indirect block map, or, in a small image, anywhere.
    fn offset(&self, random: &mut Random) -> u64 {
        let block = self.image.block_bytes;
        let (direct, leaf) = (12 * block, block / 4 * block);
        let borders = [
            0,
            0,
            block,
            block * 3,
            direct,
            direct,
            direct + leaf,
            direct + leaf,
            direct + 2 * leaf,
            // The offset at which a triple indirect block begins to map, if the model supports such
            // large files.
            direct + leaf + block / 4 * leaf,
        ];
        let largest = super::MOST_BYTES - MOST_BLOCKS * block;
        let border = borders[random.usize(..borders.len())].min(largest);
        let border = match self.image.size_bytes <= SMALL_IMAGE_BYTES && random.usize(..8) == 0 {
            true => random.u64(..self.image.size_bytes),
            false => border,
        };
        match random.usize(..8) {
            0 => border.saturating_sub(1),
            1 => border + 1,
            2 => border.saturating_sub(block / 2),
            3 => border + block / 2,
            4 => border.saturating_sub(block),
            5 => border + block * random.u64(..8),
            _ => border,
        }
    }

    fn length(&self, random: &mut Random) -> usize {
        let block = self.image.block_bytes;
        let small = self.image.size_bytes / 4;
        let lengths = [
            1,
            100,
            block / 2,
            block - 1,
            block,
            block + 1,
            3 * block,
            9 * block,
            13 * block,
            MOST_BLOCKS * block,
        ];
        let length = lengths[random.usize(..lengths.len())];
        match self.image.size_bytes <= SMALL_IMAGE_BYTES && random.usize(..8) == 0 {
            true => small as usize,
            false => length as usize,
        }
    }

    /// A random operation, or a few that belong together.
    fn some(&self, names: &mut Grown, random: &mut Random) -> Vec<Operation> {
        let some = match random.usize(..8) {
            0 => self.habit(names, random),
            1 => vec![self.flush(names, random)],
            2 => vec![names.operation(random)],
            _ => vec![self.one(names, random)],
        };
        some.iter().for_each(|operation| names.follow(operation));
        some
    }

    fn one(&self, names: &Grown, random: &mut Random) -> Operation {
        let (file, other) = (names.file(random), names.file(random));
        let (file, other) = (Path::plain(&file), Path::plain(&other));
        let directory = Path::plain(&names.directory(random));
        let new = Path::plain(&names.new_name(random));
        let any = if random.usize(..3) == 0 {
            directory.clone()
        } else {
            file.clone()
        };
        let attribute = ATTRIBUTES[random.usize(..ATTRIBUTES.len())].to_vec();
        let value = VALUES[random.usize(..VALUES.len())].to_vec();
        match random.usize(..36) {
            0 | 1 => Operation::Create(new, None),
            2 => Operation::Mkdir(new, None),
            3 => Operation::Symlink(vec![b't'; 1 + random.usize(..90)], new, None),
            4..=7 => Operation::Write(
                file,
                self.offset(random),
                Data::Pattern(self.length(random)),
            ),
            8 | 9 => Operation::Append(file, Data::Pattern(self.length(random))),
            10 | 11 => Operation::Truncate(file, self.offset(random)),
            12 | 13 => {
                let len = self.length(random) as u64;
                Operation::Allocate(file, allocation(random), self.offset(random), len)
            }
            14 | 15 => Operation::Link(file, new),
            16 | 17 => Operation::Unlink(file),
            18 => Operation::Rmdir(directory),
            19 | 20 => Operation::Rename(any, new),
            21 => Operation::Rename(file, other),
            22 => Operation::Exchange(any, other),
            23 | 24 => Operation::SetXattr(any, attribute, value),
            25 => Operation::RemoveXattr(any, attribute),
            26 => Operation::SetAcl(directory),
            27 => match random.bool() {
                true => Operation::Open(file),
                false => Operation::Close(file),
            },
            28 => Operation::Work,
            29 => Operation::Utimes(any, random.u32(..4), random.u32(..4)),
            30 => Operation::Chmod(any, if random.bool() { 0o600 } else { 0o755 }),
            31 => {
                let (uid, gid) = OWNERS[random.usize(..OWNERS.len())];
                Operation::Chown(any, uid, gid)
            }
            32 => Operation::Chattr(any, FLAGS[random.usize(..FLAGS.len())]),
            33 => self.of_groups(random),
            34 => self.of_lives(random),
            _ => Operation::LogTail,
        }
    }

    fn of_groups(&self, random: &mut Random) -> Operation {
        let group = 1 + random.u32(..GROUPS);
        match random.usize(..4) {
            0 => Operation::Engage(group),
            1 => Operation::Disengage(group),
            2 => Operation::Depend(1 + group % GROUPS, group),
            _ => Operation::SyncGroup(group),
        }
    }

    /// The end of a mount, and the beginning of the next.
    fn of_lives(&self, random: &mut Random) -> Operation {
        let orderings = interchangeable(self.image.ordering);
        match random.usize(..3) {
            // The first three have a third of the chances each; of two, the first has two thirds.
            0 => Operation::Remount(Some(orderings[random.usize(..3) % orderings.len()])),
            1 => Operation::Remount(None),
            _ => Operation::Crash(random.u32(..8)),
        }
    }

    /// Operations that programs typically do in this order.
    fn habit(&self, names: &mut Grown, random: &mut Random) -> Vec<Operation> {
        let file = Path::plain(&names.file(random));
        let other = Path::plain(&names.file(random));
        let new = Path::plain(&names.new_name(random));
        let directory = names.directory(random);
        let pattern = |random: &mut Random| Data::Pattern(self.length(random));
        match random.usize(..8) {
            0 => {
                let mut some = Vec::new();
                names.flushed(random, &mut some);
                some
            }
            1 => (0..3 + random.usize(..3))
                .map(|number| {
                    let name = format!("{directory}/{}", long_name(number + random.usize(..40)));
                    Operation::Create(Path::plain(&name), None)
                })
                .collect(),
            2 => vec![
                Operation::Open(file.clone()),
                Operation::Unlink(file),
                Operation::Sync,
            ],
            3 => {
                let value = VALUES[random.usize(..VALUES.len())].to_vec();
                let set = |path| Operation::SetXattr(path, ATTRIBUTES[0].to_vec(), value.clone());
                vec![set(file), set(other)]
            }
            4 => vec![
                Operation::Link(file.clone(), new.clone()),
                Operation::Unlink(file),
            ],
            5 => vec![
                Operation::Truncate(file.clone(), self.offset(random)),
                Operation::Append(file, pattern(random)),
            ],
            6 => {
                let group = 1 + random.u32(..GROUPS);
                vec![
                    Operation::Engage(group),
                    Operation::Write(file, self.offset(random), pattern(random)),
                    Operation::Disengage(group),
                    Operation::Depend(1 + group % GROUPS, group),
                ]
            }
            // Freed blocks and inodes are reused.
            _ => vec![
                Operation::Unlink(file),
                Operation::Work,
                Operation::Create(new.clone(), None),
                Operation::Write(new, 0, pattern(random)),
            ],
        }
    }
}

fn allocation(random: &mut Random) -> Allocate {
    let keep_size = random.bool();
    match random.usize(..3) {
        0 => Allocate::PunchHole,
        1 => Allocate::Reserve { keep_size },
        _ => Allocate::ZeroRange { keep_size },
    }
}

/// The names that exist after some operations.
fn names_before(operations: &[Operation]) -> Grown {
    let mut names = Grown::over(vec![String::new()], Vec::new());
    operations
        .iter()
        .for_each(|operation| names.follow(operation));
    names
}
