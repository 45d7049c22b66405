//! What a workload does, one operation a line; what is written is also read.

use backstitch_mechanisms::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use backstitch_layout::{Allocate, flags};
use thiserror::Error;

/// A place in the tree: names from the root on, or from the file that a trace gave a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path {
    /// The number that a trace gave the file; the root where `None`.
    pub label: Option<u32>,
    /// The names from there on.
    pub names: Vec<Vec<u8>>,
}

/// What a write puts into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A number of bytes from which the operation that wrote them, and their offset, can be told.
    Pattern(usize),
    /// These bytes.
    Bytes(Arc<[u8]>),
}

impl Data {
    /// How many bytes it is.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Data::Pattern(len) => *len,
            Data::Bytes(bytes) => bytes.len(),
        }
    }

    /// The bytes of operation number `operation` at `offset` of its file.
    pub fn bytes(&self, operation: usize, offset: u64) -> Vec<u8> {
        match self {
            Data::Bytes(bytes) => bytes.to_vec(),
            Data::Pattern(len) => (offset..offset + *len as u64)
                .map(|at| {
                    // No byte is zero. Any eight bytes belong to one operation and one offset, and
                    // so, since an operation writes to one file, to one file.
                    let mixed = (operation as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        ^ (at / 8).wrapping_mul(0xd134_2543_de82_ef95);
                    let word = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    (word >> (at % 8 * 8)) as u8 | 1
                })
                .collect(),
        }
    }
}

/// One step of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes an empty file, which a trace refers to by this number from then on.
    Create(Path, Option<u32>),
    /// Makes an empty file without a name, as in this directory, and keeps it in use. It is referred
    /// to by this number from then on.
    Tmpfile(Path, Option<u32>),
    /// Makes a directory.
    Mkdir(Path, Option<u32>),
    /// Makes a symbolic link to the bytes given.
    Symlink(Vec<u8>, Path, Option<u32>),
    /// Writes at an offset.
    Write(Path, u64, Data),
    /// Writes at the end.
    Append(Path, Data),
    /// Sets the size.
    Truncate(Path, u64),
    /// Begins to set a smaller size: does only the first step, as when other operations come before
    /// the rest. Does all of it where there is no log, since without one nothing that a single step
    /// leaves can be flushed.
    TruncateStep(Path, u64),
    /// Reserves, punches or zeroes a number of bytes from an offset on.
    Allocate(Path, Allocate, u64, u64),
    /// Gives the first another name.
    Link(Path, Path),
    /// Takes a name away.
    Unlink(Path),
    /// Takes an empty directory away.
    Rmdir(Path),
    /// Moves the first to the second, replacing what is there.
    Rename(Path, Path),
    /// Sets an extended attribute.
    SetXattr(Path, Vec<u8>, Vec<u8>),
    /// Takes an extended attribute away.
    RemoveXattr(Path, Vec<u8>),
    /// Gives a directory an access control list that what is made in it inherits.
    SetAcl(Path),
    /// Keeps the file in use, so that it lives on when it has no name.
    Open(Path),
    /// Ends that.
    Close(Path),
    /// The file is on stable storage afterwards.
    Fsync(Path),
    /// As `Fsync`, but only what reading the file's contents takes.
    Fdatasync(Path),
    /// Everything is.
    Sync,
    /// Deferred work is done as far as it can be without writing.
    Work,
    /// One batch is written, of what waits for nothing else. What must come after it stays in
    /// memory.
    Round,
    /// A number of steps of the reclaim are done.
    Reclaim(u32),
    /// Swaps two names.
    Exchange(Path, Path),
    /// Power is cut. The seed and this number choose which changes in memory are on the disk. The
    /// image is mounted again, and the workload goes on. The caller of the operation before was not
    /// answered, unless that is a flush.
    Crash(u32),
    /// Power is cut in the same way, but no change that is only in memory is on the disk. The
    /// workload goes on before recovery has settled names: a directory may still have two.
    Cut,
    /// Everything is unmounted, and mounted again, with this mechanism if it is given and the image
    /// can have it.
    Remount(Option<Ordering>),
    /// The running transaction ends, and none of it is written. Does nothing without a log.
    LogClose,
    /// What a full log calls for: its tail is moved, or blocks that keep it from moving are written
    /// home. Does nothing without a log.
    LogTail,
    /// Before the first operation: the image gets a journal whose log has this number of blocks.
    LogBlocks(u32),
    /// Before the first operation: the next transaction of the image's journal gets this number.
    LogSequence(u32),
    /// Before the first operation: a file that the workload does not use takes all blocks but about
    /// this number.
    FewBlocks(u32),
    /// Sets the times of the last access and change, in seconds since 1970.
    Utimes(Path, u32, u32),
    /// Sets the permission bits.
    Chmod(Path, u16),
    /// Sets owner and group.
    Chown(Path, u32, u32),
    /// Sets all flags that `chattr` can set, to these.
    Chattr(Path, u32),
    /// Objects made from here on get this owner and group, and these permissions. Does nothing by
    /// itself.
    As(u32, u32, u16),
    /// From here on, changes belong to the patchgroup of this number too.
    Engage(u32),
    /// Ends that.
    Disengage(u32),
    /// The first patchgroup comes after the second.
    Depend(u32, u32),
    /// Puts what was done under the patchgroup onto stable storage.
    SyncGroup(u32),
    /// By now the program had written this to its standard output. Does nothing on the disk.
    Said(Vec<u8>),
}

