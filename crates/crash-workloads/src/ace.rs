//! Reads workloads in the format of CrashMonkey's generator ACE (Mohan et al., OSDI 2018).
//!
//! A workload begins at a line of two number signs and its name. Files are called `foo` and `bar`,
//! after the letters of the directories that they are in: `ACbar` is `A/C/bar`; `test` is the root.
//! `checkpoint` follows each operation that promises something. It is ignored, since the operations
//! tell by themselves what is promised.

use backstitch_crash_core::operation::{Data, Operation, Path};
use backstitch_layout::{Allocate, FileType};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its operations.
    pub operations: Vec<Operation>,
    /// The number of operations at the beginning that only prepare: states between them are not
    /// looked at.
    pub setup: usize,
}

/// A line that is not part of the grammar.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {number}: '{line}': {why}")]
pub struct BadLine {
    /// Its number, from 1 on.
    pub number: usize,
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub why: String,
}

/// The contents of a file of workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ace {
    /// The workloads that can be run.
    pub workloads: Vec<Workload>,
    /// The names of those that cannot, with the reason: a file that was never opened, a directory
    /// moved into itself.
    pub skipped: Vec<(String, String)>,
}

/// Reads a file of workloads.
///
/// # Errors
/// The first line that is not part of the grammar.
pub fn parse(text: &str) -> Result<Ace, BadLine> {
    let mut ace = Ace::default();
    let mut reader: Option<Reader> = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("##") {
            ace.finish(reader.replace(Reader::new(name.trim())));
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |why: &str| BadLine {
            number: at + 1,
            line: line.to_owned(),
            why: why.to_owned(),
        };
        let reader = reader
            .as_mut()
            .ok_or_else(|| bad("a workload begins with '## ' and its name"))?;
        reader.line(line).map_err(|why| bad(&why))?;
    }
    ace.finish(reader);
    Ok(ace)
}

impl Ace {
    fn finish(&mut self, reader: Option<Reader>) {
        let Some(reader) = reader else {
            return;
        };
        match reader.impossible {
            Some(why) => self.skipped.push((reader.workload.name, why)),
            None => self.workloads.push(reader.workload),
        }
    }
}

struct Reader {
    workload: Workload,
    /// What exists, by path.
    tree: BTreeMap<String, FileType>,
    /// The files that are open.
    open: BTreeSet<String>,
    impossible: Option<String>,
}

/// `ACbar` as `A/C/bar`; `test` as the root.
fn path_of(name: &str) -> String {
    if name == "test" {
        return String::new();
    }
    let directories = name.chars().take_while(char::is_ascii_uppercase).count();
    let (directories, file) = name.split_at(directories);
    let mut parts: Vec<String> = directories.chars().map(String::from).collect();
    if !file.is_empty() {
        parts.push(file.to_owned());
    }
    parts.join("/")
}

impl Reader {
    fn new(name: &str) -> Reader {
        Reader {
            workload: Workload {
                name: name.to_owned(),
                operations: Vec::new(),
                setup: 0,
            },
            tree: BTreeMap::from([(String::new(), FileType::Directory)]),
            open: BTreeSet::new(),
            impossible: None,
        }
    }

    fn push(&mut self, operation: Operation) {
        self.workload.operations.push(operation);
    }

    fn cannot(&mut self, why: String) {
        self.impossible.get_or_insert(why);
    }

