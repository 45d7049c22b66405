//! Recording the patches of a run.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use backstitch_layout::InodeNumber;
use backstitch_store::Watcher;
use backstitch_trace::{Recorder, Recording, RecordingError};
use serde_json::json;

use crate::measure::Spec;
use crate::{Error, Result};

/// Begins to record, if that is wanted.
pub(crate) fn start(spec: &Spec, root: InodeNumber) -> Result<Option<Arc<Recorder>>> {
    let Some(path) = &spec.record else {
        return Ok(None);
    };
    let recording = Recording {
        description: json!({
            "image": format!("bench {}", spec.workload.name()),
            "layout": spec.layout.name(),
            "ordering": spec.ordering.to_string(),
            "root": root.0,
        }),
        with_contents: false,
    };
    let recorder = output(path).and_then(|file| Recorder::into_writer(&recording, file));
    Ok(Some(Arc::new(recorder.map_err(Error::at(path))?)))
}

/// An empty file for a recording. An image in use is locked, even by this run, so no such file is
/// emptied.
fn output(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        file.try_lock()?;
        file.set_len(0)?;
    }
    Ok(file)
}

/// The recorder as a watcher of the store.
pub(crate) fn watcher(recorder: &Arc<Recorder>) -> Arc<dyn Watcher> {
    recorder.clone()
}

/// Ends the recording.
pub(crate) fn end(spec: &Spec, recorder: Option<Arc<Recorder>>) -> Result<()> {
    let (Some(recorder), Some(path)) = (recorder, &spec.record) else {
        return Ok(());
    };
    match recorder.finish_writing() {
        Ok(_) => Ok(()),
        Err(RecordingError::Writer(error)) => Err(Error::at(path)(error)),
        Err(RecordingError::Lost { events, .. }) => Err(Error::NotRecorded {
            path: path.clone(),
            events,
        }),
    }
}
