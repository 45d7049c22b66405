//! A copy of the graph's shape at one moment, for explorers that ask what of it may be on disk.

use crate::block::NIL;
use crate::graph::Graph;
use crate::patch::State;
use crate::{BlockId, PatchId, PatchKind};

/// How a patch is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoData {
    /// It cannot be: it is in every version of its block (hard), or has no bytes (empty).
    None,
    /// These bits of the word at this offset are flipped again.
    Flip {
        /// The word's first byte.
        offset_bytes: u32,
        /// The bits.
        mask: u32,
    },
    /// Bytes that were there are put back, each piece at its offset.
    Bytes(Box<[(u32, Box<[u8]>)]>),
}

impl UndoData {
    /// Takes the patch back in its block's bytes, in which every later patch has been taken back
    /// already.
    pub fn apply(&self, block: &mut [u8]) {
        match self {
            UndoData::None => {}
            UndoData::Flip { offset_bytes, mask } => {
                crate::create::flip(block, *offset_bytes, *mask)
            }
            UndoData::Bytes(pieces) => {
                for (offset_bytes, bytes) in pieces {
                    block[*offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
    }
}

/// What becomes a patch of the snapshot.
enum Part {
    Patch(u32),
    /// A run appears as a hard patch on each of its blocks and an empty one that stands for them.
    OfRun {
        block: u32,
        run: u32,
        in_flight: bool,
    },
}

/// A patch that had not committed when the snapshot was taken.
#[derive(Clone, Debug)]
pub struct SnapshotPatch {
    /// Which patch it is; of a block of a run, the run.
    pub id: PatchId,
    /// What it is made of.
    pub kind: PatchKind,
    /// Its block; `None` for an empty patch.
    pub block: Option<BlockId>,
    /// What must be on disk before it, as indices into the snapshot: the direct dependencies that
    /// have not committed.
    pub befores: Vec<usize>,
    /// How it is taken back.
    pub undo: UndoData,
    /// A version of its block with it is on its way to the device; it has no undo data any more.
    pub in_flight: bool,
    /// An empty patch that commits only once it is released.
    pub held: bool,
}

impl Graph {
    /// Every patch that has not committed. The patches of one block come in the order in which they
    /// were applied.
    pub fn snapshot(&self) -> Vec<SnapshotPatch> {
        let mut order: Vec<Part> = Vec::new();
        for (block, b) in self.blocks.iter().enumerate() {
            let in_flight = b.run_in_flight().is_some();
            let run = b.run().or(b.run_in_flight());
            order.extend(run.map(|run| Part::OfRun {
                block: block as u32,
                run,
                in_flight,
            }));
            for first in [b.first_in_flight, b.first] {
                let mut index = first;
                while index != NIL {
                    order.push(Part::Patch(index));
                    index = self.patches[index as usize].next_in_block;
                }
            }
        }
        let empties = (0..self.patches.len() as u32).filter(|i| {
            let state = self.patches[*i as usize].state;
            matches!(state, State::Empty | State::Run)
        });
        order.extend(empties.map(Part::Patch));
        let mut place = vec![usize::MAX; self.patches.len()];
        let mut parts = vec![Vec::new(); self.patches.len()];
        for (at, part) in order.iter().enumerate() {
            match part {
                Part::Patch(index) => place[*index as usize] = at,
                Part::OfRun { run, .. } => parts[*run as usize].push(at),
            }
        }
        order
            .iter()
            .map(|part| match part {
                Part::Patch(index) => {
                    let mut patch = self.snapshot_of(*index, &place);
                    patch.befores.append(&mut parts[*index as usize]);
                    patch
                }
                Part::OfRun {
                    block,
                    run,
                    in_flight,
                } => SnapshotPatch {
                    id: self.id_of(*run),
                    kind: PatchKind::Hard,
                    block: Some(BlockId(*block)),
                    // Not for the parts that left the run: only the run as a whole waits for these.
                    befores: (self.before_indices(*run))
                        .filter(|before| self.run_waits_for(*run, *before))
                        .map(|before| place[before as usize])
                        .collect(),
                    undo: UndoData::None,
                    in_flight: *in_flight,
                    held: false,
                },
            })
            .collect()
    }

    fn snapshot_of(&self, index: u32, place: &[usize]) -> SnapshotPatch {
        let p = &self.patches[index as usize];
        SnapshotPatch {
            id: self.id_of(index),
            kind: match p.state {
                State::Soft => PatchKind::Soft,
                State::Bits => PatchKind::Bits,
                State::Hard => PatchKind::Hard,
                _ => PatchKind::Empty,
            },
            block: (p.block != NIL).then_some(BlockId(p.block)),
            befores: self
                .before_indices(index)
                .map(|before| place[before as usize])
                .collect(),
            undo: self.undo_data(index),
            in_flight: p.in_flight,
            held: p.held && p.state == State::Empty,
        }
    }

    fn undo_data(&self, index: u32) -> UndoData {
        let p = &self.patches[index as usize];
        match p.state {
            // Its undo data are gone.
            _ if p.in_flight => UndoData::None,
            State::Bits => UndoData::Flip {
                offset_bytes: p.offset,
                mask: p.len,
            },
            State::Soft => {
                let pieces = self.undo.pieces(p.undo, p.len as usize).into_iter();
                UndoData::Bytes(
                    pieces
                        .map(|(at, bytes)| (p.offset + at as u32, bytes))
                        .collect(),
                )
            }
            _ => UndoData::None,
        }
    }
}
