//! How much room each block of a directory has, so that a place for a name is found without looking
//! at every block.

/// The largest gap of each block, with the largest of each 64 of them above, and so on up: a few
/// steps lead to the last block that has room, however many there are.
#[derive(Debug)]
pub struct RoomSummary {
    /// The blocks' own, then the summaries.
    levels: Vec<Vec<u16>>,
}

impl Default for RoomSummary {
    /// A summary of no blocks.
    fn default() -> RoomSummary {
        RoomSummary {
            levels: vec![Vec::new()],
        }
    }
}

impl RoomSummary {
    const FAN_OUT: usize = 64;

    /// The last block with room for this much.
    pub fn last_with(&self, needed: usize) -> Option<usize> {
        let fits = |room: &u16| usize::from(*room) >= needed;
        let mut found = self.levels.last()?.iter().rposition(fits)?;
        for level in self.levels.iter().rev().skip(1) {
            let start = found * Self::FAN_OUT;
            let end = level.len().min(start + Self::FAN_OUT);
            found = start + level[start..end].iter().rposition(fits)?;
        }
        Some(found)
    }

    /// Whether anything is known of a block.
    pub fn knows(&self, block: usize) -> bool {
        block < self.levels[0].len()
    }

    /// Notes the room of a block.
    pub fn set(&mut self, block: usize, room: usize) {
        let mut room = u16::try_from(room).unwrap_or(u16::MAX);
        let mut at = block;
        for level in 0.. {
            if level == self.levels.len() {
                // A new level above one that has become too long for a single look.
                self.levels
                    .push(vec![room_of(&self.levels[level - 1][..Self::FAN_OUT])]);
            }
            let is_top = level + 1 == self.levels.len();
            let this = &mut self.levels[level];
            if at >= this.len() {
                this.resize(at + 1, 0);
            }
            this[at] = room;
            if this.len() <= Self::FAN_OUT && is_top {
                return;
            }
            let start = at / Self::FAN_OUT * Self::FAN_OUT;
            let end = this.len().min(start + Self::FAN_OUT);
            room = room_of(&this[start..end]);
            at /= Self::FAN_OUT;
        }
    }
}

fn room_of(blocks: &[u16]) -> u16 {
    blocks.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_scan_finds() {
        let mut random = 7_u64;
        let mut next = move |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        let (mut room, mut plain) = (RoomSummary::default(), Vec::new());
        for round in 0..30_000 {
            // Blocks come one after the other, and change at random.
            let block = match round % 3 {
                0 => plain.len(),
                _ => next(plain.len()),
            };
            if block == plain.len() {
                plain.push(0);
            }
            plain[block] = if next(4) == 0 { next(4096) } else { next(8) };
            room.set(block, plain[block]);
            for needed in [1, 12, 264, 4000] {
                let scanned = plain.iter().rposition(|r| *r >= needed);
                assert_eq!(room.last_with(needed), scanned, "{needed} in round {round}");
            }
        }
        assert_eq!(room.levels.len(), 3);
    }

    #[test]
    fn blocks_may_come_in_any_order() {
        let mut room = RoomSummary::default();
        assert_eq!(room.last_with(1), None);
        room.set(70_000, 12);
        room.set(3, 100);
        assert_eq!(room.last_with(12), Some(70_000));
        assert_eq!(room.last_with(13), Some(3));
        room.set(70_000, 0);
        assert_eq!(room.last_with(12), Some(3));
    }
}
