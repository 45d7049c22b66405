//! Recording a mount, as a trace.

use std::sync::Arc;

use backstitch_trace::{Recorder, Recording};
use serde_json::json;

use super::Mount;
use crate::image::Kind;

/// Bytes of a recording that are kept. Of a longer one the beginning is replaced by the state to
/// which it had led.
const MOST_BYTES: usize = 64 << 20;

impl Mount {
    /// Records what happens from now on, up to a crash.
    pub fn record(&mut self) -> Arc<Recorder> {
        let description = json!({
            "layout": match self.fork().kind() {
                Kind::FileSystem(layout) => layout.name(),
                Kind::Raw(_) => "raw",
                Kind::Other(_) => "another",
            },
            "ordering": self.ordering.to_string(),
            "root": self.fs.root().0,
            "ends_with": "crash",
        });
        let recording = Recording {
            description,
            with_contents: false,
        };
        let recorder = Arc::new(Recorder::of_the_last(&recording, MOST_BYTES));
        self.session.store.watch(Some(recorder.clone()));
        recorder
    }
}
