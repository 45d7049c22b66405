//! See `backstitch_fuzz::targets::mount`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::mount::run(bytes));
