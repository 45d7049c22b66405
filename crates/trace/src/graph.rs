//! The graph at a moment as nodes and edges, for people: dot, or a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use backstitch_store::PatchKind;
use serde_json::{Value, json};

use crate::record::{Change, class_word, kind_word};
use crate::state::{Patch, Scope, Standing, State};
use crate::svg;

/// Blocks of a run that are told one by one.
const MOST_BLOCKS: usize = 10;
/// Operations of a patch that are.
const MOST_OPERATIONS: usize = 3;

/// How a patch stands, as it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drawn {
    /// It counts as on stable storage although nothing of it was written: it is not needed any more.
    Discarded,
    /// On stable storage.
    Committed,
    /// On its way there.
    InFlight,
    /// It could be written now.
    Ready,
    /// It waits for others.
    Waiting,
}

impl Drawn {
    /// All of them, in the order of a patch's life, from its end.
    pub const ALL: [Drawn; 5] = [
        Drawn::Discarded,
        Drawn::Committed,
        Drawn::InFlight,
        Drawn::Ready,
        Drawn::Waiting,
    ];

    /// A word for it.
    pub fn word(self) -> &'static str {
        match self {
            Drawn::Discarded => "discarded",
            Drawn::Committed => "committed",
            Drawn::InFlight => "in flight",
            Drawn::Ready => "ready",
            Drawn::Waiting => "waiting",
        }
    }

    pub(crate) fn colour(self) -> &'static str {
        match self {
            Drawn::Discarded => "#f4f6f7",
            Drawn::Committed => "#d5d8dc",
            Drawn::InFlight => "#f9d28f",
            Drawn::Ready => "#a9dfbf",
            Drawn::Waiting => "#f5b7b1",
        }
    }
}

/// What nodes are put together by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The block that they change.
    #[default]
    Block,
    /// The operation that they were first made for.
    Operation,
}

/// A patch, drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub patch: u64,
    /// What it is made of.
    pub kind: PatchKind,
    /// How it stands.
    pub drawn: Drawn,
    /// What it is, in a few words.
    pub label: String,
    /// What it belongs to.
    pub cluster: String,
    /// The others that it belongs to: the first operations, where patches are put together by block.
    pub about: Vec<String>,
    /// Of a run over blocks here and there: the first of them, in words.
    pub blocks: Vec<String>,
    /// Its block is on its way without it.
    pub is_rolled_back: bool,
}

impl Node {
    /// How it stands, in words.
    pub fn standing(&self) -> String {
        match self.is_rolled_back {
            true => format!("{}, rolled back", self.drawn.word()),
            false => self.drawn.word().to_owned(),
        }
    }
}

/// A graph, drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawing {
    /// The patches, by number.
    pub nodes: Vec<Node>,
    /// Which waits for which.
    pub edges: Vec<(u64, u64)>,
}

/// Which patches are drawn: all that the state has, or some and what these wait for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those of operations about this path.
    pub path: Option<String>,
    /// Those of operations about this object.
    pub object: Option<u64>,
    /// This one.
    pub patch: Option<u64>,
}

impl Wanted {
    pub(crate) fn is_all(&self) -> bool {
        self.path.is_none() && self.object.is_none() && self.patch.is_none()
    }

    /// Whether a patch is one of them by itself.
    pub(crate) fn is_met_by(&self, state: &State, number: u64, patch: &Patch) -> bool {
        self.is_all() || self.takes(state, number, patch)
    }

    fn takes(&self, state: &State, number: u64, patch: &Patch) -> bool {
        let mut scopes = patch.scopes.iter().filter_map(|scope| state.scope(*scope));
        self.patch.map(|patch| state.resolved(patch)) == Some(number)
            || scopes.any(|scope| self.takes_operation(scope))
    }

    fn takes_operation(&self, scope: &Scope) -> bool {
        let path = self.path.as_ref();
        path.is_some_and(|path| scope.paths.contains(path))
            || self.object.is_some_and(|o| scope.objects.contains(&o))
    }

    /// Whether the operation under way is about what is wanted.
    pub fn is_under_way(&self, state: &State) -> bool {
        let scope = state.scope_under_way().and_then(|scope| state.scope(scope));
        scope.is_some_and(|scope| self.takes_operation(scope))
    }

    /// Whether patches are wanted for the operations that they belong to.
    pub(crate) fn is_by_operation(&self) -> bool {
        self.path.is_some() || self.object.is_some()
    }
}

impl Drawing {
    /// Draws what a state has.
    pub fn of(state: &State, by: By, wanted: &Wanted) -> Drawing {
        Drawing::of_these(state, by, &taken(state, wanted))
    }

