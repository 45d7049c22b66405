//! Where the chunks of a recording go.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::state::{Keep, State};

/// Chunks that may wait for the thread that writes them: about 16 MiB.
const MOST_WAITING: usize = 256;

/// Where chunks go.
pub(super) enum Out {
    /// They are kept, up to so many bytes.
    Memory {
        chunks: Vec<Vec<u8>>,
        bytes: usize,
        most_bytes: usize,
    },
    /// The last ones are kept; what the others came to is known.
    Ring {
        chunks: VecDeque<Vec<u8>>,
        bytes: usize,
        most_bytes: usize,
        before: Box<State>,
    },
    /// A thread writes them, and gives their memory back.
    Writer {
        chunks: SyncSender<Vec<u8>>,
        spare: Receiver<Vec<u8>>,
    },
    /// They have been collected.
    Nowhere,
}

/// A chunk was not taken.
pub(super) enum Refused {
    /// There is no room for it now.
    Full(Vec<u8>),
    /// There never will be: the writer has failed.
    Ended,
}

impl Out {
    pub(super) fn memory(most_bytes: usize) -> Out {
        Out::Memory {
            chunks: Vec::new(),
            bytes: 0,
            most_bytes,
        }
    }

    pub(super) fn ring(most_bytes: usize) -> Out {
        Out::Ring {
            chunks: VecDeque::new(),
            bytes: 0,
            most_bytes,
            before: Box::new(State::without_names(Keep::Live)),
        }
    }

    /// Starts a thread that writes `head` and then chunks, until there are no more senders. It comes
    /// to how many bytes it wrote.
    pub(super) fn writer(
        head: Vec<u8>,
        mut writer: impl Write + Send + 'static,
    ) -> io::Result<(Out, JoinHandle<io::Result<u64>>)> {
        let (sender, chunks) = sync_channel::<Vec<u8>>(MOST_WAITING);
        let (give_back, spare) = sync_channel(MOST_WAITING);
        let thread = std::thread::Builder::new().name("backstitch-trace".into());
        let thread = thread.spawn(move || {
            writer.write_all(&head)?;
            let mut written = head.len() as u64;
            for chunk in chunks {
                writer.write_all(&chunk)?;
                written += chunk.len() as u64;
                // Where there is no room for it, it is freed.
                let _ = give_back.try_send(chunk);
            }
            writer.flush()?;
            Ok(written)
        })?;
        let chunks = sender;
        Ok((Out::Writer { chunks, spare }, thread))
    }

    /// Memory that a chunk may use again.
    pub(super) fn spare(&self) -> Vec<u8> {
        match self {
            Out::Writer { spare, .. } => spare.try_recv().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Takes a chunk without waiting.
    pub(super) fn take(&mut self, chunk: Vec<u8>) -> Result<(), Refused> {
        match self {
            Out::Memory {
                bytes, most_bytes, ..
            } if *bytes + chunk.len() > *most_bytes => Err(Refused::Full(chunk)),
            Out::Memory { chunks, bytes, .. } => {
                *bytes += chunk.len();
                chunks.push(chunk);
                Ok(())
            }
            Out::Ring {
                chunks,
                bytes,
                most_bytes,
                before,
            } => {
                *bytes += chunk.len();
                chunks.push_back(chunk);
                while *bytes > *most_bytes && chunks.len() > 1 {
                    let Some(oldest) = chunks.pop_front() else {
                        break;
                    };
                    *bytes -= oldest.len();
                    before.apply_chunk(&oldest);
                }
                Ok(())
            }
            Out::Writer { chunks, .. } => chunks.try_send(chunk).map_err(|error| match error {
                TrySendError::Full(chunk) => Refused::Full(chunk),
                TrySendError::Disconnected(_) => Refused::Ended,
            }),
            Out::Nowhere => Err(Refused::Ended),
        }
    }

    /// What has been kept in memory, one chunk after the other.
    pub(super) fn append_to(self, trace: &mut Vec<u8>) {
        match self {
            Out::Memory { chunks, .. } => chunks.iter().for_each(|chunk| trace.extend(chunk)),
            Out::Ring { chunks, before, .. } => {
                trace.extend(before.as_chunk());
                chunks.iter().for_each(|chunk| trace.extend(chunk));
            }
            Out::Writer { .. } | Out::Nowhere => {}
        }
    }
}
