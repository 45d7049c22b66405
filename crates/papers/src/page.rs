//! The page: one file that needs no others, and each figure's picture as a file beside it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::judge::{self, claims, differences, number, percent, sentence};
use super::run::{Measured, MeasuredFigure, PapersSpec};
use super::svg::escaped;
use super::{Paper, chart};
use backstitch_bench::{Disk, DiskOptions, Error, Result};

/// How the page looks: in light and dark, on a phone and on paper.
const STYLE: &str = include_str!("page.css");

/// Writes `figures.html` and a picture for each figure into `directory`; returns the page's path.
///
/// # Errors
/// Where a file cannot be written.
pub fn write_page(all: &[Measured], spec: &PapersSpec, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).map_err(Error::at(directory))?;
    for measured in all {
        for figure in &measured.figures {
            let id = id(measured.paper, figure);
            let path = directory.join(format!("{id}.svg"));
            let (title, text) = (title(figure), chart::description(figure));
            let file = chart::chart(figure).file(&id, &title, &text, chart::STYLE);
            std::fs::write(&path, file).map_err(Error::at(&path))?;
        }
    }
    let path = directory.join("figures.html");
    std::fs::write(&path, page(all, spec)?).map_err(Error::at(&path))?;
    Ok(path)
}

/// A name of a figure that is valid in a file name.
fn id(paper: &Paper, measured: &MeasuredFigure) -> String {
    let place = measured.figure.place.to_lowercase();
    let words = place.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("paper-{}-{}", paper.number, words.join("-"))
}

fn title(measured: &MeasuredFigure) -> String {
    format!("{}: {}", measured.figure.place, measured.figure.title)
}

fn page(all: &[Measured], spec: &PapersSpec) -> Result<String> {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>The papers’ figures, measured again</title>\n<style>\n{STYLE}\n{}\n</style>\n</head>\n\
         <body>\n<main>\n<h1>The papers’ figures, measured again</h1>\n",
        chart::STYLE
    );
    out.push_str(&introduction(spec));
    out.push_str(&contents(all));
    for measured in all {
        out.push_str(&paper(measured)?);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    Ok(out)
}

fn introduction(spec: &PapersSpec) -> String {
    let reduced = match spec.fraction == 1.0 {
        true => String::new(),
        false => format!(
            "<p class=\"warning\"><strong>Reduced:</strong> the workloads are {} of the papers' size. \
             Such a run shows that the figures can be made; its values are not to be compared.</p>\n",
            number(spec.fraction)
        ),
    };
    format!(
        "<p>Every figure below was measured by Backstitch {} on a simulation of the paper’s own drive \
         and computer, with file systems of type {}, in virtual time: the same numbers on every machine. What the simulation knows of \
         a drive, and what it assumes, stands with its preset (<code>backstitch bench --list-disks</code>). \
         </p>\n<p>Filled bars and unbroken lines are ours, outlines and broken lines the paper’s. Where \
         the two differ by more than 15 %, or a statement of the paper does not hold here, the reason is given if a counter of the run shows one, with \
         the counter’s value; where none does, that is said. A statement holds if every ratio, as it is shown, is in the range that it allows; \
         where the paper’s words name no number, the statement says how they are read.</p>\n<p>No file system is aged, since no paper says that its were. Nearest to that are the news spool, which is \
         there before the measurement, filled directory by directory, and the file systems that are 76 % full after a \
         crash (<code>backstitch bench recovery</code>).</p>\n{reduced}",
        env!("CARGO_PKG_VERSION"),
        spec.layout.name()
    )
}

fn contents(all: &[Measured]) -> String {
    let mut out = "<nav aria-label=\"Figures\">\n<ul>\n".to_owned();
    for measured in all {
        let _ = writeln!(out, "<li>{}<ul>", escaped(measured.paper.name));
        for figure in &measured.figures {
            let (id, title) = (id(measured.paper, figure), title(figure));
            let _ = writeln!(out, "<li><a href=\"#{id}\">{}</a></li>", escaped(&title));
        }
        out.push_str("</ul></li>\n");
    }
    out + "</ul>\n</nav>\n"
}

fn paper(measured: &Measured) -> Result<String> {
    let paper = measured.paper;
    let disk = Disk::named(paper.disk, paper.size_bytes, &DiskOptions::default())?;
    let host = disk.drive.host.as_ref().map(|host| host.processor.as_str());
    let mebibytes =
        |bytes: Option<u64>| bytes.map_or("any".to_owned(), |b| format!("{} MiB", b >> 20));
    let mut out = format!(
        "<section class=\"paper\">\n<h2>{}</h2>\n<p class=\"source\"><cite>{}</cite>. {}.</p>\n<p>{}</p>\n\
         <p class=\"machine\">Drive: {}{}. Computer: {}, {} of buffers (half of them may wait to be written), \
         {} of pages, {} for dependencies.</p>\n",
        escaped(paper.name),
        escaped(paper.title),
        escaped(paper.published),
        escaped(paper.setting),
        escaped(&disk.drive.description),
        if paper.writes_through {
            ", its write cache off"
        } else {
            ""
        },
        escaped(host.unwrap_or("this engine’s reference")),
        mebibytes(disk.buffer_bytes),
        mebibytes(disk.page_bytes),
        disk.changes_bytes
            .map_or("some of the buffers".to_owned(), |b| format!(
                "{} MiB",
                b >> 20
            )),
    );
    for figure in &measured.figures {
        out.push_str(&one(paper, figure));
    }
    if !measured.missing.is_empty() {
        let places = escaped(&measured.missing.join(", "));
        let _ = writeln!(
            out,
            "<p>Not of this type, which hosts no such logs: {places}.</p>"
        );
    }
    let _ = writeln!(
        out,
        "<p class=\"left-out\">Not here: {}</p>\n</section>",
        code(&escaped(paper.left_out))
    );
    Ok(out)
}

