//! Blocks with checksums: a layout derived from ext2 has a checksum in each block of the inode
//! tables, and verifies all of them when it is opened. In every state that a crash leaves (after
//! the replay, if there is a journal) the checksums must be right.

use std::sync::Arc;

use backstitch_crash::{Campaign, Fork, NoObserver, Results, generate, scripts, standard};
use backstitch_device::BlockDevice;
use backstitch_ext::{Ext2, kinds};
use backstitch_layout::{
    ChangedBlock, Error, HomeContents, JournalHost, JournalPlace, LayoutKind, OpenRequest, Opened,
    Orphans, RecoveryMark, Result, Step, Stop, Timestamp,
};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{BlockNumber, Seal, Volume};

/// Bytes of a block's first inode that ext2 does not use. They hold the checksum of the block.
const CHECKSUM: std::ops::Range<usize> = 0x7c..0x80;
/// Blocks of the images.
const BLOCK_BYTES: usize = 1024;

/// ext2 with checksums in its inode tables.
struct Checked {
    /// Whether the seal is registered. If not, blocks keep the checksums of their earlier contents.
    is_sealed: bool,
}

static CHECKED: Checked = Checked { is_sealed: true };
static UNSEALED: Checked = Checked { is_sealed: false };

/// What a block's checksum must be.
fn checksum(block: u64, bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(&block.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &bytes[..CHECKSUM.start]);
    crc32c::crc32c_append(crc, &bytes[CHECKSUM.end..]).to_le_bytes()
}

struct TableSeal;

impl Seal for TableSeal {
    fn seal(&self, block: u64, bytes: &mut [u8]) {
        let sum = checksum(block, bytes);
        bytes[CHECKSUM].copy_from_slice(&sum);
    }
}

/// The blocks of the inode tables.
fn tables(superblock: &[u8], descriptors: &[u8]) -> Vec<u64> {
    let number =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (blocks, per_group) = (number(superblock, 4), number(superblock, 32));
    let inodes_per_group = number(superblock, 40) as usize;
    let inode_bytes = usize::from(u16::from_le_bytes([superblock[88], superblock[89]]));
    let len = (inodes_per_group * inode_bytes).div_ceil(BLOCK_BYTES) as u64;
    let groups = (blocks - 1).div_ceil(per_group) as usize;
    let first = |group: usize| u64::from(number(descriptors, group * 32 + 8));
    (0..groups)
        .flat_map(|group| first(group)..first(group) + len)
        .collect()
}

impl HomeContents for Checked {
    fn can_hold(&self, block: u64, bytes: &[u8]) -> bool {
        Ext2.can_hold(block, bytes)
    }
}

impl JournalHost for Checked {
    fn place(&self, device: &dyn BlockDevice) -> Result<Option<JournalPlace>> {
        Ext2.place(device)
    }

    fn damaged_places(&self, device: &dyn BlockDevice) -> Result<Vec<JournalPlace>> {
        Ext2.damaged_places(device)
    }

    fn check_mountable(&self, device: &dyn BlockDevice) -> Result<()> {
        Ext2.check_mountable(device)
    }

    fn set_recovery(&self, device: &dyn BlockDevice, mark: RecoveryMark) -> Result<()> {
        Ext2.set_recovery(device, mark)
    }

    fn next_orphans(
        &self,
        device: &dyn BlockDevice,
        now: Timestamp,
        most_blocks: usize,
    ) -> Result<Orphans> {
        let mut orphans = Ext2.next_orphans(device, now, most_blocks)?;
        let of_image = |block: u64| {
            let mut bytes = [0; BLOCK_BYTES];
            device.read(block * BLOCK_BYTES as u64, &mut bytes)?;
            Ok::<_, Error>(bytes)
        };
        let tables = tables(&of_image(1)?, &of_image(2)?);
        let in_tables = |(block, _): &&mut ChangedBlock| tables.contains(&block.0);
        for (block, bytes) in orphans.blocks.iter_mut().filter(in_tables) {
            TableSeal.seal(block.0, bytes);
        }
        Ok(orphans)
    }

