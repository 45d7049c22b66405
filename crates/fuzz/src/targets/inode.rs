//! Inodes. The input is an inode of any length.

use backstitch_ext::format::Inode;
use backstitch_ext::format::inode::{
    BASE_SIZE, LAST_BEFORE_MISDATED, decode_time, encode_device, encode_time, make_device,
};
use backstitch_ext::format::xattr;

/// An inode's times and numbers stay the same when it is written and read again.
pub fn run(bytes: &[u8]) {
    let Ok(inode) = Inode::parse(bytes) else {
        assert!(bytes.len() < BASE_SIZE);
        return;
    };
    assert!(BASE_SIZE + usize::from(inode.extra_isize) <= bytes.len());
    for block_bytes in [1024, 4096, 65536] {
        let _ = (
            inode.is_fast_symlink(block_bytes),
            inode.has_block_map(block_bytes),
        );
    }
    let number = inode.device_number();
    let [first, second] = encode_device(number);
    let again = Inode {
        block: [&[first, second][..], &[0; 13]]
            .concat()
            .try_into()
            .expect("15 words"),
        ..inode.clone()
    };
    assert_eq!(again.device_number() & 0xf_ffff, number & 0xf_ffff);
    let _ = make_device(number >> 8, number);
    for time in [inode.accessed, inode.changed, inode.modified] {
        for has_extra in [false, true] {
            let (low, extra) = encode_time(time, has_extra);
            let read = decode_time(low, has_extra.then_some(extra));
            // Times that a checker would take for ones before 1970 are not written.
            let is_misdated = (LAST_BEFORE_MISDATED + 1..3 << 32).contains(&time.seconds);
            assert!(
                !has_extra || is_misdated || read == time,
                "{time:?} became {read:?}"
            );
        }
    }
    if let Some(start) = xattr::inline_start(bytes, inode.extra_isize) {
        assert!(start < bytes.len());
    }
}
