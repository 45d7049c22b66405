//! The parts of a batch that a given drive may have put onto its medium.
//!
//! Without a drive, any part of a batch may have arrived. A drive leaves fewer states. Without a
//! volatile cache, what it has finished is there, what it is working on is there in part, and what
//! waits in its queue is there only as far as the drive may reorder it.

use std::sync::Arc;

use backstitch_crash_core::parts::parts;
use backstitch_device::WriteRequest;
use backstitch_drives::{DriveSpec, OpenWrite, RequestId, SimulatedDevice, VirtualClock};
use fastrand::Rng as Random;
use rustc_hash::FxHashSet;

/// The drive of a run. Its virtual time goes on from batch to batch.
pub(crate) struct RunDrive {
    device: SimulatedDevice,
}

/// A buffer of a batch: its request, its place on the drive, and its pieces.
struct Sent {
    request: RequestId,
    offset_bytes: u64,
    pieces: Vec<usize>,
}

impl RunDrive {
    /// A drive with nothing to do.
    pub(crate) fn new(spec: &DriveSpec, size_bytes: u64) -> RunDrive {
        RunDrive {
            device: SimulatedDevice::new(spec, size_bytes, Arc::new(VirtualClock::default())),
        }
    }

    /// Gives the drive a batch, then a flush. Returns what may be on the medium at any moment until
    /// the flush is done, each state as one flag for each piece; and whether these are all the
    /// states. `pieces_of` has the pieces of each buffer of the batch, in order; `contents` says
    /// which pieces are files' contents.
    pub(crate) fn parts(
        &mut self,
        batch: &[&WriteRequest],
        pieces_of: &[Vec<usize>],
        contents: &[bool],
        samples: usize,
        random: &mut Random,
    ) -> (Vec<Vec<bool>>, bool) {
        let sent = self.send(batch, pieces_of);
        let mut seen = FxHashSet::default();
        let (mut all, mut is_all) = (Vec::new(), true);
        loop {
            let now = self.device.power_cut();
            let open = Open::of(&sent, &now.open, contents.len());
            let free: Vec<bool> = open.pieces.iter().map(|piece| contents[*piece]).collect();
            let (some, are_all) = parts(&free, samples, random);
            is_all &= are_all;
            for chosen in some {
                let mut included = self.on_medium(&sent, contents.len());
                let chosen = open.closed(&chosen);
                for (piece, _) in open.pieces.iter().zip(&chosen).filter(|(_, is)| **is) {
                    included[*piece] = true;
                }
                if seen.insert(included.clone()) {
                    all.push(included);
                }
            }
            if !self.device.wait() {
                break;
            }
        }
        (all, is_all)
    }

    fn send(&mut self, batch: &[&WriteRequest], pieces_of: &[Vec<usize>]) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut pieces = pieces_of.iter();
        for request in batch {
            let id = self.device.submit_after(request, &[], None);
            let id = id.expect("a batch lies inside the image");
            let mut offset_bytes = request.offset_bytes;
            for (buffer, pieces) in request.buffers.iter().zip(&mut pieces) {
                sent.push(Sent {
                    request: id,
                    offset_bytes,
                    pieces: pieces.clone(),
                });
                offset_bytes += buffer.len() as u64;
            }
        }
        self.device.submit_flush();
        sent
    }

    /// The pieces that are on the medium in any case.
    fn on_medium(&self, sent: &[Sent], count: usize) -> Vec<bool> {
        let mut there = vec![false; count];
        for buffer in sent.iter().filter(|s| self.device.is_stable(s.request)) {
            buffer.pieces.iter().for_each(|piece| there[*piece] = true);
        }
        there
    }
}

/// The pieces that a power cut may leave or lose.
struct Open {
    /// The pieces, each behind those that must be there before it.
    pieces: Vec<usize>,
    /// For each piece, indices into `pieces` of those that must be there if it is.
    befores: Vec<Vec<usize>>,
}

impl Open {
    fn of(sent: &[Sent], writes: &[OpenWrite], count: usize) -> Open {
        let mut open = Open {
            pieces: Vec::with_capacity(count),
            befores: Vec::new(),
        };
        // For each write, its pieces as indices into `pieces`.
        let mut places: Vec<Vec<usize>> = Vec::with_capacity(writes.len());
        for write in writes {
            let befores: Vec<usize> = (write.befores.iter())
                .flat_map(|before| places[*before].clone())
                .collect();
            let buffer = sent.iter().find(|s| s.offset_bytes == write.offset_bytes);
            let pieces = buffer.map_or(&[][..], |buffer| &buffer.pieces);
            let first = open.pieces.len();
            open.pieces.extend(pieces);
            open.befores.resize(open.pieces.len(), befores);
            places.push((first..open.pieces.len()).collect());
        }
        open
    }

    /// The chosen pieces without those for which something that must be there before is missing.
    fn closed(&self, chosen: &[bool]) -> Vec<bool> {
        let mut closed = chosen.to_vec();
        for at in 0..closed.len() {
            closed[at] &= self.befores[at].iter().all(|before| closed[*before]);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::Buffer;

    const BLOCK_BYTES: u64 = 4096;

    fn write(block: u64) -> WriteRequest {
        WriteRequest {
            offset_bytes: block * BLOCK_BYTES,
            buffers: vec![Buffer::zeroed(BLOCK_BYTES as usize)],
        }
    }

    fn sets(preset: &str, change: impl Fn(&mut DriveSpec)) -> (usize, bool) {
        let mut spec = DriveSpec::preset(preset).unwrap();
        change(&mut spec);
        let mut drive = RunDrive::new(&spec, 64 << 20);
        let pieces: Vec<Vec<usize>> = (0..4).map(|at| vec![at]).collect();
        let mut random = Random::with_seed(1);
        let batch = [10, 4000, 900, 7000].map(write);
        let batch: Vec<&WriteRequest> = batch.iter().collect();
        let (sets, all) = drive.parts(&batch, &pieces, &[false; 4], 10, &mut random);
        assert!(sets.contains(&vec![false; 4]) && sets.contains(&vec![true; 4]));
        let distinct: FxHashSet<_> = sets.iter().collect();
        assert_eq!(distinct.len(), sets.len());
        (sets.len(), all)
    }

    #[test]
    fn a_drive_with_a_queue_of_one_and_no_cache_leaves_a_beginning() {
        let one_after_the_other = |spec: &mut DriveSpec| spec.queue.tags = 1;
        assert_eq!(sets("viking", one_after_the_other), (5, true));
    }

    #[test]
    fn a_volatile_cache_leaves_anything() {
        let (count, all) = sets("st3320620as", |_| {});
        assert_eq!((count, all), (16, true));
    }
}
