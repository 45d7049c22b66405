//! The patches of a failing moment, and which order among them is missing.

use std::collections::BTreeSet;

use backstitch_trace::picture::{self, Arrow, Look, Picture};
use serde::{Deserialize, Serialize};

use super::BlockState;

/// A patch of the moment: it was in memory, or on its way to the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Its number, which a [trace](backstitch_trace) of the same run uses too; later patches have
    /// larger ones. 0 if it is not known.
    pub number: u64,
    /// The block that it changes, with what that is for.
    pub block: String,
    /// What it changes there.
    pub what: String,
    /// The operations that it belongs to.
    pub operation: String,
    /// Whether it is on the disk.
    pub state: BlockState,
    /// Whether its block can be written without it.
    pub has_undo: bool,
}

/// One side of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum End {
    /// The patch at this place of the list.
    Patch(usize),
    /// All changes of this block, which was written as a whole. The name is that which patches give
    /// it.
    Block(String),
    /// A promise that was given, above all an `fsync` that had returned.
    Promise,
}

/// An order that would have forbidden the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What is on the disk and should have waited.
    pub after: End,
    /// What is not on the disk and should have been waited for: all of these.
    pub befores: Vec<End>,
    /// Whether it was missing, reversed or not kept.
    pub how: How,
}

/// The most ends that the line of an order names.
const MOST_IN_A_LINE: usize = 3;

/// What is wrong with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Nobody stated it.
    #[serde(rename = "missing")]
    Missing,
    /// It was stated the other way round.
    #[serde(rename = "reversed")]
    Reversed,
    /// It was stated, and what was written did not keep it.
    #[serde(rename = "not kept")]
    NotKept,
}

/// The patches of a failing moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// The patches that are shown.
    pub patches: Vec<Patch>,
    /// Which of them waits for which, as places in the list: first the one that waits.
    pub edges: Vec<(usize, usize)>,
    /// Orders each of which would have forbidden the state; empty where none can be told.
    pub missing: Vec<Order>,
    /// Patches of the moment that are not shown.
    pub left_out: usize,
    /// How certain the missing orders are, in sentences.
    pub said: String,
}

impl Patch {
    /// What it is called: `p` and its number.
    pub fn name(&self) -> String {
        format!("p{}", self.number)
    }
}

impl How {
    fn word(self) -> &'static str {
        match self {
            How::Missing => "missing",
            How::Reversed => "reversed",
            How::NotKept => "not kept",
        }
    }

    /// The verb of a sentence whose subject is the side that should have waited.
    fn verb(self) -> &'static str {
        match self {
            How::Missing => "did not have to wait for",
            How::Reversed => "did not have to wait, but is waited for by",
            How::NotKept => "had to wait, and did not, for",
        }
    }
}

const ON_DISK: Look = Look {
    word: "on the disk",
    fill: "#a9dfbf",
    is_dashed: false,
};
const NOT_ON_DISK: Look = Look {
    word: "not on the disk",
    fill: "#ffffff",
    is_dashed: true,
};
const TORN: Look = Look {
    word: "in part",
    fill: "#f9d28f",
    is_dashed: true,
};
const PROMISE: Look = Look {
    word: "a promise",
    fill: "#d6e4f5",
    is_dashed: false,
};

fn look(state: BlockState) -> Look {
    match state {
        BlockState::OnDisk => ON_DISK,
        BlockState::Missing => NOT_ON_DISK,
        BlockState::Torn => TORN,
    }
}

impl Graph {
    /// An end of an order in words.
    pub fn in_words(&self, end: &End) -> String {
        match end {
            End::Patch(at) => match self.patches.get(*at) {
                Some(patch) => {
                    let Patch {
                        block,
                        what,
                        operation,
                        ..
                    } = patch;
                    format!("{} ({block}, {what}; {operation})", patch.name())
                }
                None => "a patch that is not shown".to_owned(),
            },
            End::Block(block) => block.clone(),
            End::Promise => "what was promised".to_owned(),
        }
    }

