//! Blocks as they are in memory.

use backstitch_device::Buffer;
use backstitch_store::{Miss, PatchId};

use super::Volume;
use crate::number::BlockNumber;

impl Volume<'_> {
    /// Appends whatever is pending on a block: for what must come after all of it, not only after
    /// what it overlaps.
    pub fn pending(&mut self, block: BlockNumber, into: &mut Vec<PatchId>) {
        self.store.pending(self.id, block.0, into);
    }

    /// A block's newest bytes.
    ///
    /// # Errors
    /// [`Miss`]: the block is noted as wanted.
    #[inline]
    pub fn read(&mut self, block: BlockNumber) -> Result<&[u8], Miss> {
        if self.store.is_hole(self.id, block.0) {
            return self.read_hole(block).map(|zeros| &**zeros);
        }
        self.store.read(self.id, block.0)
    }

    /// A block without a place. An operation that may change it needs it to have one.
    #[cold]
    fn read_hole(&mut self, block: BlockNumber) -> Result<&Buffer, Miss> {
        if self.operation.is_some() {
            self.store.want_place(self.id, block.0);
            let volume = self.id;
            return Err(Miss {
                volume,
                block: block.0,
            });
        }
        Ok(self.store.zeros(self.id))
    }

    /// The blocks are about to be given contents as a whole, without being looked up. Only on a
    /// volume that is on another one can they have no place yet.
    ///
    /// # Errors
    /// [`Miss`]: a place is wanted for them.
    pub fn expect_places(&mut self, first: BlockNumber, count: u64) -> Result<(), Miss> {
        let mut missing = Ok(());
        if !self.store.is_on_another(self.id) {
            return missing;
        }
        for block in first.run(count) {
            if self.store.is_hole(self.id, block.0) {
                self.store.want_place(self.id, block.0);
                let volume = self.id;
                missing = Err(Miss {
                    volume,
                    block: block.0,
                });
            }
        }
        missing
    }

    /// A block's newest bytes, shared.
    ///
    /// # Errors
    /// [`Miss`]: the block is noted as wanted.
    pub fn read_shared(&mut self, block: BlockNumber) -> Result<Buffer, Miss> {
        if self.store.is_hole(self.id, block.0) {
            return self.read_hole(block).cloned();
        }
        self.store.read_shared(self.id, block.0)
    }

    /// The block if it is in memory, asking for nothing.
    pub fn peek(&self, block: BlockNumber) -> Option<&Buffer> {
        if self.store.is_hole(self.id, block.0) {
            return Some(self.store.zeros(self.id));
        }
        self.store.peek(self.id, block.0)
    }

    /// Notes that the block will be wanted; says whether it is there already.
    pub fn want(&mut self, block: BlockNumber) -> bool {
        if self.store.is_hole(self.id, block.0) {
            return self.read_hole(block).is_ok();
        }
        self.store.want(self.id, block.0)
    }

    /// Notes blocks that will probably be wanted soon after what is missing now; see
    /// `Store::want_soon`.
    pub fn want_soon(&mut self, first: BlockNumber, count: u64) {
        self.store.want_soon(self.id, first.0, count);
    }
}
