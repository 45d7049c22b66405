//! Images that share a base: a fork costs only the blocks in which it differs.

use std::fmt;
use std::sync::Arc;

use crate::base::Base;
use crate::nesting::Nesting;
use backstitch_device::{Buffer, DeviceError, check_range};
use backstitch_formats::{Layout, Raw, usual};
use backstitch_layout::tools::Source;
use backstitch_layout::{JournalHost, LayoutKind};
use rustc_hash::FxHashMap;
use twox_hash::XxHash3_128;

/// A shared base, and the blocks that differ from it.
#[derive(Clone, Debug)]
pub struct Fork {
    pub(crate) base: Arc<Base>,
    changed: FxHashMap<u64, Changed>,
    /// Identifies the image among the forks of its base: the sum of what each changed block adds.
    fingerprint: u128,
    /// The file systems inside, where the innermost of a stack is explored.
    pub(crate) nesting: Option<Arc<Nesting>>,
    /// What opens it.
    pub(crate) kind: Kind,
}

/// A block that was written since the fork was made.
#[derive(Clone, Debug)]
struct Changed {
    bytes: Buffer,
    /// What the bytes add to the fingerprint.
    adds: u128,
}

/// What an image is opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file system of this layout.
    FileSystem(Layout),
    /// A volume whose blocks programs write.
    Raw(Raw),
    /// A file system of somebody else's layout.
    Other(Other),
}

/// A layout that is given from outside.
#[derive(Clone, Copy)]
pub struct Other(&'static dyn LayoutKind);

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Other")
    }
}

impl PartialEq for Other {
    fn eq(&self, other: &Other) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for Other {}

impl Kind {
    /// The layout that opens it.
    pub fn layout(&self) -> &dyn LayoutKind {
        match self {
            Kind::FileSystem(layout) => layout.layout(),
            Kind::Raw(raw) => raw,
            Kind::Other(other) => other.0,
        }
    }

    /// The layout whose tools check it. A layout from outside is checked by those of the [`usual`]
    /// one, over which it must be.
    pub fn tools(self) -> Layout {
        match self {
            Kind::FileSystem(layout) => layout,
            Kind::Raw(_) | Kind::Other(_) => usual(),
        }
    }

    /// What hosts its journal, if something does.
    pub fn journal_host(&self) -> Option<&dyn JournalHost> {
        let host = self.layout().journal_host();
        match self {
            Kind::FileSystem(_) => host,
            Kind::Raw(_) | Kind::Other(_) => {
                Some(host.unwrap_or_else(|| backstitch_formats::journal_host()))
            }
        }
    }
}

impl Fork {
    /// An image with a base of its own, opened as the [`usual`] layout unless [another is
    /// set](Self::of_layout).
    ///
    /// # Panics
    /// If the image is not a whole number of blocks.
    pub fn new(bytes: Vec<u8>, block_bytes: u32) -> Fork {
        let home_bytes = bytes.len();
        Fork::split(bytes, home_bytes, block_bytes)
    }

    pub(crate) fn split(bytes: Vec<u8>, home_bytes: usize, block_bytes: u32) -> Fork {
        let block_bytes = block_bytes as usize;
        assert_eq!(home_bytes % block_bytes, 0, "a device is made of blocks");
        assert_eq!(bytes.len() % block_bytes, 0, "an image is made of blocks");
        let zero = bytes
            .chunks(block_bytes)
            .map(|block| block.iter().all(|b| *b == 0))
            .collect();
        Fork {
            base: Arc::new(Base {
                bytes,
                home_bytes,
                block_bytes,
                zero,
            }),
            changed: FxHashMap::default(),
            fingerprint: 0,
            nesting: None,
            kind: Kind::FileSystem(usual()),
        }
    }

    /// The same, as a file system of this layout.
    pub fn of_layout(mut self, layout: Layout) -> Fork {
        self.kind = Kind::FileSystem(layout);
        self
    }

