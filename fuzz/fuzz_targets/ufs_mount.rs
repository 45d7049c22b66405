//! See `backstitch_fuzz::targets::ufs_mount`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::ufs_mount::run(bytes));
