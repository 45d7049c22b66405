//! Whether a state keeps the order of patchgroups: if any change of a group is there, all changes
//! of the groups that it comes after must be.
//!
//! Everything that changes has a history (`model`), and each of its values knows under which groups
//! it was made. A state shows the value of a name or of one byte of a file. Several values of the
//! history may look like that. A change is certainly there if none of these is older than it, and
//! certainly missing if all of them are. Nothing else is concluded.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_crash_core::mount::{Mount, Nobody};
use backstitch_layout::{DirectoryEntry, FileType, InodeNumber, Result};
use backstitch_ordering::Operation;
use rustc_hash::FxHashMap;

use crate::contents::Contents;
use crate::model::{History, Model, Object, ObjectId, ROOT};
use crate::promises::read_file;

/// How the order between patchgroups is broken, in words.
pub(crate) fn broken(mount: &mut Mount, model: &Model) -> Vec<String> {
    if model.comes_after.is_empty() {
        return Vec::new();
    }
    let mut shown = Shown::default();
    if let Err(error) = shown.look_at(mount, model, ROOT) {
        return vec![format!("what is there cannot be read: {error}")];
    }
    let evidence = shown.compare(model);
    let mut broken = Vec::new();
    for (after, there) in &evidence.there {
        for before in all_before(model, *after) {
            if let Some(missing) = evidence.missing.get(&before) {
                broken.push(format!(
                    "patchgroup {after} comes after {before}, but {there} is there and {missing} is not"
                ));
            }
        }
    }
    broken
}

/// Every group that one comes after, directly or not.
fn all_before(model: &Model, group: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut stack = vec![group];
    while let Some(at) = stack.pop() {
        let direct = model.comes_after.iter().filter(|(after, _)| *after == at);
        stack.extend(
            direct
                .map(|(_, before)| *before)
                .filter(|b| found.insert(*b)),
        );
    }
    found
}

/// What a state shows.
#[derive(Default)]
struct Shown {
    /// The names of each directory that was found.
    names: FxHashMap<ObjectId, BTreeMap<Vec<u8>, ObjectId>>,
    /// The contents of each file that was found.
    files: FxHashMap<ObjectId, Contents>,
}

/// For each group, a change that is certainly there, and one that certainly is not.
#[derive(Default)]
struct Evidence {
    there: BTreeMap<u32, String>,
    missing: BTreeMap<u32, String>,
}

impl Shown {
    /// Reads everything from a directory on.
    fn look_at(&mut self, mount: &mut Mount, model: &Model, directory: ObjectId) -> Result<()> {
        if self.names.insert(directory, BTreeMap::new()).is_some() {
            return Ok(());
        }
        for (name, inode) in list(mount, model.inode(directory))? {
            let attributes = mount.run(Operation::Administration, &mut Nobody, |fs, v, _| {
                fs.attributes(v, inode)
            })?;
            let Some(id) = model.identify(inode, attributes.generation) else {
                continue;
            };
            self.names.entry(directory).or_default().insert(name, id);
            match attributes.file_type {
                FileType::Directory => self.look_at(mount, model, id)?,
                FileType::Regular => {
                    let bytes = read_file(mount, inode, 0..attributes.size_bytes)?;
                    self.files.insert(id, bytes);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn compare(&self, model: &Model) -> Evidence {
        let mut evidence = Evidence::default();
        for (id, object) in model.objects.iter().enumerate() {
            match object.kind {
                FileType::Directory => self.compare_names(model, id, object, &mut evidence),
                FileType::Regular => self.compare_contents(id, object, &mut evidence),
                _ => {}
            }
        }
        evidence
    }

    fn compare_names(
        &self,
        model: &Model,
        id: ObjectId,
        directory: &Object,
        evidence: &mut Evidence,
    ) {
        let shown = self.names.get(&id);
        for (name, history) in &directory.entries {
            let what = || format!("the change of name {}", String::from_utf8_lossy(name));
            match shown {
                Some(names) => {
                    let shows = |value: &Option<ObjectId>| *value == names.get(name).copied();
                    evidence.weigh(history, &shows, |_| true, &what);
                }
                // The directory has a name in the model, but none on the disk leads to it: what was
                // put into it is not there either.
                None if !directory.names.is_empty() => {
                    let kept = history.current().is_some_and(|id| has_name(model, id));
                    let never = |value: &Option<ObjectId>| value.is_none();
                    if kept {
                        evidence.weigh(history, &never, |_| true, &what);
                    }
                }
                None => {}
            }
        }
    }

    fn compare_contents(&self, id: ObjectId, file: &Object, evidence: &mut Evidence) {
        let history = &file.contents;
        if history.grouped().next().is_none() {
            return;
        }
        let versions = history.allowed();
        let what = |at: &str| format!("{at} of inode {}", file.inode);
        let Some(bytes) = self.files.get(&id) else {
            if !file.names.is_empty() {
                for (_, under) in history.grouped() {
                    evidence.miss(under, || what("everything"));
                }
            }
            return;
        };
        let sized = |version: &Contents| version.len() == bytes.len();
        let resized = |at: usize| versions[at].len() != versions[at - 1].len();
        evidence.weigh(history, &sized, resized, &|| what("the size"));
        let longest = versions.iter().map(|v| v.len()).max().unwrap_or(0);
        for at in 0..longest {
            let shows = |version: &Contents| version.byte(at) == bytes.byte(at);
            let changed = |i: usize| versions[i].byte(at) != versions[i - 1].byte(at);
            evidence.weigh(history, &shows, changed, &|| what(&format!("byte {at}")));
        }
    }
}

fn has_name(model: &Model, id: ObjectId) -> bool {
    !model.object(id).names.is_empty()
}

fn list(mount: &mut Mount, directory: InodeNumber) -> Result<Vec<(Vec<u8>, InodeNumber)>> {
    mount.run(Operation::Administration, &mut Nobody, |fs, v, _| {
        let mut names = Vec::new();
        let mut emit = |entry: &DirectoryEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.inode));
            }
            true
        };
        fs.read_directory(v, directory, 0, &mut emit)?;
        Ok(names)
    })
}

impl Evidence {
    /// Compares a history with what is shown. `shows` tells whether a value looks like that,
    /// `changed` whether the value with this number differs from the one before in what is shown.
    fn weigh<T>(
        &mut self,
        history: &History<T>,
        shows: &dyn Fn(&T) -> bool,
        changed: impl Fn(usize) -> bool,
        what: &dyn Fn() -> String,
    ) {
        let allowed = history.allowed();
        let Some(oldest) = allowed.iter().position(shows) else {
            return;
        };
        let newest = allowed.iter().rposition(shows).unwrap_or(oldest);
        for (at, under) in history.grouped().filter(|(at, _)| changed(*at)) {
            if oldest >= at {
                for group in under.iter() {
                    self.there.entry(*group).or_insert_with(what);
                }
            } else if newest < at {
                self.miss(under, what);
            }
        }
    }

    fn miss(&mut self, under: &[u32], what: impl Fn() -> String) {
        for group in under {
            self.missing.entry(*group).or_insert_with(&what);
        }
    }
}
