//! A failing moment as people see it: its patches, named by what they change and by the operations
//! that they belong to, and the order that is missing among them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use backstitch_layout::InodeNumber;
use backstitch_layout::tools::Use;
use backstitch_store::{BlockClass, PatchKind};
use backstitch_trace::graph::is_heavy;
use backstitch_trace::record::{Change, class_word};
use backstitch_trace::{Keep, Moment, Patch, Recorder, State, Trace, state_at};

use crate::frontier::Pending;
use crate::geography::Blocks;
use crate::image::Fork;
use crate::missing::{Found, MOST_ORDERS};
use crate::report::BlockState;
use crate::report::graph::{self, End, Graph, How, Order};

/// The most patches that are drawn. Of more, those near the missing order.
const MOST_SHOWN: usize = 40;

/// The most characters of an operation that are shown.
const MOST_OF_A_LABEL: usize = 80;

/// The operation of a patch that belongs to none.
pub const NO_OPERATION: &str = "no operation";

/// The result of the search for a missing order.
pub enum Told {
    /// Orders among the patches.
    Patches(Found),
    /// Orders among these blocks, which were on their way as wholes.
    Blocks(Found, Vec<u64>),
    /// There was no search, for this reason.
    Nothing(&'static str),
}

/// The order in which candidates for a missing order are tried: names first, which make what they
/// lead to visible; bits last, which make nothing visible.
pub fn rank(patch: &Pending) -> u8 {
    match (patch.class, patch.kind) {
        (BlockClass::Directory, _) => 0,
        (_, PatchKind::Bits) => 2,
        _ => 1,
    }
}

/// A failing moment.
pub struct Scene<'s> {
    /// Its patches.
    pub patches: &'s [Pending],
    /// What became of each of them.
    pub states: &'s [BlockState],
    /// The images that say what blocks are for, the best one first.
    pub images: &'s [&'s Fork],
    /// The recorder of the run.
    pub recorder: &'s Recorder,
    /// What it recorded up to the moment.
    pub trace: &'s [u8],
}

/// Gives patches their names for people.
struct Names<'s> {
    scene: &'s Scene<'s>,
    state: State,
    geography: Blocks,
    block_bytes: u64,
}

impl Scene<'_> {
    /// The patches, with the orders that are missing among them.
    pub fn graph(&self, told: &Told) -> Graph {
        let broken = self.broken();
        let mut ends: Vec<usize> = broken.iter().flat_map(|(a, b)| [*a, *b]).collect();
        if broken.is_empty() {
            ends.extend(self.ends(told));
        }
        let shown = self.shown(&ends);
        let place: BTreeMap<usize, usize> =
            shown.iter().enumerate().map(|(at, of)| (*of, at)).collect();
        let names = Names::new(self);
        let edges = shown.iter().flat_map(|after| {
            let befores = self.patches[*after].befores.iter();
            befores.filter_map(|before| Some((*place.get(after)?, *place.get(before)?)))
        });
        let mut graph = Graph {
            patches: shown.iter().map(|at| names.patch(*at)).collect(),
            edges: edges.collect(),
            missing: Vec::new(),
            left_out: self.patches.len() - shown.len(),
            said: String::new(),
        };
        let patch = |at: &usize| place.get(at).map(|at| End::Patch(*at));
        graph.missing = match (broken.is_empty(), told) {
            (false, _) => broken
                .iter()
                .filter_map(|(after, before)| {
                    Some(Order {
                        after: patch(after)?,
                        befores: vec![patch(before)?],
                        how: How::NotKept,
                    })
                })
                .collect(),
            (true, Told::Patches(found)) => orders(found, &patch),
            (true, Told::Blocks(found, blocks)) => orders(found, &|at| {
                let block = blocks.get(*at)?;
                Some(End::Block(names.block(*block, None)))
            }),
            (true, Told::Nothing(_)) => Vec::new(),
        };
        graph.said = match broken.is_empty() {
            true => said(&graph, told),
            false => "The order was stated, and what was written did not keep it: the fault is in \
                      the store, or the device does what it must not."
                .to_owned(),
        };
        graph
    }

    /// Patches that are on the disk without one that they wait for.
    fn broken(&self) -> Vec<(usize, usize)> {
        let is = |at: usize, state| self.states[at] == state;
        let mut found = Vec::new();
        for (after, patch) in self.patches.iter().enumerate() {
            let befores = patch.befores.iter().filter(|before| {
                is(after, BlockState::OnDisk) && is(**before, BlockState::Missing)
            });
            found.extend(befores.map(|before| (after, *before)));
        }
        found.truncate(MOST_ORDERS);
        found
    }

    /// The patches that a missing order is about.
    fn ends(&self, told: &Told) -> Vec<usize> {
        let of = |found: &Found| -> Vec<usize> {
            let orders = found.orders.iter();
            let ends = orders.flat_map(|order| order.after.iter().chain(&order.befores));
            ends.copied().collect()
        };
        match told {
            Told::Patches(found) => of(found),
            Told::Blocks(found, blocks) => {
                let numbers: BTreeSet<u64> = of(found).iter().map(|at| blocks[*at]).collect();
                let is_meant = |at: &usize| {
                    let patch = &self.patches[*at];
                    patch.in_flight && numbers.contains(&patch.block)
                };
                (0..self.patches.len()).filter(is_meant).collect()
            }
            Told::Nothing(_) => Vec::new(),
        }
    }

    /// The patches that are drawn. Of too many: those of the missing order (if none is known, those
    /// on the disk), with what they wait for, the nearest first, and what waits for them directly.
    fn shown(&self, ends: &[usize]) -> BTreeSet<usize> {
        let count = self.patches.len();
        if count <= MOST_SHOWN {
            return (0..count).collect();
        }
        let befores: Vec<Vec<usize>> = self.patches.iter().map(|p| p.befores.clone()).collect();
        let mut afters = vec![Vec::new(); count];
        for (after, befores) in befores.iter().enumerate() {
            befores
                .iter()
                .for_each(|before| afters[*before].push(after));
        }
        let on_disk = (0..count).filter(|at| self.states[*at] == BlockState::OnDisk);
        let on_disk: Vec<usize> = on_disk.collect();
        let starts = match ends.is_empty() {
            true => &on_disk,
            false => ends,
        };
        let mut shown = BTreeSet::new();
        nearest(starts, &befores, &mut shown);
        let next: Vec<usize> = starts
            .iter()
            .flat_map(|start| &afters[*start])
            .copied()
            .collect();
        nearest(&next, &vec![Vec::new(); count], &mut shown);
        if shown.is_empty() {
            shown.extend(0..MOST_SHOWN);
        }
        shown
    }
}

