//! What `info` says of a log of operations.

use backstitch_device::BlockDevice;
use backstitch_files::size;
use serde_json::{Map, Value, json};

use super::journal::{described, place, site};

/// What `info` shows of a file system's log of operations; null where it has none, or a journal.
pub(super) fn summary(device: &dyn BlockDevice, log_device: Option<&dyn BlockDevice>) -> Value {
    if !matches!(place(device), Ok(None)) {
        return Value::Null;
    }
    match described(site(device, log_device)) {
        Ok(found) => found.map_or(Value::Null, Value::Object),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// The same in one line.
pub(super) fn summary_text(parts: &Map<String, Value>) -> String {
    let text = |name: &str| parts.get(name).and_then(Value::as_str);
    let number = |name: &str| parts.get(name).and_then(Value::as_u64);
    let is = |name: &str| parts.get(name) == Some(&Value::Bool(true));
    let mut words = Vec::new();
    words.extend(
        text("ordering").map(|ordering| match ordering.strip_suffix(['1', '2']) {
            Some(_) => format!("{ordering}…"),
            None => ordering.to_owned(),
        }),
    );
    let first = number("first_block").unwrap_or_default();
    words.extend(text("place").map(|place| match place {
        "file" => format!("in a file from block {first} on"),
        "behind" => format!("behind the file system, from block {first} on"),
        "device" => "on the device that was named".to_owned(),
        _ => "on another device".to_owned(),
    }));
    words.extend(number("size_bytes").map(size::show));
    words.extend(text("uuid").map(|uuid| format!("UUID {uuid}")));
    let used = number("used_bytes").map(|bytes| {
        let records = number("records").unwrap_or_default();
        format!("{} in {records} records", size::show(bytes))
    });
    // Of a log that is not at hand nothing is known but that it is needed.
    words.extend(match (is("needs_recovery"), is("is_empty"), used) {
        (true, false, Some(used)) => Some(format!("needs recovery: {used}")),
        (true, ..) => Some("needs recovery".to_owned()),
        (false, true, _) => Some("empty".to_owned()),
        (false, false, used) => {
            used.map(|used| format!("{used} that are older than the file system"))
        }
    });
    words.extend(text("error").map(str::to_owned));
    words.join(", ")
}
