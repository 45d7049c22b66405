//! `backstitch stats DIR`.

use backstitch_files::error::{Error, Result, host};
use backstitch_files::{show, size};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Show the live counters of a mount: what it is, what is not on the disk yet, what was done,
/// memory, patches.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The table is for people, and its lines may change. Programs read --json, whose keys stay.

Examples:
  backstitch stats /mnt
  backstitch stats /mnt --json | jq .patches.live
  watch -n1 backstitch stats /mnt"
)]
pub(crate) struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let counters = backstitch_fuse::stats_of(&args.dir)
        .map_err(|error| failure("stats", &args.dir, &error))?;
    match args.json {
        true => show::print_json("stats", &counters),
        false => show::print_bytes("stats", as_text(counters).as_bytes()),
    }
}

/// Why a mount did not do what was asked of it.
pub(super) fn failure(command: &str, dir: &Path, error: &std::io::Error) -> Error {
    let failed = |why: &str| Error::at_path(command, dir, why);
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENODATA | libc::EINVAL) => {
            failed("not the root of a backstitch mount")
        }
        Some(libc::ENOTCONN | libc::ECONNABORTED) => failed("the mount's daemon has died")
            .hint(format!("backstitch umount {}", dir.display())),
        _ => failed(&host(error)),
    }
}

/// How a counter is shown.
#[derive(Clone, Copy)]
enum Unit {
    Text,
    Count,
    Bytes,
    Seconds,
    /// A part of one, in percent.
    Part,
}

/// A counter: its key in the JSON document, what a person calls it, and its unit.
type Row = (&'static str, &'static str, Unit);