/// Adds what `next` leads to from some patches, the nearest first, until enough are shown.
fn nearest(starts: &[usize], next: &[Vec<usize>], shown: &mut BTreeSet<usize>) {
    let mut queue: VecDeque<usize> = starts.iter().copied().collect();
    let mut seen = BTreeSet::new();
    while let Some(at) = queue.pop_front() {
        if !seen.insert(at) {
            continue;
        }
        if shown.len() >= MOST_SHOWN {
            return;
        }
        shown.insert(at);
        queue.extend(&next[at]);
    }
}

fn orders(found: &Found, end: &dyn Fn(&usize) -> Option<End>) -> Vec<Order> {
    let order = |order: &crate::missing::Order| {
        let befores: Option<Vec<End>> = order.befores.iter().map(end).collect();
        Some(Order {
            after: match &order.after {
                Some(after) => end(after)?,
                None => End::Promise,
            },
            befores: befores?,
            how: match order.is_reversed {
                true => How::Reversed,
                false => How::Missing,
            },
        })
    };
    found.orders.iter().filter_map(order).collect()
}

/// How certain the missing order is, in sentences.
fn said(graph: &Graph, told: &Told) -> String {
    let found = match told {
        Told::Patches(found) | Told::Blocks(found, _) => found,
        Told::Nothing(why) => return (*why).to_owned(),
    };
    let asked = format!("{} states were judged for this", found.asked);
    let bound = match found.is_cut_short {
        true => format!("; {asked}, the most that are allowed, so others may be missing too."),
        false => format!("; {asked}."),
    };
    let all = match &graph.missing[..] {
        [order] if order.befores.len() > 1 => " (it has to wait for all of these)",
        _ => "",
    };
    match &graph.missing[..] {
        _ if found.is_right => "Judged again, this state was not wrong, so no missing order was \
                                looked for."
            .to_owned(),
        [] => format!(
            "No order between these changes was found that would have forbidden this state{bound}"
        ),
        [order] if order.after == End::Promise => format!(
            "The state is wrong even with none of these changes on the disk, so no order among them \
             forbids it: a promise had been given that did not wait for what is \
             missing{all}{bound}"
        ),
        [order, ..] if order.how == How::Reversed => format!(
            "The state is right once what is missing is there too, but that waits for what is there: \
             the order was stated the wrong way round, or both should be one change{bound}"
        ),
        [_] if found.needs_more => format!(
            "This order would have forbidden the state{all}. Both its ends make the state right only \
             together with what else is on the disk, which other states may lack{bound}"
        ),
        [_] if found.is_only => format!(
            "This order would have forbidden the state, and nothing else would have{all}: with both \
             ends on the disk the state is right; with the later one alone it is wrong, whether \
             nothing else is there or all that can be{bound}"
        ),
        [_] => format!(
            "This order would have forbidden the state{all}, but another one that was not found may \
             be meant: the state is right with both ends on the disk, and also with other \
             changes instead{bound}"
        ),
        several => format!(
            "Each of these {} orders by itself would have forbidden the state{}; the states do \
             not tell which one is meant{bound}",
            several.len(),
            match found.has_more {
                true => ", and others too",
                false => "",
            }
        ),
    }
}

