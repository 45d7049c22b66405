//! A long stream goes to the disk while it is written; changes that may soon be made again or
//! removed wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{new_image, write_new};
use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_vfs::{Engine, MountOptions};

/// Writes 80 MiB in all, to `files` files one after another, where eight times as much may wait.
/// Returns how much the writer writes by itself.
fn written_meanwhile(files: usize) -> u64 {
    const LEN: usize = 80 << 20;
    let device = Arc::new(MemoryDevice::from_bytes(new_image(LEN + (16 << 20), 64)));
    let options = MountOptions {
        cache_bytes: 64 << 20,
        dirty_bytes: 640 << 20,
        expire_seconds: 1e6,
        ..MountOptions::default()
    };
    let engine = Engine::mount(device, usual().layout(), &options).unwrap();
    let piece = vec![5; 1 << 20];
    for file in 0..files {
        let inode = write_new(&engine, engine.root(), &file.to_string(), b"");
        for at in (0..LEN / files).step_by(piece.len()) {
            engine.write(inode, at as u64, &piece).unwrap();
        }
        engine.forget(inode, 1);
    }
    // Three times as long as the writer may sleep.
    let until = Instant::now() + Duration::from_millis(1500);
    while engine.stats().bytes_written < LEN as u64 / 4 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let written = engine.stats().bytes_written;
    engine.unmount().unwrap();
    written
}

#[test]
fn only_a_long_stream_is_written_before_much_waits() {
    assert!(written_meanwhile(1) >= 20 << 20);
    // Mounting writes the superblock.
    assert!(written_meanwhile(8) < 1 << 20);
}
