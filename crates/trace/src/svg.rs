//! A graph as a picture: what is waited for on the left, what waits to the right of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::graph::{Drawing, Drawn, is_heavy};

const NODE_WIDTH: usize = 190;
const NODE_HEIGHT: usize = 38;
const GAP: usize = 12;
const CLUSTER_TITLE: usize = 22;
const COLUMN_GAP: usize = 90;
const MARGIN: usize = 20;
const LEGEND: usize = 40;

/// How often levels are worked out anew: a chain that is longer is drawn as one of this length.
const MOST_LEVELS: usize = 200;

/// Of each node: how long the longest chain of what it waits for is.
fn levels(drawing: &Drawing) -> Vec<usize> {
    let place: BTreeMap<u64, usize> =
        (drawing.nodes.iter().enumerate().map(|(i, n)| (n.patch, i))).collect();
    let edges = drawing.edges.iter();
    let edges: Vec<(usize, usize)> = edges
        .filter_map(|(after, before)| Some((*place.get(after)?, *place.get(before)?)))
        .collect();
    let mut levels = vec![0; drawing.nodes.len()];
    for _ in 0..MOST_LEVELS {
        let mut has_changed = false;
        for (after, before) in &edges {
            if levels[*after] <= levels[*before] {
                levels[*after] = levels[*before] + 1;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    levels
        .iter()
        .map(|level| *level.min(&MOST_LEVELS))
        .collect()
}

fn text(words: &str) -> String {
    let clean = words.chars().filter(|c| !c.is_control());
    let clean: String = clean.collect();
    let clean = clean.replace('&', "&amp;").replace('<', "&lt;");
    clean.replace('>', "&gt;").replace('"', "&quot;")
}

/// At most so many characters fit into a node.
fn short(words: &str) -> String {
    const MOST: usize = 30;
    match words.chars().count() > MOST {
        true => words.chars().take(MOST - 1).chain(['…']).collect(),
        false => words.to_owned(),
    }
}

pub(crate) fn draw(drawing: &Drawing) -> String {
    let levels = levels(drawing);
    let mut columns: BTreeMap<usize, Vec<(&str, Vec<usize>)>> = BTreeMap::new();
    for (name, nodes) in drawing.clusters() {
        let level = nodes.iter().map(|node| levels[*node]).min().unwrap_or(0);
        columns.entry(level).or_default().push((name, nodes));
    }
    let mut body = String::new();
    let mut at: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    let (mut x, mut height) = (MARGIN, 0);
    for clusters in columns.values() {
        let mut y = MARGIN + LEGEND;
        for (name, nodes) in clusters {
            draw_cluster(drawing, name, nodes, (x, &mut y), &mut at, &mut body);
        }
        height = height.max(y);
        x += NODE_WIDTH + 2 * GAP + COLUMN_GAP;
    }
    let width = x.max(4 * 130 + 2 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"11\" role=\"img\" aria-label=\"Patch graph\">\n\
         <style>svg{{background:#fff}}.e{{fill:none;stroke:#566573;marker-end:url(#a)}}</style>\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#566573\"/></marker></defs>\n",
        height + MARGIN
    );
    for (index, drawn) in Drawn::ALL.into_iter().enumerate() {
        let x = MARGIN + index * 130;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{MARGIN}\" width=\"16\" height=\"16\" fill=\"{}\" stroke=\"#566573\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            drawn.colour(),
            x + 22,
            MARGIN + 12,
            drawn.word()
        );
    }
    out += &body;
    for (after, before) in &drawing.edges {
        let (Some((ax, ay)), Some((bx, by))) = (at.get(after), at.get(before)) else {
            continue;
        };
        let (ay, by) = (ay + NODE_HEIGHT / 2, by + NODE_HEIGHT / 2);
        // Within a column it goes around on the left.
        let end_x = if ax == bx { *bx } else { bx + NODE_WIDTH };
        let bend = if ax == bx { 2 * GAP } else { COLUMN_GAP / 2 };
        let (from_x, to_x) = match ax < bx {
            true => (ax + NODE_WIDTH, *bx),
            false => (*ax, end_x),
        };
        let (from_bend, to_bend) = match (ax < bx, ax == bx) {
            (true, _) => (from_x + bend, to_x.saturating_sub(bend)),
            (_, true) => (from_x.saturating_sub(bend), to_x.saturating_sub(bend)),
            _ => (from_x.saturating_sub(bend), to_x + bend),
        };
        let _ = writeln!(
            out,
            "<path class=\"e\" d=\"M{from_x} {ay}C{from_bend} {ay} {to_bend} {by} {to_x} {by}\">\
             <title>p{after} waits for p{before}</title></path>"
        );
    }
    out += "</svg>\n";
    out
}

fn draw_cluster(
    drawing: &Drawing,
    name: &str,
    nodes: &[usize],
    (x, y): (usize, &mut usize),
    at: &mut BTreeMap<u64, (usize, usize)>,
    out: &mut String,
) {
    let inner = CLUSTER_TITLE + nodes.len() * (NODE_HEIGHT + GAP);
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{inner}\" rx=\"6\" fill=\"#eef1f4\" \
         stroke=\"#b3bac2\"/><text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        NODE_WIDTH + 2 * GAP,
        x + GAP,
        *y + 15,
        text(&short(name))
    );
    let mut node_y = *y + CLUSTER_TITLE;
    for node in nodes.iter().map(|node| &drawing.nodes[*node]) {
        at.insert(node.patch, (x + GAP, node_y));
        let width = if is_heavy(node.kind) { 3 } else { 1 };
        let _ = writeln!(
            out,
            "<g><title>p{}: {}, {}</title><rect x=\"{}\" y=\"{node_y}\" width=\"{NODE_WIDTH}\" \
             height=\"{NODE_HEIGHT}\" rx=\"10\" fill=\"{}\" stroke=\"#2c3e50\" \
             stroke-width=\"{width}\"/><text x=\"{}\" y=\"{}\">p{} {}</text>\
             <text x=\"{}\" y=\"{}\">{}</text></g>",
            node.patch,
            text(&node.label),
            node.drawn.word(),
            x + GAP,
            node.drawn.colour(),
            x + 2 * GAP,
            node_y + 15,
            node.patch,
            node.drawn.word(),
            x + 2 * GAP,
            node_y + 30,
            text(&short(&node.label)),
        );
        node_y += NODE_HEIGHT + GAP;
    }
    *y += inner + GAP;
}
