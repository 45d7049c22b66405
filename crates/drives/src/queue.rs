//! The host's queue: the elevator, and which request has to wait for which.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::request::{Flag, Kind, Request, RequestId};
use crate::spec::Policy;

/// A request that is not done, or not on the medium.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    pub(crate) submitted_ns: u64,
    /// Whether the drive has it.
    pub(crate) is_dispatched: bool,
    /// Whether it is done; it may not be on the medium yet.
    pub(crate) is_done: bool,
    /// Whether it is on the medium; it may not be done yet.
    pub(crate) is_stable: bool,
}

/// A request that waits for others, or that others wait for. A fence is no request: it stands for
/// all requests before it, so that later ones need one edge each.
#[derive(Debug, Default)]
struct Node {
    is_fence: bool,
    /// How many of its predecessors have not reached the drive.
    undispatched: u32,
    /// How many of its predecessors are not on the medium.
    unstable: u32,
    successors: Vec<u64>,
}

/// Which requests wait for which. Requests without any order are not here.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    nodes: FxHashMap<u64, Node>,
    /// The nodes that every later write waits for.
    gates: Vec<u64>,
    /// Writes behind the last fence.
    members: Vec<u64>,
    /// Requests whose last predecessor has just reached the drive.
    pub(crate) sendable: Vec<RequestId>,
    /// Requests whose last predecessor has just reached the medium.
    pub(crate) free: Vec<RequestId>,
}

impl Orders {
    /// Adds a request. `unused` is a number that no request has.
    fn add(&mut self, id: u64, request: &Request, live: &FxHashMap<u64, Entry>, unused: &mut u64) {
        for predecessor in &request.predecessors {
            self.edge(predecessor.0, id, live);
        }
        if !request.kind.is_write() {
            return;
        }
        if request.flag == Some(Flag::Full) {
            self.fence(live, unused);
        }
        self.gates
            .retain(|gate| is_unstable(live, *gate) || self.nodes.contains_key(gate));
        for gate in self.gates.clone() {
            self.edge(gate, id, live);
        }
        self.members.push(id);
        if self.members.len().is_power_of_two() {
            self.members
                .retain(|member| *member == id || is_unstable(live, *member));
        }
        match request.flag {
            None => {}
            // It waits for the earlier gates, so it alone can stand for them.
            Some(Flag::Part) => self.gates = vec![id],
            Some(Flag::Back | Flag::Full) => {
                self.members.retain(|member| *member != id);
                self.fence(live, unused);
                self.gates.push(id);
            }
        }
    }

    /// Makes everything that comes later wait until everything before is on the medium.
    fn fence(&mut self, live: &FxHashMap<u64, Entry>, unused: &mut u64) {
        let fence = *unused;
        let members = std::mem::take(&mut self.members);
        for before in self.gates.drain(..).chain(members).collect::<Vec<_>>() {
            self.edge(before, fence, live);
        }
        if let Some(node) = self.nodes.get_mut(&fence) {
            *unused += 1;
            node.is_fence = true;
            self.gates.push(fence);
        }
    }

    fn edge(&mut self, before: u64, after: u64, live: &FxHashMap<u64, Entry>) {
        let is_fence = self.nodes.get(&before).is_some_and(|node| node.is_fence);
        if before == after || !is_fence && !is_unstable(live, before) {
            return;
        }
        let is_away = live.get(&before).is_some_and(|entry| entry.is_dispatched)
            || is_fence && self.nodes[&before].undispatched == 0;
        let node = self.nodes.entry(before).or_default();
        node.successors.push(after);
        let node = self.nodes.entry(after).or_default();
        node.undispatched += u32::from(!is_away);
        node.unstable += 1;
    }

    /// Whether it may be sent to a drive that keeps the order.
    pub(crate) fn is_sendable(&self, id: RequestId) -> bool {
        self.nodes
            .get(&id.0)
            .is_none_or(|node| node.undispatched == 0)
    }

    /// Whether everything that it waits for is on the medium.
    pub(crate) fn is_free(&self, id: RequestId) -> bool {
        self.nodes.get(&id.0).is_none_or(|node| node.unstable == 0)
    }

    /// Whether a request waits for it to be on the medium.
    pub(crate) fn is_awaited(&self, id: RequestId) -> bool {
        self.nodes
            .get(&id.0)
            .is_some_and(|node| !node.successors.is_empty())
    }

    /// Notes that the drive has it.
    pub(crate) fn dispatched(&mut self, id: RequestId) {
        let mut todo = vec![id.0];
        while let Some(id) = todo.pop() {
            for after in self
                .nodes
                .get(&id)
                .map_or(Vec::new(), |n| n.successors.clone())
            {
                let Some(node) = self.nodes.get_mut(&after) else {
                    continue;
                };
                node.undispatched -= 1;
                match (node.undispatched, node.is_fence) {
                    (0, true) => todo.push(after),
                    (0, false) => self.sendable.push(RequestId(after)),
                    _ => {}
                }
            }
        }
    }

    /// Notes that it is on the medium.
    pub(crate) fn stable(&mut self, id: RequestId) {
        let mut todo = vec![id.0];
        while let Some(id) = todo.pop() {
            for after in self.nodes.remove(&id).map_or(Vec::new(), |n| n.successors) {
                let Some(node) = self.nodes.get_mut(&after) else {
                    continue;
                };
                node.unstable -= 1;
                match (node.unstable, node.is_fence) {
                    (0, true) => todo.push(after),
                    (0, false) => self.free.push(RequestId(after)),
                    _ => {}
                }
            }
        }
    }

