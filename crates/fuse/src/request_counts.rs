//! How often the kernel asked what: a request costs 6 to 10 µs, whatever it is about, so these counts
//! are most of what an operation costs through a mount.

use backstitch_fuse_protocol::REQUESTS;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};

/// One more than the largest number of a request that is counted by itself.
const KINDS: usize = 64;

/// Counts of requests by kind.
pub(crate) struct RequestCounts {
    by_opcode: [AtomicU64; KINDS],
    /// Those of which [`REQUESTS`] has no name.
    other: AtomicU64,
}

impl Default for RequestCounts {
    fn default() -> RequestCounts {
        RequestCounts {
            by_opcode: [const { AtomicU64::new(0) }; KINDS],
            other: AtomicU64::new(0),
        }
    }
}

impl RequestCounts {
    pub(crate) fn note(&self, opcode: u32) {
        let count = self.by_opcode.get(opcode as usize).unwrap_or(&self.other);
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The kinds that came at least once, and their sum as `total`.
    pub(crate) fn document(&self) -> Value {
        let mut named = 0;
        let mut found = Map::new();
        for (opcode, name) in REQUESTS {
            let count = self.by_opcode[*opcode as usize].load(Ordering::Relaxed);
            if count > 0 {
                found.insert((*name).into(), count.into());
                named += count;
            }
        }
        let loads = self.by_opcode.iter().chain([&self.other]);
        let total: u64 = loads.map(|count| count.load(Ordering::Relaxed)).sum();
        if total > named {
            found.insert("other".into(), (total - named).into());
        }
        found.insert("total".into(), total.into());
        Value::Object(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_counted_by_name_and_in_all() {
        let counts = RequestCounts::default();
        for opcode in [1, 1, 3, 63, 4096] {
            counts.note(opcode);
        }
        let expected = serde_json::json!({"lookup": 2, "getattr": 1, "other": 2, "total": 5});
        assert_eq!(counts.document(), expected);
    }

    #[test]
    fn every_named_kind_has_a_place() {
        assert!(
            REQUESTS
                .iter()
                .all(|(opcode, _)| (*opcode as usize) < KINDS)
        );
    }
}
