//! What `IMAGE` names: a file or a block device, or a part of one.
//!
//! * `disk.img#2` is a partition: its name in the table, or its label in a GPT (`disk.img#home`).
//! * `disk.img?offset=1M&sizelimit=64M` is a range of bytes, as e2fsprogs writes it; sizes may have
//!   suffixes.
//! * `a##b.img` is the file `a#b.img`.
//!
//! A `#` counts if a file or a device of the name before it exists, and no slash follows. If the
//! name as a whole is a file as well, the disk decides: the name means the partition if the disk
//! has one of that name, else the file. No new file gets a name with a single `#`: that was
//! probably meant for a partition.

use crate::error::{Error, Result, warn_line};
use crate::mounted;
use crate::size;
use backstitch_device::partition::{Partition, PartitionDevice, PartitionTable, Scheme};
use backstitch_device::{BlockDevice, FileDevice, OpenOptions};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of a file that a name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// A partition, by name or label.
    Partition(String),
    /// From an offset on, to the end or for a number of bytes.
    Range(u64, Option<u64>),
}

/// What `IMAGE` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The file or device.
    pub file: PathBuf,
    /// The part of it.
    pub part: Part,
    /// The file whose name is the whole word, if there is one too.
    same_name: Option<PathBuf>,
}

/// Whether this can be the name of a partition.
pub fn may_name_partition(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0'])
}

fn is_image(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|seen| seen.is_file() || seen.file_type().is_block_device())
}

/// The name with each `##` as `#`.
fn unescaped(bytes: &[u8]) -> PathBuf {
    let mut name = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        name.push(*first);
        rest = match (first, tail) {
            (b'#', [b'#', after @ ..]) => after,
            _ => tail,
        };
    }
    OsString::from_vec(name).into()
}

/// Where a single `#` may end a file's name, and the partition's name behind it.
fn splits(bytes: &[u8]) -> Vec<(usize, &str)> {
    let mut splits = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'#' {
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'#') {
            at += 2;
        } else {
            let name = std::str::from_utf8(&bytes[at + 1..]).unwrap_or_default();
            if at > 0 && may_name_partition(name) {
                splits.push((at, name));
            }
            at += 1;
        }
    }
    splits
}

/// `FILE?offset=…&sizelimit=…`, as `FILE` and its range.
fn range_of(path: &Path) -> Option<(PathBuf, std::result::Result<Part, String>)> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'?')?;
    let words = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    if !words.starts_with("offset=") && !words.starts_with("sizelimit=") {
        return None;
    }
    let (mut offset, mut limit) = (0, None);
    for word in words.split('&') {
        let read = match word.split_once('=') {
            Some(("offset", text)) => size::parse(text).map(|bytes| offset = bytes),
            Some(("sizelimit", text)) => size::parse(text).map(|bytes| limit = Some(bytes)),
            _ => Err(format!("unknown word '{word}' behind '?'")),
        };
        if let Err(why) = read {
            return Some((unescaped(&bytes[..at]), Err(why)));
        }
    }
    // As in losetup, 0 means no limit.
    let limit = limit.filter(|bytes| *bytes > 0);
    Some((unescaped(&bytes[..at]), Ok(Part::Range(offset, limit))))
}

impl Named {
    /// Finds out what a word names.
    ///
    /// # Errors
    /// For a range with invalid numbers; for a partition of a disk that does not exist.
    pub fn of(what: &str, path: &Path) -> Result<Named> {
        let whole = |file: PathBuf| Named {
            file,
            part: Part::Whole,
            same_name: None,
        };
        if let Some((file, part)) = range_of(path)
            && !path.exists()
        {
            let part = part.map_err(|why| Error::usage(what, why))?;
            let same_name = None;
            return Ok(Named {
                file,
                part,
                same_name,
            });
        }
        let bytes = path.as_os_str().as_bytes();
        let splits = splits(bytes);
        for (at, name) in &splits {
            let file = unescaped(&bytes[..*at]);
            if is_image(&file) {
                let same_name = path.is_file().then(|| path.to_owned());
                let part = Part::Partition((*name).to_owned());
                return Ok(Named {
                    file,
                    part,
                    same_name,
                });
            }
        }
        let literal = unescaped(bytes);
        if path.exists() && !literal.exists() {
            return Ok(whole(path.to_owned()));
        }
        match splits.first() {
            Some((at, name)) if !literal.exists() => {
                let file = unescaped(&bytes[..*at]);
                let error = Error::at_path(what, &file, "no such file");
                let file_name = path.display().to_string().replacen('#', "##", 1);
                Err(error.hint(format!(
                    "'#{name}' names one of its partitions; a file with '#' in its name is written {file_name}"
                )))
            }
            _ => Ok(whole(literal)),
        }
    }

