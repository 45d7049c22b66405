//! The open files of a mount that reports losses once to each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backstitch_fuse_protocol::NodeId;
use backstitch_vfs::OpenFile;
use parking_lot::Mutex;

use crate::front::Front;

/// The open files by the numbers that the kernel knows them by.
#[derive(Default)]
pub(crate) struct OpenFiles {
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    last: AtomicU64,
}

/// What is opened where nobody remembers it.
const UNKNOWN: u64 = 0;

impl Front {
    /// Remembers that a file or directory was opened, where that is asked for.
    pub(crate) fn open_file(&self, node: NodeId) -> u64 {
        let Some(open) = &self.open_files else {
            return UNKNOWN;
        };
        let number = open.last.fetch_add(1, Ordering::Relaxed) + 1;
        let file = self.engine.open(self.nodes.inode(node));
        open.files.lock().insert(number, Arc::new(file));
        number
    }

    /// An open file, where it is remembered.
    pub(crate) fn opened(&self, handle: u64) -> Option<Arc<OpenFile>> {
        let open = self.open_files.as_ref()?;
        open.files.lock().get(&handle).cloned()
    }

    /// Forgets an open file.
    pub(crate) fn close_file(&self, handle: u64) {
        if let Some(open) = &self.open_files {
            open.files.lock().remove(&handle);
        }
    }
}
