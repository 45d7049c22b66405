//! See `backstitch_fuzz::targets::acl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backstitch_fuzz::targets::acl::run(bytes));
