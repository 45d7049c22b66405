//! See `backstitch_fuzz::targets::journal_format`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::journal_format::run(bytes));
