//! What a step changes in a graph that is drawn patch by patch: much less than the graph itself.

use std::cmp::Ordering;

use serde_json::{Value, json};

/// The changes from a graph, which is the one after `since`, to another one; `None` where one of them
/// is not drawn patch by patch.
pub(crate) fn changes(old: &Value, new: &Value, since: u64) -> Option<Value> {
    let list = |graph: &'static str| Some((old[graph].as_array()?, new[graph].as_array()?));
    let (old_nodes, new_nodes) = list("nodes")?;
    let (old_edges, new_edges) = list("edges")?;
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or(0);
    let (nodes, gone) = differences(old_nodes, new_nodes, |node| number(node, "patch"));
    let (edges, edges_gone) = differences(old_edges, new_edges, |edge| {
        (number(edge, "after"), number(edge, "before"))
    });
    Some(json!({
        "since": since,
        "nodes": nodes,
        "gone": gone,
        "edges": edges,
        "edges_gone": edges_gone,
        "edges_left_out": new["edges_left_out"],
        "patches_left_out": new["patches_left_out"],
    }))
}

/// What of the second list is not in the first, and the keys of what is in the first only. Both are
/// sorted by their keys.
fn differences<'v, K: Ord>(
    old: &[Value],
    new: &'v [Value],
    key: impl Fn(&Value) -> K,
) -> (Vec<&'v Value>, Vec<K>) {
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return (changed, gone),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => key(a).cmp(&key(b)),
        };
        let was = old.next_if(|_| order.is_le());
        match new.next_if(|_| order.is_ge()) {
            Some(is) if was != Some(is) => changed.push(is),
            Some(_) => {}
            None => gone.extend(was.map(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_not_told() {
        let graph = |nodes: &[(u64, &str)], edges: &[(u64, u64)]| {
            let nodes = nodes
                .iter()
                .map(|(p, label)| json!({"patch": p, "label": label}));
            let edges = edges.iter().map(|(a, b)| json!({"after": a, "before": b}));
            let (nodes, edges): (Vec<_>, Vec<_>) = (nodes.collect(), edges.collect());
            json!({"nodes": nodes, "edges": edges, "edges_left_out": 3, "patches_left_out": 0})
        };
        let old = graph(&[(1, "a"), (2, "b"), (4, "d")], &[(2, 1), (4, 1), (4, 2)]);
        let new = graph(&[(2, "b"), (3, "c"), (4, "D"), (5, "e")], &[(3, 2), (4, 2)]);
        let told = changes(&old, &new, 7).unwrap();
        let expected = graph(&[(3, "c"), (4, "D"), (5, "e")], &[(3, 2)]);
        assert_eq!(
            (&told["nodes"], &told["edges"]),
            (&expected["nodes"], &expected["edges"])
        );
        assert_eq!((&told["gone"], &told["since"]), (&json!([1]), &json!(7)));
        assert_eq!(told["edges_gone"], json!([[2, 1], [4, 1]]));
        assert_eq!(told["edges_left_out"], 3);
        assert_eq!(changes(&new, &new, 0).unwrap()["nodes"], json!([]));
        assert!(changes(&json!({"clusters": []}), &new, 0).is_none());
    }
}
