//! See `backstitch_fuzz::targets::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::trace::run(bytes));
