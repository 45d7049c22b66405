//! Pass 2: every entry of every directory.

use super::CheckError;
use super::Names;
use super::index::Index;
use super::state::{Context, Directory, Gathered, InodeInfo, in_chunks};
use backstitch_ext::format::ROOT_INODE;
use backstitch_ext::format::directory::{self, Entry};
use backstitch_ext::format::features::INCOMPAT_FILETYPE;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, InodeNumber};
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::Hasher;
use std::sync::atomic::Ordering;

/// Chunks for each thread: several, so that all threads end at about the same time.
const CHUNKS_PER_THREAD: usize = 16;
/// The largest length of the entry `.`: a longer one would hide `..`, or what follows it.
const DOT_MAX_BYTES: usize = 24;

/// Looks at all directories.
pub(crate) fn scan<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    findings: &mut Findings,
) -> Result<Names, CheckError> {
    let count = gathered.directories.len();
    let chunks = if context.threads > 1 {
        context.threads * CHUNKS_PER_THREAD
    } else {
        1
    };
    let per_chunk = count.div_ceil(chunks).max(1);
    let (_, parts) = in_chunks(
        context.threads,
        count.div_ceil(per_chunk),
        Vec::new,
        |scratch: &mut Vec<u8>, chunk| {
            let mut scan = Scan::new(context, gathered);
            let end = count.min((chunk + 1) * per_chunk);
            for directory in &gathered.directories[chunk * per_chunk..end] {
                scan.directory(directory, scratch)?;
            }
            Ok((scan.findings, scan.parents, scan.named))
        },
    )?;
    let mut names = Names {
        parents: Vec::with_capacity(count),
        named: Vec::new(),
    };
    for (part, parents, named) in parts {
        findings.append(part);
        names.parents.extend(parents);
        names.named.extend(named);
    }
    names.named.sort();
    Ok(names)
}

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Dot,
    DotDot,
    Name,
}

struct Scan<'s, 'c, S: Source + ?Sized> {
    context: &'s Context<'c, S>,
    gathered: &'s Gathered,
    findings: Findings,
    parents: Vec<InodeNumber>,
    named: Vec<(u32, InodeNumber)>,
    /// A hash of every name of the directory at hand.
    hashes: Vec<u64>,
    has_types: bool,
}

impl<'s, 'c, S: Source + ?Sized> Scan<'s, 'c, S> {
    fn new(context: &'s Context<'c, S>, gathered: &'s Gathered) -> Self {
        Scan {
            context,
            gathered,
            findings: Findings::new(context.max_findings),
            parents: Vec::new(),
            named: Vec::new(),
            hashes: Vec::new(),
            has_types: context.sb.features.has_incompat(INCOMPAT_FILETYPE),
        }
    }

    fn directory(
        &mut self,
        directory: &Directory,
        scratch: &mut Vec<u8>,
    ) -> Result<(), CheckError> {
        self.parents.push(InodeNumber::NONE);
        self.hashes.clear();
        let blocks = &self.gathered.directory_blocks[directory.blocks.clone()];
        let is_whole = self.check_holes(directory);
        let can_index = is_whole && blocks.iter().all(|block| block.block != 0);
        let mut index = (directory.has_index && can_index)
            .then(|| Index::new(self.context.sb, directory.inode, blocks.len()));
        for block in blocks.iter().filter(|block| block.block != 0) {
            let bytes = self
                .context
                .block(BlockNumber(block.block.into()), scratch)?;
            if let Some(index) = &mut index {
                index.start_block(block.logical as usize, bytes);
            }
            let place = Location::inode(directory.inode).at_block(BlockNumber(block.block.into()));
            self.block(directory.inode, block.logical, bytes, place, index.as_mut());
        }
        if let Some(index) = index {
            index.finish(&mut self.findings);
        }
        self.check_duplicates(directory, scratch)
    }

    /// Whether every block up to the last one is there.
    fn check_holes(&mut self, directory: &Directory) -> bool {
        let blocks = &self.gathered.directory_blocks[directory.blocks.clone()];
        let missing = blocks
            .iter()
            .enumerate()
            .find(|(index, block)| *index as u32 != block.logical);
        if let Some((index, _)) = missing {
            let holes = directory.mapped_blocks - blocks.len() as u64;
            let place = Location::inode(directory.inode);
            self.findings.add(Code::DirectoryHole, place, || {
                format!("its block {index} is missing, {holes} in all")
            });
        }
        missing.is_none()
    }

