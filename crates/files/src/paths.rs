//! Paths of files in images, and paths in general.

use crate::error::{Error, Result, USAGE, host};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A command-line word that names a file inside an image: `IMAGE:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImagePath {
    /// The image.
    pub(crate) image: PathBuf,
    /// The path inside, with its leading slash.
    pub(crate) path: Vec<u8>,
}

impl ImagePath {
    /// Splits at the first `:/`; `None` where there is none. The `:/` behind the scheme of a URL
    /// does not count.
    pub(crate) fn parse(word: &OsStr) -> Option<ImagePath> {
        let bytes = word.as_bytes();
        let from = if bytes.starts_with(b"nbd://") {
            b"nbd://".len()
        } else {
            1
        };
        let at = bytes
            .get(from..)?
            .windows(2)
            .position(|pair| pair == b":/")?
            + from;
        Some(ImagePath {
            image: PathBuf::from(OsString::from_vec(bytes[..at].to_vec())),
            path: bytes[at + 1..].to_vec(),
        })
    }

    /// As [`parse`](Self::parse), for commands that work on images only.
    pub(crate) fn required(what: &str, word: &OsStr) -> Result<ImagePath> {
        ImagePath::parse(word).ok_or_else(|| {
            let why = format!(
                "'{}' does not name a file in an image (IMAGE:/path)",
                word.display()
            );
            Error::usage(what, why)
        })
    }

    /// As [`required`](Self::required), for all operands.
    pub(crate) fn all_required(what: &str, words: &[OsString]) -> Result<Vec<ImagePath>> {
        words
            .iter()
            .map(|word| ImagePath::required(what, word))
            .collect()
    }

    /// As [`required`](Self::required), but an image alone stands for its root.
    pub(crate) fn or_root(word: &OsStr) -> ImagePath {
        ImagePath::parse(word).unwrap_or_else(|| ImagePath {
            image: word.into(),
            path: b"/".to_vec(),
        })
    }
}

impl std::fmt::Display for ImagePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}",
            self.image.display(),
            OsStr::from_bytes(&self.path).display()
        )
    }
}

/// The names that a path leads through.
pub(crate) fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/');
    names
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

/// Splits off the last name of a path; slashes at the end are ignored.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let trimmed = &path[..end];
    match trimmed.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&trimmed[..=slash], &trimmed[slash + 1..]),
        None => (b"/", trimmed),
    }
}

/// A path and a name below it.
pub(crate) fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Refuses operands in different images, for commands that work within one.
pub(crate) fn same_image(what: &str, paths: &[ImagePath]) -> Result<PathBuf> {
    let first = paths
        .first()
        .ok_or_else(|| Error::usage(what, "a path is missing"))?;
    match paths.iter().find(|path| path.image != first.image) {
        Some(other) => Err(Error::failed(what, other, "is in another image").exit(USAGE)),
        None => Ok(first.image.clone()),
    }
}

/// Makes a path independent of the current directory; the file need not exist.
pub fn absolute(what: &str, path: &Path) -> Result<PathBuf> {
    if path.as_os_str().as_bytes().starts_with(b"nbd://") {
        return Ok(path.to_owned());
    }
    std::path::absolute(path).map_err(|error| Error::at_path(what, path, host(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &str) -> Option<(String, String)> {
        let parsed = ImagePath::parse(OsStr::new(word))?;
        let path = String::from_utf8(parsed.path).unwrap();
        Some((parsed.image.display().to_string(), path))
    }

    #[test]
    fn image_paths_split_at_the_first_colon_slash() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(parse("a.img:/etc/x"), pair("a.img", "/etc/x"));
        assert_eq!(parse("/tmp/a.img:/"), pair("/tmp/a.img", "/"));
        assert_eq!(
            parse("nbd://host:10809/n:/x"),
            pair("nbd://host:10809/n", "/x")
        );
        assert_eq!(parse("nbd://host/n"), None);
        assert_eq!(parse("/tmp/file"), None);
        assert_eq!(parse(":/x"), None);
        assert_eq!(parse("a:b"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn last_names() {
        assert_eq!(split_last(b"/a/b"), (&b"/a/"[..], &b"b"[..]));
        assert_eq!(split_last(b"/a//"), (&b"/"[..], &b"a"[..]));
        assert_eq!(split_last(b"/"), (&b"/"[..], &b""[..]));
        assert_eq!(joined(b"/", b"x"), b"/x");
        assert_eq!(joined(b"/a", b"x"), b"/a/x");
    }
}
