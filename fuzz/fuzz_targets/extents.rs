//! See `backstitch_fuzz::targets::extents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::extents::run(bytes));