/// Formats words between backquotes as code.
fn code(escaped: &str) -> String {
    let parts = escaped.split('`').enumerate();
    let parts = parts.map(|(number, part)| match number % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

fn one(paper: &Paper, measured: &MeasuredFigure) -> String {
    let figure = measured.figure;
    let (id, title) = (id(paper, measured), title(measured));
    let text = chart::description(measured);
    let mut out = format!(
        "<article id=\"{id}\">\n<div class=\"top\">\n<h3>{}</h3>\n<p class=\"sentence\">{}</p>\n<figure>\n{}",
        escaped(&title),
        escaped(&sentence(measured)),
        chart::chart(measured).element(&id, &title, &text)
    );
    if !figure.note.is_empty() {
        let _ = writeln!(out, "<figcaption>{}</figcaption>", escaped(figure.note));
    }
    for remark in judge::remarks(measured) {
        let _ = writeln!(out, "<p>{}</p>", escaped(&remark));
    }
    if !measured.of.left_out.is_empty() {
        let names = escaped(&measured.of.left_out.join(", "));
        let _ = writeln!(out, "<p>Without {names}: this type hosts no such log.</p>");
    }
    out.push_str("</figure>\n</div>\n");
    out.push_str(&table(measured, &title));
    out.push_str(&statements(measured, &title));
    out.push_str(&reasons(measured));
    out + "</article>\n"
}

/// A table that scrolls if it is wider than the page.
fn scrolling(label: &str, table: &str) -> String {
    format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"{}\" tabindex=\"0\">\n{table}</div>\n",
        escaped(label)
    )
}

fn table(measured: &MeasuredFigure, title: &str) -> String {
    let figure = measured.figure;
    let columns = |line: usize| if measured.has_printed(line) { 3 } else { 1 };
    let mut out = format!(
        "<table>\n<caption>{}, {}</caption>\n<thead>\n<tr><th rowspan=\"2\" scope=\"col\">{}</th>",
        escaped(figure.place),
        escaped(figure.measure.unit()),
        escaped(figure.axis)
    );
    for (line, named) in measured.of.lines.iter().enumerate() {
        let ordering = match named.opt {
            "both" => named.ordering.to_owned(),
            opt => format!("{}, {opt}", named.ordering),
        };
        let _ = write!(
            out,
            "<th colspan=\"{}\" scope=\"colgroup\">{} <span class=\"ordering\">{}</span></th>",
            columns(line),
            escaped(named.name),
            escaped(&ordering)
        );
    }
    out.push_str("</tr>\n<tr>");
    for line in 0..measured.of.lines.len() {
        out.push_str("<th scope=\"col\">ours</th>");
        if measured.has_printed(line) {
            out.push_str("<th scope=\"col\">paper</th><th scope=\"col\">by</th>");
        }
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    for (place, named) in figure.places.iter().enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped(named.name));
        for line in 0..measured.of.lines.len() {
            let ours = measured.ours(line, place);
            let _ = write!(out, "<td>{}</td>", number(ours));
            if measured.has_printed(line) {
                let printed = measured.printed(line, place);
                let by = printed.filter(|printed| *printed != 0.0);
                let _ = write!(
                    out,
                    "<td>{}</td><td class=\"by\">{}</td>",
                    printed.map_or("–".to_owned(), number),
                    by.map_or(String::new(), |printed| percent(ours, printed))
                );
            }
        }
        out.push_str("</tr>\n");
    }
    scrolling(title, &(out + "</tbody>\n</table>\n"))
}

/// The paper's statements, and our ratios.
fn statements(measured: &MeasuredFigure, title: &str) -> String {
    let all = claims(measured);
    if all.is_empty() {
        return String::new();
    }
    let mut out = "<table class=\"claims\">\n<caption>What the paper says of it: one figure by the other</caption>\n\
                   <thead><tr><th scope=\"col\">statement</th><th scope=\"col\">paper</th>\
                   <th scope=\"col\">ours</th><th scope=\"col\">holds</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for claim in all {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(claim.says),
            claim.paper,
            claim.ours,
            if claim.holds { "yes" } else { "no" }
        );
    }
    let label = format!("{title}: what the paper says");
    scrolling(&label, &(out + "</tbody>\n</table>\n"))
}

fn reasons(measured: &MeasuredFigure) -> String {
    let all: Vec<judge::Difference> = differences(measured);
    if all.is_empty() {
        return "<p class=\"agrees\">No difference of more than 15 %, and no statement that fails.</p>\n".to_owned();
    }
    let mut out =
        "<h4>Values that differ by more than 15 %, and statements that do not hold</h4>\n<ul class=\"differences\">\n".to_owned();
    for difference in all {
        let class = if difference.is_explained {
            "why"
        } else {
            "why unexplained"
        };
        let _ = writeln!(
            out,
            "<li><strong>{}.</strong> <span class=\"{class}\">{}</span> <span class=\"counters\">{}.</span></li>",
            escaped(&difference.what),
            escaped(&difference.why),
            escaped(&difference.counters)
        );
    }
    out + "</ul>\n"
}