    /// Draws these patches, as far as the state has them.
    pub fn of_these(state: &State, by: By, taken: &BTreeSet<u64>) -> Drawing {
        let ready = state.ready();
        let mut drawing = Drawing::default();
        let patches = taken.iter().filter_map(|number| {
            let patch = state.patches.get(number);
            patch.map(|patch| (*number, &**patch))
        });
        for (number, patch) in patches {
            let (cluster, about) = match by {
                By::Block => (block_of(state, patch), operations_of(state, patch)),
                By::Operation => (operation_of(state, patch), vec![block_of(state, patch)]),
            };
            drawing.nodes.push(Node {
                patch: number,
                kind: patch.kind,
                drawn: drawn(&ready, number, patch),
                label: label(state, patch),
                cluster,
                about,
                blocks: scattered(state, patch),
                is_rolled_back: patch.parts.iter().any(|part| part.is_rolled_back),
            });
            let befores = patch.befores.iter().map(|before| state.resolved(*before));
            let befores: BTreeSet<u64> = befores.filter(|b| taken.contains(b)).collect();
            drawing
                .edges
                .extend(befores.into_iter().map(|b| (number, b)));
        }
        drawing
    }

    /// The clusters with their nodes, each as an index, in the order of their names.
    pub(crate) fn clusters(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut clusters: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            clusters.entry(&node.cluster).or_default().push(index);
        }
        clusters
    }

    /// In the language of Graphviz's dot. Hard patches have heavy borders, as in the paper's
    /// figures, and those that are rolled back dashed ones.
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph patches {\n  rankdir=LR;\n  node [style=filled];\n");
        for (index, (name, nodes)) in self.clusters().into_iter().enumerate() {
            let _ = writeln!(out, "  subgraph cluster_{index} {{");
            let _ = writeln!(out, "    label=\"{}\";", escaped(name));
            for node in nodes.iter().map(|node| &self.nodes[*node]) {
                let width = if is_heavy(node.kind) { 3 } else { 1 };
                let dashed = if node.is_rolled_back {
                    ", style=\"filled,dashed\""
                } else {
                    ""
                };
                let _ = writeln!(
                    out,
                    "    p{} [label=\"p{}\\n{}\\n{}\", tooltip=\"{}\", fillcolor=\"{}\", penwidth={width}{dashed}];",
                    node.patch,
                    node.patch,
                    escaped(&node.label),
                    escaped(&node.about.join(", ")),
                    node.standing(),
                    node.drawn.colour(),
                );
            }
            out += "  }\n";
        }
        for (after, before) in &self.edges {
            let _ = writeln!(out, "  p{after} -> p{before};");
        }
        out += "}\n";
        out
    }

    /// For programs: the keys stay.
    pub fn json(&self) -> Value {
        let nodes = self.nodes.iter().map(|node| {
            json!({
                "patch": node.patch,
                "kind": kind_word(node.kind),
                "standing": node.drawn.word(),
                "label": node.label,
                "cluster": node.cluster,
                "about": node.about,
                "rolled_back": node.is_rolled_back,
            })
        });
        let edges = self.edges.iter();
        let edges = edges.map(|(after, before)| json!({"after": after, "before": before}));
        json!({"nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>()})
    }

    /// As a picture.
    pub fn svg(&self) -> String {
        svg::draw(self)
    }
}

/// Whether a patch has no undo data.
pub fn is_heavy(kind: PatchKind) -> bool {
    matches!(kind, PatchKind::Hard | PatchKind::Run)
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.chars().filter(|c| !c.is_control()).collect()
}

pub(crate) fn taken(state: &State, wanted: &Wanted) -> BTreeSet<u64> {
    if wanted.is_all() {
        return state.patches().map(|(number, _)| number).collect();
    }
    let chosen = state.patches();
    let chosen = chosen.filter(|(number, patch)| wanted.takes(state, *number, patch));
    let mut stack: Vec<u64> = chosen.map(|(number, _)| number).collect();
    let mut taken = BTreeSet::new();
    while let Some(number) = stack.pop() {
        if taken.insert(number)
            && let Some(patch) = state.patch(number)
        {
            stack.extend(patch.befores.iter().map(|before| state.resolved(*before)));
        }
    }
    taken
}

pub(crate) fn drawn(ready: &BTreeSet<u64>, number: u64, patch: &Patch) -> Drawn {
    match patch.standing {
        Standing::Committed if patch.was_discarded => Drawn::Discarded,
        Standing::Committed => Drawn::Committed,
        Standing::InFlight => Drawn::InFlight,
        Standing::Uncommitted if ready.contains(&number) => Drawn::Ready,
        Standing::Uncommitted => Drawn::Waiting,
    }
}

pub(crate) fn label(state: &State, patch: &Patch) -> String {
    if !patch.is_known {
        return "older than the trace".to_owned();
    }
    let mut label = kind_word(patch.kind).to_owned();
    if patch.kind == PatchKind::Run {
        let count = patch.parts.len();
        label += &format!(" of {count} block{}", plural(count));
    } else if let Some(inodes) = inodes_text(state, patch) {
        label += &format!(" {inodes}");
    } else if let Some(change) = patch.changes.first() {
        label += &format!(" {}", change_text(change));
        if patch.changes_count > 1 {
            label += &format!(" and {} more", patch.changes_count - 1);
        }
    }
    if patch.is_held {
        label += ", held";
    }
    label
}

/// Which inodes a patch changes, where its block is known to hold inodes and all of its changes are
/// remembered; of a single change also where it is.
fn inodes_text(state: &State, patch: &Patch) -> Option<String> {
    let (place, area) = state.area(patch.parts.first()?.block)?;
    let inodes = area.inodes_of(place, &patch.changes);
    if inodes.is_empty() || patch.changes_count != patch.changes.len() as u64 {
        return None;
    }
    let numbers: Vec<String> = inodes.iter().map(u64::to_string).collect();
    let text = match &numbers[..] {
        [one] => format!("inode {one}"),
        some => format!("inodes {}", some.join(" ")),
    };
    Some(match patch.changes[..] {
        [change] => format!("{text}, {}", change_text(&change)),
        _ => text,
    })
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A change in words: where it is in its block.
pub(crate) fn change_text(change: &Change) -> String {
    match change {
        Change::Nothing => String::new(),
        Change::Bytes {
            offset_bytes,
            len_bytes,
        } => format!("{offset_bytes}+{len_bytes}"),
        Change::Flip { offset_bytes, mask } => {
            let count = mask.count_ones();
            format!("{count} bit{} at {offset_bytes}", plural(count as usize))
        }
    }
}

/// A block, or several one behind the other.
struct Blocks<'s> {
    /// What they are: of the trace's description, or else the class.
    what: &'s str,
    is_described: bool,
    volume: u32,
    /// The numbers, in blocks of their own size.
    first: u64,
    last: u64,
}

impl Blocks<'_> {
    fn text(&self) -> String {
        let numbers = match (self.first, self.last) {
            (first, last) if first == last => format!("block {first}"),
            (first, last) => format!("blocks {first}–{last}"),
        };
        match (self.is_described, self.volume) {
            (true, _) => format!("{} ({numbers})", self.what),
            (false, 0) => format!("{} {numbers}", self.what),
            (false, volume) => format!("{} {numbers} of volume {volume}", self.what),
        }
    }
}

