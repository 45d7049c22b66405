//! The counters of a mount, served as an extended attribute of its root.

use backstitch_vfs::Engine;
use serde_json::Value;
use std::path::Path;

/// Reading this attribute of a mount's root gives its counters as one JSON document. It is not listed, and cannot be set.
pub const STATS_XATTR: &str = "system.backstitch.stats";

/// The largest value that an extended attribute can have on Linux.
const XATTR_MAX_BYTES: usize = 65536;

/// The counters as the attribute shows them: the engine's, with this process's id, the image's name and what the mount found.
pub(crate) fn document(engine: &Engine, image: &str) -> Vec<u8> {
    let mut value = serde_json::to_value(engine.stats()).unwrap_or_default();
    if let Value::Object(members) = &mut value {
        members.insert("pid".into(), std::process::id().into());
        members.insert("image".into(), image.into());
        let recovery = serde_json::to_value(engine.recovery());
        members.insert("recovery".into(), recovery.unwrap_or_default());
    }
    value.to_string().into_bytes()
}

/// Reads the counters of whatever is mounted at (or above) `dir`.
///
/// # Errors
///
/// What the system says: above all, that `dir` is no mount of ours (`EOPNOTSUPP`, `ENODATA`).
pub fn stats_of(dir: &Path) -> std::io::Result<Value> {
    let mut buffer = vec![0_u8; XATTR_MAX_BYTES];
    let len = rustix::fs::getxattr(dir, STATS_XATTR, &mut buffer[..])?;
    Ok(serde_json::from_slice(&buffer[..len])?)
}
