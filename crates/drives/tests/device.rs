//! A drive as a device: what is read is what was written, time passes, and a power cut leaves only
//! what the fault model allows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, Buffer, MemoryDevice, WriteRequest, materialise};
use backstitch_drives::{DriveSpec, Flag, PowerCut, SimulatedDevice, VirtualClock};
use proptest::prelude::*;

const SIZE_BYTES: u64 = 1 << 20;

fn device(preset: &str) -> SimulatedDevice {
    let spec = DriveSpec::preset(preset).unwrap();
    SimulatedDevice::new(&spec, SIZE_BYTES, Arc::default())
}

fn block(number: u64, byte: u8) -> WriteRequest {
    WriteRequest {
        offset_bytes: number * 4096,
        buffers: vec![Buffer::from([byte; 4096])],
    }
}

fn medium(cut: &PowerCut) -> Vec<u8> {
    let mut bytes = vec![0; SIZE_BYTES as usize];
    cut.read_medium(0, &mut bytes);
    bytes
}

/// The bytes of some blocks in every state that a power cut can leave.
fn states(cut: &PowerCut, blocks: &[u64]) -> BTreeSet<Vec<u8>> {
    let all = 0..1_u32 << cut.open.len();
    let possible = all.filter(|set| cut.is_possible(&|index| set & (1 << index) != 0));
    let state = |set: u32| {
        let (mut bytes, records) = (medium(cut), cut.records());
        let keep = &mut |index: usize| set & (1 << index) != 0;
        materialise(&mut bytes, &records, records.len(), keep);
        blocks
            .iter()
            .map(|block| bytes[*block as usize * 4096])
            .collect()
    };
    possible.map(state).collect()
}

#[test]
fn time_passes_with_the_drive_and_with_the_host() {
    let clock = Arc::new(VirtualClock::default());
    let spec = DriveSpec::preset("viking").unwrap();
    let device = SimulatedDevice::new(&spec, SIZE_BYTES, clock.clone());
    clock.pass(Duration::from_millis(5));
    device.submit(&[block(3, 1), block(200, 2)]).unwrap();
    assert_eq!(
        clock.now(),
        Duration::from_millis(5),
        "nobody waits for a write"
    );
    device.flush().unwrap();
    let flushed = clock.now();
    assert!(flushed > Duration::from_millis(6) && flushed < Duration::from_millis(40));
    device.flush().unwrap();
    assert_eq!(clock.now(), flushed, "nothing to wait for");
    let mut buffer = [0; 4096];
    device.read(200 * 4096, &mut buffer).unwrap();
    assert!(buffer == [2; 4096] && clock.now() > flushed);
}

#[test]
fn the_ideal_drive_takes_no_time_and_loses_nothing() {
    let device = device("ideal");
    device.submit(&[block(1, 7)]).unwrap();
    device.flush().unwrap();
    device.read(0, &mut [0; 9000]).unwrap();
    assert_eq!(device.clock().now_ns(), 0);
    assert_eq!(medium(&device.power_cut())[4096..8192], [7; 4096]);
}

#[test]
fn a_power_cut_keeps_what_was_flushed_and_any_of_the_rest() {
    for preset in ["viking", "st3320620as", "sata-ssd"] {
        let device = device(preset);
        device.submit(&[block(1, 1), block(2, 1)]).unwrap();
        device.flush().unwrap();
        device.submit(&[block(1, 2), block(2, 2)]).unwrap();
        let found = states(&device.power_cut(), &[1, 2]);
        let all = [[1, 1], [1, 2], [2, 1], [2, 2]].map(|s| s.to_vec());
        assert_eq!(found, BTreeSet::from(all), "{preset}");
        device.flush().unwrap();
        assert!(device.power_cut().open.is_empty(), "{preset}");
        assert_eq!(
            states(&device.power_cut(), &[1, 2]),
            BTreeSet::from([vec![2, 2]])
        );
    }
}

