//! Pass 1: every inode.

use super::state::{Context, Directory, Gathered, InodeInfo, Piece};
use super::{CheckError, Code, Location, Source};
use crate::bits::Bits;
use backstitch_layout::tools::Findings;
use backstitch_layout::{FileType, GroupNumber, InodeNumber};
use backstitch_ufs::format::directory::{CHUNK_BYTES, type_code};
use backstitch_ufs::format::inode::{POINTERS, SYMLINK_MAX};
use backstitch_ufs::format::{Inode, ROOT_INODE, SECTOR_BYTES, Superblock, Version, attributes};

/// Looks at all inodes.
pub(super) fn scan<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
) -> Result<Gathered, CheckError> {
    let sb = context.sb;
    let mut used = Bits::new(sb.fragments);
    for group in GroupNumber::all(sb.groups) {
        for fragment in sb.own_fragments(group) {
            used.insert(fragment);
        }
    }
    for fragment in sb.summary_fragments() {
        used.insert(fragment);
    }
    let own = used.clone();
    let mut scan = Scan {
        context,
        own,
        gathered: Gathered {
            used,
            inodes: Vec::new(),
            directories: Vec::new(),
            pieces: Vec::new(),
        },
        findings,
        taken: 0,
    };
    for group in GroupNumber::all(sb.groups) {
        let infos = scan.group(group)?;
        scan.gathered.inodes.push(infos);
    }
    Ok(scan.gathered)
}

pub(super) struct Scan<'s, 'c, S: Source + ?Sized> {
    pub(super) context: &'s Context<'c, S>,
    /// The fragments of the file system itself.
    pub(super) own: Bits,
    pub(super) gathered: Gathered,
    findings: &'s mut Findings,
    /// Fragments that the inode at hand takes.
    pub(super) taken: u64,
}

impl<S: Source + ?Sized> Scan<'_, '_, S> {
    pub(super) fn sb(&self) -> &Superblock {
        self.context.sb
    }

    pub(super) fn add(&mut self, code: Code, place: Location, what: impl FnOnce() -> String) {
        self.findings.add(code, place, what);
    }

    /// The inodes of a group; `None` where none is in use.
    fn group(&mut self, group: GroupNumber) -> Result<Option<Box<[InodeInfo]>>, CheckError> {
        let context = self.context;
        let sb = context.sb;
        let inode_bytes = sb.version.inode_bytes();
        let block_bytes = sb.block_bytes as usize;
        let mut infos: Option<Box<[InodeInfo]>> = None;
        let mut scratch = Vec::new();
        let initialised = context.groups[group.index()].initialised;
        for block in 0..initialised.div_ceil(sb.inodes_per_block) {
            let at = sb.group_inodes(group) + u64::from(block * sb.fragments_per_block);
            let offset = at * u64::from(sb.fragment_bytes);
            if context.source.is_known_zero(offset, block_bytes) {
                continue;
            }
            let bytes = context.bytes(at, block_bytes, &mut scratch)?;
            for (index, bytes) in bytes.chunks_exact(inode_bytes).enumerate() {
                let index = block * sb.inodes_per_block + index as u32;
                let number = InodeNumber(group.0 * sb.inodes_per_group + index);
                if number < ROOT_INODE || index >= initialised {
                    continue;
                }
                let inode = Inode::parse(sb.version, sb.order, bytes)?;
                if inode.mode == 0 {
                    self.check_free(number, &inode);
                    continue;
                }
                let info = self.inode(number, &inode)?;
                let infos = infos.get_or_insert_with(|| {
                    let empty = || InodeInfo::default();
                    (0..sb.inodes_per_group).map(|_| empty()).collect()
                });
                infos[index as usize] = info;
            }
        }
        Ok(infos)
    }

    /// An inode that is not in use must not say that it is.
    fn check_free(&mut self, number: InodeNumber, inode: &Inode) {
        let is_clear = inode.size == 0
            && inode.pointers.iter().all(|pointer| *pointer == 0)
            && inode.attribute_pointers == [0; 2];
        if !is_clear {
            self.add(Code::FieldNotZero, Location::inode(number), || {
                "free, but with a size or pointers".to_owned()
            });
        }
    }

    fn inode(&mut self, number: InodeNumber, inode: &Inode) -> Result<InodeInfo, CheckError> {
        let place = Location::inode(number);
        let mut info = InodeInfo {
            is_used: true,
            links: inode.links,
            ..InodeInfo::default()
        };
        self.taken = 0;
        let Some(file_type) = inode.file_type() else {
            self.add(Code::ModeInvalid, place, || {
                format!("mode {:o} is of no type", inode.mode)
            });
            return Ok(info);
        };
        info.type_code = type_code(file_type);
        // It had lost its last name and was about to be cleared. What it leads to need never have
        // been written.
        if inode.links == 0 && self.sb().is_left_in_order() {
            info.is_dead = true;
            return Ok(info);
        }
        self.attributes(number, inode)?;
        match file_type {
            FileType::Directory => self.directory(number, inode)?,
            FileType::Regular => self.file(number, inode)?,
            FileType::Symlink => self.symlink(number, inode)?,
            FileType::CharacterDevice | FileType::BlockDevice => self.special(number, inode, 1),
            FileType::Fifo | FileType::Socket => self.special(number, inode, 0),
        }
        let sectors = self.taken * u64::from(self.sb().fragment_bytes) / SECTOR_BYTES;
        info.sectors = sectors;
        if sectors != inode.sectors {
            self.add(Code::BlockCountWrong, place, || {
                format!("counts {} sectors, takes {sectors}", inode.sectors)
            });
        }
        Ok(info)
    }

