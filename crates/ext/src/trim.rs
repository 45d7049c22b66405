//! Which blocks have been free since a moment: what may be discarded.

use std::ops::Range;

use backstitch_layout::Result;
use backstitch_ordering::Volume;

use crate::format::bitmap;
use crate::state::Ext;

impl Ext {
    /// Notes the free blocks of a range as far as one group goes. Returns where that ends.
    pub(crate) fn note_free_blocks(
        &mut self,
        v: &mut Volume<'_>,
        range: Range<u64>,
    ) -> Result<u64> {
        let first = range.start.max(self.sb.first_data_block);
        if first >= self.sb.blocks_count {
            return Ok(range.end);
        }
        let group = self.sb.group_of_block(first);
        let start = self.sb.group_first_block(group);
        let count = self.sb.blocks_in_group(group) as usize;
        let stop = range.end.min(start + count as u64);
        let bits = self.block_bits(v, group as usize)?;
        let mut found = Vec::new();
        let mut bit = (first - start) as usize;
        while let Some(free) = bitmap::find_zero(bits, bit, count) {
            bit = bitmap::find_set(bits, free, count).unwrap_or(count);
            found.push(start + free as u64..(start + bit as u64).min(stop));
        }
        for run in found {
            self.noted_free.note(run);
        }
        Ok(stop)
    }

    /// The next run that was noted and has been free ever since.
    pub(crate) fn take_free_run(&mut self, most: u64) -> Option<Range<u64>> {
        self.noted_free.take(most)
    }
}
