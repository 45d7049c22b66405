//! Images that share what they have in common: a fork costs the blocks in which it differs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::nested::Nesting;
use crate::reads::Reads;
use backstitch_device::{BlockDevice, Buffer, DeviceError, WriteRequest, check_range};
use backstitch_formats::{Raw, usual};
use backstitch_journal::format::Features as JournalFeatures;
use backstitch_layout::tools::{Mkfs, MkfsError, MkfsJournal, Source};
use backstitch_layout::{JournalHost, LayoutKind};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use twox_hash::XxHash3_128;

/// The bytes that forks have in common.
#[derive(Debug)]
pub(crate) struct Base {
    bytes: Vec<u8>,
    /// Bytes of them that are the file system's device; behind them comes that of its journal,
    /// where there is one.
    home_bytes: usize,
    block_bytes: usize,
    /// Which blocks are nothing but zeros.
    zero: Vec<bool>,
}

/// An image as a base, shared, and the blocks that differ from it.
#[derive(Clone, Debug)]
pub struct Fork {
    pub(crate) base: Arc<Base>,
    changed: FxHashMap<u64, Changed>,
    /// What identifies it among the forks of its base: the sum of what each changed block adds.
    fingerprint: u128,
    /// What the file system holds, where that is explored.
    pub(crate) nesting: Option<Arc<Nesting>>,
    /// What opens it.
    pub(crate) kind: Kind,
}

/// A block that was written since.
#[derive(Clone, Debug)]
struct Changed {
    bytes: Buffer,
    /// What they add to the fingerprint.
    adds: u128,
}

/// What an image is opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file system.
    FileSystem,
    /// A volume whose blocks programs write.
    Raw(Raw),
    /// A file system of somebody else's layout.
    Other(Other),
}

/// A layout that is given from outside.
#[derive(Clone, Copy)]
pub(crate) struct Other(&'static dyn LayoutKind);

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
    pub(crate) fn layout(&self) -> &dyn LayoutKind {
        match self {
            Kind::FileSystem => usual().layout(),
            Kind::Raw(raw) => raw,
            Kind::Other(other) => other.0,
        }
    }

    /// What hosts its journal.
    pub(crate) fn journal_host(&self) -> &dyn JournalHost {
        let host = self.layout().journal_host();
        host.unwrap_or_else(|| backstitch_formats::journal_host())
    }
}

