//! A small writer of SVG: pictures that take their colours from a style sheet.

use std::fmt::Write;

/// The average width of a character relative to the font size, for sans-serif fonts.
const LETTER: f64 = 0.56;

/// The font size of labels, in the picture's units.
pub(super) const TYPE: f64 = 13.0;

/// How text is placed relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture being drawn.
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Text with the characters escaped that mean something in a document.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// The approximate width of a text.
pub(super) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * TYPE * LETTER
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Svg {
        Svg {
            body: String::new(),
            width,
            height,
        }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        ));
    }

    pub(super) fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            width.max(0.0)
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = points.collect::<Vec<_>>().join(" ");
        self.push(format_args!(
            "<polyline class=\"{class}\" points=\"{points}\"/>"
        ));
    }

    /// A mark in one of four shapes.
    pub(super) fn mark(&mut self, shape: usize, (x, y): (f64, f64), class: &str) {
        const SIZE: f64 = 4.5;
        let corners: &[(f64, f64)] = match shape % 4 {
            0 => {
                self.push(format_args!(
                    "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{SIZE}\"/>"
                ));
                return;
            }
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
            _ => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        };
        let corners = corners
            .iter()
            .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * SIZE, y + dy * SIZE));
        let corners = corners.collect::<Vec<_>>().join(" ");
        self.push(format_args!(
            "<polygon class=\"{class}\" points=\"{corners}\"/>"
        ));
    }

    /// The picture as an element of a page, on which `id` is unique.
    pub(super) fn element(&self, id: &str, title: &str, description: &str) -> String {
        self.with_head(id, title, description, "")
    }

    /// The picture as a separate file, with its style sheet.
    pub(super) fn file(&self, id: &str, title: &str, description: &str, style: &str) -> String {
        let style = format!(
            "<style>{style}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
        );
        self.with_head(id, title, description, &style)
    }

    fn with_head(&self, id: &str, title: &str, description: &str, before: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             viewBox=\"0 0 {:.0} {:.0}\" aria-labelledby=\"{id}-title {id}-text\">\n\
             <title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-text\">{}</desc>\n{before}{}</svg>\n",
            self.width,
            self.height,
            escaped(title),
            escaped(description),
            self.body
        )
    }
}
