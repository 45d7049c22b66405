//! Writing down what happens in a mount.

use std::sync::Arc;

use backstitch_trace::{Recorder, Recording};
use serde_json::json;

use super::Mount;
use crate::image::Kind;

/// Bytes of a recording that are kept. Of a longer one what came first is not, but what it came to.
const MOST_BYTES: usize = 64 << 20;

impl Mount {
    /// Writes down, from now on, what happens up to a crash.
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
