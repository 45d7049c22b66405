//! What the page asks for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use backstitch_trace::graph::{By, Wanted, block_text};
use backstitch_trace::index::{self, Index, Kind};
use backstitch_trace::why::{crash, cut, dirty, versions, wait};
use backstitch_trace::{State, Trace, normal_path};
use serde_json::{Value, json};

use crate::query::Query;

const PAGE: &str = include_str!("page.html");
/// What stands for the word that lets the page's own style and script in.
const NONCE: &str = "{{nonce}}";
/// Spans of a kind in one piece of the time line.
const MOST_SPANS: usize = 400;
/// Records in words, and operations that are found.
const MOST_LINES: u64 = 30;
/// Operations that a search finds at once.
const MOST_FOUND: usize = 100;
/// Blocks on their way that are told of.
const MOST_FLIGHTS: usize = 100;
/// Chains that say why something is dirty, and versions of a block.
const MOST_CHAINS: usize = 20;
/// Lines of an answer.
const MOST_TEXT_LINES: usize = 200;
/// Nothing but what is in the page itself.
const POLICY: &str = "default-src 'none'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// An answer to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// The media type of the body.
    pub kind: &'static str,
    /// What the browser lets it do.
    pub policy: String,
    /// What it is.
    pub body: Vec<u8>,
}

impl Reply {
    fn json(value: &Value) -> Reply {
        Reply {
            status: 200,
            kind: "application/json",
            policy: POLICY.to_owned(),
            body: value.to_string().into_bytes(),
        }
    }

    pub(crate) fn refused(status: u16) -> Reply {
        Reply {
            status,
            kind: "text/plain; charset=utf-8",
            policy: POLICY.to_owned(),
            body: b"refused\n".to_vec(),
        }
    }
}

/// Why there is no answer: what was wrong with the question.
type Wrong = String;

/// What is known of a trace, for one page after the other.
pub struct Answers<'t> {
    name: String,
    index: Mutex<Index<'t>>,
}

