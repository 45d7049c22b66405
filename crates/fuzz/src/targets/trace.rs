//! The trace that `crash app` records, and the scripts of `crash fs`. The input is the text.

use backstitch_crash_app::Trace;
use backstitch_crash_core::operation::{parse_script, script};

/// What can be read is written as it was.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(operations) = parse_script(&text) {
        let written = script(&operations);
        assert_eq!(
            parse_script(&written).as_ref(),
            Ok(&operations),
            "{written}"
        );
    }
    if let Ok(trace) = Trace::parse(&text) {
        let written = trace.to_text();
        assert_eq!(Trace::parse(&written).as_ref(), Ok(&trace), "{written}");
        let plain = trace.without_groups();
        assert!(plain.setup <= plain.operations.len());
    }
}
