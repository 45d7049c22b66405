//! Scripts that were each written, with knowledge of the rule, to show what one rule prevents.
//!
//! The explorer's own workloads should find a rule that is switched off without these scripts. If
//! they do not, a script tells whether they fail to reach the rule or nothing needs it.

use backstitch_formats::{ExtRule, Rule};
use backstitch_rules::{Id, Site};

/// A small tree with shared attributes. A part of it is not on the disk.
macro_rules! tree {
    () => {
        "mkdir A; mkdir A/d; creat A/f; write A/f 0 9000; link A/f A/g; setacl A; creat A/h; sync; creat A/d/i; mkdir A/e; \
         unlink A/g; rename A/f A/d/f"
    };
}

/// A name so long that three of its kind, and `.` and `..`, leave no room for a fourth in a block
/// of 1024 bytes.
macro_rules! long {
    () => {
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
         nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
         nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    };
}

/// Deferred work with nothing to do, for a second of the file system's clock. After that the file
/// system looks for inodes with nothing under way.
macro_rules! a_second {
    () => {
        "work; work; work; work; work; work; work; work; work; work; \
         work; work; work; work; work; work; work; work; work; work; \
         work; work; work; work; work; work; work; work; work; work; \
         work; work; work; work; work; work; work; work; work; work; \
         work; work; work; work; work; work; work; work; work; work; \
         work; work; work; work; work; work; work; work; work; work; "
    };
}

pub(crate) use {a_second, long};

/// A directory without room for another long name in its block.
macro_rules! full_b {
    () => {
        concat!(
            "mkdir B; creat B/",
            long!(),
            "1; creat B/",
            long!(),
            "2; creat B/",
            long!(),
            "3"
        )
    };
}

/// Adds names to it until leaves of its index are split.
macro_rules! more_b {
    () => {
        concat!(
            "creat B/",
            long!(),
            "4; creat B/",
            long!(),
            "5; creat B/",
            long!(),
            "6; creat B/",
            long!(),
            "7; creat B/",
            long!(),
            "8; creat B/",
            long!(),
            "9"
        )
    };
}

/// A name that, with another one and the names that `crossing` puts before them, fills a directory
/// up to four bytes before its second sector.
macro_rules! padding {
    () => {
        "pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp\
         pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp\
         ppppppppppppppp"
    };
}

/// The name whose entry has its inode number at the end of the first sector.
macro_rules! crosses {
    () => {
        "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
    };
}

/// Names as another driver may write them: their entries cross the sectors of the block. One has
/// its inode number in the first sector and its type in the second.
macro_rules! crossing {
    () => {
        concat!(
            "mkdir A; creat A/f; mkdir A/e; symlink f A/s; creat A/",
            padding!(),
            "1; creat A/",
            padding!(),
            "2; creat A/",
            crosses!(),
            "; mkdir B; creat B/f; creat B/",
            long!(),
            "1; creat B/",
            long!(),
            "2"
        )
    };
}

/// The scripts, by rule.
macro_rules! scripts {
    ($($registry:ident :: $rule:ident => $script:expr;)*) => {
        /// All scripts.
        pub const ALL: &[Provoking] = &[$(Provoking { rule: $registry::$rule.id(), script: $script },)*];
    };
}

/// A script that shows what a rule prevents.
#[derive(Clone, Copy, Debug)]
pub struct Provoking {
    /// The rule.
    pub rule: Id,
    /// Operations on an empty file system of 1024-byte blocks, separated by `;`, as `crash fs
    /// --script` takes them. At `index`, with nothing mounted, a foreign checker gives the
    /// directories an index on the disk. What comes before `blocks` is done while blocks are
    /// written wholly or not at all, and is not looked at.
    pub script: &'static str,
}

impl Provoking {
    /// The rule's name for people.
    pub fn name(&self) -> String {
        let site = crate::rules::sites().find(|site| site.id == self.rule);
        site.map(Site::name).unwrap_or_default()
    }