    /// A path that must exist; else the workload is skipped.
    fn existing(&mut self, path: &str) -> Path {
        if !self.tree.contains_key(path) {
            self.cannot(format!("{path} does not exist"));
        }
        Path::plain(path)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let path = |at: usize| {
            let word = words.get(at).ok_or("a name is missing")?;
            Ok::<String, String>(path_of(word))
        };
        let number = |at: usize| {
            let word = words.get(at).ok_or("a number is missing")?;
            word.parse::<u64>()
                .map_err(|_| format!("'{word}' is no number"))
        };
        match words[0] {
            "checkpoint" | "none" => {}
            "mkdir" => self.make(&path(1)?, FileType::Directory),
            "open" | "opendir" => self.open(&path(1)?, words.get(2).copied().unwrap_or_default()),
            "close" => self.close(&path(1)?),
            "fsync" | "fdatasync" => {
                let place = path(1)?;
                let place = self.existing(&place);
                self.push(if words[0] == "fsync" {
                    Operation::Fsync(place)
                } else {
                    Operation::Fdatasync(place)
                });
            }
            "sync" => self.push(Operation::Sync),
            "write" | "dwrite" | "mmapwrite" => {
                let place = path(1)?;
                let place = self.existing(&place);
                let data = Data::Pattern(number(3)? as usize);
                self.push(Operation::Write(place.clone(), number(2)?, data));
                // ACE ends a write through a mapping with an msync.
                if words[0] == "mmapwrite" {
                    self.push(Operation::Fdatasync(place));
                }
            }
            "falloc" => {
                let how = allocation(words.get(2).copied().unwrap_or_default())?;
                let place = path(1)?;
                let place = self.existing(&place);
                self.push(Operation::Allocate(place, how, number(3)?, number(4)?));
            }
            "truncate" => {
                let place = path(1)?;
                let place = self.existing(&place);
                self.push(Operation::Truncate(place, number(2)?));
            }
            "link" => self.link(&path(1)?, &path(2)?),
            "symlink" => self.symlink(&path(1)?, &path(2)?),
            "rename" => self.rename(&path(1)?, &path(2)?),
            "unlink" | "remove" | "rmdir" => self.remove(&path(1)?),
            "fsetxattr" | "setxattr" => {
                let place = path(1)?;
                let place = self.existing(&place);
                let (name, value) = (b"user.xattr1".to_vec(), b"val1 ".to_vec());
                self.push(Operation::SetXattr(place, name, value));
            }
            "removexattr" => {
                let place = path(1)?;
                let place = self.existing(&place);
                self.push(Operation::RemoveXattr(place, b"user.xattr1".to_vec()));
            }
            other => return Err(format!("there is no operation '{other}'")),
        }
        Ok(())
    }

    fn make(&mut self, path: &str, kind: FileType) {
        if self.tree.insert(path.to_owned(), kind).is_some() {
            return;
        }
        let place = Path::plain(path);
        self.push(match kind {
            FileType::Directory => Operation::Mkdir(place, None),
            _ => Operation::Create(place, None),
        });
    }

    fn open(&mut self, path: &str, flags: &str) {
        if flags.contains("O_CREAT") {
            self.make(path, FileType::Regular);
        }
        let place = self.existing(path);
        if self.open.insert(path.to_owned()) {
            self.push(Operation::Open(place));
        }
    }

    fn close(&mut self, path: &str) {
        // If the name was moved or removed meanwhile, the file stays open to the end.
        if self.open.remove(path) && self.tree.contains_key(path) {
            self.push(Operation::Close(Path::plain(path)));
        }
    }

    fn link(&mut self, from: &str, to: &str) {
        let (place, new) = (self.existing(from), Path::plain(to));
        self.tree.insert(to.to_owned(), FileType::Regular);
        self.push(Operation::Link(place, new));
    }

    fn symlink(&mut self, from: &str, to: &str) {
        self.tree.insert(to.to_owned(), FileType::Symlink);
        self.push(Operation::Symlink(
            from.as_bytes().to_vec(),
            Path::plain(to),
            None,
        ));
    }