    /// The same, as a volume whose blocks programs write, with this owner and group.
    pub fn raw(mut self, (uid, gid): (u32, u32)) -> Fork {
        self.kind = Kind::Raw(Raw { uid, gid });
        self
    }

    /// What it is opened as.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What its file system holds, where that is explored.
    pub fn nesting(&self) -> Option<&Arc<Nesting>> {
        self.nesting.as_ref()
    }

    /// Whether it shares its base with another one, so that their fingerprints compare.
    pub fn has_base_of(&self, other: &Fork) -> bool {
        Arc::ptr_eq(&self.base, &other.base)
    }

    /// The same, opened by this layout. It must be one over ext2's, since states are checked as
    /// ext2's are.
    pub fn opened_as(mut self, layout: &'static dyn LayoutKind) -> Fork {
        self.kind = Kind::Other(Other(layout));
        self
    }

    /// A fork of another base, without changes.
    pub(crate) fn of_base(base: Arc<Base>, nesting: Option<Arc<Nesting>>, kind: Kind) -> Fork {
        Fork {
            base,
            changed: FxHashMap::default(),
            fingerprint: 0,
            nesting,
            kind,
        }
    }

    /// The base alone.
    pub fn base_fork(&self) -> Fork {
        Fork::of_base(self.base.clone(), self.nesting.clone(), self.kind)
    }

    /// The bytes of the file system's device, and of its journal's where that has one of its own.
    pub fn to_devices(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut home = self.to_bytes();
        let journal = home.split_off(self.base.home_bytes);
        (home, (!journal.is_empty()).then_some(journal))
    }

    /// All sectors of 512 bytes of a block, as a mask with a bit for each.
    pub fn all_sectors(&self) -> u64 {
        (1 << (self.base.block_bytes / 512)) - 1
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u32 {
        self.base.block_bytes as u32
    }

    /// A block's bytes.
    pub fn block(&self, block: u64) -> &[u8] {
        match self.changed.get(&block) {
            Some(changed) => &changed.bytes,
            None => self.base_block(block),
        }
    }

    fn base_block(&self, block: u64) -> &[u8] {
        let start = block as usize * self.base.block_bytes;
        &self.base.bytes[start..start + self.base.block_bytes]
    }

    /// A block's bytes if they differ from the base's or were written since; else `None`.
    pub fn changed_block(&self, block: u64) -> Option<&Buffer> {
        self.changed.get(&block).map(|changed| &changed.bytes)
    }

    /// The blocks that were written since.
    pub fn changed_blocks(&self) -> impl Iterator<Item = (u64, &Buffer)> {
        self.changed
            .iter()
            .map(|(block, changed)| (*block, &changed.bytes))
    }

    /// A block's bytes, and what they add to the fingerprint.
    pub(crate) fn shared(&self, block: u64) -> (Buffer, u128) {
        match self.changed.get(&block) {
            Some(changed) => (changed.bytes.clone(), changed.adds),
            None => (Buffer::from(self.base_block(block)), 0),
        }
    }

    /// What a block adds to the fingerprint: nothing where it is as in the base.
    pub fn adds(&self, block: u64) -> u128 {
        self.changed.get(&block).map_or(0, |changed| changed.adds)
    }

    /// What the blocks that were written since add to the fingerprint.
    pub(crate) fn changed_adds(&self) -> impl Iterator<Item = (u64, u128)> {
        (self.changed.iter()).map(|(block, changed)| (*block, changed.adds))
    }

    /// Gives the blocks chosen by `is_reset` the base's contents again.
    pub(crate) fn reset(&mut self, is_reset: impl Fn(u64) -> bool) {
        let fingerprint = &mut self.fingerprint;
        self.changed.retain(|block, changed| {
            let stays = !is_reset(*block);
            if !stays {
                *fingerprint = fingerprint.wrapping_sub(changed.adds);
            }
            stays
        });
    }

    /// The size of the file system's device.
    pub fn home_bytes(&self) -> u64 {
        self.base.home_bytes as u64
    }

    /// The size of all devices.
    pub fn all_bytes(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    /// Replaces a block's bytes.
    pub fn set_block(&mut self, block: u64, bytes: Buffer) {
        let adds = self.fingerprint_of(block, &bytes);
        self.set_known(block, bytes, adds);
    }

    /// The same, where the caller knows what the bytes add to the fingerprint.
    pub fn set_known(&mut self, block: u64, bytes: Buffer, adds: u128) {
        debug_assert_eq!(bytes.len(), self.base.block_bytes);
        let before = self.changed.insert(block, Changed { bytes, adds });
        let before = before.map_or(0, |before| before.adds);
        self.fingerprint = self.fingerprint.wrapping_sub(before).wrapping_add(adds);
    }

    /// What identifies the image among the forks of its base: the sum of what each changed block
    /// adds.
    pub fn fingerprint(&self) -> u128 {
        self.fingerprint
    }

    /// What a block with these bytes adds to the [`fingerprint`](Self::fingerprint): nothing where
    /// the base has the same.
    pub fn fingerprint_of(&self, block: u64, bytes: &[u8]) -> u128 {
        if self.base_block(block) == bytes {
            return 0;
        }
        XxHash3_128::oneshot_with_seed(block, bytes)
    }

    /// The whole image.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.bytes.clone();
        for (block, changed) in &self.changed {
            let start = *block as usize * self.base.block_bytes;
            bytes[start..start + changed.bytes.len()].copy_from_slice(&changed.bytes);
        }
        bytes
    }

    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range("fork", self.base.bytes.len() as u64, offset, len)
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, into.len() as u64)?;
        let size = self.base.block_bytes;
        let (mut block, mut skip) = (offset / size as u64, offset as usize % size);
        let mut rest = into;
        while !rest.is_empty() {
            let count = rest.len().min(size - skip);
            rest[..count].copy_from_slice(&self.block(block)[skip..skip + count]);
            rest = &mut rest[count..];
            (block, skip) = (block + 1, 0);
        }
        Ok(())
    }

