//! What the page asks for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstitch_trace::graph::{By, Wanted, block_text};
use backstitch_trace::index::{self, Index, Kind};
use backstitch_trace::why::versions::{Blocks, Bounds};
use backstitch_trace::why::{crash, cut, dirty, versions, wait};
use backstitch_trace::{State, Trace, normal_path};
use serde_json::{Value, json};

use crate::query::Query;
use crate::states::{self, Disk, Judge};
use crate::steps;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// One script, in this order: what stands in an earlier piece is there for the later ones.
const SCRIPT: &str = concat!(
    include_str!("page/moment.js"),
    include_str!("page/graph.js"),
    include_str!("page/block.js"),
    include_str!("page/line.js"),
    include_str!("page/questions.js"),
    include_str!("page/live.js"),
    include_str!("page/controls.js"),
);
/// What stands for the word that lets the page's own style and script in.
const NONCE: &str = "{{nonce}}";
/// Spans of a kind in one piece of the time line.
pub(crate) const MOST_SPANS: usize = 400;
/// Records in words, and operations that are found.
const MOST_LINES: u64 = 30;
/// Operations that a search finds at once.
const MOST_FOUND: usize = 100;
/// Blocks on their way that are told of.
const MOST_FLIGHTS: usize = 100;
/// Blocks of a patch to choose from.
const MOST_BLOCKS: usize = 100;
/// Patches of one version of a block.
const MOST_OF_A_VERSION: usize = 50;
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
    pub(crate) fn json(value: &Value) -> Reply {
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
            ..Reply::json(&json!({"error": format!("refused, {status}: {}", reason(status))}))
        }
    }
}

/// The words of HTTP for a status.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Bad Request",
    }
}

/// Why there is no answer: what was wrong with the question.
type Wrong = String;

/// An answer, or why there is none.
pub(crate) fn reply(found: Result<Value, Wrong>) -> Reply {
    match found {
        Ok(document) => Reply::json(&document),
        Err(why) => Reply {
            status: 400,
            ..Reply::json(&json!({"error": why}))
        },
    }
}

/// Who answers what the page asks.
pub trait Answering: Sync {
    /// Answers a request for what is behind the token, with its question mark and what follows.
    /// `nonce` is a word that nobody can guess.
    fn answer(&self, request: &str, nonce: &str) -> Reply;
}

/// What is known of a trace, for one page after the other.
pub struct Answers<'t> {
    name: String,
    index: Mutex<Index<'t>>,
    judge: Option<&'t dyn Judge>,
    /// The graph that was told of last: of a step from there only what changes is told.
    told: Mutex<Option<Told>>,
    /// What was on the disk at the moment whose states were asked for last.
    disk: Mutex<Option<Arc<Disk>>>,
}

/// A graph that was told of.
struct Told {
    record: u64,
    /// What of the graph was asked for.
    filters: [Option<String>; 5],
    graph: Value,
}

