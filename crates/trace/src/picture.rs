//! A graph as a picture: what is waited for on the left, what waits to the right of it.
//!
//! A picture stands in a page as it is: it uses nothing from outside, and nothing of it is valid
//! outside of it. What differs between pictures of one page is their [`name`](Picture::name).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::markup::{levels, short, text};

const BOX_WIDTH: usize = 204;
const LINE_HEIGHT: usize = 15;
const GAP: usize = 12;
const CLUSTER_TITLE: usize = 22;
const COLUMN_GAP: usize = 76;
const MARGIN: usize = 20;
const LEGEND: usize = 40;
const LEGEND_WIDTH: usize = 130;
/// How far what stands out sags on its way past other columns, so that it can be seen there.
const SAG: usize = 90;

/// Characters that fit into a box.
const MOST_CHARACTERS: usize = 30;

/// How a box looks, and what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What it means, in a word or two, for the legend.
    pub word: &'static str,
    /// The colour that fills it.
    pub fill: &'static str,
    /// Its border is dashed.
    pub is_dashed: bool,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it stands in with others.
    pub cluster: String,
    /// What is written in it. What is too long is cut short; there is room for as many lines as the
    /// first box has.
    pub lines: Vec<String>,
    /// All of it, for who points at the box.
    pub title: String,
    /// How it looks.
    pub look: Look,
    /// Its border is heavy.
    pub is_heavy: bool,
}

/// Where an arrow begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The box at this place of the list.
    Node(usize),
    /// All that stands together under this name.
    Cluster(String),
}

/// An arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Where it begins: at what waits.
    pub after: End,
    /// Where it ends: at what is waited for.
    pub before: End,
    /// It stands out: red, heavy and dashed, with this word on it (none where it is empty).
    pub emphasis: Option<&'static str>,
    /// What it means, for who points at it.
    pub title: String,
}

/// A graph to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// What tells it from other pictures of the same page: letters, digits and hyphens.
    pub name: String,
    /// What it shows, for who cannot see it.
    pub about: String,
    /// The looks that a legend explains.
    pub legend: Vec<Look>,
    /// The boxes.
    pub nodes: Vec<Node>,
    /// The arrows. Those that begin or end nowhere are not drawn.
    pub arrows: Vec<Arrow>,
}

/// A rectangle: its left upper corner, its width and its height.
#[derive(Clone, Copy)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// Where everything is.
#[derive(Default)]
struct Places<'p> {
    nodes: Vec<Option<Place>>,
    clusters: BTreeMap<&'p str, Place>,
}

impl Places<'_> {
    fn of(&self, end: &End) -> Option<Place> {
        match end {
            End::Node(number) => *self.nodes.get(*number)?,
            End::Cluster(name) => self.clusters.get(name.as_str()).copied(),
        }
    }
}

impl Picture {
    /// The picture as a file of its own, in SVG.
    pub fn svg(&self) -> String {
        self.drawn(" xmlns=\"http://www.w3.org/2000/svg\"")
    }

    /// The picture as it stands in a page of HTML.
    pub fn inline_svg(&self) -> String {
        self.drawn("")
    }

    fn drawn(&self, namespace: &str) -> String {
        let lines = self.nodes.first().map_or(0, |node| node.lines.len());
        let height = lines * LINE_HEIGHT + 8;
        let mut body = String::new();
        let mut places = Places {
            nodes: vec![None; self.nodes.len()],
            ..Places::default()
        };
        let (mut x, mut bottom) = (MARGIN, 0);
        for clusters in self.columns().into_values() {
            let mut y = MARGIN + LEGEND;
            for (name, nodes) in clusters {
                let inner = CLUSTER_TITLE + nodes.len() * (height + GAP);
                let place = Place {
                    x,
                    y,
                    width: BOX_WIDTH + 2 * GAP,
                    height: inner,
                };
                places.clusters.insert(name, place);
                self.put_cluster(name, &nodes, (place, height), &mut places, &mut body);
                y += inner + GAP;
            }
            bottom = bottom.max(y);
            x += BOX_WIDTH + 2 * GAP + COLUMN_GAP;
        }
        let right = x.saturating_sub(COLUMN_GAP) + MARGIN;
        let width = right.max(self.legend.len() * LEGEND_WIDTH + 2 * MARGIN);
        let sags = self.arrows.iter().any(|arrow| {
            let ends = places.of(&arrow.after).zip(places.of(&arrow.before));
            ends.is_some_and(|(a, b)| sag_of(arrow, a, b) > 0)
        });
        let sag = if sags { SAG / 2 } else { 0 };
        let mut out = self.head(namespace, width, bottom + MARGIN + sag);
        out += &body;
        self.put_arrows(&places, &mut out);
        out += "</svg>\n";
        out
    }

