//! A graph as a picture: what is waited for on the left, what waits to the right of it.
//!
//! Clusters stand in columns. An arrow inside a column, or one that leads from left to right, belongs
//! to blocks that wait for each other, of which one has to be rolled back.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

use crate::graph::{Drawing, Drawn, Node, is_heavy};
use crate::markup::{levels, short, text};

const LINE_HEIGHT: usize = 15;
/// Of a node: what its lines leave free.
const PADDING: usize = 7;
const GAP: usize = 12;
const CLUSTER_TITLE: usize = 24;
const COLUMN_GAP: usize = 80;
const MARGIN: usize = 20;
const LEGEND_LINE: usize = 24;
/// The width of a letter, about: no font is at hand to measure with.
const LETTER: usize = 7;
/// Letters of a line in a node: fewer leave room for nothing else, and more make the picture wide.
const LETTERS: RangeInclusive<usize> = 16..=36;
/// Letters of a title that a cluster becomes wider for.
const TITLE_LETTERS: usize = 34;
/// Where arrows leave and reach the side of a node, so that an arrow that comes is not taken for the
/// end of one that goes: those to the left, those to the right.
const TO_THE_LEFT: usize = 14;
const TO_THE_RIGHT: usize = 46;
/// Those inside a column, at the end that is higher and at the other one.
const ABOVE: usize = 38;
const BELOW: usize = 26;

/// How far below its ends a long level arrow is pulled: enough to come out under a node.
const SAG: usize = 72;

const LINE: &str = "#566573";
const TEXT: &str = "#1b2631";

/// What a node says.
fn lines(node: &Node) -> Vec<String> {
    let mut lines = vec![
        format!("p{} {}", node.patch, node.standing()),
        node.label.clone(),
    ];
    lines.extend(node.about.iter().cloned());
    lines.extend(node.blocks.iter().map(|block| format!("· {block}")));
    lines
}

fn node_height(node: &Node) -> usize {
    lines(node).len() * LINE_HEIGHT + PADDING
}

struct Cluster<'d> {
    name: &'d str,
    column: usize,
    height: usize,
    /// Letters of a line; the same in all of a column.
    letters: usize,
    /// Where it is drawn.
    x: usize,
    y: usize,
}

impl Cluster<'_> {
    fn node_width(&self) -> usize {
        self.letters * LETTER + GAP
    }

    fn width(&self) -> usize {
        self.node_width() + 2 * GAP
    }
}

struct Layout<'d> {
    drawing: &'d Drawing,
    /// From the left to the right: each after all that its own is chiefly waiting for.
    clusters: Vec<Cluster<'d>>,
    /// Which waits for which, as indices of nodes.
    edges: Vec<(usize, usize)>,
    /// Of each node: its cluster, and how far below the cluster's top it begins.
    homes: Vec<(usize, usize)>,
}