    /// The file that the word means because the disk has no partition of that name.
    fn or_file(&self, table: Option<&PartitionTable>) -> Option<PathBuf> {
        let (Part::Partition(name), Some(file)) = (&self.part, &self.same_name) else {
            return None;
        };
        match table.map_or(Ok(None), |table| find(table, name)) {
            Ok(None) => Some(file.clone()),
            _ => {
                let (shown, disk) = (file.display(), self.file.display());
                let escaped = shown.to_string().replace('#', "##");
                warn_line(&format!(
                    "{shown}: taken for partition '{name}' of {disk}; the file of that name is '{escaped}'"
                ));
                None
            }
        }
    }

    /// Opens it, and locks out other programs. If a mount of it has just been taken off, waits until
    /// that has been written.
    pub fn open(
        &self,
        what: &str,
        options: OpenOptions,
    ) -> Result<(FileDevice, Option<NamedPart>)> {
        match self.open_now(what, options) {
            Err(_) if self.waits_for_unmount(what, options) => self.open_now(what, options),
            done => done,
        }
    }

    /// Waits for a daemon of ours that keeps others off the file after its mount was taken off: what
    /// umount(8) does not wait for. False if somebody else keeps others off it.
    fn waits_for_unmount(&self, what: &str, options: OpenOptions) -> bool {
        const TICK: Duration = Duration::from_millis(20);
        const QUIET: Duration = Duration::from_millis(500);
        const PATIENCE: Duration = Duration::from_secs(60);
        let started = Instant::now();
        let (mut leaving, mut is_told) = (None, false);
        while let Some(holder) = self.holder(options.read_only) {
            let pid = holder
                .strip_prefix("pid ")
                .and_then(|rest| rest.split(' ').next())
                .map(str::to_owned);
            // A process at its end has given up its command line before its files.
            let is_leaving = match &pid {
                Some(pid) if leaving.as_ref() != Some(pid) => {
                    mounted::is_being_left(&self.file, pid)
                }
                _ => leaving.is_some(),
            };
            if !is_leaving || started.elapsed() > PATIENCE {
                return false;
            }
            if started.elapsed() > QUIET && !std::mem::replace(&mut is_told, true) {
                let file = self.file.display();
                warn_line(&format!(
                    "{what}: {file}: unmounted, and still being written by {holder}: waiting for that"
                ));
            }
            leaving = pid.or(leaving);
            std::thread::sleep(TICK);
        }
        true
    }

    fn open_now(
        &self,
        what: &str,
        options: OpenOptions,
    ) -> Result<(FileDevice, Option<NamedPart>)> {
        let failed = |error: backstitch_device::DeviceError| self.in_use(what, error);
        if self.part == Part::Whole {
            let device = FileDevice::open(&self.file, options).map_err(failed)?;
            return Ok((device, None));
        }
        let device = FileDevice::open_for_parts(&self.file, options).map_err(failed)?;
        let part = match &self.part {
            Part::Partition(name) => {
                let table = PartitionTable::read(&device).map_err(failed)?;
                if let Some(file) = self.or_file(table.as_ref()) {
                    drop(device);
                    let device = FileDevice::open(&file, options);
                    let device = device.map_err(|error| Error::at_path(what, &file, error))?;
                    return Ok((device, None));
                }
                self.partition(what, table, name)?
            }
            Part::Range(offset, limit) => self.range(what, &device, *offset, *limit)?,
            Part::Whole => return Ok((device, None)),
        };
        device.claim(part.range.clone()).map_err(failed)?;
        Ok((device, Some(part)))
    }

    /// An error of opening it. If it is in use by a mount, the hint names the directory.
    fn in_use(&self, what: &str, error: backstitch_device::DeviceError) -> Error {
        let is_in_use = matches!(error, backstitch_device::DeviceError::Busy { .. });
        let shown = Error::at_path(what, &self.file, error);
        match self.mounted_on().filter(|_| is_in_use) {
            Some(dir) => shown.hint(format!(
                "it is mounted on {0}: work there, or unmount it first (backstitch umount {0})",
                dir.display()
            )),
            None => shown,
        }
    }