    /// The boxes that stand together, each as its place, in the order of their names.
    fn clusters(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut clusters: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            clusters.entry(&node.cluster).or_default().push(index);
        }
        clusters
    }

    /// What stands above each other, by how long the chain of what it waits for is.
    fn columns(&self) -> BTreeMap<usize, Vec<(&str, Vec<usize>)>> {
        let levels = self.levels();
        let mut columns: BTreeMap<usize, Vec<(&str, Vec<usize>)>> = BTreeMap::new();
        for (name, nodes) in self.clusters() {
            let level = nodes.iter().map(|node| levels[*node]).min().unwrap_or(0);
            columns.entry(level).or_default().push((name, nodes));
        }
        columns
    }

    /// Of each box: how long the longest chain of what it waits for is. What stands out counts too,
    /// unless that closes a circle.
    fn levels(&self) -> Vec<usize> {
        let clusters = self.clusters();
        let all_of = |end: &End| match end {
            End::Node(number) => vec![*number],
            End::Cluster(name) => clusters.get(name.as_str()).cloned().unwrap_or_default(),
        };
        let (mut edges, mut loud) = (Vec::new(), Vec::new());
        for arrow in &self.arrows {
            let befores = all_of(&arrow.before);
            for after in all_of(&arrow.after) {
                let these = befores.iter().map(|before| (after, *before));
                let these = these.filter(|(after, before)| after.max(before) < &self.nodes.len());
                match arrow.emphasis {
                    None => edges.extend(these),
                    Some(_) => loud.extend(these),
                }
            }
        }
        for (after, before) in loud {
            if !leads_to(&edges, before, after) {
                edges.push((after, before));
            }
        }
        levels(self.nodes.len(), &edges)
    }

    /// The beginning, with the legend.
    fn head(&self, namespace: &str, width: usize, height: usize) -> String {
        let (name, about) = (text(&self.name), text(&self.about));
        let mut out = format!(
            "<svg{namespace} width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" style=\"background:#fff\" font-family=\"sans-serif\" \
             font-size=\"11\" fill=\"#000\" role=\"img\" aria-label=\"{about}\">\n<defs>"
        );
        for (mark, colour) in [("a", INK), ("m", RED)] {
            let _ = write!(
                out,
                "<marker id=\"{name}{mark}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" \
                 markerWidth=\"7\" markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" \
                 orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{colour}\"/></marker>"
            );
        }
        out += "</defs>\n";
        for (index, look) in self.legend.iter().enumerate() {
            let x = MARGIN + index * LEGEND_WIDTH;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{MARGIN}\" width=\"16\" height=\"16\" fill=\"{}\" \
                 stroke=\"{INK}\"{}/><text x=\"{}\" y=\"{}\">{}</text>",
                look.fill,
                dashes(*look),
                x + 22,
                MARGIN + 12,
                text(look.word)
            );
        }
        out
    }

    fn put_cluster<'p>(
        &'p self,
        name: &str,
        nodes: &[usize],
        (at, height): (Place, usize),
        places: &mut Places<'p>,
        out: &mut String,
    ) {
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#eef1f4\" \
             stroke=\"#b3bac2\"/><text x=\"{}\" y=\"{}\" font-weight=\"bold\"><title>{}</title>{}</text>",
            at.x,
            at.y,
            at.width,
            at.height,
            at.x + GAP,
            at.y + 15,
            text(name),
            text(&short(name, MOST_CHARACTERS))
        );
        let mut y = at.y + CLUSTER_TITLE;
        for number in nodes {
            let place = Place {
                x: at.x + GAP,
                y,
                width: BOX_WIDTH,
                height,
            };
            places.nodes[*number] = Some(place);
            put_box(&self.nodes[*number], place, out);
            y += height + GAP;
        }
    }

    fn put_arrows(&self, places: &Places<'_>, out: &mut String) {
        let name = text(&self.name);
        for (is_loud, style) in [
            (
                false,
                format!("stroke=\"{INK}\" marker-end=\"url(#{name}a)\""),
            ),
            (
                true,
                format!(
                    "stroke=\"{RED}\" stroke-width=\"2.5\" stroke-dasharray=\"7 4\" \
                     marker-end=\"url(#{name}m)\""
                ),
            ),
        ] {
            let mut these = self
                .arrows
                .iter()
                .filter(|arrow| arrow.emphasis.is_some() == is_loud)
                .peekable();
            if these.peek().is_none() {
                continue;
            }
            let _ = writeln!(out, "<g fill=\"none\" {style}>");
            for arrow in these {
                if let (Some(a), Some(b)) = (places.of(&arrow.after), places.of(&arrow.before)) {
                    put_arrow(arrow, a, b, out);
                }
            }
            *out += "</g>\n";
        }
    }
}