impl<'d> Layout<'d> {
    fn of(drawing: &'d Drawing) -> Layout<'d> {
        let place: BTreeMap<u64, usize> =
            (drawing.nodes.iter().enumerate().map(|(i, n)| (n.patch, i))).collect();
        let edges = drawing.edges.iter();
        let edges: Vec<(usize, usize)> = edges
            .filter_map(|(after, before)| Some((*place.get(after)?, *place.get(before)?)))
            .collect();
        let levels = levels(drawing.nodes.len(), &edges);
        let mut named: Vec<(&str, Vec<usize>)> = drawing.clusters().into_iter().collect();
        // Blocks may wait for each other, so there need be no order that every arrow keeps: what can
        // go first decides, and then the mean of the levels.
        named.sort_by_key(|(_, nodes)| {
            let of_nodes = nodes.iter().map(|node| levels[*node]);
            let sum: usize = of_nodes.clone().sum();
            (of_nodes.min(), sum * 1_000 / nodes.len().max(1))
        });
        let mut clusters = Vec::with_capacity(named.len());
        let mut homes = vec![(0, 0); drawing.nodes.len()];
        for (index, (name, mut nodes)) in named.into_iter().enumerate() {
            nodes.sort_by_key(|node| (levels[*node], drawing.nodes[*node].patch));
            let mut height = CLUSTER_TITLE;
            // Bold letters are wider.
            let mut letters = (name.chars().count() + 2).min(TITLE_LETTERS);
            for node in &nodes {
                homes[*node] = (index, height);
                height += node_height(&drawing.nodes[*node]) + GAP;
                let lines = lines(&drawing.nodes[*node]);
                letters = lines
                    .iter()
                    .fold(letters, |most, l| most.max(l.chars().count()));
            }
            clusters.push(Cluster {
                name,
                column: 0,
                height,
                letters: letters.clamp(*LETTERS.start(), *LETTERS.end()),
                x: 0,
                y: 0,
            });
        }
        let mut layout = Layout {
            drawing,
            clusters,
            edges,
            homes,
        };
        layout.choose_columns();
        layout
    }

    /// Each cluster stands to the right of what it waits for, but for what comes after it in order.
    fn choose_columns(&mut self) {
        let mut ways: Vec<(usize, usize)> = (self.edges.iter())
            .map(|(after, before)| (self.homes[*after].0, self.homes[*before].0))
            .filter(|(after, before)| after > before)
            .collect();
        ways.sort_unstable();
        for (after, before) in ways {
            let least = self.clusters[before].column + 1;
            self.clusters[after].column = self.clusters[after].column.max(least);
        }
    }

    /// Places all clusters below `top`. Within a column they follow the height of what they wait for.
    /// The size of it all.
    fn place(&mut self, top: usize) -> (usize, usize) {
        let columns = self
            .clusters
            .iter()
            .map(|c| c.column + 1)
            .max()
            .unwrap_or(0);
        let mut of_column = vec![Vec::new(); columns];
        for (index, cluster) in self.clusters.iter().enumerate() {
            of_column[cluster.column].push(index);
        }
        let mut befores = vec![Vec::new(); self.clusters.len()];
        for (after, before) in &self.edges {
            befores[self.homes[*after].0].push(*before);
        }
        let (mut x, mut bottom) = (MARGIN, top);
        for (column, mut here) in of_column.into_iter().enumerate() {
            here.sort_by_cached_key(|cluster| self.mean_height(&befores[*cluster], column));
            let letters = here
                .iter()
                .map(|cluster| self.clusters[*cluster].letters)
                .max();
            let (mut y, mut width) = (top, 0);
            for cluster in here {
                let cluster = &mut self.clusters[cluster];
                cluster.letters = letters.unwrap_or(cluster.letters);
                (cluster.x, cluster.y) = (x, y);
                y += cluster.height + GAP;
                width = cluster.width();
            }
            bottom = bottom.max(y);
            x += width + COLUMN_GAP;
        }
        ((x + MARGIN).saturating_sub(COLUMN_GAP), bottom)
    }

    /// The mean height of those of the nodes that stand to the left of a column.
    fn mean_height(&self, nodes: &[usize], column: usize) -> usize {
        let is_left = |node: &&usize| self.clusters[self.homes[**node].0].column < column;
        let heights = nodes
            .iter()
            .filter(is_left)
            .map(|node| self.corner(*node).1);
        let (sum, count) = heights.fold((0, 0), |(sum, count), y| (sum + y, count + 1));
        sum / usize::max(count, 1)
    }

    /// The upper left corner of a node.
    fn corner(&self, node: usize) -> (usize, usize) {
        let cluster = self.cluster(node);
        (cluster.x + GAP, cluster.y + self.homes[node].1)
    }

    fn cluster(&self, node: usize) -> &Cluster<'d> {
        &self.clusters[self.homes[node].0]
    }

