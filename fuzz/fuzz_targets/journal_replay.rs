//! See `backstitch_fuzz::targets::journal_replay`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::journal_replay::run(bytes));