/// What a person wants first comes first. A text that is null is left out.
const SECTIONS: [(&str, &[Row]); 8] = [
    (
        "Mount",
        &[
            ("image", "image", Unit::Text),
            ("layout", "type", Unit::Text),
            ("stack", "stack", Unit::Text),
            ("ordering", "ordering", Unit::Text),
            ("read_only", "read-only", Unit::Text),
            ("atomic_unit_bytes", "unit of writing", Unit::Bytes),
            ("pid", "process", Unit::Text),
            ("transport.kind", "requests come by", Unit::Text),
            ("transport.queues", "their queues", Unit::Count),
            ("transport.requests", "requests at once", Unit::Count),
            (
                "transport.buffers_bytes",
                "room for their contents",
                Unit::Bytes,
            ),
        ],
    ),
    (
        "Not on the disk yet",
        &[
            ("cache.dirty", "changed blocks", Unit::Count),
            ("patches.live", "changes (patches)", Unit::Count),
            ("syncer.oldest_seconds", "oldest change", Unit::Seconds),
            (
                "syncer.expire_seconds",
                "written at the age of",
                Unit::Seconds,
            ),
            ("deferred.pending", "deferred work", Unit::Count),
            (
                "deferred.unreadable",
                "deferred work that cannot be done",
                Unit::Count,
            ),
        ],
    ),
    (
        "Since the mount",
        &[
            ("ops", "operations", Unit::Count),
            ("bytes_read", "read", Unit::Bytes),
            ("bytes_written", "written", Unit::Bytes),
            ("write_requests", "write requests", Unit::Count),
            ("flushes", "flushes", Unit::Count),
            ("waits", "calls that waited for the disk", Unit::Count),
            ("waited_batches", "batches written for them", Unit::Count),
            ("write_retries", "failed writes repeated", Unit::Count),
            ("deferred.done", "deferred work done", Unit::Count),
        ],
    ),
    (
        "Memory",
        &[
            ("memory.bytes", "in use", Unit::Bytes),
            ("memory.bound", "bound", Unit::Bytes),
            ("memory.bytes_peak", "peak", Unit::Bytes),
            (
                "memory.throttled",
                "calls that waited for memory",
                Unit::Count,
            ),
            (
                "memory.throttled_seconds",
                "time they waited",
                Unit::Seconds,
            ),
            (
                "stalls.memory.longest_seconds",
                "the longest of them",
                Unit::Seconds,
            ),
            (
                "stalls.log.count",
                "calls that waited for the log",
                Unit::Count,
            ),
            ("stalls.log.seconds", "time they waited", Unit::Seconds),
            (
                "stalls.log.longest_seconds",
                "the longest of them",
                Unit::Seconds,
            ),
            ("cache.blocks", "cached blocks", Unit::Count),
            ("cache.bytes", "cached bytes", Unit::Bytes),
            ("cache.bytes_peak", "cached bytes, peak", Unit::Bytes),
            ("cache.hits", "cache hits", Unit::Count),
            ("cache.misses", "cache misses", Unit::Count),
        ],
    ),
    (
        "After a crash",
        &[
            ("recovery.needed", "recovery was needed", Unit::Text),
            ("recovery.seconds", "time it took", Unit::Seconds),
            ("recovery.actions", "done", Unit::Text),
            ("reclaim.running", "reclaim is running", Unit::Text),
            ("reclaim.done_fraction", "reclaim done", Unit::Part),
            ("reclaim.freed_blocks", "blocks freed", Unit::Count),
            ("reclaim.freed_inodes", "inodes freed", Unit::Count),
        ],
    ),
    (
        "Patches",
        &[
            ("patches.created", "created", Unit::Count),
            ("patches.hard", "of them hard (no undo data)", Unit::Count),
            ("patches.created_empty", "of them empty", Unit::Count),
            ("patches.runs", "of them runs of blocks", Unit::Count),
            (
                "patches.merged_hard",
                "merged into hard patches",
                Unit::Count,
            ),
            (
                "patches.merged_overlap",
                "merged where they overlap",
                Unit::Count,
            ),
            (
                "patches.merged_bits",
                "merged into other bits of a word",
                Unit::Count,
            ),
            ("patches.converted_to_hard", "made hard later", Unit::Count),
            ("patches.peak", "alive at most", Unit::Count),
            ("memory.patches_bound", "alive at most, bound", Unit::Count),
            ("patches.bytes_live", "memory", Unit::Bytes),
            ("patches.bytes_peak", "memory, peak", Unit::Bytes),
            ("undo.bytes_live", "undo data", Unit::Bytes),
            ("undo.bytes_peak", "undo data, peak", Unit::Bytes),
            ("undo.bytes_total", "undo data, ever held", Unit::Bytes),
            ("rollbacks", "rollbacks", Unit::Count),
            ("blocks_written", "blocks written", Unit::Count),
            (
                "blocks_rewritten_for_rollback",
                "blocks written again after one",
                Unit::Count,
            ),
            (
                "syncer.passed_over",
                "blocks passed over to avoid one",
                Unit::Count,
            ),
        ],
    ),
    (
        "Mechanism",
        &[
            (
                "mechanism.changes_issued",
                "changes issued at once",
                Unit::Count,
            ),
            (
                "mechanism.block_dependencies",
                "dependencies between blocks",
                Unit::Count,
            ),
            (
                "mechanism.circles_broken",
                "circles broken by a write",
                Unit::Count,
            ),
            ("mechanism.blocks_in_order", "blocks in order", Unit::Count),
            ("mechanism.batches_begun", "batches begun", Unit::Count),
            (
                "mechanism.busy_milliseconds",
                "ms in which a batch was under way",
                Unit::Count,
            ),
            (
                "mechanism.blocks_by_second",
                "blocks a second in that time",
                Unit::Count,
            ),
            (
                "mechanism.elements",
                "blocks put into the ring",
                Unit::Count,
            ),
            ("mechanism.hits", "changes that joined one", Unit::Count),
            ("mechanism.ring_length", "batches in the ring", Unit::Count),
            (
                "mechanism.ring_length_peak",
                "most batches in the ring",
                Unit::Count,
            ),
            ("mechanism.ring_bytes", "memory of the ring", Unit::Bytes),
        ],
    ),
    (
        "Patchgroups",
        &[
            ("patchgroups.open", "open", Unit::Count),
            ("patchgroups.engaged", "engaged", Unit::Count),
            ("patchgroups.listeners", "waiting for one", Unit::Count),
        ],
    ),
];

