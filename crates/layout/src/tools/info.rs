//! What is known of a file system without mounting it.

use backstitch_ordering::CrashRecord;

/// What a superblock says. Counts may be wrong for an image that is in use or was left by a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// What people call an image with such features: `ext2`, …
    pub type_name: &'static str,
    /// The revision of the format.
    pub revision: u32,
    /// The label.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Whether there is anything to recover or to repair.
    pub state: State,
    /// What our last mount left; `None` where there was none.
    pub record: Option<LastMount>,
    /// What it uses, by name.
    pub features: Vec<String>,
    /// What of that keeps us from reading it.
    pub unreadable_features: Vec<String>,
    /// What of that keeps us from writing it.
    pub unwritable_features: Vec<String>,
    /// The journal's inode, where the journal is inside.
    pub journal_inode: Option<u32>,
    /// The size of a block, in which all that follows is counted: the unit of allocation.
    pub block_bytes: u32,
    /// The size of a whole block, where the layout divides blocks into such units.
    pub whole_block_bytes: Option<u32>,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks, the reserved ones included.
    pub free_blocks: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
    /// The size of an inode.
    pub inode_bytes: u32,
    /// Inodes in all.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// The number of groups.
    pub groups: u32,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// The largest file.
    pub max_file_bytes: u64,
    /// When it was made, in seconds since 1970, as all times here; 0 for never.
    pub made_seconds: u64,
    /// When it was mounted last.
    pub mounted_seconds: u64,
    /// When it was written last.
    pub written_seconds: u64,
    /// When it was checked last.
    pub checked_seconds: u64,
    /// Mounts since the last check.
    pub mounts: u16,
    /// Mounts after which it wants to be checked; `None` for never.
    pub max_mounts: Option<u16>,
    /// Where it was mounted last, as far as it is known.
    pub last_mounted_at: Vec<u8>,
}

impl Info {
    /// The size of the file system.
    pub fn size_bytes(&self) -> u64 {
        self.bytes(self.blocks)
    }

    /// What a number of blocks takes.
    pub fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_bytes.into())
    }
}

/// Whether a file system is to be trusted as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was unmounted, and nothing is left to be written or repaired.
    Clean,
    /// It is mounted, or was left by a crash.
    Dirty,
    /// Errors were met in it.
    Errors,
}

impl State {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            State::Clean => "clean",
            State::Dirty => "dirty",
            State::Errors => "errors",
        }
    }
}

/// The record of our last mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMount {
    /// The mechanism's record.
    pub mechanism: CrashRecord,
    /// When it was mounted.
    pub mounted_seconds: u64,
    /// The unit that the mechanism took for atomic.
    pub atomic_unit_bytes: u32,
}

/// A UUID as uuidgen(1) writes it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(*uuid));
    let part = |from: usize, to: usize| &digits[from..to];
    [
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32),
    ]
    .join("-")
}
