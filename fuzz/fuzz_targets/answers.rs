//! See `backstitch_fuzz::targets::answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::answers::run(bytes));