/// The counters as a person reads them. What no section names comes last.
fn as_text(mut counters: Value) -> String {
    if !counters["read_only"].is_null() {
        // Nothing is written, so in no order either.
        counters["ordering"] = Value::Null;
    }
    let mut sections: Vec<(&str, Vec<[String; 2]>)> = Vec::new();
    for (title, rows) in SECTIONS {
        let shown = rows.iter().filter_map(|(key, label, unit)| {
            let value = take(&mut counters, key)?;
            Some([(*label).to_owned(), unit.show(&value)?])
        });
        sections.push((title, shown.collect()));
    }
    // Shown as `memory.throttled` and `memory.throttled_seconds`.
    take(&mut counters, "stalls.memory.count");
    take(&mut counters, "stalls.memory.seconds");
    sections.push(("Requests of the kernel", requests(&mut counters)));
    let mut others = Vec::new();
    flatten("", &counters, &mut others);
    sections.push(("Other", others));
    sections.retain(|(_, rows)| !rows.is_empty());
    let labels = sections.iter().flat_map(|(_, rows)| rows);
    let width = labels.map(|[label, _]| label.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for (index, (title, rows)) in sections.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        text += &format!("{gap}{title}\n");
        for [label, value] in rows {
            text += &format!("  {label:width$}  {value}\n");
        }
    }
    text
}

/// What the kernel asked, the most frequent first, and the sum last.
fn requests(counters: &mut Value) -> Vec<[String; 2]> {
    let Some(Value::Object(mut kinds)) = take(counters, "requests") else {
        return Vec::new();
    };
    let total = kinds.remove("total").and_then(|count| count.as_u64());
    let mut counts: Vec<(String, u64)> = kinds
        .into_iter()
        .filter_map(|(kind, count)| Some((kind, count.as_u64()?)))
        .collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    counts.extend(total.map(|count| ("in all".into(), count)));
    counts
        .into_iter()
        .map(|(kind, count)| [kind, show::count(count)])
        .collect()
}

/// Takes a nested counter, `patches.live`, out of the document.
fn take(counters: &mut Value, key: &str) -> Option<Value> {
    let members = counters.as_object_mut()?;
    match key.split_once('.') {
        Some((outer, inner)) => take(members.get_mut(outer)?, inner),
        None => members.remove(key),
    }
}

impl Unit {
    /// `None` where there is nothing to say.
    fn show(self, value: &Value) -> Option<String> {
        let number = value.as_f64();
        Some(match (self, number) {
            (Unit::Count, _) => show::count(value.as_u64()?),
            (Unit::Bytes, _) => size::show(value.as_u64()?),
            (Unit::Seconds, Some(seconds)) => show::duration(seconds),
            (Unit::Part, Some(part)) => format!("{:.0} %", part * 100.0),
            _ => match value {
                Value::Null => return None,
                Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
                Value::String(text) => text.clone(),
                Value::Array(words) if words.is_empty() => return None,
                Value::Array(words) => {
                    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                    words.join("; ")
                }
                other => other.to_string(),
            },
        })
    }
}

/// Nested counters as rows: `patches.live`, …
fn flatten(prefix: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let dot = if prefix.is_empty() { "" } else { "." };
                flatten(&format!("{prefix}{dot}{name}"), member, rows);
            }
        }
        Value::String(text) => rows.push([prefix.to_owned(), text.clone()]),
        other => rows.push([prefix.to_owned(), other.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_are_grouped_and_have_units() {
        let text = as_text(json!({
            "image": "a.img",
            "read_only": null,
            "ops": 1_234_567,
            "memory": {"bytes": 1536, "bound": 1 << 30},
            "syncer": {"expire_seconds": 30.0, "oldest_seconds": 0.0},
            "reclaim": {"running": false, "done_fraction": 0.25},
        }));
        let expected = "\
Mount
  image                  a.img

Not on the disk yet
  oldest change          0 s
  written at the age of  30 s

Since the mount
  operations             1,234,567

Memory
  in use                 1.5 KiB
  bound                  1 GiB

After a crash
  reclaim is running     no
  reclaim done           25 %
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_no_section_names_comes_last() {
        let text = as_text(json!({"image": "a.img", "new": {"thing": 3}}));
        assert!(text.ends_with("\n\nOther\n  new.thing  3\n"), "{text}");
    }
}
