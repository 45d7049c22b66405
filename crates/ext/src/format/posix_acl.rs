//! POSIX access control lists: the short form on the disk, and the form that `getxattr` shows.
//!
//! | | header | entry |
//! |---|---|---|
//! | disk (version 1) | version, 4 bytes | tag 2, permissions 2, and for a named user or group its id, 4 |
//! | Linux (version 2) | version, 4 bytes | tag 2, permissions 2, id 4 (0xffffffff where there is none) |
//!
//! Entries come in the order owner, named users by id, owning group, named groups by id, mask,
//! others.

/// The version on the disk.
pub const DISK_VERSION: u32 = 1;
/// The version in `getxattr` and `setxattr`.
pub const LINUX_VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// The owner.
    Owner,
    /// The user with this id.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// The group with this id.
    Group(u32),
    /// The upper bound for everyone but the owner and others.
    Mask,
    /// All others.
    Other,
}

impl Tag {
    fn from_code(code: u16, id: u32) -> Option<Tag> {
        Some(match code {
            0x01 => Tag::Owner,
            0x02 => Tag::User(id),
            0x04 => Tag::OwningGroup,
            0x08 => Tag::Group(id),
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }

    fn code(self) -> u16 {
        match self {
            Tag::Owner => 0x01,
            Tag::User(_) => 0x02,
            Tag::OwningGroup => 0x04,
            Tag::Group(_) => 0x08,
            Tag::Mask => 0x10,
            Tag::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Tag::User(id) | Tag::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is about.
    pub tag: Tag,
    /// `rwx` as in a mode.
    pub permissions: u16,
}

/// An access control list with all the entries that it must have, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Takes entries in any order; `None` where they are no valid list: owner, owning group and
    /// others once each, a mask where users or groups are named, nobody twice, permissions within
    /// `rwx`.
    pub fn new(mut entries: Vec<AclEntry>) -> Option<Acl> {
        entries.sort_by_key(|entry| entry.tag);
        let has = |tag: Tag| entries.iter().any(|entry| entry.tag == tag);
        let is_twice = entries.windows(2).any(|pair| pair[0].tag == pair[1].tag);
        let names_someone = entries.iter().any(|entry| entry.tag.id().is_some());
        let is_valid = [Tag::Owner, Tag::OwningGroup, Tag::Other]
            .into_iter()
            .all(has)
            && !is_twice
            && (!names_someone || has(Tag::Mask))
            && entries
                .iter()
                .all(|entry| entry.permissions <= 7 && entry.tag.id() != Some(NO_ID));
        is_valid.then_some(Acl { entries })
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Reads the form on the disk; `None` where it is damaged.
    pub fn from_disk(bytes: &[u8]) -> Option<Acl> {
        let (version, mut rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != DISK_VERSION {
            return None;
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (code, permissions);
            (code, permissions, rest) = split_head(rest)?;
            let mut id = NO_ID;
            if Tag::from_code(code, 0)?.id().is_some() {
                let (bytes, behind) = rest.split_first_chunk::<4>()?;
                (id, rest) = (u32::from_le_bytes(*bytes), behind);
            }
            entries.push(AclEntry {
                tag: Tag::from_code(code, id)?,
                permissions,
            });
        }
        Acl::new(entries)
    }

    /// Reads the form of `setxattr`; `None` where it is invalid.
    pub fn from_linux(bytes: &[u8]) -> Option<Acl> {
        let (version, mut rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != LINUX_VERSION {
            return None;
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (code, permissions, behind) = split_head(rest)?;
            let (id, behind) = behind.split_first_chunk::<4>()?;
            rest = behind;
            let tag = Tag::from_code(code, u32::from_le_bytes(*id))?;
            entries.push(AclEntry { tag, permissions });
        }
        Acl::new(entries)
    }

    /// The form on the disk.
    pub fn to_disk(&self) -> Vec<u8> {
        self.encode(DISK_VERSION, |id| id)
    }

    /// The form of `getxattr`.
    pub fn to_linux(&self) -> Vec<u8> {
        self.encode(LINUX_VERSION, |id| Some(id.unwrap_or(NO_ID)))
    }

    fn encode(&self, version: u32, id_of: impl Fn(Option<u32>) -> Option<u32>) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.code().to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            if let Some(id) = id_of(entry.tag.id()) {
                bytes.extend(id.to_le_bytes());
            }
        }
        bytes
    }

    /// The permission bits of a mode that stand for this list: owner, mask (or group), others.
    pub fn mode_bits(&self) -> u16 {
        let of = |tag: Tag| self.entries.iter().find(|entry| entry.tag == tag);
        let bits = |tag: Tag| of(tag).map_or(0, |entry| entry.permissions);
        let group = if of(Tag::Mask).is_some() {
            Tag::Mask
        } else {
            Tag::OwningGroup
        };
        bits(Tag::Owner) << 6 | bits(group) << 3 | bits(Tag::Other)
    }

    /// Whether a mode says it all, so that the list need not be stored.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// What `chmod` makes of the list: owner, mask (or group) and others get the mode's bits.
    pub fn set_mode_bits(&mut self, mode: u16) {
        let has_mask = self.entries.iter().any(|entry| entry.tag == Tag::Mask);
        for entry in &mut self.entries {
            entry.permissions = match entry.tag {
                Tag::Owner => mode >> 6 & 7,
                Tag::OwningGroup if !has_mask => mode >> 3 & 7,
                Tag::Mask => mode >> 3 & 7,
                Tag::Other => mode & 7,
                _ => entry.permissions,
            };
        }
    }

    /// What a new file gets from its directory's default list: entries bounded by the mode that
    /// `open` or `mkdir` asked for. The new mode is then [`mode_bits`](Self::mode_bits).
    pub fn inherit(&self, requested_mode: u16) -> Acl {
        let mut acl = self.clone();
        let bits = acl.mode_bits() & requested_mode;
        acl.set_mode_bits(bits);
        acl
    }
}

/// Tag and permissions.
fn split_head(bytes: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let [tag_low, tag_high, permissions_low, permissions_high] = *head;
    let tag = u16::from_le_bytes([tag_low, tag_high]);
    Some((
        tag,
        u16::from_le_bytes([permissions_low, permissions_high]),
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: Tag, permissions: u16) -> AclEntry {
        AclEntry { tag, permissions }
    }

    fn extended() -> Acl {
        Acl::new(vec![
            entry(Tag::Other, 4),
            entry(Tag::Mask, 6),
            entry(Tag::User(1000), 7),
            entry(Tag::OwningGroup, 5),
            entry(Tag::Owner, 7),
        ])
        .unwrap()
    }

    #[test]
    fn both_forms_round_trip() {
        let acl = extended();
        let disk = acl.to_disk();
        assert_eq!(disk.len(), 4 + 4 * 4 + 8);
        assert_eq!(Acl::from_disk(&disk), Some(acl.clone()));
        let linux = acl.to_linux();
        assert_eq!(linux.len(), 4 + 5 * 8);
        assert_eq!(Acl::from_linux(&linux), Some(acl.clone()));
        assert_eq!(Acl::from_linux(&disk), None);
        for length in 0..disk.len() {
            let cut = Acl::from_disk(&disk[..length]);
            assert!(cut.is_none_or(|cut| cut != acl), "{length}");
        }
    }

    #[test]
    fn invalid_lists_are_refused() {
        let minimal = [(Tag::Owner, 6), (Tag::OwningGroup, 4), (Tag::Other, 4)];
        let with = |extra: &[(Tag, u16)]| {
            Acl::new(
                minimal
                    .iter()
                    .chain(extra)
                    .map(|(tag, bits)| entry(*tag, *bits))
                    .collect(),
            )
        };
        assert!(with(&[]).unwrap().is_minimal());
        assert!(with(&[(Tag::Other, 4)]).is_none());
        assert!(with(&[(Tag::User(1), 4)]).is_none());
        assert!(with(&[(Tag::User(1), 4), (Tag::Mask, 7)]).is_some());
        assert!(with(&[(Tag::User(1), 8), (Tag::Mask, 7)]).is_none());
        assert!(with(&[(Tag::User(NO_ID), 4), (Tag::Mask, 7)]).is_none());
        assert!(Acl::new(vec![entry(Tag::Owner, 7)]).is_none());
    }

    #[test]
    fn modes_follow_the_mask() {
        let mut acl = extended();
        assert_eq!(acl.mode_bits(), 0o764);
        acl.set_mode_bits(0o640);
        assert_eq!(acl.mode_bits(), 0o640);
        assert_eq!(acl.entries()[2], entry(Tag::OwningGroup, 5));
        assert_eq!(extended().inherit(0o606).mode_bits(), 0o604);
    }
}
