//! POSIX ACLs as the kernel takes them in the attributes `system.posix_acl_access` and
//! `system.posix_acl_default`.

/// The attribute of the ACL that is checked.
pub const ACCESS: &str = "system.posix_acl_access";
/// The attribute of the ACL that new children of a directory inherit.
pub const DEFAULT: &str = "system.posix_acl_default";

/// An ACL in the kernel's form: owner, owning group and others have the permissions of `mode`, one
/// user and one group have `named`, and the mask lets everything through.
pub fn with_named(mode: u16, user: u32, group: u32, named: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 6] = [
        (0x01, mode >> 6 & 7, NOBODY),
        (0x02, named & 7, user),
        (0x04, mode >> 3 & 7, NOBODY),
        (0x08, named & 7, group),
        (0x10, 7, NOBODY),
        (0x20, mode & 7, NOBODY),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}
