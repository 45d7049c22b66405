//! What people are told of a journal: its numbers, and the records in it.

use std::sync::Arc;

use backstitch_journal::dump::{self, Line};
use backstitch_journal::format::{ChecksumKind, ExternalJournal};
use backstitch_journal::{Error as JournalError, Journal, JournalDevice};
use backstitch_layout::tools::uuid_text;
use backstitch_layout::{JournalPlace, LogRecord, LogSite, Result};
use serde_json::{Map, Value, json};

use super::{from_journal, open, place};

/// A journal, and where it was found.
struct Found<'d> {
    journal: Journal<'d>,
    /// Of the file system; `None` for a device that holds a journal only.
    place: Option<JournalPlace>,
}

/// The journal of what is on a device, be that a file system or a journal of its own. `None` where
/// there is none.
fn found(site: LogSite<'_>) -> Result<Option<Found<'_>>> {
    let alone = ExternalJournal::read(site.device).map_err(from_journal)?;
    if let Some(alone) = alone {
        let blocks = JournalDevice::new(site.device, alone.block_bytes, Arc::new(alone.map));
        let journal = Journal::open(blocks).map_err(from_journal)?;
        return Ok(Some(Found {
            journal,
            place: None,
        }));
    }
    let Some(place) = place(site)? else {
        return Ok(None);
    };
    Ok(Some(Found {
        journal: open(site.device, site.log_device, &place)?,
        place: Some(place),
    }))
}

/// See [`LogKind::describe`](backstitch_layout::LogKind::describe).
pub(super) fn describe(site: LogSite<'_>) -> Result<Option<Map<String, Value>>> {
    let Some(Found { journal, place }) = found(site)? else {
        return Ok(None);
    };
    let sb = journal.superblock();
    let bytes = u64::from(sb.blocks) * u64::from(sb.block_bytes);
    // How large the file system is that a journal alone is for is not known.
    let home_blocks = place.map_or(u64::MAX, |place| place.home_blocks);
    let scan = journal.scan(home_blocks);
    let transactions = scan.map(|scan| scan.end.distance(scan.first));
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("version", sb.version.into());
    put("size_bytes", bytes.into());
    put("blocks", sb.blocks.into());
    put("features", json!(sb.features.names()));
    put("not_writable_for", json!(sb.features.unwritable()));
    put("uuid", uuid_text(&sb.uuid).into());
    put("sequence", sb.sequence.0.into());
    put("start", sb.start.into());
    put("first", sb.first.into());
    put("error_number", sb.error_number.into());
    put("is_empty", sb.is_empty().into());
    let checksums = match sb.checksums().kind {
        ChecksumKind::None => None,
        ChecksumKind::Transaction => Some("crc32"),
        ChecksumKind::Short | ChecksumKind::Full => Some("crc32c"),
    };
    put("checksum_type", json!(checksums));
    let users = sb.users.iter().filter(|user| **user != [0; 16]);
    let users: Vec<String> = users.map(uuid_text).collect();
    put("users", json!(users));
    match transactions {
        Ok(transactions) => drop(put("transactions", transactions.into())),
        Err(error) => drop(put("error", error.to_string().into())),
    }
    Ok(Some(members))
}

/// See [`LogKind::records`](backstitch_layout::LogKind::records).
pub(super) fn records(site: LogSite<'_>, show: &mut dyn FnMut(LogRecord)) -> Result<bool> {
    let Some(Found { journal, .. }) = found(site)? else {
        return Ok(false);
    };
    let lines = dump::lines(&journal, &mut |line| show(record(&line)));
    lines.map_err(|error: JournalError| from_journal(error))?;
    Ok(true)
}

fn record(line: &Line) -> LogRecord {
    LogRecord {
        text: line.to_string(),
        json: json!(line),
    }
}
