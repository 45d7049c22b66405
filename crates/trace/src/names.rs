//! Which path an object has, as far as the operations of a trace tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::Paged;

/// Directories between an object and the root that are looked at.
const MOST_LEVELS: usize = 64;

/// Objects whose names are kept. Further ones are shown by their numbers.
const MOST_OBJECTS: usize = 1 << 20;

/// Bytes of a name: more than any file system has.
pub(crate) const MOST_NAME_BYTES: usize = 1024;

/// Bytes of a path. Of a longer one the directories at its beginning are not told, but the number of
/// the one from which on it is.
const MOST_PATH_BYTES: usize = 4096;

/// The names that operations gave.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    root: Option<u64>,
    /// Of an object: a directory that it is in, and its name there.
    places: Paged<(u64, String)>,
    /// The same from the other side.
    objects: Paged<Arc<BTreeMap<String, u64>>>,
    most: usize,
}

impl Names {
    pub(crate) fn new(root: Option<u64>) -> Names {
        Names {
            root,
            places: Paged::new(),
            objects: Paged::new(),
            most: MOST_OBJECTS,
        }
    }

    /// Names of which none is kept.
    pub(crate) fn none() -> Names {
        Names {
            most: 0,
            ..Names::new(None)
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn give(&mut self, object: u64, directory: u64, name: &str) {
        if self.places.len() >= self.most && self.places.get(object).is_none() {
            return;
        }
        let place = (directory, name.to_owned());
        if let Some((directory, name)) = self.places.insert(object, place) {
            self.leave(directory, &name, object);
        }
        if self.objects.get(directory).is_none() {
            self.objects.insert(directory, Arc::default());
        }
        let Some(names) = self.objects.get_mut(directory).map(Arc::make_mut) else {
            return;
        };
        if let Some(replaced) = names.insert(name.to_owned(), object)
            && replaced != object
        {
            self.places.remove(replaced);
        }
    }

    /// Takes a name away.
    pub(crate) fn take(&mut self, directory: u64, name: &str) {
        if let Some(object) = self.find(directory, name) {
            self.places.remove(object);
            self.leave(directory, name, object);
        }
    }

    /// Two objects have each other's names from here on.
    pub(crate) fn swap(&mut self, first: (u64, &str), second: (u64, &str)) {
        let [at_first, at_second] = [first, second].map(|(directory, name)| {
            let object = self.find(directory, name);
            self.take(directory, name);
            object
        });
        for (object, (directory, name)) in [(at_first, second), (at_second, first)] {
            if let Some(object) = object {
                self.give(object, directory, name);
            }
        }
    }

    fn leave(&mut self, directory: u64, name: &str, object: u64) {
        if let Some(names) = self.objects.get_mut(directory)
            && names.get(name) == Some(&object)
        {
            let names = Arc::make_mut(names);
            names.remove(name);
            if names.is_empty() {
                self.objects.remove(directory);
            }
        }
    }

    /// The object with this name, if it got it in this trace.
    pub(crate) fn find(&self, directory: u64, name: &str) -> Option<u64> {
        self.objects.get(directory)?.get(name).copied()
    }

    /// The path of an object; from a directory of which no more is known than its number on.
    pub(crate) fn path(&self, object: u64) -> String {
        let (mut parts, mut bytes) = (Vec::new(), 0);
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
            let Some((directory, name)) = self.places.get(at) else {
                break;
            };
            bytes += name.len() + 1;
            if bytes > MOST_PATH_BYTES {
                break;
            }
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

/// A path as operations have it: from the root on, or from a directory of which only the number is
/// known (`#12/name`), without superfluous slashes.
pub fn normal_path(text: &str) -> String {
    let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    let path = parts.collect::<Vec<_>>().join("/");
    match text.starts_with('#') {
        true => path,
        false => format!("/{path}"),
    }
}

/// Text without what is beyond so many bytes.
pub(crate) fn cut_short(text: &str, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text.to_owned();
    }
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= most_bytes).last();
    format!("{}…", &text[..end.unwrap_or(0)])
}

/// Whether a character changes the direction of the text around it.
fn is_turning(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for a terminal or a page: control characters, and those that change its direction, as their
/// codes.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_turning(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_a_terminal() {
        assert_eq!(printable("a\x1b[2J\nb é"), "a\\u{1b}[2J\\nb é");
        assert_eq!(printable("a\u{202e}txt.exe"), "a\\u{202e}txt.exe");
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!(
            (cut_short("aé", 3), cut_short("aéb", 2)),
            ("aé".to_owned(), "a…".to_owned())
        );
        let mut names = Names::new(Some(2));
        let long = "x".repeat(MOST_NAME_BYTES);
        names.give(11, 2, &long);
        assert_eq!(names.path(11), format!("/{long}"));
        for object in 12..40 {
            names.give(object, object - 1, &long);
        }
        let path = names.path(39);
        assert!(
            path.starts_with("#36/x") && path.len() <= MOST_PATH_BYTES + 3,
            "{path}"
        );
    }

    #[test]
    fn a_path_is_the_same_however_it_is_written() {
        for text in ["/a/b", "a/b", "/a/b/", "//a/./b", "./a/b"] {
            assert_eq!(normal_path(text), "/a/b", "{text}");
        }
        assert_eq!(
            (&normal_path("/")[..], &normal_path("#4/b/")[..]),
            ("/", "#4/b")
        );
    }

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
        names.give(13, 2, "c");
        names.give(12, 2, "c");
        assert_eq!(
            (names.path(12), names.find(11, "b")),
            ("/c".to_owned(), None)
        );
        assert_eq!(names.find(2, "c"), Some(12));
        names.take(2, "c");
        assert_eq!(
            (names.path(12), names.find(2, "c")),
            ("#12".to_owned(), None)
        );
        // Of one of the two nothing is known.
        names.give(12, 11, "b");
        names.give(13, 2, "c");
        names.swap((11, "b"), (2, "c"));
        assert_eq!(
            (names.path(12), names.path(13)),
            ("/c".to_owned(), "/a/b".to_owned())
        );
        names.swap((2, "new"), (2, "c"));
        assert_eq!(
            (names.path(12), names.find(2, "c")),
            ("/new".to_owned(), None)
        );
        names.give(12, 11, "b");
        // A circle is no reason to go on for ever.
        names.give(11, 12, "a");
        assert!(names.path(12).starts_with('#'));
    }
}
