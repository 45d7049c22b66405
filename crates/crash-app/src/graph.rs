//! The patches of a failing state, and the order among them that the program did not ask for.

use backstitch_crash_core::frontier::{Node, States};
use backstitch_crash_core::mount::Recorder;
use backstitch_crash_core::report::BlockState;
use backstitch_crash_core::report::graph::{End, Graph, Patch};
use backstitch_crash_core::scene::{NO_OPERATION, Scene, Told};

/// The most states that are checked to find the missing order. Each takes a run of the user's
/// check.
pub(crate) const MOST_ASKED: u32 = 40;

/// The explanation where a named state is replayed and no missing order is looked for.
pub(crate) const NOT_ASKED: &str =
    "Only this state was checked, so no missing order was looked for.";

/// The patches of a moment, of which `included` are on the disk; and the trace of the run up to it.
pub(crate) fn graph(
    recorder: &Recorder,
    nodes: &[Node],
    states: &mut States,
    included: &[bool],
    told: &Told,
) -> (Graph, Vec<u8>) {
    let images = [vec![true; nodes.len()], included.to_vec()];
    let images = images.map(|set| states.fork(nodes, &set));
    let of = |is: &bool| match is {
        true => BlockState::OnDisk,
        false => BlockState::Missing,
    };
    let on_disk: Vec<BlockState> = included.iter().map(of).collect();
    let trace = recorder.finish();
    let scene = Scene {
        patches: &states.pending(nodes),
        states: &on_disk,
        images: &[&images[0], &images[1]],
        recorder,
        trace: &trace,
    };
    let mut graph = scene.graph(told);
    if let Some(advice) = advice(&graph) {
        graph.said = format!("{} {advice}", graph.said);
    }
    (graph, trace)
}

/// What the program could have done.
fn advice(graph: &Graph) -> Option<String> {
    let [order] = &graph.missing[..] else {
        return None;
    };
    let patch = |end: &End| match end {
        End::Patch(at) => graph.patches.get(*at),
        End::Block(_) | End::Promise => None,
    };
    let befores: Option<Vec<&Patch>> = order.befores.iter().map(patch).collect();
    let last = befores?.into_iter().max_by_key(|before| before.number)?;
    let earlier = &last.operation;
    if earlier == NO_OPERATION {
        return None;
    }
    if order.after == End::Promise {
        return Some(format!(
            "An fsync of what \"{earlier}\" changed, before the program relied on it, would have waited."
        ));
    }
    let after = patch(&order.after)?;
    let is_later = after.number > last.number && after.operation != last.operation;
    is_later.then(|| {
        format!(
            "An fsync of what \"{earlier}\" changed, before \"{}\", would have stated it; so would a \
             patchgroup.",
            after.operation
        )
    })
}
