//! Pass 1, what an inode's type asks of it: special files, symlinks, and directories under a wrong
//! mode.

use super::CheckError;
use super::inodes::{Scan, full_size};
use backstitch_ext::format::directory;
use backstitch_ext::format::inode::{self, FAST_SYMLINK_MAX, Inode};
use backstitch_layout::tools::Code;
use backstitch_layout::tools::Source;
use backstitch_layout::{BlockNumber, FileType, InodeNumber};

/// Flags that only files and directories can have.
pub(crate) const FLAGS_OF_FILES: u32 = inode::FLAG_IMMUTABLE | inode::FLAG_APPEND;

impl<S: Source + ?Sized> Scan<'_, '_, S> {
    /// Whether an inode whose mode is of no type, or of one that has no blocks, begins with its own
    /// `.` and a `..`, as only directories do.
    pub(super) fn looks_like_directory(
        &mut self,
        number: InodeNumber,
        inode: &Inode,
    ) -> Result<bool, CheckError> {
        use FileType::{BlockDevice, CharacterDevice, Directory, Regular, Symlink};
        let sb = self.context.sb;
        let kind = inode.file_type();
        if matches!(kind, Some(Regular | Directory | Symlink)) || inode.block[0] == 0 {
            return Ok(false);
        }
        let mut pointers = inode.block.iter().filter(|pointer| **pointer != 0);
        let is_free =
            |block: BlockNumber| sb.is_valid_pointer(block) && self.used.bits_from(block) & 1 == 0;
        if !pointers.all(|pointer| is_free(BlockNumber((*pointer).into()))) {
            return Ok(false);
        }
        // Device numbers take the place of the first pointers.
        let is_device = matches!(kind, Some(BlockDevice | CharacterDevice));
        if is_device && inode.links == 1 && inode.block[4..].iter().all(|pointer| *pointer == 0) {
            return Ok(false);
        }
        let bytes = self
            .context
            .block(BlockNumber(inode.block[0].into()), &mut self.scratch[3])?;
        Ok(directory::starts_with_dots(bytes, number))
    }

    /// Fifos, sockets and devices.
    pub(super) fn check_special(&mut self, number: InodeNumber, inode: &Inode, bytes: &[u8]) {
        self.check_flags(number, inode);
        let size = full_size(bytes);
        if size != 0 {
            self.add(Code::SpecialFileInvalid, number, || {
                format!("has a size of {size}")
            });
        }
        // Old kernels leave the other pointers as they were, but none can set this flag.
        if inode.flags & FLAGS_OF_FILES != 0 && inode.block[4..].iter().any(|pointer| *pointer != 0)
        {
            self.add(Code::SpecialFileInvalid, number, || {
                "has block pointers".into()
            });
        }
    }

    /// What is wrong with a symlink's target.
    pub(super) fn bad_symlink(
        &mut self,
        inode: &Inode,
        bytes: &[u8],
    ) -> Result<Option<String>, CheckError> {
        let size = full_size(bytes);
        if size == 0 || size >> 32 != 0 {
            return Ok(Some(format!("a target of {size} bytes")));
        }
        let length = if size <= FAST_SYMLINK_MAX as u64 {
            let target = inode.inline_bytes();
            target.iter().position(|byte| *byte == 0)
        } else {
            let first = BlockNumber(inode.block[0].into());
            let has_more = inode.block[1..].iter().any(|pointer| *pointer != 0);
            if size >= u64::from(self.context.sb.block_size)
                || !self.context.sb.is_valid_pointer(first)
                || has_more
            {
                return Ok(Some(format!(
                    "a target of {size} bytes that is not in one block"
                )));
            }
            let target = self.context.block(first, &mut self.scratch[3])?;
            target.iter().position(|byte| *byte == 0)
        };
        if length == Some(size as usize) {
            return Ok(None);
        }
        Ok(Some(match length {
            Some(length) => format!("a target of {length} bytes, its size says {size}"),
            None => format!("a target without end, its size says {size}"),
        }))
    }

    /// Flags that no tool sets on what is neither a file nor a directory.
    pub(super) fn check_flags(&mut self, number: InodeNumber, inode: &Inode) {
        let flags = inode.flags & FLAGS_OF_FILES;
        if flags != 0 {
            self.add(Code::FlagInvalid, number, || {
                format!("flags {flags:#x} on what is neither a file nor a directory")
            });
        }
    }
}