    fn file(&mut self, number: InodeNumber, inode: &Inode) -> Result<(), CheckError> {
        if inode.size > self.sb().file_bytes_max {
            let most = self.sb().file_bytes_max;
            self.add(Code::SizeInvalid, Location::inode(number), || {
                format!("a size of {}, at most {most} can be", inode.size)
            });
        }
        self.map(number, inode, false)
    }

    fn directory(&mut self, number: InodeNumber, inode: &Inode) -> Result<(), CheckError> {
        let place = Location::inode(number);
        let first = self.gathered.pieces.len();
        let size = inode.size;
        if size == 0 {
            self.add(Code::DirectoryEmpty, place, || {
                "a directory of no bytes".to_owned()
            });
        } else if size > i64::MAX as u64 / 2 || !size.is_multiple_of(CHUNK_BYTES as u64) {
            self.add(Code::SizeInvalid, place, || {
                format!("a size of {size}, which is no multiple of {CHUNK_BYTES}")
            });
        }
        self.map(number, inode, true)?;
        let pieces = first..self.gathered.pieces.len();
        let blocks = size.div_ceil(self.sb().block_bytes.into());
        let mapped = self.gathered.pieces[pieces.clone()]
            .iter()
            .map(|piece| piece.logical);
        let missing = (0..)
            .zip(mapped)
            .find(|(expected, found)| expected != found);
        let end = missing.map_or(pieces.len() as u64, |(expected, _)| expected);
        if end < blocks {
            self.add(Code::DirectoryHole, place, || {
                format!("its block {end} is missing, of {blocks}")
            });
        }
        self.gathered.directories.push(Directory {
            inode: number,
            pieces,
        });
        Ok(())
    }

    /// Adds a block of a directory, where it can be read.
    pub(super) fn add_piece(&mut self, logical: u64, fragment: Option<u64>, bytes: u32) {
        self.gathered.pieces.push(Piece {
            logical,
            fragment,
            bytes,
        });
    }

    fn symlink(&mut self, number: InodeNumber, inode: &Inode) -> Result<(), CheckError> {
        let place = Location::inode(number);
        let size = inode.size;
        if size == 0 || size > SYMLINK_MAX as u64 {
            self.add(Code::SymlinkInvalid, place, || {
                format!("a target of {size} bytes")
            });
            return Ok(());
        }
        let target = if inode.is_fast_symlink(self.sb().symlink_max) {
            inode.inline_bytes()
        } else {
            self.map(number, inode, false)?;
            let first = inode.pointers[0];
            let fragments = size.div_ceil(self.sb().fragment_bytes.into());
            let exists = first
                .checked_add(fragments)
                .is_some_and(|end| end <= self.sb().fragments);
            if first == 0 || !exists {
                self.add(Code::SymlinkInvalid, place, || {
                    format!("a target of {size} bytes that is nowhere")
                });
                return Ok(());
            }
            let mut scratch = Vec::new();
            self.context
                .bytes(first, size as usize, &mut scratch)?
                .to_vec()
        };
        let length = target
            .iter()
            .take(size as usize)
            .position(|byte| *byte == 0);
        if let Some(length) = length {
            self.add(Code::SymlinkInvalid, place, || {
                format!("a target of {length} bytes, its size says {size}")
            });
        }
        Ok(())
    }

    /// Fifos, sockets and devices: only the latter have a number in the place of the first pointer.
    fn special(&mut self, number: InodeNumber, inode: &Inode, numbers: usize) {
        let rest = &inode.pointers[numbers..];
        if rest.iter().any(|pointer| *pointer != 0) {
            self.add(Code::SpecialFileInvalid, Location::inode(number), || {
                "has pointers".to_owned()
            });
        }
    }

    /// The blocks of extended attributes: the last one may be fragments.
    fn attributes(&mut self, number: InodeNumber, inode: &Inode) -> Result<(), CheckError> {
        if self.sb().version == Version::Ufs1 {
            return Ok(());
        }
        let block = u64::from(self.sb().block_bytes);
        let bytes = u64::from(inode.attribute_bytes);
        if bytes > block * inode.attribute_pointers.len() as u64 {
            self.add(Code::XattrInodeInvalid, Location::inode(number), || {
                format!("{bytes} bytes of attributes are more than fit")
            });
            return Ok(());
        }
        let (mut area, mut is_whole) = (Vec::new(), true);
        for (index, pointer) in inode.attribute_pointers.into_iter().enumerate() {
            let start = index as u64 * block;
            let rest = bytes.saturating_sub(start).min(block);
            let fragments = rest.div_ceil(self.sb().fragment_bytes.into()) as u32;
            match (pointer, fragments) {
                (0, 0) => {}
                (0, _) | (_, 0) => {
                    self.add(Code::XattrInodeInvalid, Location::inode(number), || {
                        format!("block {index} of its attributes does not fit its size")
                    });
                    is_whole = false;
                }
                (pointer, fragments) => {
                    is_whole &= self.claim(number, POINTERS + index, pointer, fragments);
                    if is_whole {
                        let mut scratch = Vec::new();
                        let bytes = self.context.bytes(pointer, rest as usize, &mut scratch)?;
                        area.extend_from_slice(bytes);
                    }
                }
            }
        }
        if is_whole && let Err(fault) = attributes::parse(inode.order, &area) {
            self.add(Code::XattrInodeInvalid, Location::inode(number), || {
                format!("of its attributes {fault}")
            });
        }
        Ok(())
    }
}
