//! Clearing set-user-ID and set-group-ID, as Linux does on a local file system.
//!
//! With `HANDLE_KILLPRIV_V2` the kernel leaves this to the file system: it says so per write
//! (`WRITE_KILL_SUIDGID`) and per truncation (`FATTR_KILL_SUIDGID`), and sends a `SETATTR` without
//! any field before the first such write and on `chown(-1, -1)`.
//!
//! File capabilities (`security.capability`) need nothing here: the kernel removes the attribute
//! itself.

use backstitch_vfs::{Attributes, FileType, User};
use std::fs;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// Who asks, as far as a request tells.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The (first) group.
    pub gid: u32,
    /// The process, in our namespace; 0 where it is not visible there.
    pub pid: u32,
}

impl Caller {
    /// Whether the caller is taken to have every capability.
    pub fn is_privileged(self) -> bool {
        self.uid == 0
    }

    /// For whom an operation is done that may take space.
    pub fn user(self) -> User {
        User {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// Whether the caller may make inodes immutable or append-only, or no longer so.
    pub fn may_set_immutable(self) -> bool {
        const CAP_LINUX_IMMUTABLE: u64 = 1 << 9;
        let status = match self.pid {
            0 => return self.is_privileged(),
            pid => fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
        };
        parse_capabilities(&status) & CAP_LINUX_IMMUTABLE != 0
    }

    /// Whether the caller belongs to `gid`, by its first group or a supplementary one.
    pub fn is_in_group(self, gid: u32) -> bool {
        self.gid == gid || supplementary_groups(self.pid).contains(&gid)
    }
}

fn supplementary_groups(pid: u32) -> Vec<u32> {
    let status = match pid {
        0 => return Vec::new(),
        pid => fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
    };
    parse_groups(&status)
}

fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// What is in effect of a process's capabilities.
fn parse_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok())
        .unwrap_or(0)
}

/// The permissions after a write or an allocation by somebody without `CAP_FSETID`; `None` if they
/// stay.
///
/// Set-group-ID without group execution stays: it once meant mandatory locking, and where the
/// caller is no member of the group the kernel has asked for [`after_change`] before.
pub fn after_write(attributes: &Attributes) -> Option<u16> {
    if attributes.file_type != FileType::Regular {
        return None;
    }
    let mut cleared = attributes.permissions & !SET_USER_ID;
    if attributes.permissions & GROUP_EXECUTE != 0 {
        cleared &= !SET_GROUP_ID;
    }
    (cleared != attributes.permissions).then_some(cleared)
}

/// The permissions after a change of owner or group by `caller`, or a truncation by a `caller`
/// without privileges; `None` if they stay. Root's changes of the owner clear them too.
pub fn after_change(attributes: &Attributes, caller: Caller) -> Option<u16> {
    if attributes.file_type == FileType::Directory {
        return None;
    }
    let mut cleared = attributes.permissions & !SET_USER_ID;
    let has_set_group_id = attributes.permissions & SET_GROUP_ID != 0;
    if has_set_group_id
        && (attributes.permissions & GROUP_EXECUTE != 0
            || !(caller.is_privileged() || caller.is_in_group(attributes.gid)))
    {
        cleared &= !SET_GROUP_ID;
    }
    (cleared != attributes.permissions).then_some(cleared)
}

/// The permissions after an access ACL was set by `caller`: somebody outside the file's group loses
/// set-group-ID.
pub fn after_acl(attributes: &Attributes, caller: Caller) -> Option<u16> {
    let loses = attributes.permissions & SET_GROUP_ID != 0
        && !caller.is_privileged()
        && !caller.is_in_group(attributes.gid);
    loses.then_some(attributes.permissions & !SET_GROUP_ID)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use backstitch_vfs::{InodeNumber, Timestamp};

    /// An inode of user 10 and group 20.
    pub(crate) fn file(permissions: u16, file_type: FileType) -> Attributes {
        let time = Timestamp::default();
        Attributes {
            inode: InodeNumber(12),
            generation: 0,
            file_type,
            permissions,
            links: 1,
            uid: 10,
            gid: 20,
            device_number: 0,
            size_bytes: 0,
            sectors: 0,
            block_size_bytes: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            flags: 0,
        }
    }

    const ROOT: Caller = Caller {
        uid: 0,
        gid: 0,
        pid: 0,
    };
    const MEMBER: Caller = Caller {
        uid: 10,
        gid: 20,
        pid: 0,
    };
    const STRANGER: Caller = Caller {
        uid: 10,
        gid: 30,
        pid: 0,
    };

    #[test]
    fn writes_clear_both_but_not_a_lock_bit() {
        assert_eq!(after_write(&file(0o6755, FileType::Regular)), Some(0o755));
        assert_eq!(after_write(&file(0o2745, FileType::Regular)), None);
        assert_eq!(after_write(&file(0o755, FileType::Regular)), None);
        assert_eq!(after_write(&file(0o6755, FileType::Directory)), None);
    }

    #[test]
    fn chown_clears_for_root_too() {
        assert_eq!(
            after_change(&file(0o6755, FileType::Regular), ROOT),
            Some(0o755)
        );
        assert_eq!(
            after_change(&file(0o6745, FileType::Regular), ROOT),
            Some(0o2745)
        );
        assert_eq!(
            after_change(&file(0o6745, FileType::Regular), MEMBER),
            Some(0o2745)
        );
        assert_eq!(
            after_change(&file(0o6745, FileType::Regular), STRANGER),
            Some(0o745)
        );
        assert_eq!(after_change(&file(0o2755, FileType::Directory), ROOT), None);
    }

    #[test]
    fn an_acl_from_outside_the_group_clears_set_group_id() {
        assert_eq!(
            after_acl(&file(0o2755, FileType::Regular), STRANGER),
            Some(0o755)
        );
        assert_eq!(after_acl(&file(0o2755, FileType::Regular), MEMBER), None);
        assert_eq!(after_acl(&file(0o2755, FileType::Regular), ROOT), None);
    }

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        assert_eq!(
            parse_capabilities("CapPrm:\t0\nCapEff:\t00000000000002ff\n"),
            0x2ff
        );
        assert_eq!(parse_capabilities(""), 0);
    }

    #[test]
    fn groups_are_read_from_the_status_file() {
        assert_eq!(
            parse_groups("Uid:\t1\nGroups:\t4 24 1000 \nNgid: 0\n"),
            vec![4, 24, 1000]
        );
        assert_eq!(parse_groups("Groups:\t \n"), Vec::<u32>::new());
        assert_eq!(parse_groups(""), Vec::<u32>::new());
    }
}
