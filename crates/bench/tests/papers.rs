//! The papers' figures with a small part of their numbers: that all can be made, twice the same,
//! and that the page can be read by anybody.

use std::path::Path;

use backstitch_bench::{PAPERS, PapersSpec, measure_papers, papers_document, write_page};
use backstitch_formats::usual;
use serde_json::Value;

/// What `bench figures --reduced` takes.
const REDUCED: f64 = 1.0 / 64.0;

/// The document, and all files that are written.
fn run(threads: usize, directory: &Path) -> (Value, Vec<(String, String)>) {
    let spec = PapersSpec {
        papers: PAPERS.to_vec(),
        fraction: REDUCED,
        seed: 1,
        layout: usual(),
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
    let (document, files) = run(2, directories[0].path());
    let (again, files_again) = run(1, directories[1].path());
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

/// One file is complete, and says in words what it shows.
fn check_file(name: &str, text: &str) {
    // A namespace is a name, nothing that is fetched.
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
