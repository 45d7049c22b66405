//! See `backstitch_fuzz::targets::patchgroup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::patchgroup::run(bytes));
