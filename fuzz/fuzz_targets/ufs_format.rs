//! See `backstitch_fuzz::targets::ufs_format`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::ufs_format::run(bytes));