    /// All requests that a request waits for, directly or through fences, and that are not on the
    /// medium.
    pub(crate) fn predecessors(&self, id: RequestId) -> Vec<RequestId> {
        let (mut found, mut todo) = (BTreeSet::new(), vec![id.0]);
        while let Some(id) = todo.pop() {
            for (before, node) in self
                .nodes
                .iter()
                .filter(|(_, n)| n.successors.contains(&id))
            {
                if node.is_fence {
                    todo.push(*before);
                } else {
                    found.insert(RequestId(*before));
                }
            }
        }
        found.into_iter().collect()
    }
}

fn is_unstable(live: &FxHashMap<u64, Entry>, id: u64) -> bool {
    live.get(&id).is_some_and(|entry| !entry.is_stable)
}

/// The elevator with the requests in it.
#[derive(Debug)]
enum Elevator {
    Fifo(BTreeSet<RequestId>),
    CLook(BTreeSet<(u64, RequestId)>),
    Fscan {
        next: BTreeSet<(u64, RequestId)>,
        batch: BTreeSet<(u64, RequestId)>,
        is_upwards: bool,
    },
    Sptf(BTreeSet<RequestId>),
}

/// How many of the oldest requests the host compares for the shortest positioning time.
const SPTF_WINDOW: usize = 128;

/// The host's queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) entries: FxHashMap<u64, Entry>,
    pub(crate) orders: Orders,
    elevator: Elevator,
    /// The sector behind the request that was taken last.
    position: u64,
    /// Flushes, which no elevator sorts.
    flushes: VecDeque<RequestId>,
    next_id: u64,
}

impl Queue {
    pub(crate) fn new(policy: Policy) -> Queue {
        Queue {
            entries: FxHashMap::default(),
            orders: Orders::default(),
            elevator: match policy {
                Policy::Fifo => Elevator::Fifo(BTreeSet::new()),
                Policy::CLook => Elevator::CLook(BTreeSet::new()),
                Policy::Fscan => Elevator::Fscan {
                    next: BTreeSet::new(),
                    batch: BTreeSet::new(),
                    is_upwards: false,
                },
                Policy::Sptf => Elevator::Sptf(BTreeSet::new()),
            },
            position: 0,
            flushes: VecDeque::new(),
            next_id: 0,
        }
    }

    /// Adds a request. The caller admits it to the elevator when it may be sent.
    pub(crate) fn add(&mut self, request: &Request, now_ns: u64) -> RequestId {
        let id = self.next_id;
        self.next_id += 1;
        (self.orders).add(id, request, &self.entries, &mut self.next_id);
        let entry = Entry {
            kind: request.kind,
            sector: request.sector,
            sectors: request.sectors,
            submitted_ns: now_ns,
            is_dispatched: false,
            is_done: false,
            is_stable: false,
        };
        self.entries.insert(id, entry);
        RequestId(id)
    }

    /// Puts a request that may be sent into the elevator.
    pub(crate) fn admit(&mut self, id: RequestId) {
        let Some(entry) = self.entries.get(&id.0) else {
            return;
        };
        if entry.kind == Kind::Flush {
            self.flushes.push_back(id);
            return;
        }
        match &mut self.elevator {
            Elevator::Fifo(set) | Elevator::Sptf(set) => set.insert(id),
            Elevator::CLook(set) => set.insert((entry.sector, id)),
            Elevator::Fscan { batch, .. } => batch.insert((entry.sector, id)),
        };
    }

    /// Takes out the next request. `cost` gives the positioning time for a sector, and for reading
    /// or writing.
    pub(crate) fn take(&mut self, cost: impl Fn(u64, bool) -> u64) -> Option<RequestId> {
        if let Some(id) = self.flushes.pop_front() {
            return Some(id);
        }
        let from = (self.position, RequestId(0));
        let id = match &mut self.elevator {
            Elevator::Fifo(set) => set.pop_first(),
            Elevator::CLook(set) => {
                let found = set.range(from..).next().or_else(|| set.first()).copied();
                if let Some(found) = &found {
                    set.remove(found);
                }
                found.map(|found| found.1)
            }
            Elevator::Fscan {
                next,
                batch,
                is_upwards,
            } => {
                if next.is_empty() {
                    std::mem::swap(next, batch);
                    *is_upwards = !*is_upwards;
                }
                let found = match *is_upwards {
                    true => next.pop_first(),
                    false => next.pop_last(),
                };
                found.map(|found| found.1)
            }
            Elevator::Sptf(set) => {
                let entries = &self.entries;
                let of = |id: &RequestId| {
                    let entry = &entries[&id.0];
                    (cost(entry.sector, entry.kind.is_write()), *id)
                };
                let best = set.iter().take(SPTF_WINDOW).map(of).min();
                if let Some((_, id)) = &best {
                    set.remove(id);
                }
                best.map(|best| best.1)
            }
        }?;
        let entry = &self.entries[&id.0];
        self.position = entry.sector + u64::from(entry.sectors);
        Some(id)
    }

    /// Whether the elevator moves upwards; `None` for elevators without two lists.
    pub(crate) fn is_upwards(&self) -> Option<bool> {
        match self.elevator {
            Elevator::Fscan { is_upwards, .. } => Some(is_upwards),
            _ => None,
        }
    }
}