    /// Writes bytes anywhere, in parts of blocks too.
    ///
    /// # Errors
    /// Where there is no such place in the image.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes.len() as u64)?;
        let size = self.base.block_bytes;
        let (mut block, mut skip) = (offset / size as u64, offset as usize % size);
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rest.len().min(size - skip);
            let new = if count == size {
                Buffer::from(&rest[..count])
            } else {
                let mut old = self.block(block).to_vec();
                old[skip..skip + count].copy_from_slice(&rest[..count]);
                Buffer::from(old)
            };
            self.set_block(block, new);
            rest = &rest[count..];
            (block, skip) = (block + 1, 0);
        }
        Ok(())
    }
}

impl Source for Fork {
    fn size_bytes(&self) -> u64 {
        self.base.home_bytes as u64
    }

    fn bytes<'a>(
        &'a self,
        offset: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DeviceError> {
        self.check(offset, length as u64)?;
        let size = self.base.block_bytes;
        let (block, skip) = (offset / size as u64, offset as usize % size);
        if skip + length <= size {
            return Ok(&self.block(block)[skip..skip + length]);
        }
        scratch.resize(length, 0);
        self.read(offset, scratch)?;
        Ok(scratch)
    }

    fn is_known_zero(&self, offset: u64, length: usize) -> bool {
        let size = self.base.block_bytes as u64;
        let end = (offset + length as u64).div_ceil(size);
        (offset / size..end).all(|block| {
            self.base
                .zero
                .get(block as usize)
                .is_some_and(|zero| *zero && !self.changed.contains_key(&block))
        })
    }

    fn run_bytes(&self) -> usize {
        self.base.block_bytes
    }
}
