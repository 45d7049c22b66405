//! See `backstitch_fuzz::targets::undo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::undo::run(bytes));