    /// The program that keeps others off it, as far as that can be found out: readers, or only
    /// writers.
    pub fn holder(&self, for_readers: bool) -> Option<String> {
        let wanted = OpenOptions {
            read_only: for_readers,
            ..OpenOptions::default()
        };
        let free = FileDevice::open_for_parts(&self.file, wanted).and_then(|device| {
            let all = 0..device.size_bytes();
            let ours = self.bytes().unwrap_or(all.clone());
            device.claim(ours.start..ours.end.min(all.end))
        });
        match free {
            Err(backstitch_device::DeviceError::Busy { holder, .. }) => Some(holder),
            _ => None,
        }
    }

    /// Where it is mounted, or another part that has bytes in common with it.
    fn mounted_on(&self) -> Option<PathBuf> {
        let ours = self.bytes().unwrap_or(0..u64::MAX);
        let mounts = mounted::of(&self.file).into_iter();
        let mut in_the_way = mounts.filter(|(source, _)| {
            let theirs = Named::of("mount", source)
                .ok()
                .and_then(|named| named.bytes());
            theirs.is_none_or(|theirs| theirs.start < ours.end && ours.start < theirs.end)
        });
        in_the_way.next().map(|(_, dir)| dir)
    }

    /// The bytes of the file that are named; `None` where that cannot be found out.
    fn bytes(&self) -> Option<Range<u64>> {
        match &self.part {
            Part::Whole => Some(0..u64::MAX),
            Part::Range(offset, limit) => {
                let end = limit.map_or(u64::MAX, |limit| offset.saturating_add(limit));
                Some(*offset..end)
            }
            Part::Partition(name) => {
                let read_only = OpenOptions {
                    read_only: true,
                    beside_writers: true,
                    ..OpenOptions::default()
                };
                let device = FileDevice::open_for_parts(&self.file, read_only).ok()?;
                let table = PartitionTable::read(&device).ok()?;
                Some(self.partition("mount", table, name).ok()?.range)
            }
        }
    }

    /// Its offset in the file; for a partition, by the disk's table.
    pub fn offset(&self, what: &str) -> Result<u64> {
        match &self.part {
            Part::Whole => Ok(0),
            Part::Range(offset, _) => Ok(*offset),
            Part::Partition(name) => {
                let read_only = OpenOptions {
                    read_only: true,
                    ..OpenOptions::default()
                };
                let failed = |error| Error::at_path(what, &self.file, error);
                let device = FileDevice::open_for_parts(&self.file, read_only).map_err(failed)?;
                let table = PartitionTable::read(&device).map_err(failed)?;
                Ok(self.partition(what, table, name)?.range.start)
            }
        }
    }

    fn partition(
        &self,
        what: &str,
        table: Option<PartitionTable>,
        name: &str,
    ) -> Result<NamedPart> {
        let failed = |why: &dyn std::fmt::Display| Error::at_path(what, &self.file, why);
        let Some(table) = table else {
            return Err(failed(&format!(
                "no partition '{name}': it has no table of partitions"
            )));
        };
        let found = find(&table, name).map_err(|why| failed(&why))?;
        let Some(partition) = found else {
            let known = table.partitions.iter().map(|partition| {
                let label = partition.label.as_ref();
                let label =
                    label.map(|label| format!(" ({})", label.replace(char::is_control, "?")));
                format!("{}{}", partition.name, label.unwrap_or_default())
            });
            let known: Vec<String> = known.collect();
            let error = failed(&format!("it has no partition '{name}'"));
            return Err(error.hint(format!("it has {}", known.join(", "))));
        };
        Ok(NamedPart {
            name: format!("{}#{}", self.file.display(), partition.name),
            range: partition.offset_bytes..partition.offset_bytes + partition.len_bytes,
            is_of_label: partition.scheme == Scheme::Bsd && has_label(&table, partition),
        })
    }