    fn drop_orphans(&self, device: &dyn BlockDevice) -> Result<()> {
        Ext2.drop_orphans(device)
    }
}

impl LayoutKind for Checked {
    fn block_bytes(&self, device: &dyn BlockDevice) -> Result<u32> {
        Ext2.block_bytes(device)
    }

    fn journal_host(&self) -> Option<&dyn JournalHost> {
        Some(self)
    }

    fn open(
        &self,
        v: &mut Volume<'_>,
        device: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Step<Opened> {
        if self.is_sealed {
            v.register_seal(kinds::INODES, Arc::new(TableSeal));
        }
        // Must come before any change, since checksums are not kept up to date in memory.
        let (superblock, descriptors) = (
            v.read(BlockNumber(1))?.to_vec(),
            v.read(BlockNumber(2))?.to_vec(),
        );
        let blocks = tables(&superblock, &descriptors);
        // Asks for all missing blocks first, so that they are read together.
        let missing = blocks
            .iter()
            .filter(|block| !v.want(BlockNumber(**block)))
            .count();
        if missing > 0 {
            return Err(Stop::Miss);
        }
        for block in blocks {
            let bytes = v.read(BlockNumber(block))?;
            if bytes[CHECKSUM] != checksum(block, bytes) {
                return Err(Error::Unsupported(format!("block {block}: a wrong checksum")).into());
            }
        }
        Ext2.open(v, device, request)
    }
}

/// The image of a campaign, with checksums.
fn image(campaign: &Campaign, layout: &'static Checked) -> Fork {
    let mut image = match campaign.ordering.has_log() {
        true => campaign.image.make_journaled(),
        false => campaign.image.make(),
    }
    .expect("an image");
    let blocks = tables(image.block(1), image.block(2));
    for block in blocks {
        let mut bytes = image.block(block).to_vec();
        TableSeal.seal(block, &mut bytes);
        image.set_block(block, bytes.into());
    }
    Fork::new(image.to_bytes(), BLOCK_BYTES as u32).opened_as(layout)
}

fn explored(ordering: Ordering, is_torn: bool, layout: &'static Checked) -> Results {
    let mut campaign = standard::campaign(ordering, 1, 2);
    campaign.base = Some(image(&campaign, layout));
    campaign.workloads = generate::random(8, 1);
    campaign.workloads.extend(generate::flushed(4, 1));
    let scripts = scripts::workloads().into_iter().step_by(10);
    campaign.workloads.extend(scripts);
    campaign.torn = is_torn;
    campaign.most_states_each = 60;
    campaign.run(&NoObserver).expect("it runs")
}

fn failures(results: &Results) -> Vec<&str> {
    results.failures.iter().map(|f| f.verdict()).collect()
}

#[test]
fn every_state_has_right_checksums() {
    for ordering in [
        Ordering::SOFT,
        Ordering::SYNC,
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
    ] {
        let results = explored(ordering, false, &CHECKED);
        assert_eq!(failures(&results), [""; 0], "{ordering}");
        assert!(results.distinct > 1000, "{ordering}: {}", results.distinct);
    }
}

/// A torn block always has a wrong checksum. Only a copy in a log can mend it.
#[test]
fn a_journal_mends_torn_ones() {
    for mode in [
        Ordering::JOURNAL_WRITEBACK,
        Ordering::JOURNAL_ORDERED,
        Ordering::JOURNAL_FULL,
    ] {
        let results = explored(mode, true, &CHECKED);
        assert_eq!(failures(&results), [""; 0], "{mode:?}");
    }
    let results = explored(Ordering::SOFT, true, &CHECKED);
    assert!(
        failures(&results)
            .iter()
            .any(|what| what.contains("wrong checksum"))
    );
}

/// Without the seal, the first block that is written has a wrong checksum.
#[test]
fn what_is_not_sealed_is_found() {
    for ordering in [Ordering::SOFT, Ordering::JOURNAL_ORDERED] {
        let results = explored(ordering, false, &UNSEALED);
        let found = failures(&results);
        assert!(
            found.iter().any(|what| what.contains("wrong checksum")),
            "{ordering}: {found:?}"
        );
    }
}
