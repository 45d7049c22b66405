//! See `backstitch_fuzz::targets::ufs_fsck`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::ufs_fsck::run(bytes));
