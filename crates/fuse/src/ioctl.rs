//! The `ioctl` requests of `chattr`, `lsattr`, `fstrim` and their like.
//!
//! The kernel hands on the four of inode flags in its own words whichever the program used, so a
//! file's flags come as one number or as an `fsxattr`. It has checked that the caller owns the
//! inode, and (since Linux 5.13) that he has `CAP_LINUX_IMMUTABLE` where it takes that; earlier
//! kernels leave both to us.

use crate::front::Front;
use crate::privileges::Caller;
use backstitch_fuse_protocol::{Errno, Ioctl, Reply};
use backstitch_vfs::{InodeNumber, LayoutError, Result, SetAttributes, flags};

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_FLAGS_32: u32 = 0x8004_6601;
const SET_FLAGS_32: u32 = 0x4004_6602;
const GET_EXTENDED: u32 = 0x801c_581f;
const SET_EXTENDED: u32 = 0x401c_5820;
const GET_GENERATION: u32 = 0x8008_7601;
const TRIM: u32 = 0xc018_5879;
const GET_GENERATION_32: u32 = 0x8004_7601;

/// `struct fsxattr`: flags, extent size, extents, project, copy-on-write size, and what is kept
/// free.
const EXTENDED_BYTES: usize = 28;
const PROJECT_AT: usize = 12;

/// Flags as `fsxattr` numbers them, and as inodes do.
const EXTENDED_FLAGS: [(u32, u32); 5] = [
    (0x08, flags::IMMUTABLE),
    (0x10, flags::APPEND),
    (0x20, flags::SYNC),
    (0x40, flags::NOATIME),
    (0x80, flags::NODUMP),
];

impl Front {
    /// Answers an `ioctl`.
    pub(crate) fn control_inode(
        &self,
        caller: Caller,
        inode: InodeNumber,
        command: u32,
        input: &[u8],
        out_bytes: u32,
        reply: Reply<Ioctl>,
    ) {
        let answer = match command {
            GET_FLAGS | GET_FLAGS_32 => self.shown_flags(inode).map(number),
            GET_EXTENDED => self.shown_flags(inode).map(to_extended),
            GET_GENERATION | GET_GENERATION_32 => {
                let attributes = self.engine.attributes(inode);
                attributes.map(|attributes| number(attributes.generation))
            }
            SET_FLAGS | SET_FLAGS_32 => read_number(input, 0)
                .and_then(|wanted| self.change_flags(caller, inode, flags::SETTABLE, wanted)),
            SET_EXTENDED => read_extended(input).and_then(|wanted| {
                let all = EXTENDED_FLAGS.iter().fold(0, |all, (_, flag)| all | flag);
                self.change_flags(caller, inode, all, wanted)
            }),
            TRIM => self.trim(caller, input),
            _ => return reply.error(Errno::NOTTY),
        };
        match answer {
            Ok(mut bytes) => {
                bytes.truncate(out_bytes as usize);
                reply.ioctl(0, &bytes);
            }
            Err(error) => reply.error(crate::convert::errno("ioctl", inode, &error)),
        }
    }

    /// `FITRIM`: a range of the device in bytes, and the shortest run that is worth it. Answers
    /// with how much was discarded in place of the range's length.
    fn trim(&self, caller: Caller, input: &[u8]) -> Result<Vec<u8>> {
        let [start, len, least] = read_range(input)?;
        if !caller.is_privileged() {
            return Err(LayoutError::NotPermitted.into());
        }
        let discarded = self.engine.trim(start..start.saturating_add(len), least)?;
        let answer = [start, discarded, least];
        Ok(answer.iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    fn shown_flags(&self, inode: InodeNumber) -> Result<u32> {
        Ok(self.engine.attributes(inode)?.flags)
    }

    /// Sets those of the flags in `which` that are in `wanted`, and clears the others of them.
    fn change_flags(
        &self,
        caller: Caller,
        inode: InodeNumber,
        which: u32,
        wanted: u32,
    ) -> Result<Vec<u8>> {
        let before = self.engine.attributes(inode)?;
        if wanted & !flags::VISIBLE != 0 {
            return Err(LayoutError::NotSupported.into());
        }
        let after = before.flags & !which | wanted & which;
        let changed = before.flags ^ after;
        let may_change = caller.is_privileged() || caller.uid == before.uid;
        // The mode of the journal is that of the whole mount: what could not be obeyed is refused,
        // as by the kernel without a journal.
        let asks_for_journal = changed & flags::JOURNAL_DATA != 0;
        if asks_for_journal
            || !may_change
            || changed & flags::PRIVILEGED != 0 && !caller.may_set_immutable()
        {
            return Err(LayoutError::NotPermitted.into());
        }
        let set = SetAttributes {
            flags: Some(after),
            ..SetAttributes::default()
        };
        let done = self.engine.set_attributes(inode, &set);
        let attributes = self.in_sync(&[inode], &[], done)?;
        self.flagged.note(&attributes);
        Ok(Vec::new())
    }
}

/// Flags or a generation. The commands are declared with a `long`, but programs and the kernel's
/// file systems take an `int`: more bytes than that would be written over what is behind it.
fn number(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

fn read_number(input: &[u8], at: usize) -> Result<u32> {
    let bytes = input.get(at..at + 4).and_then(|b| b.try_into().ok());
    bytes
        .map(u32::from_ne_bytes)
        .ok_or_else(|| LayoutError::Invalid.into())
}

fn read_range(input: &[u8]) -> Result<[u64; 3]> {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(input.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    match input.len() {
        24 => Ok(words),
        _ => Err(LayoutError::Invalid.into()),
    }
}

fn to_extended(shown: u32) -> Vec<u8> {
    let named = EXTENDED_FLAGS.iter().filter(|(_, flag)| shown & flag != 0);
    let all = named.fold(0, |all, (name, _)| all | name);
    let mut bytes = vec![0; EXTENDED_BYTES];
    bytes[..4].copy_from_slice(&u32::to_ne_bytes(all));
    bytes
}

/// The flags that an `fsxattr` asks for. Others, and projects, there are none of.
fn read_extended(input: &[u8]) -> Result<u32> {
    let mut asked = read_number(input, 0)?;
    if read_number(input, PROJECT_AT)? != 0 {
        return Err(LayoutError::NotSupported.into());
    }
    let mut wanted = 0;
    for (name, flag) in EXTENDED_FLAGS {
        if asked & name != 0 {
            asked &= !name;
            wanted |= flag;
        }
    }
    match asked {
        0 => Ok(wanted),
        _ => Err(LayoutError::NotSupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_flags_there_and_back() {
        let all = flags::IMMUTABLE | flags::SYNC | flags::NODUMP;
        let bytes = to_extended(all | flags::DIRSYNC);
        assert_eq!(bytes.len(), EXTENDED_BYTES);
        assert_eq!(read_extended(&bytes).unwrap(), all);
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let mut bytes = to_extended(0);
        bytes[PROJECT_AT] = 1;
        assert!(read_extended(&bytes).is_err());
        let mut bytes = to_extended(0);
        bytes[0] = 1;
        assert!(read_extended(&bytes).is_err());
        assert!(read_extended(&bytes[..8]).is_err());
        assert!(read_number(&[], 0).is_err());
    }
}