/// Whether a box waits for another one, however far away.
fn leads_to(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
    let (mut stack, mut seen) = (vec![from], BTreeSet::new());
    while let Some(at) = stack.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            let befores = edges.iter().filter(|(after, _)| *after == at);
            stack.extend(befores.map(|(_, before)| *before));
        }
    }
    false
}

/// The colour of borders and arrows.
const INK: &str = "#566573";
/// The colour of what stands out.
const RED: &str = "#b3122a";

fn dashes(look: Look) -> &'static str {
    match look.is_dashed {
        true => " stroke-dasharray=\"4 3\"",
        false => "",
    }
}

fn put_box(node: &Node, at: Place, out: &mut String) {
    let width = if node.is_heavy { 3 } else { 1 };
    let _ = write!(
        out,
        "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"10\" \
         fill=\"{}\" stroke=\"#2c3e50\" stroke-width=\"{width}\"{}/>",
        text(&node.title),
        at.x,
        at.y,
        at.width,
        at.height,
        node.look.fill,
        dashes(node.look),
    );
    for (number, line) in node.lines.iter().enumerate() {
        let (x, y) = (at.x + GAP, at.y + LINE_HEIGHT * (number + 1));
        let _ = write!(
            out,
            "<text x=\"{x}\" y=\"{y}\">{}</text>",
            text(&short(line, MOST_CHARACTERS))
        );
    }
    *out += "</g>\n";
}

fn put_arrow(arrow: &Arrow, a: Place, b: Place, out: &mut String) {
    let (ay, by) = (a.y + a.height / 2, b.y + b.height / 2);
    let (from, to, from_bend, to_bend) = if a.x + a.width < b.x {
        let (from, to) = (a.x + a.width, b.x);
        (
            from,
            to,
            from + COLUMN_GAP / 2,
            to.saturating_sub(COLUMN_GAP / 2),
        )
    } else if b.x + b.width < a.x {
        let (from, to) = (a.x, b.x + b.width);
        (
            from,
            to,
            from.saturating_sub(COLUMN_GAP / 2),
            to + COLUMN_GAP / 2,
        )
    } else {
        // Within a column it goes around on the left.
        let bend = a.x.min(b.x).saturating_sub(2 * GAP);
        (a.x, b.x, bend, bend)
    };
    let sag = sag_of(arrow, a, b);
    let (a_bend, b_bend) = (ay + sag, by + sag);
    let _ = writeln!(
        out,
        "<path class=\"e\" d=\"M{from} {ay}C{from_bend} {a_bend} {to_bend} {b_bend} {to} {by}\">\
         <title>{}</title></path>",
        text(&arrow.title)
    );
    if let Some(word) = arrow.emphasis.filter(|word| !word.is_empty()) {
        // The middle of the curve.
        let x = (from + to + 3 * (from_bend + to_bend)) / 8;
        let y = (ay + by + 3 * (a_bend + b_bend)) / 8;
        put_word(word, (x, y), out);
    }
}

/// How far an arrow sags: one that stands out and passes a column.
fn sag_of(arrow: &Arrow, a: Place, b: Place) -> usize {
    let between = a.x.max(b.x) - a.x.min(b.x);
    match arrow.emphasis.is_some() && between > BOX_WIDTH + 4 * GAP + COLUMN_GAP {
        true => SAG,
        false => 0,
    }
}

/// A word on top of what is drawn already, around a point.
fn put_word(word: &str, (x, y): (usize, usize), out: &mut String) {
    let width = word.chars().count() * 7 + 4;
    let x = x.max(width / 2);
    let _ = writeln!(
        out,
        "<g stroke=\"none\"><rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"15\" \
         fill=\"#fff\"/><text x=\"{x}\" y=\"{}\" fill=\"{RED}\" font-weight=\"bold\" \
         text-anchor=\"middle\">{}</text></g>",
        x - width / 2,
        y.saturating_sub(8),
        y + 4,
        text(word)
    );
}
