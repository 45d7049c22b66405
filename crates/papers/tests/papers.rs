//! The papers' figures with a small part of their numbers: all can be made, twice with the same
//! result, and the page is accessible to everybody.

use std::path::Path;

use backstitch_formats::{Layout, usual};
use backstitch_papers::{PAPERS, Paper, PapersSpec, measure_papers, papers_document, write_page};
use serde_json::Value;

/// The fraction of `bench figures --reduced`.
const REDUCED: f64 = 1.0 / 64.0;

/// The JSON document, and all files that are written.
fn run(
    papers: &[&'static Paper],
    threads: usize,
    layout: Layout,
    directory: &Path,
) -> (Value, Vec<(String, String)>) {
    let spec = PapersSpec {
        papers: papers.to_vec(),
        fraction: REDUCED,
        seed: 1,
        layout,
        threads,
    };
    let measured = measure_papers(&spec, |_, _, _| {}).unwrap();
    write_page(&measured, &spec, directory).unwrap();
    let files = std::fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).unwrap())
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    (papers_document(&measured, &spec), files)
}

#[test]
fn all_figures_are_made_and_two_runs_are_the_same_to_the_last_byte() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (document, files) = run(PAPERS, 2, usual(), directories[0].path());
    let (again, files_again) = run(PAPERS, 1, usual(), directories[1].path());
    assert_eq!(document, again);
    assert!(files == files_again);

    let figures = document["figures"].as_array().unwrap();
    let all: usize = PAPERS.iter().map(|paper| paper.figures.len()).sum();
    assert_eq!(figures.len(), all);
    for figure in figures {
        let values = figure["values"].as_array().unwrap();
        assert!(!values.is_empty());
        for value in values {
            let ours = value["ours"].as_f64().unwrap();
            assert!(ours.is_finite() && ours >= 0.0, "{figure}");
        }
        for difference in figure["differences"].as_array().unwrap() {
            let why = difference["why"].as_str().unwrap();
            assert!(!why.is_empty() && !why.contains("{}"), "{difference}");
        }
    }
    assert_eq!(files.len(), all + 1, "a picture each, and the page");
    for (name, text) in &files {
        check_file(name, text);
    }
}

/// What UFS hosts no log for is left out, and the page says so.
#[test]
fn figures_are_made_on_ufs_too() {
    let directory = tempfile::tempdir().unwrap();
    let is_short = |paper: &&&Paper| ["003", "004"].contains(&paper.number);
    let papers: Vec<&Paper> = PAPERS.iter().filter(is_short).copied().collect();
    let (document, files) = run(&papers, 2, "ufs2".parse().unwrap(), directory.path());
    assert_eq!(document["type"], "ufs2");
    let figures = document["figures"].as_array().unwrap();
    let all: usize = papers.iter().map(|paper| paper.figures.len()).sum();
    assert!(figures.len() > all / 2, "{} of {all}", figures.len());
    let values = figures.iter().flat_map(|f| f["values"].as_array().unwrap());
    let orderings = values.map(|value| value["ordering"].as_str().unwrap());
    let journals = orderings.filter(|ordering| ordering.starts_with("journal="));
    assert_eq!(journals.count(), 0);
    for (name, text) in &files {
        check_file(name, text);
    }
    let (_, page) = files
        .iter()
        .find(|(name, _)| name.ends_with(".html"))
        .unwrap();
    assert!(page.contains("type ufs2") && page.contains("hosts no such log"));
}

/// One file is complete, and says in words what it shows.
fn check_file(name: &str, text: &str) {
    // The namespace is only a name, and is not fetched.
    let text = text.replace("http://www.w3.org/2000/svg", "");
    for fetched in [
        "http:", "https:", "src=", "@import", "url(", "<script", "<link",
    ] {
        assert!(!text.contains(fetched), "{name}: {fetched}");
    }
    assert!(text.contains("prefers-color-scheme:dark"), "{name}");
    let charts = text.matches("<svg ").count();
    assert!(charts > 0, "{name}");
    assert_eq!(text.matches("<title id=").count(), charts, "{name}");
    assert_eq!(text.matches("<desc id=").count(), charts, "{name}");
    assert!(!text.contains("NaN") && !text.contains("inf\""), "{name}");
    if name.ends_with(".html") {
        assert!(text.contains("name=\"viewport\"") && text.contains("@media print"));
        assert_eq!(text.matches("<article ").count(), charts);
        assert!(text.matches("<table").count() >= charts);
    }
}