impl Fork {
    /// An image of its own.
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
            kind: Kind::FileSystem,
        }
    }

    /// The same, as a volume of somebody whose blocks programs write.
    pub(crate) fn raw(mut self, (uid, gid): (u32, u32)) -> Fork {
        self.kind = Kind::Raw(Raw { uid, gid });
        self
    }

    /// The same, opened as this layout: one over ext2's, since states are checked as ext2's are.
    pub fn opened_as(mut self, layout: &'static dyn LayoutKind) -> Fork {
        self.kind = Kind::Other(Other(layout));
        self
    }

    /// Another base, with what it holds.
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
    pub(crate) fn base_fork(&self) -> Fork {
        Fork {
            changed: FxHashMap::default(),
            fingerprint: 0,
            ..self.clone()
        }
    }

    /// A new file system in an image of its own.
    ///
    /// # Errors
    /// Where no file system can be made with these options.
    pub(crate) fn formatted(
        mkfs: &Mkfs,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<Fork, MkfsError> {
        let device = ForkDevice::new(Fork::new(vec![0; size_bytes as usize], block_bytes));
        usual().make(mkfs, &device)?;
        // A base of its own, so that what mkfs wrote does not count as changed in every fork.
        Ok(Fork::new(device.fork().to_bytes(), block_bytes))
    }

    /// The same with the journal on a device of `journal_bytes` of its own.
    ///
    /// # Errors
    /// As [`formatted`](Self::formatted).
    pub(crate) fn formatted_with_journal_device(
        mkfs: &Mkfs,
        size_bytes: u64,
        block_bytes: u32,
        journal_bytes: u64,
    ) -> Result<Fork, MkfsError> {
        let journal = MkfsJournal {
            block_size: Some(block_bytes),
            features: mkfs.journal_features,
            device_is_zero: true,
            ..MkfsJournal::new([11; 16], mkfs.time_seconds)
        };
        let elsewhere = ForkDevice::new(Fork::new(vec![0; journal_bytes as usize], block_bytes));
        let made = usual().make_journal(&journal, &elsewhere)?;
        let mkfs = Mkfs {
            journal_uuid: Some(made.uuid),
            journal_features: JournalFeatures::default(),
            ..mkfs.clone()
        };
        let home = Fork::formatted(&mkfs, size_bytes, block_bytes)?;
        usual().attach_journal(&elsewhere, mkfs.uuid)?;
        let mut bytes = home.to_bytes();
        bytes.extend(elsewhere.fork().to_bytes());
        Ok(Fork::split(bytes, size_bytes as usize, block_bytes))
    }

    /// The bytes of the file system's device, and of its journal's where that has one of its own.
    pub fn to_devices(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut home = self.to_bytes();
        let journal = home.split_off(self.base.home_bytes);
        (home, (!journal.is_empty()).then_some(journal))
    }

    /// Which sectors of 512 bytes a block has, a bit for each.
    pub(crate) fn all_sectors(&self) -> u64 {
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

    /// A block's bytes where they are not the base's, or were written since.
    pub(crate) fn changed_block(&self, block: u64) -> Option<&Buffer> {
        self.changed.get(&block).map(|changed| &changed.bytes)
    }

    /// The blocks that were written since.
    pub(crate) fn changed_blocks(&self) -> impl Iterator<Item = (u64, &Buffer)> {
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
    pub(crate) fn adds(&self, block: u64) -> u128 {
        self.changed.get(&block).map_or(0, |changed| changed.adds)
    }

    /// Makes blocks what they are in the base again.
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
    pub(crate) fn home_bytes(&self) -> u64 {
        self.base.home_bytes as u64
    }

    /// The size of all devices.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    /// Gives a block other bytes.
    pub fn set_block(&mut self, block: u64, bytes: Buffer) {
        let adds = self.fingerprint_of(block, &bytes);
        self.set_known(block, bytes, adds);
    }

    /// The same, where it is known what they add to the fingerprint.
    pub(crate) fn set_known(&mut self, block: u64, bytes: Buffer, adds: u128) {
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

    fn check(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
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

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
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

/// A fork as a device. What is submitted is at once as stable as it will ever be.
#[derive(Debug)]
pub struct ForkDevice(Mutex<Shown>);

#[derive(Debug)]
struct Shown {
    fork: Fork,
    /// What was read, where that is noted.
    reads: Option<Reads>,
}

impl Shown {
    /// A part of a block is looked at, in one way or another.
    fn note(&mut self, offset_bytes: u64, len_bytes: u64) {
        if let Some(reads) = &mut self.reads {
            let size = self.fork.base.block_bytes as u64;
            for block in offset_bytes / size..(offset_bytes + len_bytes).div_ceil(size) {
                reads.note(&self.fork, block);
            }
        }
    }
}

impl ForkDevice {
    /// A device that holds the image.
    pub fn new(fork: Fork) -> ForkDevice {
        ForkDevice(Mutex::new(Shown { fork, reads: None }))
    }

    /// The same, that notes what is read.
    pub(crate) fn noting(fork: Fork) -> ForkDevice {
        let reads = Some(Reads::default());
        ForkDevice(Mutex::new(Shown { fork, reads }))
    }

    /// What was read, where that is noted, and the image of now. Nothing is noted any more.
    pub(crate) fn take_reads(&self) -> (Reads, Fork) {
        let mut shown = self.0.lock();
        let reads = shown.reads.take().unwrap_or_default();
        (reads, shown.fork.clone())
    }

    /// What the device holds now.
    pub fn fork(&self) -> Fork {
        self.0.lock().fork.clone()
    }

    /// What identifies the image of now.
    pub(crate) fn fingerprint(&self) -> u128 {
        self.0.lock().fork.fingerprint()
    }

    /// See [`parts_of`].
    pub(crate) fn parts(&self) -> (Part<'_>, Option<Part<'_>>) {
        let (home, all) = {
            let fork = &self.0.lock().fork;
            (fork.home_bytes(), fork.all_bytes())
        };
        parts_of(self, home, all)
    }
}

/// Devices as one, the journal's behind the file system's.
pub(crate) trait Joint: BlockDevice {
    /// What was written before between these offsets is stable.
    fn flush_part(&self, bytes: Range<u64>) -> Result<(), DeviceError>;
}

impl Joint for ForkDevice {
    fn flush_part(&self, _bytes: Range<u64>) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The file system's device, and its journal's where that has one of its own, as they see them who
/// know nothing of each other.
pub(crate) fn parts_of(
    device: &dyn Joint,
    home_bytes: u64,
    all_bytes: u64,
) -> (Part<'_>, Option<Part<'_>>) {
    let part = |start_bytes: u64, end_bytes: u64| Part {
        device,
        start_bytes,
        len_bytes: end_bytes - start_bytes,
    };
    let other = (home_bytes < all_bytes).then(|| part(home_bytes, all_bytes));
    (part(0, home_bytes), other)
}

/// A part of a fork as a device.
pub(crate) struct Part<'d> {
    device: &'d dyn Joint,
    start_bytes: u64,
    len_bytes: u64,
}

impl BlockDevice for Part<'_> {
    fn size_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.device.atomic_unit_bytes()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let len_bytes = buffer.len() as u64;
        check_range("part of a fork", self.len_bytes, offset_bytes, len_bytes)?;
        self.device.read(self.start_bytes + offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        for request in batch {
            let (offset_bytes, len_bytes) = (request.offset_bytes, request.len_bytes());
            check_range("part of a fork", self.len_bytes, offset_bytes, len_bytes)?;
            self.device.submit(&[WriteRequest {
                offset_bytes: self.start_bytes + offset_bytes,
                buffers: request.buffers.clone(),
            }])?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let end_bytes = self.start_bytes + self.len_bytes;
        self.device.flush_part(self.start_bytes..end_bytes)
    }
}

impl BlockDevice for ForkDevice {
    fn size_bytes(&self) -> u64 {
        self.0.lock().fork.size_bytes()
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.0.lock().fork.block_bytes()
    }

    fn name(&self) -> String {
        "fork".to_owned()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let mut shown = self.0.lock();
        shown.fork.check(offset_bytes, buffer.len() as u64)?;
        shown.note(offset_bytes, buffer.len() as u64);
        shown.fork.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        let mut shown = self.0.lock();
        for request in batch {
            let mut at = request.offset_bytes;
            for buffer in &request.buffers {
                let len = buffer.len() as u64;
                shown.fork.check(at, len)?;
                if buffer.len() == shown.fork.base.block_bytes && at.is_multiple_of(len) {
                    if let Some(reads) = &mut shown.reads {
                        reads.overwrite(at / len);
                    }
                    shown.fork.set_block(at / len, buffer.clone());
                } else {
                    // What is written in part keeps the rest.
                    shown.note(at, len);
                    shown.fork.write(at, buffer)?;
                }
                at += len;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
