//! A report as one page.

use super::graph::Graph;
use super::{BlockState, Failure, Kind, Report};
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1f24;--soft:#5b6570;--bg:#fbfbfa;--card:#fff;--line:#dfe3e6;--good:#1a7f4b;--bad:#c2313f;--warn:#a86400}\
@media (prefers-color-scheme:dark){:root{--fg:#e6e8ea;--soft:#9aa4ae;--bg:#14171a;--card:#1c2024;--line:#343a40;--good:#52c487;--bad:#ff7b85;--warn:#e0a54a}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:60rem;padding:2rem 1.25rem 4rem;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,sans-serif}\
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2.25rem 0 .75rem}h3{font-size:.95rem;margin:1.25rem 0 .4rem;color:var(--soft)}\
p{margin:.4rem 0}code,pre{font:13px/1.5 ui-monospace,monospace}\
pre{margin:.4rem 0;padding:.7rem .9rem;background:var(--bg);border:1px solid var(--line);border-radius:6px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}\
.verdict{font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.soft{color:var(--soft)}\
.numbers{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.25rem 0}\
.numbers div{flex:1 1 8rem;padding:.7rem .9rem;background:var(--card);border:1px solid var(--line);border-radius:8px}\
.numbers b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}\
.card{padding:1rem 1.15rem;margin:0 0 1.25rem;background:var(--card);border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:8px}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}\
th,td{padding:.3rem .6rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}\
th{color:var(--soft);font-weight:500}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
ol,ul{margin:.3rem 0;padding-left:1.6rem}li{margin:.1rem 0}";

pub(super) fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write_page(&mut out, report);
    out
}

fn write_page(out: &mut String, report: &Report) -> std::fmt::Result {
    let subject = match report.kind {
        Kind::Fs => "the file system",
        Kind::App => "a program",
        Kind::Device => "a recorded device",
    };
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"
    )?;
    writeln!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    )?;
    writeln!(
        out,
        "<title>Crash states of {subject}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    )?;
    writeln!(out, "<h1>Crash states of {subject}</h1>")?;
    let found = match (report.failed_states(), report.exhaustive) {
        (0, true) => ("good", "Every state is right".to_owned()),
        (0, false) => ("good", "Every state that was visited is right".to_owned()),
        (1, _) => ("bad", "A state is not right".to_owned()),
        (count, _) => ("bad", format!("{} states are not right", grouped(count))),
    };
    writeln!(out, "<p class=\"verdict {}\">{}</p>", found.0, found.1)?;
    writeln!(out, "<p>{}</p>", sentence(&report.explored))?;
    writeln!(out, "<div class=\"numbers\">")?;
    number(out, report.states, "states")?;
    number(out, report.distinct, "distinct, and checked")?;
    number(out, report.failures.len() as u64, "failures below")?;
    if let Some(leaks) = report.leaks_max {
        number(out, leaks, "leaks at most")?;
    }
    writeln!(out, "</div>\n<pre>{}</pre>", escape(&report.command))?;
    if !report.failures.is_empty() {
        writeln!(out, "<h2>Failures</h2>")?;
    }
    for (at, failure) in report.failures.iter().enumerate() {
        write_failure(out, at + 1, failure)?;
    }
    write_coverage(out, report)?;
    if !report.notes.is_empty() {
        writeln!(out, "<h2>What to know about this</h2>\n<ul>")?;
        for note in &report.notes {
            writeln!(out, "<li>{}</li>", escape(note))?;
        }
        writeln!(out, "</ul>")?;
    }
    writeln!(out, "</body>\n</html>")
}

fn number(out: &mut String, count: u64, name: &str) -> std::fmt::Result {
    writeln!(
        out,
        "<div><b>{}</b><span class=\"soft\">{name}</span></div>",
        grouped(count)
    )
}

