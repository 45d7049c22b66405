//! The same random operations on our mount and on the kernel's ext2, answer by answer and tree by
//! tree.
//!
//! `OPERATIONS` is their number, `SEED` the seed, and `COMPARE_EVERY` the number after which the
//! trees are compared. A failure prints the last operations, and the seed repeats it.

use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::operations::{Choice, Generator, Operation};
use backstitch_tests::player::Player;
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::tree::{Compare, Tree, differences};
use backstitch_tests::{require, setting};
use rustix::fs::RenameFlags;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Made first, so that the random operations find something.
const DIRECTORIES: [&str; 9] = [
    "d0", "d1", "d2", "d0/d0", "d0/d1", "d1/d0", "d1/d2", "d2/d1", "d2/d2",
];

/// Two file systems, in step.
struct Pair {
    ours: (Mounted, Player),
    theirs: (Mounted, Player),
    compare: Compare,
    recent: VecDeque<String>,
    /// The number of operations that were not refused.
    done: u64,
}

const CHOICE: Choice = Choice {
    attributes: true,
    attribute_bytes: 120,
    holes: true,
};

#[test]
fn blocks_of_1024() {
    lockstep("lockstep_1024", &["-b", "1024"], CHOICE);
}

#[test]
fn blocks_of_4096() {
    lockstep(
        "lockstep_4096",
        &["-b", "4096"],
        Choice {
            attribute_bytes: 600,
            ..CHOICE
        },
    );
}

#[test]
fn small_inodes_without_index() {
    let arguments = ["-b", "1024", "-I", "128", "-O", "^dir_index"];
    lockstep("lockstep_128", &arguments, CHOICE);
}

#[test]
fn ufs2_beside_ext2() {
    ufs_beside_ext2("lockstep_ufs2", &["-t", "ufs2", "-b", "4096", "-f", "512"]);
}

#[test]
fn ufs1_beside_ext2() {
    ufs_beside_ext2("lockstep_ufs1", &["-t", "ufs1", "-b", "4096", "-f", "1024"]);
}

fn ufs_beside_ext2(name: &str, arguments: &[&str]) {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck");
    let choice = Choice {
        attributes: false,
        ..CHOICE
    };
    let scratch = Scratch::new(name);
    let images = [
        Image::ours(&scratch, "ours.img", "256M", arguments),
        Image::mke2fs(&scratch, "theirs.img", "256M", &["-b", "4096"]),
    ];
    // UFS has no `lost+found` before it is needed.
    let dir = scratch.dir("theirs");
    let mounted = Mounted::by_kernel(&images[1], &dir, "");
    std::fs::remove_dir(dir.join("lost+found")).expect("cannot remove lost+found");
    mounted.unmount();
    lockstep_of(
        name,
        &scratch,
        &images,
        choice,
        5_000,
        Compare::LockstepOfFormats,
    );
}

fn lockstep(name: &str, arguments: &[&str], choice: Choice) {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck");
    let scratch = Scratch::new(name);
    let images =
        ["ours.img", "theirs.img"].map(|name| Image::mke2fs(&scratch, name, "256M", arguments));
    let compare = lockstep_of(name, &scratch, &images, choice, 10_000, Compare::Lockstep);
    let (ours, theirs) = (scratch.dir("ours"), scratch.dir("theirs"));
    let mounts = [(&images[0], &ours), (&images[1], &theirs)]
        .map(|(image, dir)| Mounted::by_kernel(image, dir, "ro"));
    let (left, right) = (Tree::capture(&ours), Tree::capture(&theirs));
    let found = differences(&left, &right, compare);
    assert!(
        found.is_empty(),
        "both read by the kernel:\n{}",
        found.join("\n")
    );
    mounts.into_iter().for_each(Mounted::unmount);
}

