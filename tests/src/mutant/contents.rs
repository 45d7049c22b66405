//! The contents of the images: some of everything that ext2 can hold, always the same.

use crate::acl;
use crate::random::Random;
use std::fs::{self, File};
use std::io::Result;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// The amount of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// What fits into the smallest images.
    Small,
    /// In addition directories of many blocks.
    Many,
}

/// Fills a directory on the host, from which an image is made.
///
/// # Errors
///
/// The first error.
pub fn fill(dir: &Path, amount: Amount) -> Result<()> {
    let mut random = Random::new(26);
    let small = dir.join("small");
    fs::create_dir_all(&small)?;
    for number in 0..60 {
        let size = random.below(3000) as usize + 1;
        fs::write(small.join(format!("file-{number:02}")), random.bytes(size))?;
    }
    nested(&dir.join("deep"), &mut random)?;
    large(&dir.join("large"), &mut random)?;
    links(dir, &mut random)?;
    let wide = dir.join("wide");
    fs::create_dir(&wide)?;
    let count = match amount {
        Amount::Small => 50,
        Amount::Many => 700,
    };
    for number in 0..count {
        let name = format!("a-rather-long-name-in-a-wide-directory-{number:04}");
        fs::write(wide.join(name), format!("the contents of {number}"))?;
    }
    fs::write(dir.join("x".repeat(255)), "the longest name")?;
    fs::write(dir.join("empty"), "")
}

fn nested(dir: &Path, random: &mut Random) -> Result<()> {
    let mut place = dir.to_owned();
    for level in 0..8 {
        fs::create_dir(&place)?;
        for number in 0..4 {
            let size = random.below(2000) as usize;
            fs::write(
                place.join(format!("leaf-{level}-{number}")),
                random.bytes(size),
            )?;
        }
        place.push(format!("level-{level}"));
    }
    Ok(())
}

/// Mostly sparse files with one, two and three levels of indirect blocks, whatever the block size.
fn large(dir: &Path, random: &mut Random) -> Result<()> {
    fs::create_dir(dir)?;
    for (name, pieces, stride) in [
        ("one-level", 40, 1 << 10),
        ("two-levels", 400, 1 << 10),
        ("holes", 12, 24 << 10),
        ("two-levels-sparse", 12, 600 << 10),
        ("three-levels", 6, 40 << 20),
        ("far", 3, 2 << 30),
    ] {
        let file = File::create(dir.join(name))?;
        for piece in 0..pieces {
            file.write_all_at(&random.bytes(1024), piece * stride)?;
        }
    }
    Ok(())
}

fn links(dir: &Path, random: &mut Random) -> Result<()> {
    let links = dir.join("links");
    fs::create_dir(&links)?;
    fs::write(links.join("first"), random.bytes(5000))?;
    for name in ["second", "third"] {
        fs::hard_link(links.join("first"), links.join(name))?;
    }
    symlink("first", links.join("short"))?;
    symlink("../small/".repeat(20) + "file-00", links.join("long"))?;
    symlink("nowhere", links.join("dangling"))
}

/// Commands for debugfs that make what mke2fs copies only for some users: devices, attributes,
/// ACLs. `work` gets files to which the commands refer.
///
/// # Errors
///
/// The first error.
pub fn specials(work: &Path) -> Result<Vec<String>> {
    let mut commands: Vec<String> = ["mkdir special", "cd special", "mknod pipe p"]
        .map(str::to_owned)
        .to_vec();
    commands.push("mknod null c 1 3".into());
    commands.push("mknod disk b 259 1000".into());
    commands.push("cd /".into());
    let value = work.join("value");
    fs::write(&value, "0123456789abcdef".repeat(20))?;
    let blob = work.join("acl");
    fs::write(&blob, acl::with_named(0o640, 1000, 1001, 6))?;
    for number in 10..20 {
        let file = format!("/small/file-{number}");
        commands.push(format!("ea_set {file} user.kind number-{number}"));
        commands.push(format!("ea_set -f {} {file} user.long", value.display()));
    }
    for file in ["/small/file-20", "/small/file-21", "/deep"] {
        commands.push(format!(
            "ea_set -f {} {file} system.posix_acl_access",
            blob.display()
        ));
    }
    commands.push("ea_set /links/long trusted.link yes".into());
    Ok(commands)
}