    fn block(
        &mut self,
        inode: InodeNumber,
        logical: u32,
        bytes: &[u8],
        place: Location,
        mut index: Option<&mut Index<'_>>,
    ) {
        let mut role = if logical == 0 { Role::Dot } else { Role::Name };
        for entry in directory::entries(bytes, u32::MAX) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.findings
                        .add(Code::EntryCorrupt, place.at_offset(error.offset), || {
                            error.to_string()
                        });
                    return;
                }
            };
            let place = place.at_offset(entry.offset);
            match role {
                Role::Dot => self.check_dot(inode, bytes, &entry, place),
                Role::DotDot => self.check_dot_dot(bytes, &entry, place),
                Role::Name => {}
            }
            if entry.inode != InodeNumber::NONE {
                if let Some(index) = &mut index {
                    index.name(logical as usize, entry.name);
                }
                self.entry(inode, &entry, role, place);
            }
            role = if role == Role::Dot {
                Role::DotDot
            } else {
                Role::Name
            };
        }
        if role == Role::DotDot {
            self.findings
                .add(Code::DotDotInvalid, place, || ".. is missing".into());
        }
    }

    fn check_dot(&mut self, inode: InodeNumber, bytes: &[u8], entry: &Entry<'_>, place: Location) {
        let what = if entry.inode == InodeNumber::NONE || entry.name != b"." {
            ". is missing".to_owned()
        } else if entry.inode != inode {
            format!(". is inode {}", entry.inode)
        } else if byte_after_name(bytes, entry) != 0 {
            ". does not end with a zero".to_owned()
        } else if entry.rec_len > DOT_MAX_BYTES {
            format!(". is {} bytes long", entry.rec_len)
        } else {
            return;
        };
        self.findings.add(Code::DotInvalid, place, || what);
    }

    fn check_dot_dot(&mut self, bytes: &[u8], entry: &Entry<'_>, place: Location) {
        let what = if entry.inode == InodeNumber::NONE || entry.name != b".." {
            ".. is missing"
        } else if byte_after_name(bytes, entry) != 0 {
            ".. does not end with a zero"
        } else {
            if let Some(parent) = self.parents.last_mut() {
                *parent = entry.inode;
            }
            return;
        };
        self.findings
            .add(Code::DotDotInvalid, place, || what.into());
    }

    /// An entry that is in use.
    fn entry(&mut self, directory: InodeNumber, entry: &Entry<'_>, role: Role, place: Location) {
        let sb = self.context.sb;
        let is_name = role == Role::Name;
        let target = entry.inode;
        let is_reserved = target < sb.first_inode && target != ROOT_INODE;
        if is_reserved || !sb.is_valid_inode(target) {
            let what = || format!("{} is inode {target}, which no entry can be", show(entry));
            self.findings.add(Code::EntryInodeInvalid, place, what);
            return;
        }
        if is_name && (target == directory || target == ROOT_INODE) {
            let what = || format!("{} is the directory itself or the root", show(entry));
            self.findings.add(Code::EntryInodeInvalid, place, what);
            return;
        }
        if is_name {
            self.check_name(entry, place);
        }
        let Some(info) = self.gathered.inode(sb, target) else {
            self.findings.add(Code::EntryToFreeInode, place, || {
                format!("{} is inode {target}, which is not in use", show(entry))
            });
            return;
        };
        self.check_type(entry, info, place);
        info.names.fetch_add(1, Ordering::Relaxed);
        if is_name {
            self.hashes.push(hash_of(entry.name));
            if let Some(index) = self.gathered.directory_index_of(info, target) {
                self.named.push((index, directory));
            }
        }
    }

    fn check_name(&mut self, entry: &Entry<'_>, place: Location) {
        let name = entry.name;
        let is_bad = name.is_empty()
            || name == b"."
            || name == b".."
            || name.iter().any(|byte| matches!(byte, b'/' | 0));
        if is_bad {
            self.findings.add(Code::EntryNameInvalid, place, || {
                format!("{} is no name", show(entry))
            });
        }
    }

    fn check_type(&mut self, entry: &Entry<'_>, info: &InodeInfo, place: Location) {
        let expected = if self.has_types {
            info.type_code
        } else {
            directory::TYPE_UNKNOWN
        };
        // An unknown type misleads nobody.
        if entry.file_type != expected && entry.file_type != directory::TYPE_UNKNOWN {
            self.findings.add(Code::EntryTypeWrong, place, || {
                format!(
                    "{} has type {}, should be {expected}",
                    show(entry),
                    entry.file_type
                )
            });
        }
    }

    /// Finds names that are there twice: first by their hashes; the names themselves are compared
    /// only where two hashes are the same.
    fn check_duplicates(
        &mut self,
        directory: &Directory,
        scratch: &mut Vec<u8>,
    ) -> Result<(), CheckError> {
        self.hashes.sort_unstable();
        let suspects: FxHashSet<u64> = self
            .hashes
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
            .collect();
        if suspects.is_empty() {
            return Ok(());
        }
        let mut seen: FxHashSet<Vec<u8>> = FxHashSet::default();
        let blocks = &self.gathered.directory_blocks[directory.blocks.clone()];
        for block in blocks.iter().filter(|block| block.block != 0) {
            let place = Location::inode(directory.inode).at_block(BlockNumber(block.block.into()));
            let bytes = self
                .context
                .block(BlockNumber(block.block.into()), scratch)?;
            for entry in directory::entries(bytes, u32::MAX).map_while(Result::ok) {
                if entry.inode == InodeNumber::NONE || !suspects.contains(&hash_of(entry.name)) {
                    continue;
                }
                if !seen.insert(entry.name.to_vec()) {
                    self.findings
                        .add(Code::EntryDuplicate, place.at_offset(entry.offset), || {
                            format!("{} is there twice", show(&entry))
                        });
                }
            }
        }
        Ok(())
    }
}

/// The byte behind a name, which for `.` and `..` must be 0; 0 where the entry ends with the name.
fn byte_after_name(bytes: &[u8], entry: &Entry<'_>) -> u8 {
    let end = entry.offset + directory::HEADER_SIZE + entry.name.len();
    if end < entry.offset + entry.rec_len {
        bytes[end]
    } else {
        0
    }
}

fn hash_of(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

/// An entry's name for people.
fn show(entry: &Entry<'_>) -> String {
    format!("entry \"{}\"", entry.name.escape_ascii())
}
