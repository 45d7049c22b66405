//! See `backstitch_fuzz::targets::xattr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::xattr::run(bytes));