    fn rename(&mut self, from: &str, to: &str) {
        if to.starts_with(&format!("{from}/")) {
            return self.cannot(format!("{from} would move into itself"));
        }
        let (place, new) = (self.existing(from), Path::plain(to));
        let inside = format!("{from}/");
        let moved: Vec<String> = self
            .tree
            .keys()
            .filter(|path| *path == from || path.starts_with(&inside))
            .cloned()
            .collect();
        self.open.remove(to);
        for path in moved {
            let kind = self.tree.remove(&path).unwrap_or(FileType::Regular);
            let now = format!("{to}{}", &path[from.len()..]);
            if self.open.remove(&path) {
                self.open.insert(now.clone());
            }
            self.tree.insert(now, kind);
        }
        self.push(Operation::Rename(place, new));
    }

    fn remove(&mut self, path: &str) {
        let place = self.existing(path);
        self.open.remove(path);
        let kind = self.tree.remove(path);
        self.push(match kind {
            Some(FileType::Directory) => Operation::Rmdir(place),
            _ => Operation::Unlink(place),
        });
    }
}

fn allocation(flags: &str) -> Result<Allocate, String> {
    let keep_size = flags.contains("FALLOC_FL_KEEP_SIZE");
    if flags.contains("FALLOC_FL_PUNCH_HOLE") {
        Ok(Allocate::PunchHole)
    } else if flags.contains("FALLOC_FL_ZERO_RANGE") {
        Ok(Allocate::ZeroRange { keep_size })
    } else if flags == "0" || flags == "FALLOC_FL_KEEP_SIZE" {
        Ok(Allocate::Reserve { keep_size })
    } else {
        Err(format!("'{flags}' is no flag of fallocate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use backstitch_crash_core::operation::script;
    use std::path::Path as FilePath;

    #[test]
    fn names_and_operations_are_translated() {
        let text = "## j-lang9\n# define\n\n# run\nmkdir A 0777\nopen Afoo O_RDWR|O_CREAT 0777\nwrite Afoo 0 5000\n\
                    falloc Afoo FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE 0 100\nclose Afoo\nrename Afoo ACbar\nopendir test 0777\n\
                    fsync test\ncheckpoint 1\nclose test\n";
        let ace = parse(text).unwrap();
        assert_eq!(ace.workloads[0].name, "j-lang9");
        assert_eq!(
            script(&ace.workloads[0].operations),
            "mkdir A; creat A/foo; open A/foo; write A/foo 0 5000; punch A/foo 0 100; close A/foo; rename A/foo A/C/bar; open /; \
             fsync /; close /"
        );
    }

    #[test]
    fn what_cannot_be_done_is_skipped_and_what_is_none_refused() {
        let ace =
            parse("## a\nmkdir A 0777\nrename A AC\n## b\nfsync ACfoo\n## c\nsync\n").unwrap();
        assert_eq!(ace.workloads.len(), 1);
        assert_eq!(ace.skipped[0].1, "A would move into itself");
        assert_eq!(ace.skipped[1].1, "A/C/foo does not exist");
        let error = parse("## a\njump foo\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: 'jump foo': there is no operation 'jump'"
        );
        assert!(parse("sync\n").is_err());
    }

    /// Operations without those that only open and close.
    fn bare(workload: &Workload) -> String {
        let mut operations = workload.operations.clone();
        operations.retain(|o| !matches!(o, Operation::Open(_) | Operation::Close(_)));
        script(&operations)
    }

    #[test]
    fn ours_are_aces() {
        let root =
            FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/ace/seq1.jlang");
        let Ok(text) = std::fs::read_to_string(root) else {
            eprintln!("SKIPPED: ACE's seq1.jlang does not lie beside the project");
            return;
        };
        let theirs = parse(&text).unwrap();
        assert_eq!((theirs.workloads.len(), theirs.skipped.len()), (416, 19));
        let ours: BTreeSet<String> = generate::ace(1).iter().map(bare).collect();
        let theirs: BTreeSet<String> = theirs.workloads.iter().map(bare).collect();
        let missing: Vec<&String> = theirs.difference(&ours).collect();
        assert!(
            missing.is_empty(),
            "{} of {}: {missing:#?}",
            missing.len(),
            theirs.len()
        );
    }
}
