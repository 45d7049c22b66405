//! See `backstitch_fuzz::targets::directory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::directory::run(bytes));
