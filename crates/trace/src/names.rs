//! Which path an object has, as far as the operations of a trace tell.

use std::collections::BTreeMap;

/// Directories between an object and the root that are looked at.
const MOST_LEVELS: usize = 64;

/// The names that operations gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    root: Option<u64>,
    /// Of an object: a directory that it is in, and its name there.
    places: BTreeMap<u64, (u64, String)>,
}

impl Names {
    pub(crate) fn new(root: Option<u64>) -> Names {
        Names {
            root,
            places: BTreeMap::new(),
        }
    }

    pub(crate) fn give(&mut self, object: u64, directory: u64, name: &str) {
        self.places.insert(object, (directory, name.to_owned()));
    }

    /// The object with this name, if it got it in this trace.
    pub(crate) fn find(&self, directory: u64, name: &str) -> Option<u64> {
        let is_it = |(of, at): &(u64, String)| *of == directory && at == name;
        let found = self.places.iter().find(|(_, place)| is_it(place));
        found.map(|(object, _)| *object)
    }

    /// The path of an object; from a directory of which no more is known than its number on.
    pub(crate) fn path(&self, object: u64) -> String {
        let mut parts = Vec::new();
        let mut at = object;
        for _ in 0..MOST_LEVELS {
            if Some(at) == self.root {
                let path: String = parts.iter().rev().map(|part| format!("/{part}")).collect();
                return if path.is_empty() {
                    "/".to_owned()
                } else {
                    path
                };
            }
            let Some((directory, name)) = self.places.get(&at) else {
                break;
            };
            parts.push(name.as_str());
            at = *directory;
        }
        let rest: String = parts.iter().rev().map(|part| format!("/{part}")).collect();
        format!("#{at}{rest}")
    }

    pub(crate) fn path_in(&self, directory: u64, name: &str) -> String {
        match self.path(directory).as_str() {
            "/" => format!("/{name}"),
            path => format!("{path}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_the_root_or_from_what_is_known() {
        let mut names = Names::new(Some(2));
        names.give(11, 2, "a");
        names.give(12, 11, "b");
        assert_eq!(names.path(12), "/a/b");
        assert_eq!(names.path(2), "/");
        assert_eq!(names.path_in(2, "x"), "/x");
        assert_eq!(names.path_in(40, "x"), "#40/x");
        assert_eq!(names.find(11, "b"), Some(12));
        // A circle is no reason to go on for ever.
        names.give(11, 12, "a");
        assert!(names.path(12).starts_with('#'));
    }
}