impl Operation {
    /// Whether it returns only once something is on stable storage.
    pub fn is_flush(&self) -> bool {
        matches!(
            self,
            Operation::Fsync(_)
                | Operation::Fdatasync(_)
                | Operation::Sync
                | Operation::SyncGroup(_)
        )
    }
}

/// A line that is no operation.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{line}': {why}")]
pub struct BadOperation {
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub why: String,
}

impl Path {
    /// From the root, by plain names with slashes between them.
    pub fn plain(text: &str) -> Path {
        Path {
            label: None,
            names: text
                .split('/')
                .filter(|name| !name.is_empty())
                .map(|name| name.as_bytes().to_vec())
                .collect(),
        }
    }
}

/// Writes bytes, quoting those that would not read back as they are.
fn quote(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"._-+,=:@".contains(byte) {
            write!(f, "{}", *byte as char)?;
        } else {
            write!(f, "%{byte:02x}")?;
        }
    }
    Ok(())
}

fn unquote(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(byte.ok_or("two hexadecimal digits expected after '%'")?);
        rest = &tail[2..];
    }
    Ok(bytes)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.label {
            Some(label) => write!(f, "#{label}")?,
            None if self.names.is_empty() => write!(f, "/")?,
            None => {}
        }
        for (at, name) in self.names.iter().enumerate() {
            if at > 0 || self.label.is_some() {
                f.write_str("/")?;
            }
            quote(name, f)?;
        }
        Ok(())
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Path, String> {
        let (label, rest) = match text.strip_prefix('#') {
            Some(tail) => {
                let (number, rest) = tail.split_once('/').unwrap_or((tail, ""));
                let number = number.parse().map_err(|_| "a number expected after '#'")?;
                (Some(number), rest)
            }
            None => (None, text),
        };
        let names: Result<_, String> = rest
            .split('/')
            .filter(|name| !name.is_empty())
            .map(unquote)
            .collect();
        Ok(Path {
            label,
            names: names?,
        })
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Pattern(len) => write!(f, "{len}"),
            Data::Bytes(bytes) => {
                f.write_str("hex:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl FromStr for Data {
    type Err = String;

    fn from_str(text: &str) -> Result<Data, String> {
        let Some(digits) = text.strip_prefix("hex:") else {
            let len = text.parse().map_err(|_| "a number of bytes expected")?;
            return Ok(Data::Pattern(len));
        };
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16)
                .ok()
                .filter(|_| pair.len() == 2)
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or("pairs of hexadecimal digits expected after 'hex:'")?;
        Ok(Data::Bytes(bytes.into()))
    }
}

const ALLOCATIONS: [(&str, Allocate); 5] = [
    ("falloc", Allocate::Reserve { keep_size: false }),
    ("falloc-keep", Allocate::Reserve { keep_size: true }),
    ("punch", Allocate::PunchHole),
    ("zero", Allocate::ZeroRange { keep_size: false }),
    ("zero-keep", Allocate::ZeroRange { keep_size: true }),
];

/// The letters of `chattr` for the flags that it sets; `-` stands for none.
const FLAGS: [(char, u32); 12] = [
    ('s', 0x1),
    ('u', 0x2),
    ('c', 0x4),
    ('S', flags::SYNC),
    ('i', flags::IMMUTABLE),
    ('a', flags::APPEND),
    ('d', flags::NODUMP),
    ('A', flags::NOATIME),
    ('j', flags::JOURNAL_DATA),
    ('t', 0x8000),
    ('D', flags::DIRSYNC),
    ('T', flags::TOPDIR),
];

struct Flags(u32);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = FLAGS.iter().filter(|(_, flag)| self.0 & flag != 0);
        if self.0 & flags::SETTABLE == 0 {
            return f.write_str("-");
        }
        set.try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

fn flags_of(word: &str) -> Result<u32, String> {
    if word == "-" {
        return Ok(0);
    }
    word.chars().try_fold(0, |all, letter| {
        let known = FLAGS.iter().find(|(known, _)| *known == letter);
        let (_, flag) = known.ok_or(format!("there is no flag '{letter}'"))?;
        Ok(all | flag)
    })
}

struct Labelled(Option<u32>);

impl fmt::Display for Labelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |label| write!(f, " #{label}"))
    }
}

struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quote(self.0, f)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Create(path, label) => write!(f, "creat {path}{}", Labelled(*label)),
            Operation::Tmpfile(path, label) => write!(f, "tmpfile {path}{}", Labelled(*label)),
            Operation::Mkdir(path, label) => write!(f, "mkdir {path}{}", Labelled(*label)),
            Operation::Symlink(target, path, label) => {
                write!(f, "symlink {} {path}{}", Quoted(target), Labelled(*label))
            }
            Operation::Write(path, at, data) => write!(f, "write {path} {at} {data}"),
            Operation::Append(path, data) => write!(f, "append {path} {data}"),
            Operation::Truncate(path, size) => write!(f, "truncate {path} {size}"),
            Operation::TruncateStep(path, size) => write!(f, "truncate-step {path} {size}"),
            Operation::Allocate(path, how, at, len) => {
                let named = ALLOCATIONS.iter().find(|(_, a)| a == how);
                let name = named.map_or("falloc", |(name, _)| name);
                write!(f, "{name} {path} {at} {len}")
            }
            Operation::Link(from, to) => write!(f, "link {from} {to}"),
            Operation::Unlink(path) => write!(f, "unlink {path}"),
            Operation::Rmdir(path) => write!(f, "rmdir {path}"),
            Operation::Rename(from, to) => write!(f, "rename {from} {to}"),
            Operation::SetXattr(path, name, value) => {
                write!(f, "setxattr {path} {} {}", Quoted(name), Quoted(value))
            }
            Operation::RemoveXattr(path, name) => {
                write!(f, "removexattr {path} {}", Quoted(name))
            }
            Operation::SetAcl(path) => write!(f, "setacl {path}"),
            Operation::Open(path) => write!(f, "open {path}"),
            Operation::Close(path) => write!(f, "close {path}"),
            Operation::Fsync(path) => write!(f, "fsync {path}"),
            Operation::Fdatasync(path) => write!(f, "fdatasync {path}"),
            Operation::Sync => f.write_str("sync"),
            Operation::Work => f.write_str("work"),
            Operation::Round => f.write_str("round"),
            Operation::Reclaim(steps) => write!(f, "reclaim {steps}"),
            Operation::Exchange(one, other) => write!(f, "exchange {one} {other}"),
            Operation::Crash(0) => f.write_str("crash"),
            Operation::Crash(number) => write!(f, "crash {number}"),
            Operation::Cut => f.write_str("cut"),
            Operation::Remount(None) => f.write_str("remount"),
            Operation::Remount(Some(kind)) => write!(f, "remount {kind}"),
            Operation::LogClose => f.write_str("log-close"),
            Operation::LogTail => f.write_str("log-tail"),
            Operation::LogBlocks(blocks) => write!(f, "log-blocks {blocks}"),
            Operation::LogSequence(number) => write!(f, "log-sequence {number}"),
            Operation::FewBlocks(number) => write!(f, "few-blocks {number}"),
            Operation::Utimes(path, accessed, modified) => {
                write!(f, "utimes {path} {accessed} {modified}")
            }
            Operation::Chmod(path, bits) => write!(f, "chmod {path} {bits:o}"),
            Operation::Chown(path, uid, gid) => write!(f, "chown {path} {uid} {gid}"),
            Operation::Chattr(path, flags) => write!(f, "chattr {path} {}", Flags(*flags)),
            Operation::As(uid, gid, bits) => write!(f, "as {uid} {gid} {bits:o}"),
            Operation::Engage(group) => write!(f, "engage {group}"),
            Operation::Disengage(group) => write!(f, "disengage {group}"),
            Operation::Depend(after, before) => write!(f, "depend {after} {before}"),
            Operation::SyncGroup(group) => write!(f, "sync-group {group}"),
            Operation::Said(bytes) => write!(f, "said {}", Quoted(bytes)),
        }
    }
}