    /// Whether the lack of the rule shows when the power fails again while the reclaim works on
    /// what a crash left.
    pub fn is_in_recovery(&self) -> bool {
        [
            Rule::ReclaimOrphansAfterParents.id(),
            Rule::ReclaimHeedsMarks.id(),
            Rule::ReclaimClearsAfterDotDot.id(),
            Rule::ReclaimKillsAfterClearings.id(),
            Rule::ReclaimKillsChildrenFirst.id(),
            Rule::ReclaimCorrectsAfterDeaths.id(),
            Rule::ReclaimFreesAfterUnmapping.id(),
            Rule::ReclaimToldOfNewName.id(),
            Rule::ReclaimToldOfRemovedName.id(),
            Rule::ReclaimToldOfNewInode.id(),
            Rule::ReclaimToldOfLastName.id(),
            Rule::ReclaimToldOfBlocks.id(),
            Rule::ReclaimToldOfAttributes.id(),
            Rule::DirectoriesWaitForNames.id(),
            Rule::ParentsWaitForReclaim.id(),
        ]
        .contains(&self.rule)
    }

    /// Whether the lack of the rule shows only if inodes are forgotten at once, or in more states
    /// than an exhaustive exploration has time for. The ablation has worlds and rounds for such
    /// rules.
    pub fn is_for_ablation(&self) -> bool {
        [
            Rule::RememberedWhileNamed.id(),
            Rule::NameIsPendingUntilReach.id(),
            // Found by an exhaustive exploration, but that takes half the time of all others
            // together.
            Rule::MovedOnlyInOneLeaf.id(),
            Rule::MovingAgainAfterMark.id(),
        ]
        .contains(&self.rule)
    }

    /// Whether, without the rule, the states that a crash leaves are right, and only the reclaim
    /// makes them wrong.
    pub fn needs_reclaim(&self) -> bool {
        let leaves_no_hint = [
            Rule::ReplacingAfterMark.id(),
            Rule::MarkUntilOldNameGone.id(),
            Rule::MovingAfterEarlierNames.id(),
            Rule::MovingAgainAfterMark.id(),
            Rule::RememberedWhileCleared.id(),
            Rule::MoveWithinUnit.id(),
        ]
        .contains(&self.rule);
        leaves_no_hint || self.is_in_recovery()
    }

    /// Whether the rule belongs to code that runs only where scopes are atomic, as under a journal.
    pub fn needs_atomic_scopes(&self) -> bool {
        [
            ExtRule::SplitGetsEntry.id(),
            ExtRule::SplitAtBorder.id(),
            ExtRule::IndexEntryInOrder.id(),
            Rule::ExchangeBoth.id(),
        ]
        .contains(&self.rule)
    }

    /// Whether the rule belongs to code that runs only where sectors, and not blocks, are written
    /// wholly or not at all.
    pub fn needs_torn_blocks(&self) -> bool {
        [
            Rule::TailCutAfterHead.id(),
            Rule::NameAfterTailCut.id(),
            Rule::TailHeadAfterPending.id(),
            Rule::TypeUnknownBeforeNumber.id(),
            Rule::TypeAfterNumber.id(),
            Rule::MoveWithinUnit.id(),
            Rule::ExchangeWithinUnit.id(),
            Rule::ReachOutlastsRecovery.id(),
            ExtRule::AttributesChangedWhole.id(),
            ExtRule::AttributesSharedWhole.id(),
        ]
        .contains(&self.rule)
    }

    /// Whether the lack of the rule shows only with more use of the file system during the reclaim
    /// than an exhaustive exploration has time for.
    pub fn needs_much_use(&self) -> bool {
        [
            Rule::ReclaimToldOfAttributes.id(),
            Rule::DirectoriesWaitForNames.id(),
            Rule::ParentsWaitForReclaim.id(),
        ]
        .contains(&self.rule)
    }
}

