//! See `backstitch_fuzz::targets::write_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::write_log::run(bytes));
