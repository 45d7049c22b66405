//! What a mount is asked besides file operations, through extended attributes that are not listed:
//! its counters, and to write everything.

use crate::request_counts::RequestCounts;
use backstitch_fuse_protocol::Transport;
use backstitch_vfs::Engine;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Reading this attribute of a mount's root gives its counters as one JSON document. It is not
/// listed, and cannot be set.
pub const STATS_XATTR: &str = "system.backstitch.stats";

pub use patchgroup::protocol::SYNC_XATTR;

/// Time that the death of a daemon may take, whose requests come by io_uring.
const DEATH: Duration = Duration::from_secs(2);

/// The largest value that an extended attribute can have on Linux.
const XATTR_MAX_BYTES: usize = 65536;

/// The counters as the attribute shows them: the engine's, with this process's id, the image's name
/// and what the mount found.
pub(crate) fn document(
    engine: &Engine,
    image: &str,
    stack: Option<&str>,
    transport: Option<&Transport>,
    requests: &RequestCounts,
) -> Vec<u8> {
    let mut value = serde_json::to_value(engine.stats()).unwrap_or_default();
    if let Value::Object(members) = &mut value {
        members.insert("pid".into(), std::process::id().into());
        members.insert("image".into(), image.into());
        members.insert("layout".into(), engine.layout_name().into());
        if let Some(stack) = stack {
            members.insert("stack".into(), stack.into());
        }
        if let Some(transport) = transport {
            members.insert("transport".into(), transport_document(transport));
        }
        members.insert("requests".into(), requests.document());
        let recovery = serde_json::to_value(engine.recovery());
        members.insert("recovery".into(), recovery.unwrap_or_default());
    }
    value.to_string().into_bytes()
}

/// How requests come, as the counters show it.
fn transport_document(transport: &Transport) -> Value {
    match transport {
        Transport::Device => json!({"kind": "device"}),
        Transport::IoUring {
            queues,
            requests,
            buffers_bytes,
        } => json!({
            "kind": "io_uring",
            "queues": queues,
            "requests": requests,
            "buffers_bytes": buffers_bytes,
        }),
    }
}

/// Reads the counters of whatever is mounted at (or above) `dir`.
///
/// # Errors
///
/// What the system says: above all, that `dir` is no mount of ours (`EOPNOTSUPP`, `ENODATA`).
pub fn stats_of(dir: &Path) -> std::io::Result<Value> {
    let mut buffer = vec![0_u8; XATTR_MAX_BYTES];
    let started = Instant::now();
    loop {
        match rustix::fs::getxattr(dir, STATS_XATTR, &mut buffer[..]) {
            Ok(len) => return Ok(serde_json::from_slice(&buffer[..len])?),
            // So a mount says for a moment that its daemon dies; then it says ENOTCONN.
            Err(rustix::io::Errno::CANCELED) if started.elapsed() < DEATH => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Puts all changes of the mount that `path` lies in onto stable storage.
///
/// # Errors
///
/// What the system says: `EOPNOTSUPP` where it is no mount of ours, `EIO` where the device failed.
pub fn sync_of(path: &Path) -> std::io::Result<()> {
    match rustix::fs::setxattr(path, SYNC_XATTR, &[], rustix::fs::XattrFlags::empty()) {
        // A mount without writes has nothing to write.
        Err(rustix::io::Errno::ROFS) => stats_of(path).map(drop),
        done => Ok(done?),
    }
}
