//! See `backstitch_fuzz::targets::partition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::partition::run(bytes));