fn write_failure(out: &mut String, number: usize, failure: &Failure) -> std::fmt::Result {
    let (first, rest) = failure
        .verdict
        .split_once('\n')
        .unwrap_or((&failure.verdict, ""));
    writeln!(out, "<section class=\"card\">")?;
    writeln!(
        out,
        "<p class=\"verdict bad\">{number}. {}</p>",
        escape(first)
    )?;
    if !rest.is_empty() {
        writeln!(out, "<pre>{}</pre>", escape(rest))?;
    }
    writeln!(
        out,
        "<h3>When the power went</h3>\n<p>{}</p>",
        sentence(&failure.cut)
    )?;
    if !failure.blocks.is_empty() {
        writeln!(
            out,
            "<h3>What was in flight</h3>\n<div class=\"wide\"><table>"
        )?;
        writeln!(out, "<tr><th>block</th><th>what</th><th>state</th></tr>")?;
        for block in &failure.blocks {
            let class = match block.state {
                BlockState::OnDisk => "good",
                BlockState::Missing => "bad",
                BlockState::Torn => "warn",
            };
            let (number, what, word) = (block.block, escape(&block.what), block.state.word());
            writeln!(
                out,
                "<tr><td class=\"n\">{number}</td><td>{what}</td><td class=\"{class}\">{word}</td></tr>"
            )?;
        }
        writeln!(out, "</table></div>")?;
    }
    if let Some(graph) = failure.graph.as_ref().filter(|g| !g.patches.is_empty()) {
        write_graph(out, number, graph)?;
    }
    if !failure.operations.is_empty() {
        writeln!(out, "<h3>What came before</h3>\n<ol>")?;
        for operation in &failure.operations {
            writeln!(out, "<li><code>{}</code></li>", escape(operation))?;
        }
        writeln!(out, "</ol>")?;
    }
    let small = match failure.minimised {
        true => "Nothing smaller was found to fail.",
        false => "This state was not minimised.",
    };
    writeln!(
        out,
        "<h3>Again</h3>\n<pre>{}</pre>",
        escape(&failure.replay)
    )?;
    writeln!(out, "<p class=\"soft\">{small}</p>\n</section>")
}

/// The patches of the moment, and what is missing among them.
fn write_graph(out: &mut String, number: usize, graph: &Graph) -> std::fmt::Result {
    writeln!(out, "<h3>What waits for what</h3>")?;
    let lines = graph.lines();
    if !lines.is_empty() {
        writeln!(out, "<ul>")?;
        for line in lines {
            writeln!(out, "<li>{}</li>", escape(&line))?;
        }
        writeln!(out, "</ul>")?;
    }
    writeln!(out, "<p>{}</p>", sentence(&graph.said))?;
    let name = format!("f{number}-");
    writeln!(out, "<div class=\"wide\">{}</div>", graph.inline_svg(&name))?;
    let left_out = match graph.left_out {
        0 => String::new(),
        count => format!(" {count} patches of the moment are not shown."),
    };
    writeln!(
        out,
        "<p class=\"soft\">A box is a patch: a change that was in memory. An arrow leads from a patch to one that must be on the disk no \
         later. A heavy border: the block cannot be written without it.{left_out}</p>"
    )
}

fn write_coverage(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.coverage.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>What was covered</h2>\n<div class=\"wide\"><table>"
    )?;
    for (name, count) in &report.coverage {
        let (name, count) = (escape(&name.replace('_', " ")), grouped(*count));
        writeln!(out, "<tr><td>{name}</td><td class=\"n\">{count}</td></tr>")?;
    }
    writeln!(
        out,
        "</table></div>\n<p class=\"soft\">Seed {}</p>",
        report.seed
    )
}

/// Text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let text: String = first.chain(letters).collect();
    let stop = if text.is_empty() || text.ends_with('.') {
        ""
    } else {
        "."
    };
    escape(&text) + stop
}