fn blocks(state: &State, block: u32) -> Option<Blocks<'_>> {
    let place = state.place(block)?;
    let number = place.offset_bytes / u64::from(place.len_bytes.max(1));
    let described = state.area(block).map(|(_, area)| &area.what[..]);
    Some(Blocks {
        what: described.unwrap_or(class_word(place.class)),
        is_described: described.is_some(),
        volume: place.volume,
        first: number,
        last: number,
    })
}

/// A block in words: what it is for and its number, in blocks of its own size.
pub fn block_text(state: &State, block: u32) -> String {
    blocks(state, block).map_or_else(|| format!("block ?{block}"), |block| block.text())
}

/// The blocks of a run in words, those together that lie one behind the other.
fn blocks_texts(state: &State, patch: &Patch) -> Vec<String> {
    let mut texts = Vec::new();
    let mut open: Option<Blocks<'_>> = None;
    for part in &patch.parts {
        let next = blocks(state, part.block);
        match (&mut open, next) {
            (Some(open), Some(next))
                if (open.what, open.volume) == (next.what, next.volume)
                    && open.last.checked_add(1) == Some(next.first) =>
            {
                open.last = next.last;
            }
            (_, next) => {
                texts.extend(open.take().map(|blocks| blocks.text()));
                if next.is_none() {
                    texts.push(block_text(state, part.block));
                }
                open = next;
            }
        }
    }
    texts.extend(open.map(|blocks| blocks.text()));
    texts
}

/// The blocks of a run that does not lie in one place.
fn scattered(state: &State, patch: &Patch) -> Vec<String> {
    let texts = match patch.kind {
        PatchKind::Run => blocks_texts(state, patch),
        _ => Vec::new(),
    };
    match texts.len() {
        1 => Vec::new(),
        _ => the_first(texts, MOST_BLOCKS),
    }
}

pub(crate) fn block_of(state: &State, patch: &Patch) -> String {
    match (patch.kind, &patch.parts[..]) {
        (PatchKind::Run, [first, rest @ ..]) => match &blocks_texts(state, patch)[..] {
            [one] => one.clone(),
            _ => format!("{} and {} more", block_text(state, first.block), rest.len()),
        },
        (_, [part, ..]) => block_text(state, part.block),
        (_, []) => "no block".to_owned(),
    }
}

pub(crate) fn operation_of(state: &State, patch: &Patch) -> String {
    let scope = patch.scopes.first();
    let text = scope.and_then(|scope| operation_text(state, *scope));
    text.unwrap_or_else(|| "no operation".to_owned())
}

fn operation_text(state: &State, number: u64) -> Option<String> {
    Some(format!("{} ({number})", state.scope(number)?.label))
}

/// The operations that a patch belongs to, the first ones.
fn operations_of(state: &State, patch: &Patch) -> Vec<String> {
    let numbers = patch.scopes.iter();
    let texts: Vec<String> = numbers.filter_map(|n| operation_text(state, *n)).collect();
    match texts.is_empty() {
        true => vec![operation_of(state, patch)],
        false => the_first(texts, MOST_OPERATIONS),
    }
}

/// At most so many, and how many more there are.
fn the_first(mut texts: Vec<String>, most: usize) -> Vec<String> {
    let more = texts.len().saturating_sub(most);
    texts.truncate(most);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts
}
