//! What the recovery of a journal does to states, computed once for all that it treats the same.
//!
//! Recovery is a function of the blocks that it reads. So it runs over a device that notes what is
//! read and what is written. Every state that shows the same bytes in the blocks that were read
//! gets the same writes, whatever else differs. The result is what is judged, without the blocks of
//! the log, which is empty then. States with the same result have the same verdict, since the judge
//! looks at nothing else.

use std::ops::Range;
use std::rc::Rc;

use backstitch_device::{BlockDevice, Buffer, DeviceError, WriteRequest};
use backstitch_layout::LogSite;
use backstitch_mechanisms::logs;
use fastrand::Rng as Random;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::device::{Joint, parts_of};
use crate::image::Fork;
use crate::mount::{replay, site};
use crate::parts::parts;
use crate::reads::{ByReads, Reads};

/// Recoveries that are remembered at once. One takes about 30 KB.
const MOST_RECOVERIES: usize = 4096;

/// States that are remembered at once. One takes 32 bytes.
const MOST_STATES: usize = 1 << 20;

/// A step of a recovery.
#[derive(Clone, Debug)]
enum Step {
    /// A block gets these bytes, which add this much to the fingerprint.
    Write(u64, Buffer, u128),
    /// What was written to these blocks so far is stable.
    Flush(Range<u64>),
}

/// What a recovery does to every state that shows it the same blocks.
#[derive(Debug)]
pub struct Recovered {
    /// Why the recovery gives up, if it does.
    pub error: Option<String>,
    /// Its writes and flushes, in order.
    steps: Vec<Step>,
    read: FxHashSet<u64>,
    written: FxHashMap<u64, (Buffer, u128)>,
    /// The blocks of the log.
    log: Vec<Range<u64>>,
}

impl Recovered {
    /// Whether the result depends on what a block holds: it is read, or it stays as it is.
    pub(crate) fn concerns(&self, block: u64) -> bool {
        self.read.contains(&block)
            || self.error.is_none() && !self.written.contains_key(&block) && !self.is_log(block)
    }

    fn is_log(&self, block: u64) -> bool {
        self.log.iter().any(|run| run.contains(&block))
    }

    /// Visits the states that a crash may leave before each of the recovery's flushes and at its
    /// end: all parts of what is pending then, or where these are too many a sample with `samples`
    /// random ones. A state may be visited several times.
    pub fn cuts(
        &self,
        state: &Fork,
        samples: usize,
        random: &mut Random,
        emit: &mut dyn FnMut(Left<'_>),
    ) {
        let mut stable = state.clone();
        let mut pending: Vec<Write<'_>> = Vec::new();
        let everything = Step::Flush(0..u64::MAX);
        for step in self.steps.iter().chain([&everything]) {
            let flushed = match step {
                Step::Write(block, bytes, adds) => {
                    pending.push((*block, bytes, *adds));
                    continue;
                }
                Step::Flush(blocks) => blocks,
            };
            let (cuts, _) = parts(&vec![false; pending.len()], samples, random);
            for cut in cuts {
                let arrived = pending.iter().zip(cut).filter(|(_, is)| *is);
                emit(Left {
                    stable: &stable,
                    arrived: arrived.map(|(write, _)| *write).collect(),
                });
            }
            pending.retain(|(block, bytes, adds)| {
                if flushed.contains(block) {
                    stable.set_known(*block, (*bytes).clone(), *adds);
                }
                !flushed.contains(block)
            });
        }
    }

    /// The fingerprint of the recovered state. Most results are known already, so this saves
    /// copying an image.
    pub fn result_fingerprint(&self, state: &Fork) -> u128 {
        let mut sum = state.fingerprint();
        for (block, (_, adds)) in &self.written {
            if !self.is_log(*block) {
                sum = sum.wrapping_sub(state.adds(*block)).wrapping_add(*adds);
            }
        }
        for (block, adds) in state.changed_adds() {
            if self.is_log(block) {
                sum = sum.wrapping_sub(adds);
            }
        }
        sum
    }

    /// The recovered state, with the log's blocks as they are in the base.
    pub fn result(&self, state: &Fork) -> Fork {
        let mut result = state.clone();
        for (block, (bytes, adds)) in &self.written {
            result.set_known(*block, bytes.clone(), *adds);
        }
        result.reset(|block| self.is_log(block));
        result
    }
}

/// A block, the bytes that are written into it, and what they add to the fingerprint.
type Write<'a> = (u64, &'a Buffer, u128);

/// The state that a crash leaves in the middle of a recovery.
pub struct Left<'a> {
    stable: &'a Fork,
    /// The writes since the last flush that have arrived, in order.
    arrived: Vec<Write<'a>>,
}

impl Left<'_> {
    /// The fingerprint of the image.
    pub fn fingerprint(&self) -> u128 {
        let mut sum = self.stable.fingerprint();
        for (at, (block, _, adds)) in self.arrived.iter().enumerate() {
            let earlier = self.arrived[..at].iter().rev();
            let before = { earlier }.find(|(other, ..)| other == block);
            let before = before.map_or_else(|| self.stable.adds(*block), |(_, _, adds)| *adds);
            sum = sum.wrapping_sub(before).wrapping_add(*adds);
        }
        sum
    }

    /// The image.
    pub fn fork(&self) -> Fork {
        let mut fork = self.stable.clone();
        for (block, bytes, adds) in &self.arrived {
            fork.set_known(*block, (*bytes).clone(), *adds);
        }
        debug_assert_eq!(fork.fingerprint(), self.fingerprint());
        fork
    }
}