/// A number with commas between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Block;
    use super::super::graph::{End, How, Order, Patch};
    use super::*;

    fn report() -> Report {
        let mut report = Report::new(Kind::Device, "backstitch crash <x>".into(), 7);
        report.states = 1_234_567;
        report.explored = "sampled with seed 7".into();
        report.states_per_second = Some(12.5);
        report.coverage.insert("flushes_&_marks".into(), 3);
        report.notes.push("a 'note'".into());
        report.failures.push(Failure {
            verdict: "exit code 1\n<script>alert(1)</script>\u{1b}[31m".into(),
            operations: vec!["mark \"x\"".into()],
            cut: "before entry 3".into(),
            blocks: vec![Block {
                block: 5,
                what: "a write".into(),
                state: BlockState::Torn,
            }],
            replay: "backstitch crash device --replay 3:0".into(),
            minimised: true,
            graph: None,
        });
        report
    }

    #[test]
    fn the_page_holds_everything_escaped_and_no_rate() {
        let page = report().to_html();
        for part in [
            "backstitch crash &lt;x&gt;",
            "&lt;script&gt;",
            "1,234,567",
            "flushes &amp; marks",
            "a &#39;note&#39;",
            "mark &quot;x&quot;",
            "Before entry 3.",
            "<td class=\"warn\">torn</td>",
            "--replay 3:0",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        for part in ["<script", "12.5", "\u{1b}", "http"] {
            assert!(!page.contains(part), "{part} is in\n{page}");
        }
        assert_eq!(page, report().to_html());
    }

    /// A graph with everything that one can have: a missing edge, a missing promise, an order that
    /// was not kept, and text that must be escaped.
    fn graph() -> Graph {
        let patch = |number: u64, state| Patch {
            number,
            block: format!("block {}: <names> & \"more\"", number % 2),
            what: "bytes 0–7".into(),
            operation: "create /</title><script>".into(),
            state,
            has_undo: number.is_multiple_of(2),
        };
        let order = |after, befores: &[usize], how| Order {
            after,
            befores: befores.iter().map(|at| End::Patch(*at)).collect(),
            how,
        };
        let mut missing = vec![
            order(End::Patch(0), &[1, 2], How::Missing),
            order(End::Promise, &[1], How::Missing),
            order(End::Patch(2), &[3], How::NotKept),
        ];
        missing.push(Order {
            after: End::Block("block 0: <names> & \"more\"".into()),
            befores: vec![End::Block("nowhere".into()), End::Patch(9)],
            how: How::Reversed,
        });
        Graph {
            patches: vec![
                patch(7, BlockState::OnDisk),
                patch(8, BlockState::Missing),
                patch(9, BlockState::Torn),
                patch(10, BlockState::Missing),
            ],
            edges: vec![(2, 3), (1, 3)],
            missing,
            left_out: 3,
            said: "it is so".into(),
        }
    }

    /// Asserts that each tag of a page is closed in its place, and that ids are unique.
    fn assert_well_formed(page: &str) {
        let (mut open, mut ids) = (Vec::new(), Vec::new());
        let mut rest = page
            .strip_prefix("<!doctype html>")
            .expect("a page of HTML");
        while let Some(start) = rest.find('<') {
            let end = rest[start..].find('>').expect("a tag ends") + start;
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
            ids.extend(
                tag.split(" id=\"")
                    .skip(1)
                    .filter_map(|id| id.split('"').next()),
            );
            let name = tag
                .trim_start_matches('/')
                .split([' ', '/'])
                .next()
                .unwrap();
            match tag.starts_with('/') {
                true => assert_eq!(open.pop(), Some(name), "</{name}>"),
                false if tag.ends_with('/') || name == "meta" => {}
                false => open.push(name),
            }
        }
        assert_eq!(open, [""; 0]);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "ids are there twice");
    }

    #[test]
    fn the_page_shows_the_graph_of_each_failure() {
        let mut report = report();
        assert_well_formed(&report.to_html());
        report.failures[0].graph = Some(graph());
        report.failures.push(report.failures[0].clone());
        let page = report.to_html();
        assert_well_formed(&page);
        assert_eq!(page.matches("<svg").count(), 2);
        for part in [
            "id=\"f1-a\"",
            "url(#f1-m)",
            "url(#f2-m)",
            ">missing<",
            ">not kept<",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        for part in [
            "p7 (block 1",
            "did not have to wait for",
            "3 patches",
            ">It is so.",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        // Nothing is fetched, and nothing runs.
        for part in ["<script", "http", "href", "src=", "@import"] {
            assert!(!page.contains(part), "{part} is in\n{page}");
        }
        let value = serde_json::to_value(&report).unwrap();
        let order = &value["failures"][0]["graph"]["missing"][1];
        assert!(
            order["after"].is_null() && order["befores"][0] == 1,
            "{order}"
        );
        let back: Report = serde_json::from_value(value).unwrap();
        assert_eq!(back, report);
    }

    #[test]
    fn the_page_counts_all_states_that_failed() {
        let mut report = report();
        assert!(report.to_html().contains(">A state is not right<"));
        report.coverage.insert("states_that_failed".into(), 1780);
        assert!(report.to_html().contains(">1,780 states are not right<"));
        assert_eq!(report.failed_states(), 1780);
    }

    #[test]
    fn json_has_the_promised_keys_and_comes_back() {
        let value = serde_json::to_value(report()).unwrap();
        assert_eq!(value["kind"], "device");
        assert_eq!(value["failures"][0]["blocks"][0]["state"], "torn");
        assert_eq!(value["states_per_second"], 12.5);
        assert!(value.get("leaks_max").is_none());
        let back: Report = serde_json::from_value(value).unwrap();
        assert_eq!(back, report());
    }
}