/// Does the same on both. Returns how the two trees were compared.
fn lockstep_of(
    name: &str,
    scratch: &Scratch,
    images: &[Image; 2],
    choice: Choice,
    operations: u64,
    compare: fn(i64) -> Compare,
) -> Compare {
    let seed = Random::seed(name);
    let operations = setting("OPERATIONS", operations);
    let compare_every = setting("COMPARE_EVERY", 1000).max(1);
    let mut generator = Generator::new(seed, choice);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock before 1970");
    let compare = compare(now.as_secs() as i64);
    let mut pair = Pair::mount(scratch, images, compare);
    for number in 1..=operations {
        let operation = match DIRECTORIES.get(number as usize - 1) {
            Some(path) => Operation::Mkdir {
                path: (*path).to_owned(),
                mode: 0o755,
            },
            None => generator.operation(),
        };
        if pair.play(number, &operation) {
            generator.learn(&operation);
        }
        if number % compare_every == 0 {
            pair.compare(&format!("after {number} operations"));
        }
        if number == operations / 2 {
            // Open files do not survive this, but what either side has cached must.
            pair.unmount();
            images.iter().for_each(Image::expect_clean);
            pair = Pair::mount(scratch, images, compare);
        }
    }
    pair.compare("at the end");
    backstitch_tests::say(&format!(
        "{name}: {} of the second half were done",
        pair.done
    ));
    assert!(
        // Usually a quarter of the second half.
        pair.done > operations / 20,
        "almost everything was refused: the test tests nothing"
    );
    pair.unmount();
    images.iter().for_each(Image::expect_clean);
    compare
}

impl Pair {
    fn mount(scratch: &Scratch, images: &[Image; 2], compare: Compare) -> Self {
        let (ours, theirs) = (scratch.dir("ours"), scratch.dir("theirs"));
        let options = Options::with("allow_other");
        Self {
            ours: (
                Mounted::under_test(&images[0], &ours, &options),
                Player::new(&ours),
            ),
            theirs: (
                Mounted::by_kernel(&images[1], &theirs, ""),
                Player::new(&theirs),
            ),
            compare,
            recent: VecDeque::new(),
            done: 0,
        }
    }

    /// Does an operation on both sides. Returns whether it was done and not refused.
    fn play(&mut self, number: u64, operation: &Operation) -> bool {
        let ours = self.ours.1.play(operation);
        // Soft updates may refuse to exchange two names. The kernel's answer does not matter then.
        if is_exchange(operation) && ours.contains("Invalid argument") {
            return false;
        }
        // FreeBSD's limit for paths is below what fits into a block.
        if is_long_symlink(operation) && matches!(self.compare, Compare::LockstepOfFormats(_)) {
            assert!(ours.starts_with("error"), "{operation:?}: {ours}");
            return false;
        }
        let theirs = self.theirs.1.play(operation);
        let done = !theirs.starts_with("error");
        self.done += u64::from(done);
        self.recent
            .push_back(format!("{number}: {operation:?} → {theirs}"));
        if self.recent.len() > 25 {
            self.recent.pop_front();
        }
        // The format decides where data is: after a hole at the end, the tail's fragments remain.
        let is_free = matches!(operation, Operation::SeekData { .. })
            && matches!(self.compare, Compare::LockstepOfFormats(_));
        if ours != theirs && !is_free {
            panic!("different answers:\n{}\nours: {ours}", self.history());
        }
        done
    }

    fn compare(&mut self, when: &str) {
        let look = |mounted: &Mounted| {
            // Delayed allocation should not show in the comparison.
            let root = std::fs::File::open(mounted.path()).expect("cannot open the root");
            rustix::fs::syncfs(&root).expect("cannot sync");
            Tree::try_capture(mounted.path())
                .unwrap_or_else(|error| panic!("{when}: {error}\n{}", self.history()))
        };
        let (ours, theirs) = (look(&self.ours.0), look(&self.theirs.0));
        let found = differences(&ours, &theirs, self.compare);
        assert!(
            found.is_empty(),
            "{when}, ours (left) differs from the kernel's (right):\n{}\n{}",
            found.join("\n"),
            self.history()
        );
    }

    fn history(&self) -> String {
        self.recent
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn unmount(mut self) {
        for (mounted, mut player) in [self.ours, self.theirs] {
            player.close_all();
            mounted.unmount();
        }
        self.recent.clear();
    }
}

fn is_exchange(operation: &Operation) -> bool {
    matches!(operation, Operation::Rename { flags, .. } if *flags == RenameFlags::EXCHANGE)
}

fn is_long_symlink(operation: &Operation) -> bool {
    matches!(operation, Operation::Symlink { target, .. } if target.len() > 1023)
}