/// The most writes and flushes of one recovery. No image of the explorer takes a hundredth of them,
/// so a recovery that takes more never ends.
const STEPS_MAX: usize = 1 << 16;

/// The recoveries of states that were asked about.
#[derive(Default)]
pub struct Recoveries {
    runs: ByReads<Recovered>,
    /// Results by the state's fingerprint.
    states: FxHashMap<u128, Rc<Recovered>>,
}

impl Recoveries {
    /// What recovery does to a state that was asked about.
    pub(crate) fn known(&self, fingerprint: u128) -> Option<Rc<Recovered>> {
        self.states.get(&fingerprint).cloned()
    }

    /// What recovery does to a state.
    pub fn of(&mut self, state: &Fork) -> Rc<Recovered> {
        let found = self.runs.get(state);
        let is_full = self.states.len() >= MOST_STATES
            || found.is_none() && self.runs.count() >= MOST_RECOVERIES;
        if is_full {
            *self = Recoveries::default();
        }
        let recovered = found.unwrap_or_else(|| {
            let (reads, recovered) = recover(state);
            self.runs.insert(reads, recovered)
        });
        self.states.insert(state.fingerprint(), recovered.clone());
        recovered
    }
}

/// Recovers a state. Returns what was read, and what was done.
fn recover(state: &Fork) -> (Reads, Recovered) {
    let device = Tracing {
        home_bytes: state.home_bytes(),
        all_bytes: state.all_bytes(),
        block_bytes: state.block_bytes(),
        traced: Mutex::new(Traced {
            fork: state.clone(),
            reads: Reads::default(),
            written: FxHashSet::default(),
            steps: Vec::new(),
        }),
    };
    let done = {
        let (home, other) = parts_of(&device, device.home_bytes, device.all_bytes);
        let other = other.as_ref().map(|other| other as _);
        let site = site(&home, other, state.kind.journal_host());
        replay(site).map(|()| log_of(site))
    };
    let traced = device.traced.into_inner();
    let written = (traced.written.iter())
        .map(|block| (*block, traced.fork.shared(*block)))
        .collect();
    let recovered = Recovered {
        error: done.as_ref().err().map(ToString::to_string),
        steps: traced.steps,
        read: traced.reads.blocks().collect(),
        written,
        log: done.unwrap_or_default(),
    };
    (traced.reads, recovered)
}

/// The blocks of the logs of a recovered file system, without those that describe a log.
fn log_of(site: LogSite<'_>) -> Vec<Range<u64>> {
    logs()
        .into_iter()
        .flat_map(|kind| kind.blocks(site))
        .collect()
}

/// A fork as a device that notes which blocks are read before they are written.
struct Tracing {
    home_bytes: u64,
    all_bytes: u64,
    block_bytes: u32,
    traced: Mutex<Traced>,
}

struct Traced {
    fork: Fork,
    reads: Reads,
    written: FxHashSet<u64>,
    steps: Vec<Step>,
}

impl Traced {
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let size = u64::from(self.fork.block_bytes());
        let end = offset_bytes + bytes.len() as u64;
        if self.steps.len() > STEPS_MAX {
            return Err(DeviceError::Write {
                device: "fork".to_owned(),
                offset_bytes,
                len_bytes: bytes.len() as u64,
                reason: "the recovery does not come to an end".to_owned(),
            });
        }
        for block in offset_bytes / size..end.div_ceil(size) {
            // A block that is written in part keeps the rest of its bytes.
            if block * size < offset_bytes || end < (block + 1) * size {
                self.reads.note(&self.fork, block);
            }
        }
        self.fork.write(offset_bytes, bytes)?;
        for block in offset_bytes / size..end.div_ceil(size) {
            self.reads.overwrite(block);
            self.written.insert(block);
            let (bytes, adds) = self.fork.shared(block);
            self.steps.push(Step::Write(block, bytes, adds));
        }
        Ok(())
    }
}

impl BlockDevice for Tracing {
    fn size_bytes(&self) -> u64 {
        self.all_bytes
    }

    fn atomic_unit_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn name(&self) -> String {
        "fork".to_owned()
    }

    fn notes_reads(&self) -> bool {
        true
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let mut traced = self.traced.lock();
        let Traced { fork, reads, .. } = &mut *traced;
        let size = u64::from(self.block_bytes);
        let end = offset_bytes + buffer.len() as u64;
        for block in offset_bytes / size..end.div_ceil(size) {
            reads.note(fork, block);
        }
        fork.read(offset_bytes, buffer)
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<(), DeviceError> {
        let mut traced = self.traced.lock();
        for request in batch {
            let mut offset_bytes = request.offset_bytes;
            for buffer in &request.buffers {
                traced.write(offset_bytes, buffer)?;
                offset_bytes += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_part(0..self.all_bytes)
    }
}

impl Joint for Tracing {
    fn flush_part(&self, bytes: Range<u64>) -> Result<(), DeviceError> {
        let size = u64::from(self.block_bytes);
        let blocks = bytes.start / size..bytes.end / size;
        self.traced.lock().steps.push(Step::Flush(blocks));
        Ok(())
    }
}
