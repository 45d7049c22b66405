//! See `backstitch_fuzz::targets::fsck`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::fsck::run(bytes));
