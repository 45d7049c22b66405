//! New images, for runs to which nobody gives one.

use backstitch_device::MemoryDevice;
use backstitch_formats::{Layout, usual};
use backstitch_layout::tools::{JournalFeatures, Mkfs, MkfsError, MkfsJournal};
use backstitch_mechanisms::{Ordering, logs, usual_for};
use backstitch_wafs::Wafs;
use backstitch_wafs::format::LOG_OFFSET_BYTES;

use crate::device::ForkDevice;
use crate::image::Fork;

/// The image that runs start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Its layout.
    pub layout: Layout,
    /// Its size.
    pub size_bytes: u64,
    /// The size of a block, or of a fragment where the layout divides blocks.
    pub block_bytes: u32,
    /// Features beside those of its type, as [`Mkfs::features`] takes them.
    pub features: &'static [&'static str],
    /// Whether the journal, under the orderings that have one, is on a device of its own.
    pub journal_device: bool,
    /// The features of that journal.
    pub journal_features: JournalFeatures,
    /// Blocks of a log that is no journal, behind its superblocks: by default the fewest that mkfs
    /// gives one, so that it often wraps around and an operation may fill it.
    pub log_blocks: u64,
}

impl Default for ImageOptions {
    fn default() -> ImageOptions {
        ImageOptions {
            layout: usual(),
            size_bytes: 8 << 20,
            block_bytes: 1024,
            features: &[],
            journal_device: false,
            journal_features: JournalFeatures::default(),
            log_blocks: 64,
        }
    }
}

impl ImageOptions {
    /// Makes the image: an empty file system of two groups.
    ///
    /// # Errors
    /// Where no file system can be made with these numbers.
    pub fn make(&self) -> Result<Fork, MkfsError> {
        self.make_with(false)
    }

    /// The same with the smallest journal that there is.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_journaled(&self) -> Result<Fork, MkfsError> {
        self.make_with(true)
    }

    /// As [`make`](Self::make), with the log and the features that a mechanism needs.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_for(&self, ordering: Ordering) -> Result<Fork, MkfsError> {
        match ordering.log_kind() {
            Some(kind) if kind.name() != usual_log() => {
                let log_bytes = LOG_OFFSET_BYTES + self.log_blocks * u64::from(self.block_bytes);
                if ordering.needs_log_device() {
                    let mkfs = Mkfs {
                        features: self.features(ordering),
                        ..self.mkfs()
                    };
                    return self.with_log_device(&mkfs, log_bytes);
                }
                let mkfs = Mkfs {
                    features: self.features(ordering),
                    journal_bytes: Some(log_bytes),
                    ..self.mkfs()
                };
                Fork::formatted(self.layout, &mkfs, self.size_bytes, self.block_bytes)
            }
            kind => self.make_with(kind.is_some()),
        }
    }

    fn make_with(&self, has_journal: bool) -> Result<Fork, MkfsError> {
        let mkfs = Mkfs {
            features: self.features(usual_for(has_journal)),
            ..self.mkfs()
        };
        let (size_bytes, block_bytes) = (self.size_bytes, self.block_bytes);
        let journal_bytes = 1024 * u64::from(block_bytes);
        Ok(if has_journal && self.journal_device {
            Fork::formatted_with_journal_device(
                self.layout,
                &mkfs,
                size_bytes,
                block_bytes,
                journal_bytes,
            )?
        } else {
            let mkfs = Mkfs {
                journal_bytes: has_journal.then_some(journal_bytes),
                ..mkfs
            };
            Fork::formatted(self.layout, &mkfs, size_bytes, block_bytes)?
        })
    }

    /// A file system, and behind it the device of a write-ahead log.
    fn with_log_device(&self, mkfs: &Mkfs, log_bytes: u64) -> Result<Fork, MkfsError> {
        let (size_bytes, block_bytes) = (self.size_bytes, self.block_bytes);
        let log = MemoryDevice::new(log_bytes as usize);
        let made = Wafs::make(&log, [11; 16], mkfs.time_seconds);
        made.map_err(|error| MkfsError::BadOption(error.to_string()))?;
        let home = Fork::formatted(self.layout, mkfs, size_bytes, block_bytes)?;
        let mut bytes = home.to_bytes();
        bytes.extend(log.snapshot());
        Ok(Fork::split(bytes, size_bytes as usize, block_bytes).of_layout(self.layout))
    }

    fn mkfs(&self) -> Mkfs {
        let blocks = (self.size_bytes / u64::from(self.block_bytes)) as u32;
        let (block_size, fragment_size) = match self.layout.divides_blocks() {
            true => (None, Some(self.block_bytes)),
            false => (Some(self.block_bytes), None),
        };
        Mkfs {
            block_size,
            fragment_size,
            blocks_per_group: Some((blocks / 2).next_multiple_of(8)),
            // Small tables without room for growing: every state's check reads them all.
            inodes: Some(256),
            device_is_zero: true,
            journal_features: self.journal_features,
            ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
        }
    }

    /// The features of the layout's type and of the mechanism. The mechanism alone decides whether
    /// there is a log.
    fn features(&self, ordering: Ordering) -> Vec<String> {
        const FOR_GROWING: &str = "resize_inode";
        let is_of_log = |word: &&str| logs().iter().any(|kind| kind.features().contains(word));
        let of_type = self.layout.type_features().iter().copied();
        let mut features: Vec<String> = of_type
            .filter(|word| !is_of_log(word))
            .map(str::to_owned)
            .collect();
        features.extend(ordering.image_features());
        features.extend(self.features.iter().map(|word| (*word).to_owned()));
        if self.layout.has_feature(FOR_GROWING) {
            features.push(format!("^{FOR_GROWING}"));
        }
        features
    }
}

/// What the usual log is called.
fn usual_log() -> &'static str {
    usual_for(true).log_kind().map_or("", |kind| kind.name())
}

impl Fork {
    /// A new file system of a layout, in an image of its own.
    ///
    /// # Errors
    /// Where no file system can be made with these options.
    pub fn formatted(
        layout: Layout,
        mkfs: &Mkfs,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<Fork, MkfsError> {
        let device = ForkDevice::new(Fork::new(vec![0; size_bytes as usize], block_bytes));
        layout.make(mkfs, &device)?;
        // A base of its own, so that what mkfs wrote does not count as changed in every fork.
        Ok(Fork::new(device.fork().to_bytes(), block_bytes).of_layout(layout))
    }

    /// The same with the journal on a device of `journal_bytes` of its own.
    ///
    /// # Errors
    /// As [`formatted`](Self::formatted).
    fn formatted_with_journal_device(
        layout: Layout,
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
        let made = layout.make_journal(&journal, &elsewhere)?;
        let mkfs = Mkfs {
            journal_uuid: Some(made.uuid),
            journal_features: JournalFeatures::default(),
            ..mkfs.clone()
        };
        let home = Fork::formatted(layout, &mkfs, size_bytes, block_bytes)?;
        layout.attach_journal(&elsewhere, mkfs.uuid)?;
        let mut bytes = home.to_bytes();
        bytes.extend(elsewhere.fork().to_bytes());
        Ok(Fork::split(bytes, size_bytes as usize, block_bytes).of_layout(layout))
    }
}