#[test]
fn a_power_cut_breaks_no_order() {
    let device = device("viking");
    let first = device.submit_after(&block(100, 1), &[], None).unwrap();
    let second = device.submit_after(&block(2, 1), &[first], None).unwrap();
    device.submit_after(&block(3, 1), &[second], None).unwrap();
    let found = states(&device.power_cut(), &[100, 2, 3]);
    let all = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]].map(|s| s.to_vec());
    assert_eq!(found, BTreeSet::from(all));
    while device.wait() {}
    assert!(device.is_stable(second) && device.power_cut().open.is_empty());
}

#[test]
fn a_power_cut_breaks_no_flag() {
    let device = device("viking");
    device.submit(&[block(100, 1)]).unwrap();
    device
        .submit_after(&block(50, 1), &[], Some(Flag::Full))
        .unwrap();
    device.submit(&[block(2, 1), block(3, 1)]).unwrap();
    let found = states(&device.power_cut(), &[100, 50, 2, 3]);
    let free = [[1, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]];
    let all = [[0; 4], [1, 0, 0, 0], [1, 1, 0, 0]].into_iter().chain(free);
    assert_eq!(found, all.map(|s| s.to_vec()).collect());
}

#[test]
fn what_the_host_has_not_sent_is_lost() {
    // One request at a time: the second is still in the host's queue.
    let device = device("st2383");
    device.submit(&[block(100, 1), block(2, 1)]).unwrap();
    assert_eq!(
        states(&device.power_cut(), &[100, 2]),
        BTreeSet::from([vec![0, 0], vec![1, 0]])
    );
}

#[test]
fn writes_to_one_block_keep_their_order() {
    let device = device("viking");
    for byte in 1..=3 {
        device.submit(&[block(9, byte)]).unwrap();
    }
    let found = states(&device.power_cut(), &[9]);
    assert_eq!(found, (0..=3).map(|byte| vec![byte]).collect());
    device.flush().unwrap();
    assert_eq!(states(&device.power_cut(), &[9]), BTreeSet::from([vec![3]]));
}

#[test]
fn a_device_lives_on_after_a_power_cut() {
    let spec = DriveSpec::preset("nvme").unwrap();
    let device = device("nvme");
    device.submit(&[block(1, 1), block(2, 1)]).unwrap();
    let cut = device.power_cut();
    let after = device.after_power_cut(&spec, &cut, Arc::default(), &|index| index == 1);
    let mut buffer = [9; 8192];
    after.read(4096, &mut buffer).unwrap();
    assert!(buffer[..4096] == [0; 4096] && buffer[4096..] == [1; 4096]);
    assert!(after.power_cut().open.is_empty());
}

#[test]
fn refuses_what_reaches_past_its_end() {
    let device = device("viking");
    assert_eq!(device.size_bytes(), SIZE_BYTES);
    assert!(device.submit(&[block(256, 1)]).is_err());
    assert!(device.read(SIZE_BYTES - 1, &mut [0; 2]).is_err());
    let whole = SimulatedDevice::new(
        &DriveSpec::preset("st2383").unwrap(),
        u64::MAX,
        Arc::default(),
    );
    assert_eq!(whole.size_bytes(), 317 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Like a device in memory, at any addresses and lengths; after a flush all of it is on the
    /// medium.
    #[test]
    fn is_like_memory(
        which in 0..7usize,
        steps in prop::collection::vec((0..60_000usize, 1..9_000usize, any::<u8>(), 0..6u8), 1..40),
    ) {
        let device = device(DriveSpec::presets().nth(which).unwrap());
        let memory = MemoryDevice::new(SIZE_BYTES as usize);
        for (at, len, byte, then) in steps {
            device.write(at as u64, &vec![byte; len]).unwrap();
            memory.write(at as u64, &vec![byte; len]).unwrap();
            if then == 0 {
                device.flush().unwrap();
                prop_assert!(medium(&device.power_cut()) == memory.snapshot());
            } else if then == 1 {
                let (mut ours, mut theirs) = (vec![0; 20_000], vec![0; 20_000]);
                device.read(at as u64, &mut ours).unwrap();
                memory.read(at as u64, &mut theirs).unwrap();
                prop_assert!(ours == theirs);
            }
        }
    }
}