    fn draw_cluster(&self, cluster: &Cluster<'_>, out: &mut String) {
        let (x, y) = (cluster.x, cluster.y);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#eef1f4\" \
             stroke=\"#b3bac2\"/><text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            cluster.width(),
            cluster.height,
            x + GAP,
            y + 16,
            text(&short(cluster.name, cluster.letters)),
        );
    }

    fn draw_node(&self, node: usize, out: &mut String) {
        let (x, y) = self.corner(node);
        let cluster = self.cluster(node);
        let node = &self.drawing.nodes[node];
        let _ = writeln!(
            out,
            "<g><title>p{}: {}, {}, {}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" \
             height=\"{}\" rx=\"8\" fill=\"{}\" stroke=\"#2c3e50\"{}/>",
            node.patch,
            text(&node.label),
            text(&node.about.join(", ")),
            node.standing(),
            cluster.node_width(),
            node_height(node),
            node.drawn.colour(),
            border(is_heavy(node.kind), node.is_rolled_back),
        );
        for (index, line) in lines(node).into_iter().enumerate() {
            let weight = if index == 0 {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\"{weight}>{}</text>",
                x + GAP / 2 + 2,
                y + LINE_HEIGHT * (index + 1),
                text(&short(&line, cluster.letters)),
            );
        }
        *out += "</g>\n";
    }

    fn draw_edge(&self, (after, before): (usize, usize), out: &mut String) {
        let ((ax, ay), (bx, by)) = (self.corner(after), self.corner(before));
        let width = |node| self.cluster(node).node_width();
        let bend = COLUMN_GAP / 2;
        let (from, from_bend, to_bend, to, leaves, reaches) = match ax.cmp(&bx) {
            Ordering::Less => {
                let from = ax + width(after);
                (from, from + bend, bx - bend, bx, TO_THE_RIGHT, TO_THE_RIGHT)
            }
            // Within a column it goes around on the left, the further the longer it is.
            Ordering::Equal => {
                let aside = ax.saturating_sub(GAP + (ay.abs_diff(by) / 8).min(COLUMN_GAP / 2));
                let (leaves, reaches) = if ay < by {
                    (ABOVE, BELOW)
                } else {
                    (BELOW, ABOVE)
                };
                (ax, aside, aside, bx, leaves, reaches)
            }
            Ordering::Greater => {
                let to = bx + width(before);
                (ax, ax - bend, to + bend, to, TO_THE_LEFT, TO_THE_LEFT)
            }
        };
        let (ay, by) = (ay + leaves, by + reaches);
        // A level one over several columns would run behind the nodes in between, as part of their own.
        let is_long = from.abs_diff(to) > 2 * COLUMN_GAP;
        let sag = if is_long && ay.abs_diff(by) < SAG {
            SAG
        } else {
            0
        };
        let (a_sag, b_sag) = (ay + sag, by + sag);
        let (after, before) = (&self.drawing.nodes[after], &self.drawing.nodes[before]);
        let _ = writeln!(
            out,
            "<path class=\"e\" d=\"M{from} {ay}C{from_bend} {a_sag} {to_bend} {b_sag} {to} {by}\" \
             fill=\"none\" stroke=\"{LINE}\" marker-end=\"url(#a)\">\
             <title>p{} waits for p{}</title></path>",
            after.patch, before.patch,
        );
    }
}

/// How the border of a node is drawn.
fn border(is_heavy: bool, is_rolled_back: bool) -> String {
    let width = if is_heavy { 3 } else { 1 };
    let dashes = match is_rolled_back {
        true => " stroke-dasharray=\"6 4\"",
        false => "",
    };
    format!(" stroke-width=\"{width}\"{dashes}")
}

