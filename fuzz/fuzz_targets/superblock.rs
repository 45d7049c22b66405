//! See `backstitch_fuzz::targets::superblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::superblock::run(bytes));