    /// Each missing order in a line.
    pub fn lines(&self) -> Vec<String> {
        let orders = self.missing.iter();
        let line = |order: &Order| {
            let befores = order.befores.iter().take(MOST_IN_A_LINE);
            let mut befores: Vec<String> = befores.map(|before| self.in_words(before)).collect();
            if let Some(more @ 1..) = order.befores.len().checked_sub(MOST_IN_A_LINE) {
                befores.push(format!("{more} more"));
            }
            let (after, how) = (self.in_words(&order.after), order.how.verb());
            format!("{after} {how} {}", befores.join(", and for "))
        };
        orders.map(line).collect()
    }

    /// The picture, as it is in the page. `name` makes its ids unique among the pictures of the
    /// page.
    pub fn inline_svg(&self, name: &str) -> String {
        let mut nodes: Vec<picture::Node> = self.patches.iter().map(boxed).collect();
        let promise = nodes.len();
        let is_promise = |order: &Order| order.after == End::Promise;
        let mut looks = vec![ON_DISK, NOT_ON_DISK];
        if self.patches.iter().any(|p| p.state == BlockState::Torn) {
            looks.push(TORN);
        }
        if self.missing.iter().any(is_promise) {
            looks.push(PROMISE);
            nodes.push(picture::Node {
                cluster: "What was promised".to_owned(),
                lines: vec![
                    "a promise".to_owned(),
                    "was given: what it is about".to_owned(),
                    "must be on the disk".to_owned(),
                ],
                title: "what was promised must be on the disk".to_owned(),
                look: PROMISE,
                is_heavy: false,
            });
        }
        let end = |end: &End| match end {
            End::Patch(at) => picture::End::Node(*at),
            End::Block(block) => picture::End::Cluster(block.clone()),
            End::Promise => picture::End::Node(promise),
        };
        let loud: Vec<Arrow> = self.loud(&end).collect();
        let ends: BTreeSet<(usize, usize)> = loud
            .iter()
            .filter_map(|arrow| match (&arrow.after, &arrow.before) {
                (picture::End::Node(after), picture::End::Node(before)) => Some((*after, *before)),
                _ => None,
            })
            .collect();
        // An order that was stated and not kept is drawn only once.
        let stated = self.edges.iter().filter(|edge| !ends.contains(edge));
        let stated = stated.map(|(after, before)| Arrow {
            after: picture::End::Node(*after),
            before: picture::End::Node(*before),
            emphasis: None,
            title: format!("{} waits for {}", self.name(*after), self.name(*before)),
        });
        let arrows = stated.chain(loud.iter().cloned()).collect();
        let picture = Picture {
            name: name.to_owned(),
            about: format!(
                "The {} patches that are shown, what waits for what, and what is on the disk. {}",
                self.patches.len(),
                self.said
            ),
            legend: looks,
            nodes,
            arrows,
        };
        picture.inline_svg()
    }

    fn name(&self, at: usize) -> String {
        self.patches.get(at).map_or_else(String::new, Patch::name)
    }

    /// The arrows of the missing orders.
    fn loud<'g>(
        &'g self,
        end: &'g dyn Fn(&End) -> picture::End,
    ) -> impl Iterator<Item = Arrow> + 'g {
        self.missing.iter().flat_map(move |order| {
            order
                .befores
                .iter()
                .enumerate()
                .map(move |(number, before)| {
                    let (after, it) = (self.in_words(&order.after), self.in_words(before));
                    Arrow {
                        after: end(&order.after),
                        before: end(before),
                        // The label stands once at all arrows that leave one end.
                        emphasis: Some(match number {
                            0 => order.how.word(),
                            _ => "",
                        }),
                        title: format!("{after} {} {it}", order.how.verb()),
                    }
                })
        })
    }
}

fn boxed(patch: &Patch) -> picture::Node {
    let look = look(patch.state);
    picture::Node {
        cluster: patch.block.clone(),
        lines: vec![
            format!("{} {}", patch.name(), look.word),
            patch.what.clone(),
            patch.operation.clone(),
        ],
        title: format!(
            "{}: {}, {}, {}, {}{}",
            patch.name(),
            look.word,
            patch.block,
            patch.what,
            patch.operation,
            match patch.has_undo {
                true => "",
                false => "; its block cannot be written without it",
            }
        ),
        look,
        is_heavy: !patch.has_undo,
    }
}
