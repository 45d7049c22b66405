//! Pass 2: every entry of every directory.

use super::Names;
use super::state::{Context, Directory, Gathered, InodeInfo};
use super::{CheckError, Code, Location, Source};
use crate::entries::entries;
use backstitch_blocks::directory::{Entry, HEADER_SIZE};
use backstitch_layout::tools::Findings;
use backstitch_layout::tools::tree::Directories;
use backstitch_layout::{BlockNumber, FileType, InodeNumber};
use backstitch_ufs::format::directory::{CHUNK_BYTES, type_code};
use backstitch_ufs::format::{ROOT_INODE, WHITEOUT_INODE};
use rustc_hash::FxHashSet;

/// The type code of an entry that hides a name of a lower layer (`DT_WHT`).
const WHITEOUT_CODE: u8 = 14;

/// Looks at all directories.
pub(super) fn scan<S: Source + ?Sized>(
    context: &Context<'_, S>,
    gathered: &Gathered,
    findings: &mut Findings,
) -> Result<Names, CheckError> {
    let names = Names {
        parents: Vec::with_capacity(gathered.directories.len()),
        named: Vec::new(),
    };
    let mut scan = Scan {
        context,
        gathered,
        findings,
        names,
        seen: FxHashSet::default(),
    };
    let mut scratch = Vec::new();
    for directory in &gathered.directories {
        scan.directory(directory, &mut scratch)?;
    }
    scan.names.named.sort_unstable();
    Ok(scan.names)
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
    findings: &'s mut Findings,
    names: Names,
    /// The names of the directory at hand.
    seen: FxHashSet<Vec<u8>>,
}

impl<S: Source + ?Sized> Scan<'_, '_, S> {
    fn directory(
        &mut self,
        directory: &Directory,
        scratch: &mut Vec<u8>,
    ) -> Result<(), CheckError> {
        self.names.parents.push(InodeNumber::NONE);
        self.seen.clear();
        for piece in &self.gathered.pieces[directory.pieces.clone()] {
            let Some(fragment) = piece.fragment else {
                continue;
            };
            let context = self.context;
            let bytes = context.bytes(fragment, piece.bytes as usize, scratch)?;
            for (index, chunk) in bytes.chunks_exact(CHUNK_BYTES).enumerate() {
                let place = Location::inode(directory.inode).at_block(BlockNumber(fragment));
                let is_first = piece.logical == 0 && index == 0;
                self.chunk(directory.inode, is_first, index * CHUNK_BYTES, chunk, place);
            }
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        inode: InodeNumber,
        is_first: bool,
        start: usize,
        bytes: &[u8],
        place: Location,
    ) {
        let mut role = if is_first { Role::Dot } else { Role::Name };
        for entry in entries(self.context.sb.order, bytes) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let place = place.at_offset(start + error.offset);
                    self.findings
                        .add(Code::EntryCorrupt, place, || error.to_string());
                    return;
                }
            };
            let place = place.at_offset(start + entry.offset);
            if entry.inode != InodeNumber::NONE && !is_terminated(bytes, &entry) {
                self.findings.add(Code::EntryCorrupt, place, || {
                    format!("{} has no zero behind it", show(&entry))
                });
                return;
            }
            match role {
                Role::Dot => self.check_dot(inode, &entry, place),
                Role::DotDot => self.check_dot_dot(&entry, place),
                Role::Name => {}
            }
            if entry.inode != InodeNumber::NONE {
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
                .add(Code::DotDotInvalid, place, || ".. is missing".to_owned());
        }
    }

    fn check_dot(&mut self, inode: InodeNumber, entry: &Entry<'_>, place: Location) {
        let what = if entry.inode == InodeNumber::NONE || entry.name != b"." {
            ". is missing".to_owned()
        } else if entry.inode != inode {
            format!(". is inode {}", entry.inode)
        } else {
            return;
        };
        self.findings.add(Code::DotInvalid, place, || what);
    }

    fn check_dot_dot(&mut self, entry: &Entry<'_>, place: Location) {
        if entry.inode == InodeNumber::NONE || entry.name != b".." {
            let what = || ".. is missing".to_owned();
            self.findings.add(Code::DotDotInvalid, place, what);
        } else if let Some(parent) = self.names.parents.last_mut() {
            *parent = entry.inode;
        }
    }

    /// An entry that is in use.
    fn entry(&mut self, directory: InodeNumber, entry: &Entry<'_>, role: Role, place: Location) {
        let is_name = role == Role::Name;
        let target = entry.inode;
        if is_name && target == WHITEOUT_INODE && entry.file_type == WHITEOUT_CODE {
            self.check_name(entry, place);
            return;
        }
        let inodes =
            u64::from(self.context.sb.inodes_per_group) * u64::from(self.context.sb.groups);
        let is_itself = is_name && (target == directory || target == ROOT_INODE);
        if target < ROOT_INODE || u64::from(target.0) >= inodes || is_itself {
            let what = || format!("{} is inode {target}, which it cannot be", show(entry));
            self.findings.add(Code::EntryInodeInvalid, place, what);
            return;
        }
        if is_name {
            self.check_name(entry, place);
        }
        let gathered = self.gathered;
        let Some(info) = gathered.inode(self.context.sb, target) else {
            self.findings.add(Code::EntryToFreeInode, place, || {
                format!("{} is inode {target}, which is not in use", show(entry))
            });
            return;
        };
        self.check_type(entry, info, role, place);
        info.names.set(info.names.get() + 1);
        if is_name && info.is_directory() {
            let index = gathered.directory_index(target).map(|index| index as u32);
            self.names
                .named
                .extend(index.map(|index| (index, directory)));
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
        } else if !self.seen.insert(name.to_vec()) {
            self.findings.add(Code::EntryDuplicate, place, || {
                format!("{} is there twice", show(entry))
            });
        }
    }

    fn check_type(&mut self, entry: &Entry<'_>, info: &InodeInfo, role: Role, place: Location) {
        let expected = match role {
            Role::Name => info.type_code,
            Role::Dot | Role::DotDot => type_code(FileType::Directory),
        };
        if entry.file_type != expected && info.type_code != 0 {
            self.findings.add(Code::EntryTypeWrong, place, || {
                format!(
                    "{} has type {}, should be {expected}",
                    show(entry),
                    entry.file_type
                )
            });
        }
    }
}

/// Whether a zero is behind the name, within the entry.
fn is_terminated(bytes: &[u8], entry: &Entry<'_>) -> bool {
    let end = HEADER_SIZE + entry.name.len();
    end < entry.rec_len && bytes.get(entry.offset + end) == Some(&0)
}

/// An entry's name for people.
fn show(entry: &Entry<'_>) -> String {
    format!("entry \"{}\"", entry.name.escape_ascii())
}
