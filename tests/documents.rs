//! What the documents name is there: a path that has gone stale sends a reader nowhere.

use std::path::{Path, PathBuf};

/// Kinds of files that the documents name by their paths.
const ENDINGS: [&str; 6] = [".rs", ".sh", ".md", ".toml", ".txt", ".c"];

fn documents(root: &Path) -> Vec<PathBuf> {
    let directories = ["docs", "docs/tour"].map(|dir| std::fs::read_dir(root.join(dir)).unwrap());
    let entries = directories.into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "md"));
    found.push(root.join("README.md"));
    found
}

/// Whether a word between backquotes is a path in the repository. A pattern, an option and a file of
/// a user's are not.
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
