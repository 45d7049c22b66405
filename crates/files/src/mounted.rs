//! Where an image is mounted, for messages about an image in use.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The directory on which an image, or a part of it, is mounted through Backstitch.
pub fn dir_of(image: &Path) -> Option<PathBuf> {
    of(image).into_iter().next().map(|(_, dir)| dir)
}

/// The mounts of an image or of its parts through Backstitch: their sources and their directories.
pub(crate) fn of(image: &Path) -> Vec<(PathBuf, PathBuf)> {
    seen_by("self", image)
}

/// Whether a process of ours has written the image, or still does, for a mount that has been taken
/// off: it serves mounts, and none of the image or its parts is there any more. A process at its end
/// has no command line, and holds its files for a moment still.
pub(crate) fn is_being_left(image: &Path, pid: &str) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_mount = words.split(|byte| *byte == 0).nth(1) == Some(b"mount");
    words.is_empty() || (is_mount && seen_by(pid, image).is_empty())
}

/// The mounts of an image in the table of a process.
fn seen_by(process: &str, image: &Path) -> Vec<(PathBuf, PathBuf)> {
    let table = std::fs::read(format!("/proc/{process}/mounts"));
    let (Ok(image), Ok(mounts)) = (image.canonicalize(), table) else {
        return Vec::new();
    };
    let lines = mounts.split(|byte| *byte == b'\n');
    lines.filter_map(|line| mount_in(line, &image)).collect()
}

/// The source and the directory of a mount of this image, from a line of `/proc/self/mounts`.
fn mount_in(line: &[u8], image: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (source, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let source = unescaped(source);
    let rest = source.strip_prefix(image.as_os_str().as_bytes())?;
    let is_meant = matches!(rest.first(), None | Some(b'#' | b'?'));
    let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
    let is_ours = is_meant && kind == b"fuse.backstitch";
    is_ours.then(|| (path(source.clone()), path(unescaped(dir))))
}

/// Decodes `\040` and the like, which stand for blanks.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                out.push(code);
                at += 4;
            }
            None => {
                out.push(field[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_image_is_found() {
        let of = |line: &str| {
            let found = mount_in(line.as_bytes(), Path::new("/a b.img"));
            found.map(|(_, dir)| dir)
        };
        let dir = |dir: &str| Some(PathBuf::from(dir));
        assert_eq!(
            of(r"/a\040b.img /m\040n fuse.backstitch rw 0 0"),
            dir("/m n")
        );
        assert_eq!(
            of(r"/a\040b.img#1 /mnt fuse.backstitch rw 0 0"),
            dir("/mnt")
        );
        assert_eq!(of(r"/a\040b.img2 /mnt fuse.backstitch rw 0 0"), None);
        assert_eq!(of(r"/a\040b.img /mnt ext4 rw 0 0"), None);
        assert_eq!(of(""), None);
    }
}
