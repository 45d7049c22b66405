//! Files of 2 GiB and more need a feature of the image, in whatever way they become so large.
//! Images of revision 0, which have no features, refuse them.

use std::sync::Arc;

use crate::support::{check, mount_under, write_new};
use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::{Allocate, Engine, InodeNumber, Result, SetAttributes};

/// The first size that is too large for an image without the feature.
const LARGE_BYTES: u64 = 1 << 31;
const EFBIG: i32 = 27;

type Growth = fn(&Engine, InodeNumber) -> Result<()>;

const GROWTHS: [(&str, Growth); 5] = [
    ("write", |engine, file| {
        engine.write(file, LARGE_BYTES - 1, b"x").map(drop)
    }),
    ("truncate", |engine, file| {
        let set = SetAttributes {
            size_bytes: Some(LARGE_BYTES),
            ..SetAttributes::default()
        };
        engine.set_attributes(file, &set).map(drop)
    }),
    ("fallocate", |engine, file| {
        let how = Allocate::Reserve { keep_size: false };
        engine.allocate(file, how, LARGE_BYTES - 1000, 1000)
    }),
    ("fallocate -z", |engine, file| {
        let how = Allocate::ZeroRange { keep_size: false };
        engine.allocate(file, how, 1, LARGE_BYTES - 1)
    }),
    ("copy", |engine, file| {
        let copied = engine.copy_range(file, 0, file, LARGE_BYTES - 1, 1);
        copied.map(drop)
    }),
];

#[test]
fn however_a_file_grows_the_image_says_that_it_has_large_files() {
    for revision in [0, 1] {
        for (what, grow) in GROWTHS {
            for ordering in ["soft", "async", "sync"] {
                let device = Arc::new(MemoryDevice::new(4 << 20));
                let mut mkfs = Mkfs {
                    block_size: Some(1024),
                    inodes: Some(128),
                    revision,
                    ..Mkfs::new([7; 16], [9; 16], 1_700_000_000)
                };
                mkfs.features.push("none".to_owned());
                let made = usual().make(&mkfs, &*device).unwrap();
                assert!(!made.features.iter().any(|name| name == "large_file"));
                let engine = mount_under(device.clone(), ordering.parse().unwrap()).unwrap();
                let file = write_new(&engine, engine.root(), "f", b"contents");
                let grown = grow(&engine, file);
                match revision {
                    0 => assert_eq!(grown.expect_err(what).errno(), EFBIG, "{what}"),
                    _ => grown.expect(what),
                }
                let size = if revision == 0 { 8 } else { LARGE_BYTES };
                assert_eq!(engine.attributes(file).unwrap().size_bytes, size, "{what}");
                engine.unmount().unwrap();
                let report = check(&*device);
                assert!(
                    report.is_clean(),
                    "{what}, {ordering}: {:?}",
                    report.findings
                );
            }
        }
    }
}