impl<'t> Answers<'t> {
    /// Reads a trace once; `name` is what it is called.
    pub fn new(name: String, trace: Trace<'t>) -> Answers<'t> {
        Answers {
            name,
            index: Mutex::new(Index::of(trace)),
        }
    }

    /// Whether the trace ends before the recording did.
    pub fn is_cut(&self) -> bool {
        self.index().is_cut()
    }

    /// How many events at least are missing at its end, where any are.
    pub fn lost_events(&self) -> Option<u64> {
        self.index().lost_events()
    }

    /// Answers a request for what is behind the token, with its question mark and what follows.
    /// `nonce` is a word that nobody can guess.
    pub fn answer(&self, request: &str, nonce: &str) -> Reply {
        let (path, query) = request.split_once('?').unwrap_or((request, ""));
        if path.is_empty() {
            return page(nonce);
        }
        match self.document(path, Query(query)) {
            Some(Ok(document)) => Reply::json(&document),
            Some(Err(why)) => Reply {
                status: 400,
                ..Reply::json(&json!({"error": why}))
            },
            None => Reply::refused(404),
        }
    }

    fn index(&self) -> MutexGuard<'_, Index<'t>> {
        // Who has died in the middle of a question has at worst lost a place to begin from.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn document(&self, path: &str, query: Query<'_>) -> Option<Result<Value, Wrong>> {
        let mut index = self.index();
        Some(match path {
            "about" => Ok(about(&self.name, &index)),
            "line" => Ok(line(&index, query)),
            "next" => next(&index, query),
            "search" => Ok(search(&index, query)),
            "moment" => moment(&mut index, query),
            "records" => records(&mut index, query),
            "block" => block(&mut index, query),
            "why/dirty" => why_dirty(&mut index, query),
            "why/wait" => why_wait(&mut index, query),
            "why/written" => why_written(&mut index, query),
            "why/crash" => why_crash(&mut index, query),
            "why/cut" => why_cut(&mut index, query),
            _ => return None,
        })
    }
}

/// The page, whose own style and script alone run in it.
fn page(nonce: &str) -> Reply {
    let own = format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:");
    Reply {
        status: 200,
        kind: "text/html; charset=utf-8",
        policy: format!("{POLICY}; {own}"),
        body: PAGE.replace(NONCE, nonce).into_bytes(),
    }
}

fn about(name: &str, index: &Index<'_>) -> Value {
    let count = |kind| index.line().spans(kind).len();
    json!({
        "name": name,
        "description": index.trace().description,
        "records": index.records(),
        "seconds": index.seconds(),
        "operations": count(Kind::Operation),
        "batches": count(Kind::Batch),
        "waits": count(Kind::Wait),
        "lost_events": index.lost_events(),
        "is_cut_off": index.is_cut(),
        "damage": index.damage().map(ToString::to_string),
    })
}

fn line(index: &Index<'_>, query: Query<'_>) -> Value {
    let from = query.number("from").unwrap_or(0);
    let to = query.number("to").unwrap_or(u64::MAX).min(index.records());
    index.line().page(from, to, MOST_SPANS)
}

fn record(query: Query<'_>) -> Result<u64, Wrong> {
    query
        .number("record")
        .ok_or_else(|| "of which record?".to_owned())
}

fn next(index: &Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let (record, is_back) = (record(query)?, query.get("back").as_deref() == Some("1"));
    let line = index.line();
    let found = match query.get("kind").as_deref() {
        Some("operation") => line.next(Kind::Operation, record, is_back),
        Some("batch") => line.next(Kind::Batch, record, is_back),
        Some("wait") => line.next(Kind::Wait, record, is_back),
        Some("flush") => line.next_flush(record, is_back),
        _ => return Err("kind is operation, batch, wait or flush".to_owned()),
    };
    Ok(json!({"record": found}))
}

fn search(index: &Index<'_>, query: Query<'_>) -> Value {
    let text = query.get("text").unwrap_or_default();
    let from = query.number("from").unwrap_or(0);
    let mut found = index.line().search(&text, from, MOST_FOUND + 1);
    let is_all = found.len() <= MOST_FOUND;
    found.truncate(MOST_FOUND);
    let found: Vec<Value> = found.into_iter().map(|of| of.json()).collect();
    json!({"found": found, "is_all": is_all})
}

fn wanted(query: Query<'_>) -> Wanted {
    Wanted {
        path: query.get("path").map(|path| normal_path(&path)),
        object: query.number("inode"),
        patch: query.number("patch"),
    }
}

/// The graph after a record.
fn moment(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let by = match query.get("by").as_deref() {
        Some("operation") => By::Operation,
        _ => By::Block,
    };
    let record = record(query)?.min(index.records().saturating_sub(1));
    let number = index.number_of(record);
    let state = index.state_after(record);
    let graph = index::graph(state, by, &wanted(query), query.number("cluster"));
    let waits: Vec<u64> = state.waits().map(|(ticket, _)| ticket).take(50).collect();
    let scope = state.scope_under_way();
    let operation = scope.and_then(|scope| state.scope(scope));
    Ok(json!({
        "record": record,
        "number": number,
        "seconds": state.time.as_secs_f64(),
        "patches": state.pending_count(),
        "operation": operation.map(|scope| scope.label.as_str()),
        "waits": waits,
        "flights": flights(state),
        "flights_count": state.blocks_in_flight().count(),
        "graph": graph,
    }))
}

/// The first blocks on their way, and with which patches.
fn flights(state: &State) -> Vec<Value> {
    let blocks = state.blocks_in_flight().take(MOST_FLIGHTS);
    let told = blocks.map(|(batch, block)| {
        let patches = state.in_flight_of(block);
        json!({
            "batch": batch,
            "block": block,
            "name": block_text(state, block),
            "patches": patches.take(MOST_FLIGHTS).collect::<Vec<_>>(),
            "patches_count": state.in_flight_of(block).count(),
        })
    });
    told.collect()
}

fn records(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let words = index.words(record(query)?, MOST_LINES);
    let words = words
        .into_iter()
        .map(|(at, number, text)| json!([at, number, text]));
    Ok(json!({"records": words.collect::<Vec<_>>()}))
}

/// What patches change in a block; of a patch that has none, or is on the disk, that it has none.
fn block(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let state = index.state_after(record(query)?);
    let of_patch = query.number("patch").and_then(|patch| {
        let parts = &state.patch(patch)?.parts;
        parts.first().map(|part| part.block)
    });
    let asked = query
        .number("block")
        .and_then(|block| u32::try_from(block).ok());
    match (asked.or(of_patch), query.number("patch")) {
        (Some(block), _) => Ok(index::block(state, block)),
        (None, Some(_)) => Ok(json!({"block": null})),
        (None, None) => Err("which block, or of which patch?".to_owned()),
    }
}

/// An answer in words, and for programs.
fn answer(text: &str, answer: Value) -> Value {
    let mut lines = text.lines();
    let mut told: Vec<&str> = lines.by_ref().take(MOST_TEXT_LINES).collect();
    let rest = match lines.count() {
        0 => String::new(),
        rest => format!("… and {rest} lines more: backstitch trace why has them"),
    };
    told.push(&rest);
    json!({"text": told.join("\n").trim_end(), "answer": answer})
}

fn why_dirty(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let (state, wanted) = (index.state_after(record(query)?), wanted(query));
    let (count, found) = dirty::longest(state, &wanted, MOST_CHAINS);
    let untold = dirty::untold(state, &wanted);
    let mut document = json!({"count": count, "untold": untold});
    document["rounds"] = found.iter().map(|dirty| dirty.rounds).max().into();
    document["chain"] = json!(
        found
            .first()
            .map(|dirty| { dirty.chain.iter().take(MOST_TEXT_LINES).collect::<Vec<_>>() })
    );
    let text = dirty::text_of(state, count, &found, untold);
    Ok(answer(&text, document))
}

/// Of the wait with a ticket; without one, of the last that is going on after a record, or of the
/// next one.
fn why_wait(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let ticket = match query.number("ticket") {
        Some(ticket) => ticket,
        None => {
            let record = record(query)?;
            let waits = index.line().spans(Kind::Wait);
            let is_open =
                |of: &&index::Span| of.first <= record && of.last.is_none_or(|last| last >= record);
            let open = waits.iter().rev().find(is_open);
            let next = || waits.iter().find(|of| of.first > record);
            let found = open.or_else(next);
            found.ok_or("nobody waits then, or later")?.number
        }
    };
    match wait::wait(index.trace(), Some(ticket)) {
        Ok(Some(found)) => {
            let document = json!({
                "ticket": ticket,
                "rounds": found.rounds,
                "patches": found.patches.len(),
                "batches": found.batches.len(),
            });
            Ok(answer(&found.text(), document))
        }
        Ok(None) => Err(format!("nobody waits under ticket {ticket}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Of a block's versions up to a record, the last ones.
fn why_written(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let number = query.number("number").ok_or("which block?")?;
    let record = index.number_of(record(query)?);
    let mut found = versions::versions(index.trace(), number).map_err(|error| error.to_string())?;
    found.retain(|version| version.record <= record);
    let count = found.len();
    let last = found.split_off(count.saturating_sub(MOST_CHAINS));
    let mut text = versions::text(&last);
    if last.len() < count {
        text = format!("{count} versions up to here; of the last ones:\n{text}");
    }
    let records: Vec<u64> = last.iter().map(|version| version.record).collect();
    Ok(answer(&text, json!({"count": count, "records": records})))
}

fn why_crash(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let pair = query.number("with").zip(query.number("without"));
    let (with, without) = pair.ok_or("with which patch, and without which?")?;
    let state = index.state_after(record(query)?);
    if ![with, without]
        .iter()
        .all(|patch| (1..=state.newest()).contains(patch))
    {
        return Err(format!("the patches are p1 to p{} here", state.newest()));
    }
    let verdict = crash::crash(state, with, without);
    let text = crash::text(state, with, without, &verdict);
    let mut document = crash::json(state, with, without, &verdict);
    if let Some(path) = document["path"].as_array_mut() {
        path.truncate(MOST_TEXT_LINES);
    }
    Ok(answer(&text, document))
}

/// Of the state with some patches, or with what is on its way of some blocks: of those that are named,
/// or of `all`.
fn why_cut(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let state = index.state_after(record(query)?);
    let blocks: Vec<u32> = match query.get("blocks").as_deref() {
        Some("all") => state.blocks_in_flight().map(|(_, block)| block).collect(),
        _ => {
            let named = query.numbers("blocks").into_iter().map(u32::try_from);
            let named: Result<_, _> = named.collect();
            named.map_err(|_| "no such block")?
        }
    };
    let found = cut::cut_with_blocks(state, query.numbers("patches"), blocks);
    let mut document = cut::json(state, &found);
    if let Some(with) = document["with"].as_array_mut() {
        with.truncate(MOST_TEXT_LINES);
    }
    Ok(answer(&cut::text(state, &found), document))
}
