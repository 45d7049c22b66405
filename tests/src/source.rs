//! A large source tree to unpack: what the machine has, completed with generated files.

use crate::command::{run_within, tool};
use crate::random::Random;
use std::fs;
use std::io::Result;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The size of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The least number of files.
    pub files: u64,
    /// The least number of bytes in them.
    pub bytes: u64,
}

/// Makes a tree of at least `size` in `dir`, with hard and symbolic links. A part is copied from
/// the crates and the documentation on the machine; the rest is generated from the seed.
///
/// # Errors
///
/// The first error.
pub fn make_tree(dir: &Path, seed: u64, size: Size) -> Result<()> {
    let mut made = Size { files: 0, bytes: 0 };
    let half = Size {
        files: size.files / 2,
        bytes: size.bytes / 2,
    };
    for (number, source) in sources().into_iter().enumerate() {
        copy(
            &source,
            &dir.join(format!("found-{number}")),
            half,
            &mut made,
        )?;
    }
    let mut random = Random::new(seed);
    let average_bytes =
        (size.bytes.saturating_sub(made.bytes)) / size.files.saturating_sub(made.files).max(1) + 1;
    let mut number = 0;
    while made.files < size.files || made.bytes < size.bytes {
        let place = dir.join(format!("made/{}/{}", number / 1000, number / 40 % 25));
        fs::create_dir_all(&place)?;
        let path = place.join(format!("file-{number}.c"));
        let bytes = random.between(0, 2 * average_bytes);
        fs::write(&path, random.bytes(bytes as usize))?;
        match number % 25 {
            0 => fs::hard_link(&path, place.join(format!("hard-{number}")))?,
            1 => symlink(
                format!("file-{number}.c"),
                place.join(format!("soft-{number}")),
            )?,
            _ => {}
        }
        made.files += 1;
        made.bytes += bytes;
        number += 1;
    }
    Ok(())
}

/// Places of real source trees on a machine with Rust.
fn sources() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    [
        cargo.join("registry/src"),
        PathBuf::from("/usr/share/doc"),
        PathBuf::from("/usr/share"),
    ]
    .into_iter()
    .filter(|path| path.is_dir())
    .collect()
}

/// Copies files until there are enough.
fn copy(from: &Path, to: &Path, enough: Size, made: &mut Size) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut entries: Vec<_> = fs::read_dir(from)?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if made.files >= enough.files || made.bytes >= enough.bytes {
            return Ok(());
        }
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target, enough, made)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else if let Ok(bytes) = fs::copy(entry.path(), &target) {
            made.files += 1;
            made.bytes += bytes;
        }
    }
    Ok(())
}

/// Packs a directory's contents.
///
/// # Panics
///
/// If tar fails.
pub fn pack(dir: &Path, archive: &Path) {
    // The GNU format has no nanoseconds.
    let mut tar = tool("tar");
    tar.args(["--format=posix", "-cf"])
        .arg(archive)
        .arg("-C")
        .arg(dir)
        .arg(".");
    run_within(&mut tar, TAR_LIMIT).expect_success();
}

/// Unpacks into a directory.
///
/// # Panics
///
/// If tar fails.
pub fn unpack(archive: &Path, dir: &Path) {
    let mut tar = tool("tar");
    run_within(tar.args(["xpf"]).arg(archive).arg("-C").arg(dir), TAR_LIMIT).expect_success();
}

const TAR_LIMIT: Duration = Duration::from_secs(600);