/// The words of a line behind the operation's name.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn next(&mut self, what: &str) -> Result<&str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn path(&mut self) -> Result<Path, String> {
        self.next("a path")?.parse()
    }

    fn bytes(&mut self, what: &str) -> Result<Vec<u8>, String> {
        unquote(self.next(what)?)
    }

    fn number(&mut self, what: &str) -> Result<u64, String> {
        let word = self.next(what)?;
        word.parse()
            .map_err(|_| format!("{what} is no number: '{word}'"))
    }

    fn id(&mut self, what: &str) -> Result<u32, String> {
        let number = self.number(what)?;
        u32::try_from(number).map_err(|_| format!("{what} is too large: {number}"))
    }

    /// Permission bits, in octal.
    fn bits(&mut self) -> Result<u16, String> {
        let word = self.next("permission bits")?;
        let bits = u16::from_str_radix(word, 8).ok().filter(|b| *b <= 0o7777);
        bits.ok_or_else(|| format!("'{word}' is not an octal mode"))
    }

    fn label(&mut self) -> Result<Option<u32>, String> {
        let Some(word) = self.0.next() else {
            return Ok(None);
        };
        let number = word.strip_prefix('#').and_then(|n| n.parse().ok());
        number.map(Some).ok_or(format!("'{word}' is no label"))
    }
}

fn parse(line: &str) -> Result<Operation, String> {
    let mut words = Words(line.split_ascii_whitespace());
    let name = words.next("an operation")?.to_owned();
    let operation = match name.as_str() {
        "creat" => Operation::Create(words.path()?, words.label()?),
        "tmpfile" => Operation::Tmpfile(words.path()?, words.label()?),
        "mkdir" => Operation::Mkdir(words.path()?, words.label()?),
        "symlink" => Operation::Symlink(words.bytes("a target")?, words.path()?, words.label()?),
        "write" | "overwrite" => Operation::Write(
            words.path()?,
            words.number("an offset")?,
            words.next("a length")?.parse()?,
        ),
        "append" => Operation::Append(words.path()?, words.next("a length")?.parse()?),
        "truncate" => Operation::Truncate(words.path()?, words.number("a size")?),
        "truncate-step" => Operation::TruncateStep(words.path()?, words.number("a size")?),
        "link" => Operation::Link(words.path()?, words.path()?),
        "unlink" => Operation::Unlink(words.path()?),
        "rmdir" => Operation::Rmdir(words.path()?),
        "rename" => Operation::Rename(words.path()?, words.path()?),
        "setxattr" => Operation::SetXattr(
            words.path()?,
            words.bytes("a name")?,
            words.bytes("a value")?,
        ),
        "removexattr" => Operation::RemoveXattr(words.path()?, words.bytes("a name")?),
        "setacl" => Operation::SetAcl(words.path()?),
        "open" => Operation::Open(words.path()?),
        "close" => Operation::Close(words.path()?),
        "fsync" => Operation::Fsync(words.path()?),
        "fdatasync" => Operation::Fdatasync(words.path()?),
        "sync" => Operation::Sync,
        "work" => Operation::Work,
        "round" => Operation::Round,
        "reclaim" => Operation::Reclaim(words.id("a number of steps")?),
        "exchange" => Operation::Exchange(words.path()?, words.path()?),
        "crash" => {
            let number = words.0.next().map_or(Ok(0), str::parse);
            Operation::Crash(number.map_err(|_| "a number expected after 'crash'")?)
        }
        "cut" => Operation::Cut,
        "remount" => {
            let ordering = words.0.next().map(str::parse::<Ordering>).transpose();
            Operation::Remount(ordering.map_err(|unknown| unknown.to_string())?)
        }
        "log-close" => Operation::LogClose,
        "log-tail" => Operation::LogTail,
        "log-blocks" => Operation::LogBlocks(words.id("a number of blocks")?),
        "log-sequence" => Operation::LogSequence(words.id("a sequence number")?),
        "few-blocks" => Operation::FewBlocks(words.id("a number of blocks")?),
        "utimes" => Operation::Utimes(
            words.path()?,
            words.id("a time of access")?,
            words.id("a time of change")?,
        ),
        "chmod" => Operation::Chmod(words.path()?, words.bits()?),
        "chown" => Operation::Chown(words.path()?, words.id("an owner")?, words.id("a group")?),
        "chattr" => Operation::Chattr(words.path()?, flags_of(words.next("flags")?)?),
        "as" => Operation::As(words.id("an owner")?, words.id("a group")?, words.bits()?),
        "engage" => Operation::Engage(words.id("a patchgroup")?),
        "disengage" => Operation::Disengage(words.id("a patchgroup")?),
        "depend" => Operation::Depend(words.id("a patchgroup")?, words.id("another patchgroup")?),
        "sync-group" => Operation::SyncGroup(words.id("a patchgroup")?),
        "said" => Operation::Said(words.bytes("what was said")?),
        other => {
            let known = ALLOCATIONS.iter().find(|(name, _)| *name == other);
            let (_, how) = known.ok_or(format!("there is no operation '{other}'"))?;
            let path = words.path()?;
            Operation::Allocate(
                path,
                *how,
                words.number("an offset")?,
                words.number("a length")?,
            )
        }
    };
    match words.0.next() {
        Some(word) => Err(format!("'{word}' is not expected here")),
        None => Ok(operation),
    }
}

