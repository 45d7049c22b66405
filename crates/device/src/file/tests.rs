use super::*;
use crate::direct::MAX_BUFFERS;

fn scratch(size_bytes: u64) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    drop(FileDevice::create(&path, size_bytes).unwrap());
    (dir, path)
}

fn open(path: &Path, read_only: bool) -> Result<FileDevice> {
    FileDevice::open(
        path,
        OpenOptions {
            read_only,
            ..OpenOptions::default()
        },
    )
}

#[test]
fn what_was_just_written_is_read_at_once_and_only_inside() {
    let (_dir, path) = scratch(8192);
    let device = open(&path, false).unwrap();
    device.write(4096, &[7; 4096]).unwrap();
    device.reads_are_scattered();
    device.will_read(0, 8192);
    let mut found = [0; 4096];
    // Some hosts cannot tell.
    assert!(!device.read_at_once(4096, &mut found) || found == [7; 4096]);
    assert!(!device.read_at_once(4097, &mut found));
    device.read_contents(4096, &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
    assert!(device.read_contents(4097, &mut found).is_err());
}

#[test]
fn creates_sparse_and_keeps_what_was_written() {
    let (_dir, path) = scratch(1 << 30);
    let device = open(&path, false).unwrap();
    assert_eq!(device.size_bytes(), 1 << 30);
    device.write(1 << 29, b"abc").unwrap();
    device.flush().unwrap();
    drop(device);
    let mut buffer = [0; 5];
    open(&path, true)
        .unwrap()
        .read((1 << 29) - 1, &mut buffer)
        .unwrap();
    assert_eq!(&buffer, b"\0abc\0");
    let used_bytes = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    assert!(
        used_bytes < 1 << 20,
        "the file is not sparse: {used_bytes} bytes"
    );
}

#[test]
fn what_was_discarded_reads_as_zeros() {
    let (_dir, path) = scratch(1 << 16);
    let device = open(&path, false).unwrap();
    device.write(4000, &[7; 8192]).unwrap();
    if !device.discard(4096, 4096).unwrap() {
        return; // The host's file system cannot.
    }
    let mut buffer = [1; 8192];
    device.read(4000, &mut buffer).unwrap();
    assert_eq!(buffer[..96], [7; 96]);
    assert_eq!(buffer[96..96 + 4096], [0; 4096]);
    assert_eq!(buffer[96 + 4096..], [7; 4000]);
    assert!(matches!(
        device.discard(1 << 16, 1),
        Err(DeviceError::OutOfRange { .. })
    ));
    drop(device);
    assert!(open(&path, true).unwrap().discard(0, 512).is_err());
}

#[test]
fn create_keeps_what_is_there() {
    let (_dir, path) = scratch(4096);
    open(&path, false).unwrap().write(100, b"kept").unwrap();
    let device = FileDevice::create(&path, 8192).unwrap();
    let mut buffer = [0; 4];
    device.read(100, &mut buffer).unwrap();
    assert_eq!((&buffer, device.size_bytes()), (b"kept", 8192));
}

#[test]
fn writes_more_buffers_than_one_call_takes() {
    let (_dir, path) = scratch(1 << 16);
    let device = open(&path, false).unwrap();
    let mut buffers: Vec<Buffer> = (0..3 * MAX_BUFFERS + 7)
        .map(|n| Buffer::from(vec![n as u8; n % 17]))
        .collect();
    buffers.insert(0, Buffer::default());
    let expected = buffers.concat();
    device
        .submit(&[WriteRequest {
            offset_bytes: 11,
            buffers,
        }])
        .unwrap();
    let mut found = vec![0; expected.len()];
    device.read(11, &mut found).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn a_writer_keeps_everybody_out_and_is_named() {
    let (_dir, path) = scratch(4096);
    let _writer = open(&path, false).unwrap();
    for read_only in [false, true] {
        let message = open(&path, read_only).unwrap_err().to_string();
        let me = format!("in use by pid {} (", std::process::id());
        assert!(message.contains(&me), "{message}");
    }
    assert!(matches!(
        FileDevice::create(&path, 0),
        Err(DeviceError::Busy { .. })
    ));
    assert_eq!(
        path.metadata().unwrap().len(),
        4096,
        "resized under its holder"
    );
}

#[test]
fn readers_share_and_keep_writers_out() {
    let (_dir, path) = scratch(4096);
    let first = open(&path, true).unwrap();
    let second = open(&path, true).unwrap();
    assert!(matches!(open(&path, false), Err(DeviceError::Busy { .. })));
    let refused = Err(DeviceError::ReadOnly {
        device: path.display().to_string(),
    });
    assert_eq!(first.write(0, b"x"), refused);
    drop((first, second));
    open(&path, false).unwrap();
}

fn open_parts(path: &Path, read_only: bool) -> Result<FileDevice> {
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    FileDevice::open_for_parts(path, options)
}

#[test]
fn parts_are_used_beside_each_other_and_keep_the_whole_out() {
    let (_dir, path) = scratch(1 << 20);
    let first = open_parts(&path, false).unwrap();
    first.claim(0..4096).unwrap();
    let second = open_parts(&path, false).unwrap();
    let me = format!("in use by pid {} (", std::process::id());
    for overlap in [0..4096, 4095..8192, 1..2, 0..1 << 20] {
        let message = second.claim(overlap.clone()).unwrap_err().to_string();
        assert!(message.contains(&me), "{overlap:?}: {message}");
    }
    second.claim(4096..8192).unwrap();
    for read_only in [false, true] {
        let message = open(&path, read_only).unwrap_err().to_string();
        assert!(message.contains(&me), "{message}");
    }
    // A reader of another part is admitted, a reader of a part that is being written is not.
    let reader = open_parts(&path, true).unwrap();
    reader.claim(8192..12288).unwrap();
    assert!(reader.claim(0..512).is_err());
    assert!(matches!(
        reader.claim(0..2 << 20),
        Err(DeviceError::OutOfRange { .. })
    ));
    drop((first, second));
    // Readers share parts and the whole.
    reader.claim(0..512).unwrap();
    let whole = open(&path, true).unwrap();
    assert!(matches!(open(&path, false), Err(DeviceError::Busy { .. })));
    let writer = open_parts(&path, false).unwrap();
    assert!(writer.claim(1 << 19..1 << 20).is_err());
    drop((reader, whole));
    writer.claim(1 << 19..1 << 20).unwrap();
    drop(writer);
    open(&path, false).unwrap();
}

#[test]
fn says_why_it_cannot_open() {
    let dir = tempfile::tempdir().unwrap();
    let missing = open(&dir.path().join("none"), true)
        .unwrap_err()
        .to_string();
    assert!(
        missing.ends_with("cannot open: No such file or directory"),
        "{missing}"
    );
    let directory = open(dir.path(), true).unwrap_err().to_string();
    assert!(
        directory.ends_with("neither a regular file nor a block device"),
        "{directory}"
    );
}

#[test]
fn a_request_past_the_end_is_refused_and_not_latched() {
    let (_dir, path) = scratch(4096);
    let device = open(&path, false).unwrap();
    assert!(matches!(
        device.write(4095, b"xy"),
        Err(DeviceError::OutOfRange { .. })
    ));
    assert!(matches!(
        device.read(4095, &mut [0; 2]),
        Err(DeviceError::OutOfRange { .. })
    ));
    device.write(4095, b"y").unwrap();
}

#[test]
fn a_file_cut_short_is_a_read_error() {
    let (_dir, path) = scratch(8192);
    let device = open(&path, true).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let error = device.read(4000, &mut [0; 200]).unwrap_err();
    assert!(
        error.to_string().ends_with("the file has become shorter"),
        "{error}"
    );
}

#[test]
fn a_failed_write_is_latched_until_reset() {
    // A file opened for reading only makes every write fail inside the host.
    let (_dir, path) = scratch(4096);
    let file = File::open(&path).unwrap();
    let device = FileDevice::from_locked(file, "x".into(), OpenOptions::default()).unwrap();
    let error = device.write(0, b"abc").unwrap_err();
    assert!(matches!(
        error,
        DeviceError::Write {
            offset_bytes: 0,
            len_bytes: 3,
            ..
        }
    ));
    assert_eq!(device.flush(), Err(error.clone()));
    assert_eq!(device.submit(&[]), Err(error));
    device.read(0, &mut [0; 8]).unwrap();
    device.reset_after_failure();
    device.flush().unwrap();
    device.submit(&[]).unwrap();
}