impl<'s> Names<'s> {
    fn new(scene: &'s Scene<'s>) -> Names<'s> {
        let state = Trace::new(scene.trace)
            .and_then(|trace| state_at(&trace, Moment::End, Keep::Live))
            .unwrap_or_else(|_| State::new(Keep::Live));
        let block_bytes = scene.images.first().map_or(1, |image| image.block_bytes());
        Names {
            scene,
            state,
            geography: Blocks::of(scene.images),
            block_bytes: u64::from(block_bytes),
        }
    }

    fn patch(&self, at: usize) -> graph::Patch {
        let pending = &self.scene.patches[at];
        let number = self.scene.recorder.number_of(pending.id);
        let recorded = number.and_then(|number| self.state.patch(number));
        graph::Patch {
            number: number.unwrap_or(0),
            block: self.block(pending.block, Some(pending.class)),
            what: self.what(pending, recorded),
            operation: self.operation(recorded),
            state: self.scene.states[at],
            has_undo: !is_heavy(pending.kind),
        }
    }

    /// A block with what it is for.
    fn block(&self, block: u64, class: Option<BlockClass>) -> String {
        let class = class.or_else(|| {
            let mut of_it = self.scene.patches.iter().filter(|p| p.block == block);
            of_it.next().map(|patch| patch.class)
        });
        let what = match self.geography.what(block) {
            _ if class == Some(BlockClass::Journal) => class_word(BlockClass::Journal).to_owned(),
            Some(Use::Superblock) => "superblock".to_owned(),
            Some(Use::Descriptors | Use::Backup) => "descriptors".to_owned(),
            Some(Use::BlockBitmap(group)) => format!("block bitmap {group}"),
            Some(Use::InodeBitmap(group)) => format!("inode bitmap {group}"),
            Some(Use::Inodes(_)) => "inodes".to_owned(),
            Some(Use::Names(inode)) => format!("names of inode {inode}"),
            Some(Use::Contents(inode, _)) => format!("data of inode {inode}"),
            Some(Use::Pointers(inode)) => format!("pointers of inode {inode}"),
            Some(Use::Attributes(_)) => "attributes".to_owned(),
            Some(Use::Unknown) | None => class.map_or("a block", class_word).to_owned(),
        };
        format!("block {block}: {what}")
    }

    /// What a patch changes of its block.
    fn what(&self, pending: &Pending, recorded: Option<&Patch>) -> String {
        let Some(patch) = recorded.filter(|patch| patch.kind != PatchKind::Run) else {
            return "the whole block".to_owned();
        };
        if let Some(Use::Inodes(first)) = self.geography.what(pending.block)
            && let Some(reader) = self.geography.reader()
        {
            let bytes = u64::from(reader.inode_bytes()).max(1);
            let inodes = patch.changes.iter().filter_map(|change| match change {
                Change::Bytes { offset_bytes, .. } => Some(u64::from(*offset_bytes)),
                Change::Flip { offset_bytes, .. } => Some(u64::from(*offset_bytes)),
                Change::Nothing => None,
            });
            let inodes = inodes.map(|at| first + (self.in_block(patch, at) / bytes) as u32);
            let inodes: BTreeSet<InodeNumber> = inodes.collect();
            let words: Vec<String> = inodes.iter().map(|inode| inode.to_string()).collect();
            return match &words[..] {
                [one] => format!("inode {one}"),
                _ => format!("inodes {}", words.join(", ")),
            };
        }
        let bits = patch.changes.iter().map(|change| match change {
            Change::Flip { mask, .. } => mask.count_ones(),
            _ => 0,
        });
        match (bits.sum::<u32>(), patch.changes.first()) {
            (1, _) => "1 bit".to_owned(),
            (count, _) if count > 0 => format!("{count} bits"),
            (
                _,
                Some(Change::Bytes {
                    offset_bytes,
                    len_bytes,
                }),
            ) => {
                let start = self.in_block(patch, u64::from(*offset_bytes));
                let end = (start + u64::from(*len_bytes)).saturating_sub(1);
                match patch.changes_count {
                    0 | 1 => format!("bytes {start}–{end}"),
                    count => format!("bytes {start}–{end} and {} more", count - 1),
                }
            }
            _ => "bytes of it".to_owned(),
        }
    }

    /// The offset of a patch in its block of the image. The graph's own block may be only a unit of
    /// it.
    fn in_block(&self, patch: &Patch, offset_bytes: u64) -> u64 {
        let place = patch
            .parts
            .first()
            .and_then(|part| self.state.place(part.block));
        let start = place.map_or(0, |place| place.offset_bytes % self.block_bytes);
        start + offset_bytes
    }

    fn operation(&self, recorded: Option<&Patch>) -> String {
        let scopes = recorded.map_or(&[][..], |patch| &patch.scopes);
        let mut labels: Vec<&str> = Vec::new();
        for scope in scopes.iter().filter_map(|scope| self.state.scope(*scope)) {
            if !labels.contains(&scope.label.as_str()) {
                labels.push(&scope.label);
            }
        }
        let Some(first) = labels.first() else {
            return NO_OPERATION.to_owned();
        };
        let mut label: String = first.chars().take(MOST_OF_A_LABEL).collect();
        if label.len() < first.len() {
            label.push('…');
        }
        match labels.len() - 1 {
            0 => label,
            more => format!("{label} and {more} more"),
        }
    }
}
