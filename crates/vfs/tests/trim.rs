//! Discarding free space while files come and go: no file ever loses a byte, also not one that a
//! power cut brings back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use backstitch_device::{BlockDevice, MemoryDevice, Result, WriteRequest};
use backstitch_layout::Error as LayoutError;

use crate::support::{check, mount_under, new_image, new_image_with_journal, read_all, write_new};
use backstitch_mechanisms::Ordering;
use backstitch_vfs::{Engine, Error, InodeNumber, MountOptions};
use parking_lot::Mutex;

/// The contents of discarded blocks; no file has such contents.
const GARBAGE: u8 = 0xdb;
const FILES: u64 = 40;
const FILE_BYTES: usize = 30_000;

/// A device whose unflushed writes are all lost in a power cut. Discarded blocks are lost at once.
struct Thin {
    memory: MemoryDevice,
    stable: Mutex<Vec<u8>>,
    discarded: AtomicU64,
}

impl Thin {
    fn new(image: Vec<u8>) -> Arc<Thin> {
        Arc::new(Thin {
            memory: MemoryDevice::from_bytes(image.clone()),
            stable: Mutex::new(image),
            discarded: AtomicU64::new(0),
        })
    }

    /// The device after a power cut.
    fn cut(&self) -> Vec<u8> {
        self.stable.lock().clone()
    }
}

impl BlockDevice for Thin {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn name(&self) -> String {
        "thin".to_owned()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.memory.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        self.memory.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        *self.stable.lock() = self.memory.snapshot();
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        let len = len_bytes as usize;
        self.memory.write(offset_bytes, &vec![GARBAGE; len])?;
        let start = offset_bytes as usize;
        self.stable.lock()[start..start + len].fill(GARBAGE);
        self.discarded.fetch_add(len_bytes, Relaxed);
        Ok(true)
    }
}

fn contents(number: u64) -> Vec<u8> {
    vec![number as u8 + 1; FILE_BYTES]
}

/// Checks that every file has its own bytes. Returns how many files there are.
fn look_through(engine: &Engine) -> u64 {
    let mut found = 0;
    for number in 0..FILES {
        let Ok(file) = engine.lookup(engine.root(), number.to_string().as_bytes()) else {
            continue;
        };
        let bytes = read_all(engine, file.inode).unwrap();
        let wrong = bytes.iter().position(|byte| *byte != number as u8 + 1);
        assert_eq!(wrong, None, "file {number} has lost this byte");
        engine.forget(file.inode, 1);
        found += 1;
    }
    found
}

/// Makes and removes files, and flushes some of them, until told to stop.
fn keep_changing(engine: &Engine, is_over: &AtomicBool) {
    let mut there: Vec<Option<InodeNumber>> = vec![None; FILES as usize];
    let mut random = 1_u64;
    while !is_over.load(Relaxed) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (random >> 33) % FILES;
        let name = number.to_string();
        match there[number as usize].take() {
            Some(inode) => {
                engine.unlink(engine.root(), name.as_bytes()).unwrap();
                engine.forget(inode, 1);
            }
            None => {
                let inode = write_new(engine, engine.root(), &name, &contents(number));
                if random >> 60 < 3 {
                    engine.fsync(inode, false).unwrap();
                }
                there[number as usize] = Some(inode);
            }
        }
    }
}

/// Ends the threads of a test when it is dropped, even if the test panics.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn trim_beside_changes(image: Vec<u8>, ordering: Ordering) {
    let device = Thin::new(image);
    let engine = mount_under(device.clone(), ordering).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_changing(&engine, &is_over));
        let _ends = EndsAll(&is_over);
        for _ in 0..12 {
            engine.trim(0..u64::MAX, 0).unwrap();
            let left = Arc::new(MemoryDevice::from_bytes(device.cut()));
            let after = mount_under(left.clone(), ordering).unwrap();
            look_through(&after);
            after.unmount().unwrap();
            assert!(check(&*left).is_clean());
        }
    });
    look_through(&engine);
    engine.unmount().unwrap();
    assert!(check(&device.memory).is_clean());
    assert!(device.discarded.load(Relaxed) > 0);
}

#[test]
fn trimming_beside_changes_takes_nothing_from_a_file() {
    trim_beside_changes(new_image(8 << 20, 128), Ordering::SOFT);
}

#[test]
fn nor_under_a_journal() {
    for mode in [Ordering::JOURNAL_ORDERED, Ordering::JOURNAL_FULL] {
        let image = new_image_with_journal(8 << 20, 128);
        trim_beside_changes(image, mode);
    }
}