/// What the colours, borders and arrows say, of those that are there: each box, and its words.
fn legend(drawing: &Drawing) -> Vec<(String, &'static str)> {
    let has = |holds: &dyn Fn(&Node) -> bool| drawing.nodes.iter().any(holds);
    let shown = Drawn::ALL
        .into_iter()
        .filter(|d| has(&|node| node.drawn == *d));
    let mut legend: Vec<(String, &'static str)> = shown
        .map(|drawn| {
            let words = match drawn {
                Drawn::Discarded => "discarded: need not be on the disk any more",
                Drawn::Committed => "committed: on the disk",
                Drawn::InFlight => "in flight: on its way to the disk",
                Drawn::Ready => "ready: could be written now",
                Drawn::Waiting => "waiting for others",
            };
            (
                format!("fill=\"{}\"{}", drawn.colour(), border(false, false)),
                words,
            )
        })
        .collect();
    if has(&|node| node.is_rolled_back) {
        let look = format!("fill=\"#fff\"{}", border(false, true));
        legend.push((look, "rolled back: its block is on its way without it"));
    }
    if has(&|node| is_heavy(node.kind)) {
        let look = format!("fill=\"#fff\"{}", border(true, false));
        legend.push((look, "hard: no undo data, in every version of its block"));
    }
    legend
}

/// Draws the legend in as many lines as the width asks for; where it ends.
fn draw_legend(drawing: &Drawing, width: usize, out: &mut String) -> usize {
    let (mut x, mut y) = (MARGIN, MARGIN);
    let mut advance = |words: &str| {
        let need = 22 + words.chars().count() * LETTER + 2 * GAP;
        if x > MARGIN && x + need > width {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        let here = (x, y);
        x += need;
        here
    };
    for (look, words) in legend(drawing) {
        let (x, y) = advance(words);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"16\" height=\"16\" rx=\"3\" stroke=\"#2c3e50\" {look}/>\
             <text x=\"{}\" y=\"{}\">{words}</text>",
            x + 22,
            y + 12,
        );
    }
    if !drawing.edges.is_empty() {
        const WORDS: &str = "must be on the disk no earlier than";
        let (x, y) = advance(WORDS);
        let _ = writeln!(
            out,
            "<path d=\"M{x} {}h16\" stroke=\"{LINE}\" marker-end=\"url(#a)\"/>\
             <text x=\"{}\" y=\"{}\">{WORDS}</text>",
            y + 8,
            x + 22,
            y + 12,
        );
    }
    y + LEGEND_LINE + GAP
}

pub(crate) fn draw(drawing: &Drawing) -> String {
    let mut layout = Layout::of(drawing);
    // Wide enough for the longest entry of the legend.
    let width = layout.place(0).0.max(440);
    let mut body = String::new();
    let top = draw_legend(drawing, width, &mut body);
    let height = layout.place(top).1 + MARGIN - GAP;
    for cluster in &layout.clusters {
        layout.draw_cluster(cluster, &mut body);
    }
    // Behind the nodes: no line strikes their words out.
    for edge in &layout.edges {
        layout.draw_edge(*edge, &mut body);
    }
    for node in 0..drawing.nodes.len() {
        layout.draw_node(node, &mut body);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"{TEXT}\" \
         role=\"img\" aria-label=\"Patch graph\">\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{LINE}\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use backstitch_store::PatchKind;

    use super::*;

    fn node(patch: u64, cluster: &str, label: &str) -> Node {
        Node {
            patch,
            kind: PatchKind::Hard,
            drawn: Drawn::Waiting,
            label: label.to_owned(),
            cluster: cluster.to_owned(),
            about: vec!["create /a (1)".to_owned()],
            blocks: Vec::new(),
            is_rolled_back: false,
        }
    }

    /// A chain, two blocks that wait for each other, and a run that lies here and there.
    fn drawing() -> Drawing {
        let mut nodes = vec![
            node(1, "inode bitmap (block 4)", "hard 1 bit at 0"),
            node(2, "inode table (block 5)", "hard inode 12"),
            node(3, "directory block 37", "hard 24+4"),
            node(4, "inode table (block 5)", "soft inode 13"),
            node(5, "directory block 37", "soft 40+16"),
            node(6, "no block", "run of 9 blocks"),
            node(7, "data block 40", "run of 1 block"),
        ];
        nodes[5].blocks = (0..9)
            .map(|n| format!("group descriptors (block {n})"))
            .collect();
        let edges = vec![(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (6, 1), (2, 7)];
        Drawing { nodes, edges }
    }

    #[test]
    fn nothing_overlaps_and_nodes_lie_in_their_clusters() {
        let drawing = drawing();
        let mut layout = Layout::of(&drawing);
        let (width, height) = layout.place(100);
        for (index, one) in layout.clusters.iter().enumerate() {
            assert!(one.y >= 100 && one.x + one.width() <= width && one.y + one.height <= height);
            for other in &layout.clusters[..index] {
                let is_beside = one.x + one.width() <= other.x || other.x + other.width() <= one.x;
                let is_below = one.y + one.height <= other.y || other.y + other.height <= one.y;
                assert!(is_beside || is_below, "{} and {}", one.name, other.name);
            }
        }
        for (index, node) in drawing.nodes.iter().enumerate() {
            let ((x, y), cluster) = (layout.corner(index), layout.cluster(index));
            assert_eq!(cluster.name, node.cluster);
            assert!(x > cluster.x && x + cluster.node_width() < cluster.x + cluster.width());
            let bottom = cluster.y + cluster.height;
            assert!(y >= cluster.y + CLUSTER_TITLE && y + node_height(node) < bottom);
        }
    }

    #[test]
    fn only_what_closes_a_circle_waits_for_something_to_its_right() {
        let drawing = drawing();
        let layout = Layout::of(&drawing);
        let column = |node: &usize| layout.cluster(*node).column;
        let against: Vec<(u64, u64)> = (layout.edges.iter())
            .filter(|(after, before)| column(after) <= column(before))
            .map(|(after, before)| (drawing.nodes[*after].patch, drawing.nodes[*before].patch))
            .collect();
        assert_eq!(against, [(4, 3)]);
    }

    #[test]
    fn what_is_not_too_long_is_not_cut() {
        let svg = draw(&drawing());
        for words in [
            "inode bitmap (block 4)</text>",
            "hard 1 bit at 0</text>",
            "· group descriptors (block 8)</text>",
            "p4 waiting</text>",
            "create /a (1)</text>",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        let mut long = drawing();
        long.nodes[0].label = "x".repeat(50);
        let svg = draw(&long);
        assert!(
            svg.contains(&format!(">{}…</text>", "x".repeat(35))),
            "{svg}"
        );
    }

    #[test]
    fn only_what_is_there_is_explained() {
        let svg = draw(&drawing());
        assert!(svg.contains("waiting for others") && svg.contains("hard: no undo data"));
        assert!(
            !svg.contains("in flight:") && !svg.contains("rolled back:"),
            "{svg}"
        );
        assert!(!draw(&Drawing::default()).contains("no earlier than"));
    }
}
