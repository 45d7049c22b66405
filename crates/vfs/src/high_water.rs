//! When memory is given back to the host: some time after a burst of changes.

use std::time::Duration;

/// Less than this is not worth the calls: the next changes want it again.
const WORTH_BYTES: u64 = 64 << 20;
/// So long after it became free: what goes up and down keeps what it has.
const QUIET: Duration = Duration::from_secs(5);

/// The most memory that was taken since some was last given back.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    bytes: u64,
    below_since: Option<Duration>,
}

impl HighWater {
    /// Notes what memory takes at a time. True where much less than before has been enough for a
    /// while.
    pub(crate) fn note(&mut self, bytes: u64, clock: Duration) -> bool {
        self.bytes = self.bytes.max(bytes);
        if self.bytes - bytes < WORTH_BYTES {
            self.below_since = None;
            return false;
        }
        let since = *self.below_since.get_or_insert(clock);
        if clock.saturating_sub(since) < QUIET {
            return false;
        }
        *self = HighWater {
            bytes,
            below_since: None,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_a_lasting_fall_counts_and_only_once() {
        let mut high = HighWater::default();
        let mut note = |mib: u64, second| high.note(mib * MIB, Duration::from_secs(second));
        assert!(!note(500, 0));
        assert!(!note(437, 1), "a small fall");
        assert!(!note(437, 100));
        assert!(!note(300, 101));
        assert!(!note(450, 104), "it is wanted again");
        assert!(!note(300, 105));
        assert!(!note(200, 109));
        assert!(note(250, 110));
        assert!(!note(250, 111), "it was given back");
        assert!(!note(250, 120));
        assert!(!note(100, 121));
        assert!(note(100, 126));
    }
}
