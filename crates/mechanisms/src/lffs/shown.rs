//! What people are told of a log of operations.

use backstitch_layout::tools::uuid_text;
use backstitch_layout::{Left, Result};
use serde_json::{Map, Value, json};

use super::{Place, from_log};

impl Place<'_> {
    /// See [`LogKind::describe`](backstitch_layout::LogKind::describe). `ordering`: the mechanism that
    /// writes such logs, without what may change from mount to mount.
    pub(super) fn describe(&self, ordering: &str) -> Result<Map<String, Value>> {
        let log = self.open()?;
        let mut records = 0_u64;
        let read = log.each(|_, _| records += 1).map_err(from_log);
        let place = match (self.is_in_file(), self.is_on_log_device) {
            (true, _) => "file",
            (false, false) => "behind",
            (false, true) => "device",
        };
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        put("ordering", ordering.into());
        put("place", place.into());
        put(
            "first_block",
            json!(self.map.runs().next().map(|run| run.start)),
        );
        put("size_bytes", self.map.bytes().into());
        put("used_bytes", log.used_bytes().into());
        put("records", records.into());
        put("uuid", uuid_text(&log.uuid()).into());
        put("is_empty", log.is_empty().into());
        put("needs_recovery", (self.note.left == Left::InUse).into());
        if let Err(error) = read {
            put("error", error.to_string().into());
        }
        Ok(members)
    }
}

/// Of a log that the file system has noted, and that is on no device at hand.
pub(super) fn not_at_hand(uuid: [u8; 16], left: Left) -> Map<String, Value> {
    let members = [
        ("place", json!("elsewhere")),
        ("uuid", json!(uuid_text(&uuid))),
        ("needs_recovery", json!(left == Left::InUse)),
    ];
    members
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