impl<'t> Answers<'t> {
    /// Reads a trace once; `name` is what it is called.
    pub fn new(name: String, trace: Trace<'t>) -> Answers<'t> {
        Answers {
            name,
            index: Mutex::new(Index::of(trace)),
            judge: None,
            told: Mutex::default(),
            disk: Mutex::default(),
        }
    }

    /// With somebody who judges the states that a crash can leave.
    #[must_use]
    pub fn judged_by(self, judge: &'t dyn Judge) -> Answers<'t> {
        Answers {
            judge: Some(judge),
            ..self
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

    fn index(&self) -> MutexGuard<'_, Index<'t>> {
        // A thread that died in the middle of a question has at worst lost a place to begin from.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a request that is not for the page itself.
    pub(crate) fn document(&self, request: &str) -> Reply {
        let (path, query) = request.split_once('?').unwrap_or((request, ""));
        let query = Query(query);
        match path {
            "moment" => return self.moment(query),
            "states" => return reply(self.states(query)),
            "state" => return reply(self.state(query)),
            _ => {}
        }
        let mut index = self.index();
        reply(match path {
            "about" => Ok(about(&self.name, &index)),
            "line" => Ok(line(&mut index, query)),
            "next" => next(&index, query),
            "search" => Ok(search(&index, query)),
            "records" => records(&mut index, query),
            "block" => block(&mut index, query),
            "why/dirty" => why_dirty(&mut index, query),
            "why/wait" => why_wait(&mut index, query),
            "why/written" => why_written(&mut index, query),
            "why/crash" => why_crash(&mut index, query),
            "why/cut" => why_cut(&mut index, query),
            _ => return Reply::refused(404),
        })
    }
}

impl Answers<'_> {
    /// The graph after a record. Of a question that says with `since` what is known already, what has
    /// changed from there, where that is the graph that was told of last.
    fn moment(&self, query: Query<'_>) -> Reply {
        let mut document = match moment(&mut self.index(), query) {
            Ok(document) => document,
            Err(why) => return reply(Err(why)),
        };
        let mut graph = document["graph"].take();
        let filters = ["by", "path", "inode", "patch", "cluster"].map(|key| query.get(key));
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let since = query.number("since");
        let known = told
            .as_ref()
            .filter(|told| since == Some(told.record) && told.filters == filters);
        let changes = known.and_then(|told| steps::changes(&told.graph, &graph, told.record));
        let reply = match changes {
            Some(changes) => {
                document["graph"] = changes;
                Reply::json(&document)
            }
            None => {
                document["graph"] = graph;
                let reply = Reply::json(&document);
                graph = document["graph"].take();
                reply
            }
        };
        *told = Some(Told {
            record: document["record"].as_u64().unwrap_or(0),
            filters,
            graph,
        });
        reply
    }

    /// What is on the disk after a record, and who judges it.
    fn disk(&self, record: u64) -> Result<(Arc<Disk>, &dyn Judge), Wrong> {
        let judge = self.judge.ok_or(NO_CONTENTS)?;
        // One question at a time: each of them may read all of the trace.
        let mut kept = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(disk) = kept.as_ref().filter(|disk| disk.is_after(record)) {
            return Ok((disk.clone(), judge));
        }
        let mut index = self.index();
        let (trace, state) = (index.trace().clone(), index.state_after(record).clone());
        drop(index);
        let disk = Arc::new(Disk::after(&trace, &state, record, judge)?);
        *kept = Some(disk.clone());
        Ok((disk, judge))
    }

    /// The states that a crash after a record can leave, to choose from.
    fn states(&self, query: Query<'_>) -> Result<Value, Wrong> {
        let record = record(query)?;
        // That they cannot be made is no failure of the page.
        Ok(match self.disk(record) {
            Ok((disk, _)) => disk.states(self.index().state_after(record)),
            Err(why) => json!({"why_not": why}),
        })
    }

    /// What is found of the state in which some blocks have arrived, or all.
    fn state(&self, query: Query<'_>) -> Result<Value, Wrong> {
        let (disk, judge) = self.disk(record(query)?)?;
        let arrived = match query.get("blocks").as_deref() {
            Some("all") => None,
            _ => Some(blocks(query)?),
        };
        let state = disk.state(arrived.as_deref())?;
        let (text, found) = states::found(&judge.judge(&state));
        Ok(answer(&text, found))
    }
}

/// Why there are no states of a mount that is followed, and how to come to them.
const NO_CONTENTS: &str = "A mount that is followed has no contents, so its states are not looked into. \
    Copy the image after `backstitch sync MNT` while nothing changes it, record with \
    `backstitch trace record --contents -o FILE MNT`, and open that with \
    `backstitch trace serve --image COPY FILE`.";

impl Answering for Answers<'_> {
    fn answer(&self, request: &str, nonce: &str) -> Reply {
        match request.split('?').next() {
            Some("") | None => page(nonce),
            Some(_) => self.document(request),
        }
    }
}

/// The page, whose own style and script alone run in it.
pub(crate) fn page(nonce: &str) -> Reply {
    let own = format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:");
    Reply {
        status: 200,
        kind: "text/html; charset=utf-8",
        policy: format!("{POLICY}; {own}"),
        body: PAGE
            .replace(NONCE, nonce)
            .replace("{{style}}", STYLE)
            .replace("{{script}}", SCRIPT)
            .into_bytes(),
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

fn line(index: &mut Index<'_>, query: Query<'_>) -> Value {
    let from = query.number("from").unwrap_or(0);
    let to = query.number("to").unwrap_or(u64::MAX).min(index.records());
    index.page(from, to, MOST_SPANS)
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
    let record = record(query)?.min(index.records().saturating_sub(1));
    let number = index.number_of(record);
    Ok(moment_of(index.state_after(record), record, number, query))
}

/// The graph of the state after a record, which has this number in the recording.
pub(crate) fn moment_of(state: &State, record: u64, number: u64, query: Query<'_>) -> Value {
    let by = match query.get("by").as_deref() {
        Some("operation") => By::Operation,
        _ => By::Block,
    };
    let graph = index::graph(state, by, &wanted(query), query.number("cluster"));
    let moving: Vec<(Option<u64>, u32)> = state.blocks_in_flight().collect();
    let waits: Vec<u64> = state.waits().map(|(ticket, _)| ticket).take(50).collect();
    let scope = state.scope_under_way();
    let operation = scope.and_then(|scope| state.scope(scope));
    json!({
        "record": record,
        "number": number,
        "seconds": state.time.as_secs_f64(),
        "patches": state.pending_count(),
        "operation": operation.map(|scope| scope.label.as_str()),
        "waits": waits,
        "flights": flights(state, &moving),
        "flights_count": moving.len(),
        "graph": graph,
    })
}

/// The first blocks on their way, and with which patches.
fn flights(state: &State, moving: &[(Option<u64>, u32)]) -> Vec<Value> {
    let blocks = moving.iter().take(MOST_FLIGHTS);
    let told = blocks.map(|&(batch, block)| {
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

/// What patches change in a block; of a patch that has none, or is on the disk, that it has none. Of a
/// patch, which blocks it has besides.
fn block(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let state = index.state_after(record(query)?);
    let patch = query.number("patch");
    let parts = patch.and_then(|patch| Some(&state.patch(patch)?.parts));
    let mut blocks: Vec<u32> = parts.into_iter().flatten().map(|part| part.block).collect();
    blocks.sort_unstable();
    let asked = query.number("block");
    let asked = asked.and_then(|block| u32::try_from(block).ok());
    let mut document = match (asked.or(blocks.first().copied()), patch) {
        (Some(block), _) => index::block(state, block),
        (None, Some(_)) => json!({"block": null}),
        (None, None) => return Err("which block, or of which patch?".to_owned()),
    };
    let named = blocks.iter().take(MOST_BLOCKS);
    let named = named.map(|block| json!([block, block_text(state, *block)]));
    document["blocks"] = named.collect();
    document["blocks_count"] = blocks.len().into();
    Ok(document)
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
    let (record, wanted) = (record(query)?, wanted(query));
    let state = index.state_after(record);
    check_patches(state, wanted.patch.as_slice())?;
    let (count, mut found) = dirty::longest(state, &wanted, MOST_CHAINS);
    let untold = dirty::untold(state, &wanted);
    let mut document = json!({"count": count, "untold": untold});
    document["rounds"] = found.iter().map(|dirty| dirty.rounds).max().into();
    for dirty in &mut found {
        dirty.chain.truncate(MOST_TEXT_LINES);
    }
    document["chain"] = json!(found.first().map(|dirty| &dirty.chain));
    let text = dirty::text_of(state, count, &found, untold);
    let is_by_operation = wanted.path.is_some() || wanted.object.is_some();
    if count == 0 && is_by_operation && !index.is_known(&wanted, record) {
        let mut why = "no operation in the trace is about it up to this moment".to_owned();
        if wanted.path.is_some() {
            why += "; a file older than the recording has no path there: ask for its patch";
        }
        return Err(why);
    }
    Ok(answer(&text, document))
}

/// Fails where the state has no patches with these numbers.
fn check_patches(state: &State, patches: &[u64]) -> Result<(), Wrong> {
    let newest = state.newest();
    match patches.iter().all(|patch| (1..=newest).contains(patch)) {
        true => Ok(()),
        false => Err(format!("at this moment the patches are p1 to p{newest}")),
    }
}

/// The wait that is asked about, and what is to be said of which one that is: of the one with a
/// ticket; without one, of the last that is going on after a record, or of the next one.
fn which_wait(index: &Index<'_>, query: Query<'_>) -> Result<(u64, String), Wrong> {
    if let Some(ticket) = query.number("ticket") {
        return Ok((ticket, String::new()));
    }
    let record = record(query)?;
    let waits = index.line().spans(Kind::Wait);
    // After the record that ends it a wait is over.
    let is_open =
        |of: &&index::Span| of.first <= record && of.last.is_none_or(|last| last > record);
    let open: Vec<u64> = waits.iter().filter(is_open).map(|of| of.number).collect();
    match (&open[..], waits.iter().find(|of| of.first > record)) {
        ([one], _) => Ok((*one, String::new())),
        ([.., last], _) => {
            let count = open.len();
            let which = format!("{count} waits are going on; the one that began last:\n");
            Ok((*last, which))
        }
        ([], Some(next)) => Ok((next.number, "nobody waits now; the next wait:\n".to_owned())),
        ([], None) => Err("nobody waits then, or later".to_owned()),
    }
}

fn why_wait(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let (ticket, which) = which_wait(index, query)?;
    let found = wait::wait_within(index.trace(), Some(ticket), index.records());
    let found = found.map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| format!("nobody waits under ticket {ticket}"))?;
    let document = json!({
        "ticket": ticket,
        "rounds": found.rounds,
        "patches": found.patches.len(),
        "batches": found.batches.len(),
    });
    Ok(answer(&(which + &found.text()), document))
}

/// Of a block's versions up to a record, the last ones.
fn why_written(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let block = query.number("block").map(u32::try_from);
    let blocks = match (block, query.number("number")) {
        (Some(block), _) => Blocks::One(block.map_err(|_| "no such block")?),
        (None, Some(number)) => Blocks::WithNumber(number),
        (None, None) => return Err("which block?".to_owned()),
    };
    let bounds = Bounds {
        records: record(query)?.saturating_add(1).min(index.records()),
        versions: MOST_CHAINS,
        patches: MOST_OF_A_VERSION,
    };
    let found = versions::last_versions(index.trace(), blocks, bounds);
    let (count, last) = found.map_err(|error| error.to_string())?;
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
    check_patches(state, &[with, without])?;
    let (verdict, left_out) = crash::crash(state, with, without).shortened(MOST_TEXT_LINES);
    let mut text = crash::text(state, with, without, &verdict);
    if left_out > 0 {
        text += &format!("… and {left_out} patches more between them\n");
    }
    let mut document = crash::json(state, with, without, &verdict);
    document["path_left_out"] = left_out.into();
    Ok(answer(&text, document))
}

/// The blocks that are named.
fn blocks(query: Query<'_>) -> Result<Vec<u32>, Wrong> {
    let named = query.numbers("blocks").into_iter().map(u32::try_from);
    let named: Result<_, _> = named.collect();
    named.map_err(|_| "no such block".to_owned())
}

/// Of the state with some patches, or with what is on its way of some blocks: of those that are named,
/// or of `all`.
fn why_cut(index: &mut Index<'_>, query: Query<'_>) -> Result<Value, Wrong> {
    let state = index.state_after(record(query)?);
    let blocks: Vec<u32> = match query.get("blocks").as_deref() {
        Some("all") => state.blocks_in_flight().map(|(_, block)| block).collect(),
        _ => blocks(query)?,
    };
    let found = cut::cut_with_blocks(state, query.numbers("patches"), blocks);
    let mut document = cut::json(state, &found);
    if let Some(with) = document["with"].as_array_mut() {
        with.truncate(MOST_TEXT_LINES);
    }
    Ok(answer(&cut::text(state, &found), document))
}
