//! See `backstitch_fuzz::targets::inode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::inode::run(bytes));
