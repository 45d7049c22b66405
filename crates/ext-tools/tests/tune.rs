//! Changes of label, UUID and reserved blocks, with a power cut in every write.

use crate::support::{e2fsck, have};
use backstitch_device::{BlockDevice, MemoryDevice, Result, WriteRequest};
use backstitch_ext::format::superblock::OFFSET_RECORD;
use backstitch_ext::format::superblock::SUPERBLOCK_OFFSET;
use backstitch_ext::format::{MountRecord, Superblock};
use backstitch_ext_tools::fsck::{self, SliceSource};
use backstitch_ext_tools::mkfs::{self, Mkfs};
use backstitch_ext_tools::tune::{self, Reserved, Tune, TuneError};
use backstitch_ordering::CrashRecord;
use std::sync::Mutex;

const OLD: [u8; 16] = [7; 16];
const NEW: [u8; 16] = [9; 16];
/// What any disk writes completely or not at all.
const SECTOR: usize = 512;

/// What a device was asked for.
enum Step {
    Write(u64, Vec<u8>),
    Flush,
}

/// A device in memory that remembers what it was asked for.
struct Recorder {
    inner: MemoryDevice,
    steps: Mutex<Vec<Step>>,
}

impl BlockDevice for Recorder {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn name(&self) -> String {
        "recorder".into()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        let mut steps = self.steps.lock().unwrap();
        for request in batch {
            let bytes: Vec<u8> = request.buffers.iter().flat_map(|b| b.to_vec()).collect();
            steps.push(Step::Write(request.offset_bytes, bytes));
        }
        drop(steps);
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.steps.lock().unwrap().push(Step::Flush);
        self.inner.flush()
    }
}

/// An image of four groups that says which mechanism had it mounted last.
fn image() -> Vec<u8> {
    let device = MemoryDevice::new(32 << 20);
    let mut mkfs = Mkfs::new(OLD, [3; 16], 1_700_000_000);
    mkfs.block_size = Some(1024);
    mkfs.label = b"old".to_vec();
    mkfs.device_is_zero = true;
    mkfs::write(&mkfs, &device).unwrap();
    let record = MountRecord {
        mechanism: CrashRecord::SOFT,
        mount_time_seconds: 1_700_000_001,
        mount_count: 1,
        atomic_unit_bytes: 1024,
    };
    let place = SUPERBLOCK_OFFSET + OFFSET_RECORD as u64;
    device.write(place, &record.encode(&OLD)).unwrap();
    device.snapshot()
}

fn superblock(bytes: &[u8], place: u64) -> Superblock {
    let at = place as usize;
    let array = bytes[at..at + 1024].try_into().unwrap();
    Superblock::parse(&array, bytes.len() as u64).unwrap()
}

fn tune() -> Tune {
    Tune {
        label: Some(b"new".to_vec()),
        uuid: Some(NEW),
        reserved: Some(Reserved::Blocks(77)),
        time_seconds: 1_800_000_000,
    }
}

/// Every state that a cut could leave between two flushes: any set of the sectors that were
/// written, or where these are many, each beginning and each end of them.
fn states_of(before: &[u8], writes: &[(u64, Vec<u8>)], judge: &mut dyn FnMut(Vec<u8>)) {
    let sectors: Vec<(usize, &[u8])> = writes
        .iter()
        .flat_map(|(place, bytes)| {
            let at = *place as usize;
            bytes
                .chunks(SECTOR)
                .enumerate()
                .map(move |(n, sector)| (at + n * SECTOR, sector))
        })
        .collect();
    let count = sectors.len();
    let mut state_with = |is_there: &dyn Fn(usize) -> bool| {
        let mut state = before.to_vec();
        for (_, (at, sector)) in sectors.iter().enumerate().filter(|(n, _)| is_there(*n)) {
            state[*at..at + sector.len()].copy_from_slice(sector);
        }
        judge(state);
    };
    if count <= 4 {
        (0..1 << count).for_each(|set| state_with(&|n| set >> n & 1 == 1));
    } else {
        (0..=count).for_each(|end| state_with(&|n| n < end));
        (0..=count).for_each(|begin| state_with(&|n| n >= begin));
    }
}

#[test]
fn a_power_cut_leaves_the_old_values_or_the_new_ones() {
    let before = image();
    let device = Recorder {
        inner: MemoryDevice::from_bytes(before.clone()),
        steps: Mutex::default(),
    };
    tune::apply(&tune(), &device).unwrap();
    let after = device.inner.snapshot();
    let (mut olds, mut news) = (0, 0);
    let mut judge = |state: Vec<u8>| {
        let sb = superblock(&state, SUPERBLOCK_OFFSET);
        let seen = (&sb.label[..], sb.uuid, sb.r_blocks_count);
        match seen {
            (b"old", OLD, 1638) => olds += 1,
            (b"new", NEW, 77) => {
                news += 1;
                assert!(sb.record.is_some(), "the record belongs to the new UUID");
            }
            mixed => panic!("{mixed:?}"),
        }
        let report = fsck::check_source(&SliceSource(&state), &fsck::Options::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
    };
    let (mut durable, mut writes) = (before, Vec::new());
    for step in device.steps.into_inner().unwrap() {
        match step {
            Step::Write(place, bytes) => writes.push((place, bytes)),
            Step::Flush => {
                states_of(&durable, &writes, &mut judge);
                for (place, bytes) in writes.drain(..) {
                    let at = place as usize;
                    durable[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
    }
    assert!(writes.is_empty(), "what was written is flushed");
    assert!(durable == after);
    assert!(
        olds > 1 && news > 1,
        "{olds} with the old values, {news} with the new"
    );
    for group in [1, 3] {
        let backup = superblock(&after, (1 + group * 8192) * 1024);
        assert_eq!((&backup.label[..], backup.uuid), (&b"new"[..], NEW));
        assert_eq!(backup.r_blocks_count, 77);
    }
    if have("e2fsck", "e2fsprogs") {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &after).unwrap();
        let (status, words) = e2fsck(file.path());
        assert_eq!(status, 0, "{words}");
    }
}

#[test]
fn what_cannot_be_changed_is_not_written() {
    let mut dirty = image();
    // s_state
    dirty[1024 + 0x3a] = 0;
    let mut recovering = image();
    // needs_recovery in s_feature_incompat
    recovering[1024 + 0x60] |= 4;
    let mut checksums = image();
    // metadata_csum in s_feature_ro_compat
    checksums[1024 + 0x65] |= 4;
    for (what, bytes, tune) in [
        ("dirty", dirty, tune()),
        ("needs recovery", recovering, tune()),
        ("checksums", checksums, tune()),
        (
            "percent",
            image(),
            Tune {
                reserved: Some(Reserved::Percent(f64::NAN)),
                ..tune()
            },
        ),
        (
            "label",
            image(),
            Tune {
                label: Some(vec![b'x'; 17]),
                ..tune()
            },
        ),
    ] {
        let device = MemoryDevice::from_bytes(bytes.clone());
        let refused = tune::apply(&tune, &device).expect_err(what);
        assert!(
            matches!(refused, TuneError::Refused(_) | TuneError::BadOption(_)),
            "{refused}"
        );
        assert!(device.snapshot() == bytes, "{what}");
    }
}