/// The same with the mount option `discard`: no call asks for it.
fn discard_beside_changes(image: Vec<u8>, ordering: Ordering) {
    let device = Thin::new(image);
    let options = MountOptions {
        ordering,
        discard: true,
        expire_seconds: 0.02,
        ..MountOptions::default()
    };
    let engine = Engine::mount(
        device.clone(),
        backstitch_formats::usual().layout(),
        &options,
    )
    .unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_changing(&engine, &is_over));
        let _ends = EndsAll(&is_over);
        let mut seen = 0;
        for _ in 0..12 {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while device.discarded.load(Relaxed) <= seen {
                assert!(std::time::Instant::now() < deadline, "nothing is discarded");
                std::thread::yield_now();
            }
            let left = Arc::new(MemoryDevice::from_bytes(device.cut()));
            let after = mount_under(left.clone(), ordering).unwrap();
            look_through(&after);
            after.unmount().unwrap();
            assert!(check(&*left).is_clean());
            seen = device.discarded.load(Relaxed);
        }
    });
    look_through(&engine);
    engine.unmount().unwrap();
    assert!(check(&device.memory).is_clean());
}

#[test]
fn discarding_while_in_use_takes_nothing_from_a_file() {
    discard_beside_changes(new_image(8 << 20, 128), Ordering::SOFT);
    for mode in [Ordering::JOURNAL_ORDERED, Ordering::JOURNAL_FULL] {
        let image = new_image_with_journal(8 << 20, 128);
        discard_beside_changes(image, mode);
    }
}

#[test]
fn only_what_was_freed_is_discarded_and_only_where_it_is_asked_for() {
    for discard in [false, true] {
        let device = Thin::new(new_image(8 << 20, 128));
        let options = MountOptions {
            discard,
            expire_seconds: 1e6,
            ..MountOptions::default()
        };
        let engine = Engine::mount(
            device.clone(),
            backstitch_formats::usual().layout(),
            &options,
        )
        .unwrap();
        for number in 0..FILES {
            let name = number.to_string();
            let file = write_new(&engine, engine.root(), &name, &contents(number));
            engine.forget(file, 1);
        }
        engine.sync().unwrap();
        let free_before = engine.statistics().unwrap().free_blocks;
        for number in 0..FILES / 2 {
            let name = number.to_string();
            engine.unlink(engine.root(), name.as_bytes()).unwrap();
        }
        engine.unmount().unwrap();
        let after = mount_under(device.clone(), Ordering::SOFT).unwrap();
        assert_eq!(look_through(&after), FILES / 2);
        let statistics = after.statistics().unwrap();
        let freed = (statistics.free_blocks - free_before) * u64::from(statistics.block_size_bytes);
        after.unmount().unwrap();
        let discarded = device.discarded.load(Relaxed);
        assert_eq!(discarded, if discard { freed } else { 0 });
    }
}

#[test]
fn all_that_is_free_is_discarded_and_what_was_removed_just_now_is_free() {
    let device = Thin::new(new_image(8 << 20, 128));
    let engine = mount_under(device.clone(), Ordering::SOFT).unwrap();
    for number in 0..FILES {
        let file = write_new(
            &engine,
            engine.root(),
            &number.to_string(),
            &contents(number),
        );
        engine.forget(file, 1);
    }
    engine.sync().unwrap();
    for number in 0..FILES / 2 {
        engine
            .unlink(engine.root(), number.to_string().as_bytes())
            .unwrap();
    }
    let discarded = engine.trim(0..u64::MAX, 0).unwrap();
    let statistics = engine.statistics().unwrap();
    let free = statistics.free_blocks * u64::from(statistics.block_size_bytes);
    assert_eq!(discarded, free);
    assert_eq!(look_through(&engine), FILES / 2);
    // A part of the device, and long runs only.
    let half = device.size_bytes() / 2;
    let part = engine.trim(0..half, 0).unwrap();
    assert!(part > 0 && part <= half);
    assert_eq!(engine.trim(0..u64::MAX, 1 << 30).unwrap(), 0);
    let behind = engine.trim(device.size_bytes()..u64::MAX, 0).unwrap_err();
    assert_eq!(behind, Error::Layout(LayoutError::Invalid));
    engine.unmount().unwrap();
}

#[test]
fn what_cannot_be_discarded_is_refused() {
    let memory = Arc::new(MemoryDevice::from_bytes(new_image(2 << 20, 64)));
    let engine = mount_under(memory.clone(), Ordering::SOFT).unwrap();
    let refused = engine.trim(0..u64::MAX, 0).unwrap_err();
    assert_eq!(refused, Error::Layout(LayoutError::NotSupported));
    engine.unmount().unwrap();
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let engine = Engine::mount(memory, backstitch_formats::usual().layout(), &options).unwrap();
    let refused = engine.trim(0..u64::MAX, 0).unwrap_err();
    assert_eq!(refused, Error::Layout(LayoutError::ReadOnly));
}
