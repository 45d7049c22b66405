//! The paths that the documents name exist. The picture of the layers in `docs/DESIGN.md` has all
//! crates, and all dependencies point downwards in it. No crate is too large, and no test is left
//! out of the build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Endings of files that the documents name by their paths.
const ENDINGS: [&str; 6] = [".rs", ".sh", ".md", ".toml", ".txt", ".c"];

fn documents(root: &Path) -> Vec<PathBuf> {
    let directories = ["docs", "docs/tour"].map(|dir| std::fs::read_dir(root.join(dir)).unwrap());
    let entries = directories.into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "md"));
    found.push(root.join("README.md"));
    found
}

/// Whether a word between backquotes is a path in the repository, and not a pattern, an option or a
/// user's file.
fn is_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric());
    begins
        && word.contains('/')
        && word.chars().all(is_plain)
        && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

#[test]
fn paths_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut named = 0;
    let mut stale = Vec::new();
    for document in documents(&root) {
        let text = std::fs::read_to_string(&document).unwrap();
        for (number, line) in text.lines().enumerate() {
            for word in line.split('`').skip(1).step_by(2).filter(|w| is_path(w)) {
                named += 1;
                // Tables about the crates leave `crates/` out.
                if !root.join(word).exists() && !root.join("crates").join(word).exists() {
                    let name = document.file_name().unwrap_or_default().to_string_lossy();
                    stale.push(format!("{name}:{}: {word}", number + 1));
                }
            }
        }
    }
    assert!(named > 100, "only {named} paths were recognised");
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

/// Columns of the picture with the names of crates. Their purposes come after these.
const NAMES: usize = 26;

/// The number of the line in the picture of layers for each crate, from the top. A line that begins
/// with space belongs to the one above it.
fn layers(design: &str) -> BTreeMap<String, usize> {
    let (_, section) = design.split_once("\n## Layers\n").unwrap();
    let picture = section.split("```").nth(1).unwrap();
    let mut found = BTreeMap::new();
    let mut layer = 0;
    for line in picture.lines().filter(|line| !line.is_empty()) {
        layer += usize::from(!line.starts_with("  "));
        let names: String = line.chars().take(NAMES).collect();
        for name in names.split_whitespace() {
            let earlier = found.insert(name.to_owned(), layer);
            assert_eq!(earlier, None, "{name} is drawn twice");
        }
    }
    found
}

/// The crates of this project that a crate needs to be built, without its tests.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let sections = manifest.split("\n[");
    let needed = sections.filter(|section| section.starts_with("dependencies]"));
    needed
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("backstitch-"))
        .filter_map(|rest| rest.split(['.', ' ']).next())
}

#[test]
fn the_picture_of_layers_has_all_crates_and_dependencies_point_downwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let design = std::fs::read_to_string(root.join("docs/DESIGN.md")).unwrap();
    let layers = layers(&design);
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates: BTreeSet<String> = crates.collect();
    assert_eq!(layers.keys().cloned().collect::<BTreeSet<_>>(), crates);

    let mut edges = 0;
    let mut upwards = Vec::new();
    for (name, layer) in &layers {
        let manifest = root.join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        for needed in dependencies(&manifest) {
            edges += 1;
            if layers[needed] <= *layer {
                upwards.push(format!("{name} needs {needed}"));
            }
        }
    }
    assert!(edges > 100, "only {edges} dependencies were recognised");
    assert!(upwards.is_empty(), "{}", upwards.join("\n"));
}

/// The most lines of source that a crate may have. A larger one should be split.
const LINES_MOST: usize = 12_000;

fn lines_in(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap();
    let lines = entries.map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return lines_in(&path);
        }
        match path.extension() {
            Some(ending) if ending == "rs" => {
                std::fs::read_to_string(&path).unwrap().lines().count()
            }
            _ => 0,
        }
    });
    lines.sum()
}

#[test]
fn no_crate_is_too_large() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let sources: Vec<PathBuf> = std::fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    let lines: Vec<usize> = sources.iter().map(|folder| lines_in(folder)).collect();
    assert!(lines.iter().sum::<usize>() > LINES_MOST, "{lines:?}");
    for (folder, lines) in sources.iter().zip(lines) {
        assert!(lines <= LINES_MOST, "{}: {lines} lines", folder.display());
    }
}

/// The files and directories of tests in `folder` that are no executable of the manifest, and no
/// module of the executable that joins them.
fn left_out(folder: &Path, manifest: &str) -> Vec<PathBuf> {
    let joined = std::fs::read_to_string(folder.join("main.rs")).unwrap_or_default();
    let is_built = |path: &Path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let file = path.file_name().unwrap().to_str().unwrap();
        let module = format!("mod {name};");
        let path = ["", "tests/"].map(|folder| format!("path = \"{folder}{file}\""));
        joined.lines().any(|line| line == module) || path.iter().any(|p| manifest.contains(p))
    };
    let is_code = |path: &PathBuf| {
        let is_file = path.extension().is_some_and(|ending| ending == "rs");
        is_file || path.join("main.rs").exists() || path.join("mod.rs").exists()
    };
    let paths = std::fs::read_dir(folder).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    paths.filter(is_code).filter(|p| !is_built(p)).collect()
}

/// Cargo finds no tests by itself where they are joined (`autotests = false`).
#[test]
fn every_file_of_tests_is_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path());
    let joined = crates.map(|folder| (folder.join("tests"), folder.join("Cargo.toml")));
    let end_to_end = (root.join("tests"), root.join("tests/Cargo.toml"));
    let mut seen = 0;
    for (folder, manifest) in joined.chain([end_to_end]) {
        let manifest = std::fs::read_to_string(manifest).unwrap();
        if manifest.contains("\nautotests = false\n") {
            seen += 1;
            assert_eq!(left_out(&folder, &manifest), Vec::<PathBuf>::new());
        }
    }
    assert!(seen > 15, "the tests of only {seen} crates are joined");
}

/// Whether a line of the sources below `folder` is one of these.
fn any_line(folder: &Path, is_wanted: &dyn Fn(&str) -> bool) -> bool {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.any(|path| {
        if path.is_dir() {
            return any_line(&path, is_wanted);
        }
        let is_source = path.extension().is_some_and(|ending| ending == "rs");
        let text = || std::fs::read_to_string(&path).unwrap();
        is_source && text().lines().any(|line| is_wanted(line.trim_start()))
    })
}

/// Crates without tests in their sources, or without examples in their documentation, say so, since
/// an empty run costs a build or a second.
#[test]
fn crates_that_say_that_their_sources_have_no_tests_have_none() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut said = 0;
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let says = |what: &str| manifest.lines().any(|line| line == what);
        let has = |is_wanted: &dyn Fn(&str) -> bool| any_line(&folder.join("src"), is_wanted);
        let is_test = |line: &str| line.starts_with("#[test]") || line.contains("proptest!");
        let is_example = |line: &str| {
            let is_comment = line.starts_with("///") || line.starts_with("//!");
            is_comment && line.contains("```")
        };
        said += usize::from(says("test = false")) + usize::from(says("doctest = false"));
        assert!(!says("test = false") || !has(&is_test), "{folder:?}: tests");
        assert!(
            !says("doctest = false") || !has(&is_example),
            "{folder:?}: an example"
        );
    }
    assert!(said > 20, "only {said} crates say so");
}