scripts! {
    // Blocks of files and directories.
    Rule::PointerAfterBit => "mkdir A; creat A/f; sync; write A/f 0 5000";
    Rule::PointerAfterContents => "mkdir A; creat A/old; write A/old 0 8192; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 0 5000";
    Rule::IndirectEntryAfterBit => "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024";
    Rule::IndirectEntryAfterContents => "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; write A/f \
         0 14336; sync; append A/f 1024";
    Rule::UnbornMeansNotOnDisk => "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; write A/f \
         0 14336; sync; append A/f 1024";
    Rule::IndirectPointerAfterBlock => "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 0 20000";
    Rule::IndirectPointerAfterBelow => "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 16384 1000";
    Rule::IndirectEntryAfterBlock => "mkdir A; creat A/old; write A/old 0 30000; sync; unlink A/old; sync; creat A/f; sync; \
         write A/f 274432 1000";
    Rule::SizeAfterIndirectEntry => "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024";
    Rule::SizeAfterContents => "mkdir A; creat A/f; write A/f 0 300; sync; append A/f 300";
    Rule::SizeAfterFilledEnd => "mkdir A; creat A/f; sync; truncate A/f 500; write A/f 100 50; append A/f 100";
    Rule::SizeAfterHole => "mkdir A; creat A/f; write A/f 0 6000; punch A/f 1024 5000; truncate A/f 1024";
    Rule::SizeAfterZeroedTail => "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100; truncate A/f 5000";
    // Entries of an indirect block are on the disk, but the size that covers them is not.
    Rule::GrowthDropsLeftovers => "creat f; write f 0 14000; sync; write f 14000 6000; round; round; cut; truncate f 40000; fsync f";

    Rule::UnbornInodeAfterEntries => "creat old; write old 0 60000; sync; unlink old; sync; creat f; write f 0 14336; round; \
         append f 1024; round; append f 3072";
    Rule::LeftPlaceAfterPointer => "creat log; append log 13000; sync; append log 300; fsync log; append log 900; fsync log; \
         append log 1500; round; append log 1500";
    Rule::LeftPlaceFreedAfterPointer => "creat log; append log 13000; sync; append log 300; fsync log; append log 900; fsync log; \
         append log 1500; unlink log; work";
    Rule::MovedOnlyInOneLeaf => "creat log; append log 13000; append log 260000; sync; append log 100; fsync log; append log 100; \
         fsync log; append log 5000; fsync log";

    // New names.
    Rule::NameAfterInode => "mkdir A; sync; creat A/f";
    Rule::InodeAfterBit => "mkdir A; sync; creat A/f";
    Rule::SpareInodeAfterBit => "mkdir A; creat A/f; fsync A/f; creat A/g; creat A/h";
    Rule::InodeAfterBlockBit => "mkdir A; sync; mkdir A/d";
    Rule::InodeAfterDirectoryBlock => "mkdir A; sync; mkdir A/d";
    Rule::InodeAfterSymlinkTarget => "mkdir A; sync; symlink \
         tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt \
         A/s";
    ExtRule::InodeAfterInheritedAttributes => "mkdir A; setacl A; sync; mkdir A/d; creat A/f";
    Rule::InodeAfterParentLink => "mkdir A; sync; mkdir A/d";
    Rule::LinkedNameAfterCount => "mkdir A; mkdir B; creat A/f; sync; link A/f B/g";
    Rule::FirstNameAfterChanges => "sync; tmpfile / #1; write #1 0 2000; round; write #1 500 100; link #1 f";
    Rule::UnnamedCountsAsFreed => "tmpfile / #1; sync; close #1; work; remount; creat f";
    Rule::NamedIsNotFreed => "tmpfile / #1; link #1 f; fsync f; close #1; work";
    Rule::NameAfterEarlierRemoval => "mkdir A; creat A/x; creat A/y; creat A/f; sync; unlink A/x; unlink A/f; creat A/f";
    Rule::NameAfterIndexFlag => concat!(
            "mkdir A; creat A/", long!(), "1; creat A/", long!(), "2; creat A/", long!(),
            "3; creat A/", long!(), "4; index A; creat A/f",
        );
    Rule::NewDirectoryBlockIsNoted => concat!(full_b!(), "; mkdir A; creat A/g; sync; creat B/", long!(), "4; link A/g B/", long!(), "5; unlink A/g");
    Rule::MovedDirectoryReachIsNoted => "mkdir A; mkdir B; sync; mkdir A/d; creat A/d/f; rename A/d B/d; fsync B/d/f";

    // Reachable names.
    Rule::ReachIncludesPointer => concat!(full_b!(), "; mkdir A; creat A/f; sync; link A/f B/", long!(), "4; unlink A/f");
    Rule::ReachIncludesParents => "mkdir A; creat A/f; sync; mkdir D; mkdir D/e; link A/f D/e/g; unlink A/f";
    Rule::ClearingAfterOtherReach => "mkdir A; mkdir B; creat A/f; sync; link A/f B/g; unlink A/f";
    Rule::NameIsPendingUntilPointer => concat!(full_b!(), "; mkdir A; creat A/g; sync; link A/g B/", long!(), "4; link A/g h; unlink A/g; unlink h");
    Rule::NameIsPendingUntilReach => "mkdir A; creat A/f; sync; mkdir D; link A/f D/g; link A/f h; unlink A/f; unlink h";

    // Removed names.
    Rule::CountAfterClearings => "mkdir A; mkdir B; creat A/f; link A/f B/g; sync; unlink A/f";
    Rule::FreeingAfterClearings => "mkdir A; creat A/f; sync; unlink A/f";
    Rule::CountFollowsClearing => "mkdir A; mkdir B; creat A/f; link A/f B/g; sync; unlink A/f";
    Rule::NamesGoWithInode => "mkdir A; mkdir A/d; creat f; rename f A/d/f; sync; unlink A/d/f; rmdir A/d";
    Rule::ParentLinkAfterFreeing => "mkdir A; mkdir A/d; sync; rmdir A/d";
    Rule::ClearingAfterDepartures => "mkdir A; mkdir D; creat D/f; sync; rename D/f A/f; rmdir D";
    Rule::RemovalIsDeparture => "mkdir A; mkdir D; creat D/f; sync; link D/f A/g; unlink D/f; rmdir D";
    Rule::ReplacementIsDeparture => "mkdir A; mkdir D; creat D/t; creat D/f; sync; link D/t A/u; rename D/f D/t; unlink D/t; \
         rmdir D";
    Rule::MoveIsDeparture => "mkdir A; mkdir D; creat D/f; sync; rename D/f A/f; rmdir D";
    Rule::ClearingAfterEarlierNames => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d; rmdir B/d";
    Rule::RemovalIsNoted => "mkdir A; creat A/x; creat A/y; creat A/f; unlink A/x; sync; unlink A/f; creat A/f";

    // Moved names.
    Rule::NewNameAfterCount => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    Rule::OldNameAfterNew => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    Rule::OldNameAfterReach => "mkdir A; creat A/f; sync; mkdir D; rename A/f D/f";
    Rule::OldNameAfterPointer => concat!(full_b!(), "; mkdir A; creat A/f; sync; rename A/f B/", long!(), "4");
    Rule::CountAfterOldName => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    Rule::TargetAfterNewName => "mkdir A; mkdir B; creat A/f; creat B/g; sync; rename A/f B/g";
    Rule::ReplacingAfterReach => "mkdir A; mkdir B; creat A/t; creat A/f; sync; link A/t B/u; rename A/f A/t";
    Rule::ReplacingAfterDepartures => "mkdir A; mkdir B; mkdir A/t; creat A/t/x; mkdir A/d; sync; rename A/t/x B/x; rename A/d \
         A/t";
    Rule::ReplacingAfterEarlierNames => "mkdir A; mkdir B; mkdir A/t; mkdir B/d; sync; rename A/t B/t; rename B/d B/t";
    Rule::MoveWithinBlockIsClearing => "mkdir A; creat A/f; sync; rename A/f A/g; unlink A/g";
    Rule::OldNameFollowsNew => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g";
    Rule::MoveIsClearing => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d; rmdir B/d";
    Rule::MoveIsRemoval => "mkdir A; mkdir B; creat A/x; creat A/y; creat A/f; unlink A/x; sync; rename A/f B/g; creat A/f";

    // Moved directories.
    Rule::DotDotAfterName => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    Rule::DotDotAfterPointer => concat!(full_b!(), "; mkdir A; mkdir A/d; sync; rename A/d B/", long!(), "4");
    Rule::MovedAfterParentLink => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    Rule::OldNameAfterDotDot => "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d";
    Rule::OldParentLinkAfterOldName => "mkdir A; mkdir A/d; sync; mkdir B; rename A/d B/d";
    Rule::NewNameAfterPendingOldName => "mkdir A; mkdir B; sync; mkdir A/d; rename A/d B/d";
    // (Torn: the two names are in two sectors.)
    Rule::ReachOutlastsRecovery => concat!("mkdir B; creat B/", long!(), "1; sync; mkdir B/d; creat B/d/f; rename B/d B/", long!(), "2; fsync B/", long!(),
            "2/f");
    Rule::NewNameAfterNamesAbove => "mkdir outer; mkdir outer/middle; mkdir outer/middle/inner; mkdir outer/middle/inner/sub; \
         mkdir other; sync; rename outer/middle/inner other/inner; rename outer \
         other/inner/sub/outer";

    // A directory that takes an empty one's name.
    Rule::ReplacingAfterMark => concat!("mkdir B; mkdir B/C; creat B/", long!(), "1; creat B/", long!(), "2; creat B/", long!(), "3; mkdir B/", long!(),
            "4; sync; rename B/C B/", long!(), "4");
    Rule::MarkUntilOldNameGone => "mkdir A; mkdir B; mkdir B/foo; mkdir B/foo/D; sync; rename A B/foo/D";
    Rule::MovingAfterEarlierNames => "mkdir A; mkdir B; mkdir B/C; mkdir B/D; sync; rename A B/C; rename B/C B/D";
    Rule::MovingAgainAfterMark => "mkdir A; mkdir B; mkdir B/D; mkdir B/1; mkdir B/2; mkdir B/3; mkdir B/4; mkdir B/5; mkdir B/6; mkdir B/7; \
         mkdir B/8; sync; rename A B/D; mkdir A; fsync A; rename B/D A";
    Rule::RemovalOfReplacementIsNoted => concat!(full_b!(), "; creat B/", long!(), "4; creat B/", long!(), "5; sync; unlink B/", long!(), "1; sync; rename B/", long!(),
            "5 B/", long!(), "4; unlink B/", long!(), "4; creat B/", long!(), "4");

    // Truncation and holes.
    Rule::SizeAfterNullification => "mkdir A; creat A/f; write A/f 0 20000; sync; truncate A/f 13000";
    Rule::TailZeroedAfterSize => "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100";
    Rule::BlocksFreedAfterUnmapping => "mkdir A; creat A/f; write A/f 0 20000; sync; truncate A/f 5000; work";

    // Attributes.
    ExtRule::AttributePointerAfterReference => "mkdir A; creat A/f; creat A/g; setxattr A/f user.a one; sync; setxattr A/g user.a one";
    ExtRule::AttributePointerAfterContents => "mkdir A; creat A/f; sync; setxattr A/f user.a one";
    ExtRule::AttributeBlockAfterBit => "mkdir A; creat A/f; sync; setxattr A/f user.a one";
    ExtRule::AttributeReleaseAfterPointer => "mkdir A; creat A/f; setxattr A/f user.a one; sync; removexattr A/f user.a; work";

    // Deferred work.
    Rule::InodeFreedAfterDeath => "mkdir A; creat A/f; write A/f 0 3000; sync; unlink A/f; work";
    Rule::DeferredWorkWaits => "mkdir A; creat A/f; setxattr A/f user.a one; write A/f 0 20000; sync; punch A/f 1024 \
         2048; truncate A/f 5000; unlink A/f; work";
    Rule::DeferredWorkWaitsForAll => "mkdir A; mkdir B; creat A/x; creat A/y; creat A/f; creat B/g; write B/g 0 3000; sync; \
         unlink A/f; unlink B/g; work; creat A/h; fsync A/h; append A/h 100; fsync A/h; work";

    // What is remembered of an inode, and of a directory.
    Rule::RememberedWhileNamed => "mkdir A; mkdir B; creat A/f; sync; link A/f B/g; round; work; work; unlink A/f";
    // All of the moved directory is on the disk, and it is forgotten. The directory that it
    // replaced is in another block of inodes, and still has its mark there when the moved one moves
    // on.
    Rule::RememberedWhileCleared => concat!("mkdir A; mkdir B; mkdir B/1; mkdir B/2; mkdir B/3; mkdir B/4; mkdir B/5; mkdir B/6; mkdir B/7; mkdir B/8; \
         mkdir B/D; sync; rename A B/D; mkdir A; fsync A; fsync B/D; ", a_second!(), "rename B/D A");
    Rule::RecentKeptWhileLive => "mkdir A; creat A/x; creat A/y; creat A/f; sync; unlink A/f; unlink A/x; creat A/f";

    // The index on the disk, which is kept only under an ordering with atomic scopes.
    ExtRule::SplitGetsEntry => concat!(full_b!(), "; sync; ", more_b!());
    ExtRule::SplitAtBorder => concat!(full_b!(), "; sync; ", more_b!());
    ExtRule::IndexEntryInOrder => concat!(full_b!(), "; sync; ", more_b!());
    Rule::ExchangeBoth => "mkdir A; mkdir B; creat A/f; creat B/g; sync; exchange A/f B/g";

    // Order between the sectors of a block, where sectors are the unit of writing.
    Rule::TailCutAfterHead => concat!("creat ", long!(), "1; creat ", long!(), "2");
    Rule::NameAfterTailCut => concat!("creat ", long!(), "1; creat ", long!(), "2; fsync ", long!(), "2");
    Rule::TailHeadAfterPending => concat!(crossing!(), "; blocks; unlink B/", long!(), "2; creat B/", long!(), "3");
    Rule::RenameAfterContents => "creat a; write a 0 3000; sync; creat b; append b 100; fsync b; creat c; append c 700; rename c a";
    Rule::TypeUnknownBeforeNumber => concat!(crossing!(), "; blocks; rename A/s A/", crosses!());
    Rule::TypeAfterNumber => concat!(crossing!(), "; blocks; rename A/s A/", crosses!());
    Rule::MoveWithinUnit => concat!("mkdir A; creat A/", long!(), "1; creat A/", long!(), "2; creat A/f; sync; rename A/", long!(), "1 A/f");
    Rule::ExchangeWithinUnit => concat!("mkdir A; creat A/", long!(), "1; creat A/", long!(), "2; creat A/", long!(), "3; sync; exchange A/", long!(),
            "1 A/", long!(), "3");
    ExtRule::AttributesChangedWhole => "mkdir A; creat A/f; setxattr A/f user.a one; sync; setxattr A/f user.a two";
    ExtRule::AttributesSharedWhole => "mkdir A; creat A/f; creat A/g; sync; setxattr A/f user.a one; setxattr A/g user.a one";

    // What a sync waits for.
    Rule::FsyncWaitsForChanges => "mkdir A; creat A/f; sync; write A/f 0 3000; fsync A/f";
    Rule::FsyncWaitsForFlags => "mkdir A; creat A/f; sync; chattr A/f id; fsync A/f";
    Rule::FsyncWaitsForOverwrites => "mkdir A; creat A/f; write A/f 0 3000; sync; overwrite A/f 0 1000; fsync A/f";
    Rule::FsyncWaitsForName => "mkdir A; sync; creat A/f; fsync A/f";
    Rule::FsyncWaitsForPointer => concat!(full_b!(), "; sync; creat B/", long!(), "4; fsync B/", long!(), "4");
    Rule::FsyncWaitsForReach => "mkdir A; mkdir B; sync; mkdir A/d; creat A/d/f; rename A/d B/e; fsync B/e/f";
    Rule::FsyncWaitsForZeroedTail => "mkdir A; creat A/f; write A/f 0 3000; sync; truncate A/f 100; fsync A/f";
    Rule::FsyncWaits => "mkdir A; creat A/f; write A/f 0 3000; fsync A/f";
    Rule::FsyncOfDirectoryWaitsForOldName => "mkdir A; mkdir B; creat A/f; sync; rename A/f B/f; fsync A";

    // Mounting and reclaiming.
    ExtRule::ChangesAfterMark => "mkdir A; creat A/f";
    Rule::ReclaimOrphansAfterParents => "mkdir A; mkdir A/d; sync; mkdir B; rename A/d B/d";
    Rule::ReclaimHeedsMarks => "mkdir A; mkdir B; mkdir B/foo; mkdir B/foo/D; sync; rename A B/foo/D";
    Rule::ReclaimClearsAfterDotDot => "mkdir A; mkdir B; mkdir B/foo; mkdir B/foo/D; sync; rename A B/foo/D";
    Rule::ReclaimKillsAfterClearings => "mkdir A; sync; mkdir A/d; mkdir A/d/e";
    Rule::ReclaimKillsChildrenFirst => "mkdir A; sync; mkdir A/d; mkdir A/d/e";
    Rule::ReclaimCorrectsAfterDeaths => "mkdir A; sync; mkdir A/d";
    Rule::ReclaimFreesAfterUnmapping => "mkdir A; creat A/f; write A/f 0 14336; sync; append A/f 1024";
    Rule::ReclaimToldOfNewName => tree!();
    Rule::ReclaimToldOfRemovedName => tree!();
    Rule::ReclaimToldOfNewInode => tree!();
    Rule::ReclaimToldOfLastName => tree!();
    Rule::ReclaimToldOfBlocks => tree!();
    Rule::ReclaimToldOfAttributes => tree!();
    Rule::DirectoriesWaitForNames => "mkdir A; mkdir A/d; mkdir B; sync; rename A/d B/d";
    Rule::ParentsWaitForReclaim => tree!();
}