impl FromStr for Operation {
    type Err = BadOperation;

    fn from_str(line: &str) -> Result<Operation, BadOperation> {
        parse(line).map_err(|why| BadOperation {
            line: line.trim().to_owned(),
            why,
        })
    }
}

/// Operations, separated by semicolons or line ends. A line that begins with `#` and a space is a
/// comment.
///
/// # Errors
/// The first line that is no operation.
pub fn parse_script(text: &str) -> Result<Vec<Operation>, BadOperation> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("# "))
        .flat_map(|line| line.split(';'))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::parse)
        .collect()
}

/// Operations as one line, as [`parse_script`] reads them.
pub fn script(operations: &[Operation]) -> String {
    let lines: Vec<String> = operations.iter().map(Operation::to_string).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "creat A/foo #12; mkdir A; symlink to%20there A/s; write #12 4096 5000; append foo hex:00ff; \
                    truncate foo 7; falloc foo 0 10; punch foo 1 2; zero-keep foo 3 4; link A/foo B/bar; unlink #3/x%2fy; \
                    rmdir A; rename A B; setxattr foo user.a v; removexattr foo user.a; setacl /; open foo; close foo; \
                    fsync /; fdatasync foo; sync; work; exchange A #3/b; chmod foo 4755; chown #3 1000 100; chattr foo ia; chattr #3 -; as 0 7 644; \
                     said 17%0a; depend 2 1; engage 2; disengage 2; sync-group 2; crash 7; remount; remount journal=full; log-blocks 64; log-tail; log-close; \
                     log-sequence 4294967295; few-blocks 9; utimes foo 1 2; round; reclaim 3; cut; truncate-step foo 7";
        let operations = parse_script(text).unwrap();
        assert_eq!(operations.len(), 46);
        assert_eq!(parse_script(&script(&operations)).unwrap(), operations);
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (line, why) in [
            ("jump foo", "no operation 'jump'"),
            ("write foo x 3", "an offset is no number: 'x'"),
            ("rename foo", "a path is missing"),
            ("sync now", "'now' is not expected here"),
            ("append foo hex:0", "pairs of hexadecimal digits"),
            ("unlink %zz", "two hexadecimal digits"),
            ("chmod foo 999", "'999' is not an octal mode"),
            ("chown foo 1 99999999999", "a group is too large"),
            ("chattr foo iz", "no flag 'z'"),
            ("chattr foo", "flags is missing"),
        ] {
            let error = line.parse::<Operation>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_pattern_differs_by_operation_and_place_and_is_never_zero() {
        let first = Data::Pattern(4096).bytes(3, 0);
        assert!(first.iter().all(|b| *b != 0));
        assert_ne!(first, Data::Pattern(4096).bytes(4, 0));
        assert_ne!(first, Data::Pattern(4096).bytes(3, 4096));
        assert_eq!(first[512..], Data::Pattern(3584).bytes(3, 512));
    }
}
