//! The memory that a thread shares with the kernel, as replies see it.

use memmap2::MmapMut;
use parking_lot::{Condvar, Mutex};

/// The largest reply that is not written into a payload as it comes into being: `fuse_statx_out`
/// with room to spare.
const SMALL_BYTES: usize = 320;

/// Where the reply to the request that a thread has taken is put.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Held by the thread that serves while a request's contents lie there.
    pub(super) payload: Mutex<MmapMut>,
    answer: Mutex<Option<Answer>>,
    /// A thread that did not get the request has put an answer there.
    given: Condvar,
}

/// A reply as the kernel is to get it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) error: i32,
    pub(super) bytes: usize,
    /// The bytes, if they are not in the payload yet.
    pub(super) small: Option<[u8; SMALL_BYTES]>,
}

impl Slot {
    pub(super) fn new(payload: MmapMut) -> Slot {
        Slot {
            payload: Mutex::new(payload),
            answer: Mutex::new(None),
            given: Condvar::new(),
        }
    }

    /// Takes a reply: an error (negative) or success (0), and what goes with it.
    pub(crate) fn reply(&self, error: i32, parts: [&[u8]; 2]) {
        let bytes = parts[0].len() + parts[1].len();
        let mut small = None;
        if bytes <= SMALL_BYTES {
            let space = small.insert([0; SMALL_BYTES]);
            put(space, parts);
        } else {
            put(&mut self.payload.lock(), parts);
        }
        self.give(Answer {
            error,
            bytes,
            small,
        });
    }

    /// Takes a reply that `write` writes: into `most` bytes, which begin at a page. It returns an
    /// error number and how many bytes there are.
    pub(crate) fn fill(&self, most: usize, write: impl FnOnce(&mut [u8]) -> (i32, usize)) {
        let mut payload = self.payload.lock();
        let most = most.min(payload.len());
        let (error, bytes) = write(&mut payload[..most]);
        drop(payload);
        self.give(Answer {
            error,
            bytes,
            small: None,
        });
    }

    fn give(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.given.notify_one();
    }

    pub(super) fn wait(&self) -> Answer {
        let mut answer = self.answer.lock();
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => self.given.wait(&mut answer),
            }
        }
    }
}

/// Writes `parts` one behind the other, as far as there is room.
fn put(space: &mut [u8], parts: [&[u8]; 2]) {
    let mut rest = space;
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len().min(rest.len()));
        here.copy_from_slice(&part[..here.len()]);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_answer_may_come_from_elsewhere() {
        let slot = Arc::new(Slot::new(MmapMut::map_anon(8192).unwrap()));
        let other = slot.clone();
        let thread = std::thread::spawn(move || other.reply(0, [b"ab", b"c"]));
        let answer = slot.wait();
        thread.join().unwrap();
        assert_eq!((answer.error, answer.bytes), (0, 3));
        assert_eq!(&answer.small.unwrap()[..3], b"abc");
        let long = [7; 5000];
        slot.reply(-5, [&long, &[]]);
        let answer = slot.wait();
        assert_eq!((answer.error, answer.bytes), (-5, 5000));
        assert_eq!(slot.payload.lock()[..5000], long);
    }
}
