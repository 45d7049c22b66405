//! Random source trees with the shape of a kernel's or a program's sources, but other contents.

use crate::random::Random;
use crate::{Error, Result};

/// Average files of a directory: a kernel tree of 13,000 files has about 800 directories.
const FILES_PER_DIRECTORY: u64 = 16;
/// The standard deviation of the logarithm of file sizes, which are log-normal, as in source trees.
const SIGMA: f64 = 1.4;
/// The largest part of all bytes that one file may have.
const LARGEST_FRACTION: f64 = 0.02;

/// A file of a tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedFile {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) permissions: u16,
    pub(crate) modified_seconds: i64,
    /// Identifies its contents.
    pub(crate) salt: u64,
}

/// A directory of a tree, with everything below it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedDirectory {
    pub(crate) name: String,
    pub(crate) modified_seconds: i64,
    /// Sorted by name, as an archiver that sorts writes them.
    pub(crate) entries: Vec<PlannedEntry>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlannedEntry {
    File(PlannedFile),
    Directory(PlannedDirectory),
}

impl PlannedEntry {
    fn name(&self) -> &str {
        match self {
            PlannedEntry::File(file) => &file.name,
            PlannedEntry::Directory(directory) => &directory.name,
        }
    }
}

impl PlannedDirectory {
    /// A tree called `name` of `files` files with `bytes` bytes together.
    pub(crate) fn draw(name: &str, seed: u64, files: u64, bytes: u64) -> Result<Self> {
        Self::draw_in(name, seed, files, bytes, None)
    }

    /// The same with a number of directories; if it is not given, as many as such a tree usually
    /// has.
    pub(crate) fn draw_in(
        name: &str,
        seed: u64,
        files: u64,
        bytes: u64,
        directories: Option<u64>,
    ) -> Result<Self> {
        if files == 0 || files > 10_000_000 {
            return Err(Error::Scale(format!("a tree of {files} files")));
        }
        let mut random = Random::new(seed, 2);
        let directories = directories.unwrap_or(files / FILES_PER_DIRECTORY);
        let directories = directories.max(1) as usize;
        let sizes = draw_sizes(&mut random, files, bytes);
        let mut files_of: Vec<Vec<PlannedFile>> = vec![Vec::new(); directories];
        for (number, size_bytes) in sizes.into_iter().enumerate() {
            // The smaller of two random numbers, so that some directories are large and most are
            // small.
            let place = random
                .below(directories as u64)
                .min(random.below(directories as u64));
            files_of[place as usize].push(draw_file(&mut random, number, size_bytes));
        }
        // The parent of a directory is an earlier one, more often one near the root. So the tree is
        // about six levels deep.
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); directories];
        for directory in 1..directories {
            let parent = random
                .below(directory as u64)
                .min(random.below(directory as u64));
            children[parent as usize].push(directory);
        }
        Ok(assemble(
            name.to_owned(),
            0,
            &mut files_of,
            &children,
            &mut random,
        ))
    }

    /// The number of directories, this one included.
    pub(crate) fn directories(&self) -> u64 {
        let below = self.entries.iter().map(|entry| match entry {
            PlannedEntry::File(_) => 0,
            PlannedEntry::Directory(directory) => directory.directories(),
        });
        1 + below.sum::<u64>()
    }

    /// The number of files.
    pub(crate) fn files(&self) -> u64 {
        let each = self.entries.iter().map(|entry| match entry {
            PlannedEntry::File(_) => 1,
            PlannedEntry::Directory(directory) => directory.files(),
        });
        each.sum()
    }

    /// The size of all files together.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        let each = self.entries.iter().map(|entry| match entry {
            PlannedEntry::File(file) => file.size_bytes,
            PlannedEntry::Directory(directory) => directory.bytes(),
        });
        each.sum()
    }
}

fn draw_file(random: &mut Random, number: usize, size_bytes: u64) -> PlannedFile {
    const STEMS: [&str; 8] = [
        "main",
        "driver",
        "setup",
        "irq",
        "table",
        "proc_entry",
        "bus-interface",
        "Makefile",
    ];
    const ENDS: [&str; 4] = [".c", ".c", ".h", ".txt"];
    let stem = STEMS[random.below(8) as usize];
    let end = ENDS[random.below(4) as usize];
    PlannedFile {
        name: format!("{stem}{number:05}{end}"),
        size_bytes,
        permissions: if random.below(50) == 0 { 0o755 } else { 0o644 },
        // A time in 2005.
        modified_seconds: 1_104_537_600 + random.below(31_536_000) as i64,
        salt: random.next(),
    }
}

/// Log-normal sizes with the sum `bytes`, as near as rounding allows.
fn draw_sizes(random: &mut Random, files: u64, bytes: u64) -> Vec<u64> {
    let mut weights: Vec<f64> = (0..files)
        .map(|_| (SIGMA * random.normal()).exp())
        .collect();
    let largest = weights.iter().sum::<f64>() * LARGEST_FRACTION.max(2.0 / files as f64);
    for weight in &mut weights {
        *weight = weight.min(largest);
    }
    let total: f64 = weights.iter().sum();
    let mut sizes: Vec<u64> = weights
        .iter()
        .map(|weight| (weight / total * bytes as f64) as u64)
        .collect();
    let missing = bytes.saturating_sub(sizes.iter().sum());
    sizes[0] += missing;
    sizes
}

fn assemble(
    name: String,
    directory: usize,
    files_of: &mut [Vec<PlannedFile>],
    children: &[Vec<usize>],
    random: &mut Random,
) -> PlannedDirectory {
    let files = std::mem::take(&mut files_of[directory]);
    let mut entries: Vec<PlannedEntry> = files.into_iter().map(PlannedEntry::File).collect();
    for child in &children[directory] {
        let name = format!("part{child:03}");
        let below = assemble(name, *child, files_of, children, random);
        entries.push(PlannedEntry::Directory(below));
    }
    entries.sort_by(|a, b| a.name().cmp(b.name()));
    PlannedDirectory {
        name,
        modified_seconds: 1_136_073_600 + random.below(86_400) as i64,
        entries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_what_was_asked_for() {
        let tree = PlannedDirectory::draw("linux", 1, 13_000, 265 << 20).unwrap();
        assert_eq!((tree.files(), tree.bytes()), (13_000, 265 << 20));
        assert_eq!(tree.directories(), 812);
        let again = PlannedDirectory::draw("linux", 1, 13_000, 265 << 20).unwrap();
        assert_eq!(tree, again);
    }

    #[test]
    fn small_trees_are_trees() {
        for files in [1, 2, 40] {
            let tree = PlannedDirectory::draw("t", 3, files, 1000).unwrap();
            assert_eq!((tree.files(), tree.bytes()), (files, 1000));
        }
        assert!(PlannedDirectory::draw("t", 3, 0, 1000).is_err());
    }

    #[test]
    fn sizes_are_those_of_sources() {
        let mut sizes = draw_sizes(&mut Random::new(1, 2), 13_000, 265 << 20);
        sizes.sort_unstable();
        let median = sizes[6500];
        assert!((4_000..12_000).contains(&median), "{median}");
        assert!(sizes[12_999] < 8 << 20, "{}", sizes[12_999]);
    }
}