    fn range(
        &self,
        what: &str,
        device: &FileDevice,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<NamedPart> {
        let size = device.size_bytes();
        let end = limit.map_or(size, |limit| offset.saturating_add(limit));
        if offset >= size {
            let why =
                format!("it ends at byte {size}, and the range begins at {offset}, behind that");
            return Err(Error::at_path(what, &self.file, why));
        }
        if end > size {
            let why = format!("it ends at byte {size}, before the range {offset} to {end} does");
            return Err(Error::at_path(what, &self.file, why));
        }
        let shown = self.file.display();
        Ok(NamedPart {
            name: match limit {
                Some(limit) => format!("{shown}?offset={offset}&sizelimit={limit}"),
                None => format!("{shown}?offset={offset}"),
            },
            range: offset..end,
            is_of_label: false,
        })
    }
}

/// A part of a disk, found by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPart {
    /// Its name for people.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) range: Range<u64>,
    /// Whether a BSD disk label has it, which may lie in its own first sectors.
    pub is_of_label: bool,
}

impl NamedPart {
    /// How long it is.
    pub fn len_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The part as a device of its own.
    pub fn on(&self, disk: Arc<dyn BlockDevice>) -> backstitch_device::Result<PartitionDevice> {
        PartitionDevice::of_range(disk, self.name.clone(), self.range.start, self.len_bytes())
    }
}

/// Whether the BSD label that names a partition lies in its own first sectors: it begins where what the
/// label divides does.
fn has_label(table: &PartitionTable, partition: &Partition) -> bool {
    let slice = partition.name.trim_end_matches(char::is_alphabetic);
    let begin = table.get(slice).map_or(0, |slice| slice.offset_bytes);
    partition.offset_bytes == begin
}

/// The partition with that name, or with that label if one has it.
fn find<'a>(
    table: &'a PartitionTable,
    name: &str,
) -> std::result::Result<Option<&'a Partition>, String> {
    if let Some(partition) = table.get(name) {
        return Ok(Some(partition));
    }
    let labelled = |partition: &&Partition| partition.label.as_deref() == Some(name);
    let mut found = table.partitions.iter().filter(labelled);
    match (found.next(), found.next()) {
        (Some(first), Some(second)) => Err(format!(
            "two partitions are called '{name}': {} and {}",
            first.name, second.name
        )),
        (found, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &Path) -> Option<(PathBuf, Part)> {
        let named = Named::of("test", path).ok()?;
        Some((named.file, named.part))
    }

    #[test]
    fn a_number_sign_names_a_partition_of_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["disk", "a#b", "c##d"] {
            std::fs::write(path(name), "x").unwrap();
        }
        let partition = |file: &str, name: &str| {
            let part = Part::Partition(name.to_owned());
            Some((path(file), part))
        };
        let whole = |file: &str| Some((path(file), Part::Whole));
        assert_eq!(named(&path("disk")), whole("disk"));
        assert_eq!(named(&path("disk#2")), partition("disk", "2"));
        assert_eq!(named(&path("disk#My data")), partition("disk", "My data"));
        assert_eq!(named(&path("a#b")), whole("a#b"));
        assert_eq!(named(&path("a##b")), whole("a#b"));
        assert_eq!(named(&path("a#b#1")), partition("a#b", "1"));
        assert_eq!(named(&path("a##b#1")), partition("a#b", "1"));
        assert_eq!(named(&path("c##d")), whole("c##d"));
        assert_eq!(named(&path("new")), whole("new"));
        assert_eq!(named(&path("new##1")), whole("new#1"));
        assert_eq!(named(&path("new#1")), None);
        assert_eq!(named(&path("disk#1/x")), whole("disk#1/x"));
        // A file of that name does not hide the partition: the disk decides.
        std::fs::write(path("disk#2"), "x").unwrap();
        assert_eq!(named(&path("disk#2")), partition("disk", "2"));
        assert_eq!(named(&path("disk##2")), whole("disk#2"));
    }

    #[test]
    fn a_range_is_written_as_e2fsprogs_does() {
        let of = |word: &str| named(Path::new(word));
        let range = |offset, limit| Some((PathBuf::from("x.img"), Part::Range(offset, limit)));
        assert_eq!(of("x.img?offset=1M"), range(1 << 20, None));
        assert_eq!(of("x.img?offset=512&sizelimit=4K"), range(512, Some(4096)));
        assert_eq!(of("x.img?sizelimit=4096"), range(0, Some(4096)));
        assert_eq!(of("x.img?offset=0&sizelimit=0"), range(0, None));
        assert_eq!(of("x.img?offset=x"), None);
        assert_eq!(of("x.img?offset=1&foo=2"), None);
        assert_eq!(of("what?"), Some(("what?".into(), Part::Whole)));
    }
}
