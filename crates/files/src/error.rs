//! Errors for people: one line, and a hint if there is one.

use std::fmt::Display;
use std::path::Path;

/// Exit code: the operation failed.
pub const FAILED: u8 = 1;

/// Exit code: the command line is invalid.
pub const USAGE: u8 = 2;

/// Exit code of `fsck` for an invalid command line, as in fsck(8).
pub const FSCK_USAGE: u8 = 16;

/// The result of a command's step.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command failed: `backstitch: WHAT: WHERE: WHY`.
#[derive(Debug)]
pub struct Error {
    line: String,
    hint: Option<String>,
    /// The exit code.
    pub exit: u8,
}

impl Error {
    /// Operation `what` failed at `place` because of `why`.
    pub fn failed(what: &str, place: impl Display, why: impl Display) -> Error {
        let (place, why) = (place.to_string(), why.to_string());
        let why = one_line(why.strip_prefix(&format!("{place}: ")).unwrap_or(&why));
        Error {
            line: format!("{what}: {place}: {why}"),
            hint: None,
            exit: FAILED,
        }
    }

    /// As [`failed`](Self::failed), for a path.
    pub fn at_path(what: &str, path: &Path, why: impl Display) -> Error {
        Error::failed(what, path.display(), why)
    }

    /// The command line of `what` is invalid.
    pub fn usage(what: &str, why: impl Display) -> Error {
        Error {
            line: format!("{what}: {}", one_line(&why.to_string())),
            hint: Some(format!("backstitch {what} --help")),
            exit: USAGE,
        }
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint where there is none.
    pub fn or_hint(self, hint: impl Into<String>) -> Error {
        match self.hint {
            Some(_) => self,
            None => self.hint(hint),
        }
    }

    /// Replaces a place in the message by another one.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Error {
        self.line = self.line.replacen(from, to, 1);
        self
    }

    /// Changes the exit code.
    pub fn exit(mut self, exit: u8) -> Error {
        self.exit = exit;
        self
    }

    /// The line: what, where and why, without the hint.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Prints the line and the hint on stderr.
    pub fn print(&self) {
        warn_line(&self.line);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
    }
}

/// Prints a line of Backstitch's on stderr.
pub fn warn_line(line: &str) {
    eprintln!("backstitch: {line}");
}

/// The host's words for an error, without the number that Rust adds.
pub fn host(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn one_line(text: &str) -> String {
    text.split('\n')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_said_once() {
        let error = Error::failed("mount", "a.img", "a.img: cannot open: no such file");
        assert_eq!(error.line, "mount: a.img: cannot open: no such file");
        assert_eq!(error.exit, FAILED);
    }

    #[test]
    fn many_lines_become_one() {
        assert_eq!(Error::failed("a", "b", "c\n  d\n").line, "a: b: c d");
        assert_eq!(Error::usage("a", "b\nc").exit, USAGE);
    }

    #[test]
    fn the_number_is_left_out() {
        let error = std::io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(host(&error), "No such file or directory");
    }
}
