//! What parts of a volume are for, as far as the description of a trace says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::names::{cut_short, printable};
use crate::record::{Change, Place};

/// Bytes of what an area is for, in words.
const MOST_WORD_BYTES: usize = 64;
/// Inodes of one change that are told one by one.
const MOST_INODES: u64 = 8;

/// A part of the recorded volume that is for the same thing as long as the file system lives: a
/// bitmap, a table of inodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it begins.
    pub offset_bytes: u64,
    /// Its size.
    pub len_bytes: u64,
    /// What it is, in words.
    pub what: String,
    /// Of inodes: the first one, and the size of each in bytes.
    pub inodes: Option<(u64, u64)>,
}

impl Area {
    /// As the description of a recording has it, in a list `areas`.
    pub fn json(&self) -> Value {
        let mut out = json!({
            "offset_bytes": self.offset_bytes,
            "len_bytes": self.len_bytes,
            "what": self.what,
        });
        if let Some((first, bytes)) = self.inodes {
            out["first_inode"] = first.into();
            out["inode_bytes"] = bytes.into();
        }
        out
    }

    fn read(value: &Value) -> Option<Area> {
        let number = |key: &str| value[key].as_u64();
        let inodes = number("first_inode").zip(number("inode_bytes").filter(|bytes| *bytes > 0));
        Some(Area {
            offset_bytes: number("offset_bytes")?,
            len_bytes: number("len_bytes")?,
            what: cut_short(&printable(value["what"].as_str()?), MOST_WORD_BYTES),
            inodes,
        })
    }

    /// The inodes that changes of a block lie in, where it is one of inodes; none where one of the
    /// changes is not of bytes.
    pub(crate) fn inodes_of(&self, place: &Place, changes: &[Change]) -> BTreeSet<u64> {
        let Some((first, bytes)) = self.inodes else {
            return BTreeSet::new();
        };
        let before = place.offset_bytes.saturating_sub(self.offset_bytes);
        let mut inodes = BTreeSet::new();
        for change in changes {
            let Change::Bytes {
                offset_bytes,
                len_bytes,
            } = *change
            else {
                return BTreeSet::new();
            };
            let start = before.saturating_add(offset_bytes.into()) / bytes;
            let end = before.saturating_add(offset_bytes.into());
            let end = end.saturating_add(u64::from(len_bytes).max(1) - 1) / bytes;
            // A made-up trace may have a change of any length.
            let end = end.min(start.saturating_add(MOST_INODES));
            inodes.extend((start..=end).map(|at| first.saturating_add(at)));
        }
        inodes
    }
}

/// The areas of a trace's first volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Areas(Arc<[Area]>);

impl Areas {
    /// Those of a description. What cannot be read there says nothing.
    pub(crate) fn of(description: &Value) -> Areas {
        let list = description["areas"].as_array();
        let mut areas: Vec<Area> = list.into_iter().flatten().filter_map(Area::read).collect();
        areas.sort_by_key(|area| area.offset_bytes);
        Areas(areas.into())
    }

    /// The one that a block is in.
    pub(crate) fn at(&self, place: &Place) -> Option<&Area> {
        if place.volume != 0 {
            return None;
        }
        let behind = self
            .0
            .partition_point(|area| area.offset_bytes <= place.offset_bytes);
        let area = self.0.get(behind.checked_sub(1)?)?;
        (place.offset_bytes - area.offset_bytes < area.len_bytes).then_some(area)
    }
}

#[cfg(test)]
mod tests {
    use backstitch_store::BlockClass;

    use super::*;

    fn place(offset_bytes: u64) -> Place {
        Place {
            volume: 0,
            offset_bytes,
            len_bytes: 1024,
            class: BlockClass::Metadata,
        }
    }

    fn bytes(offset_bytes: u32, len_bytes: u32) -> Change {
        Change::Bytes {
            offset_bytes,
            len_bytes,
        }
    }

    #[test]
    fn an_area_is_found_by_what_lies_in_it() {
        let table = Area {
            offset_bytes: 5120,
            len_bytes: 4096,
            what: "inode table".to_owned(),
            inodes: Some((1, 128)),
        };
        let bitmap = Area {
            offset_bytes: 4096,
            len_bytes: 1024,
            what: "inode bitmap".to_owned(),
            inodes: None,
        };
        let nonsense = json!({"offset_bytes": -1, "what": 3});
        let areas = Areas::of(&json!({"areas": [table.json(), nonsense, bitmap.json()]}));
        for (offset_bytes, expected) in [
            (0, None),
            (4096, Some(&bitmap)),
            (5120, Some(&table)),
            (8192, Some(&table)),
            (9216, None),
        ] {
            assert_eq!(areas.at(&place(offset_bytes)), expected, "{offset_bytes}");
        }
        let elsewhere = Place {
            volume: 1,
            ..place(4096)
        };
        assert_eq!(areas.at(&elsewhere), None);
    }

    #[test]
    fn inodes_are_told_by_where_a_change_is() {
        let table = Area {
            offset_bytes: 5120,
            len_bytes: 4096,
            what: "inode table".to_owned(),
            inodes: Some((1, 128)),
        };
        let of = |changes: &[Change]| -> Vec<u64> {
            table.inodes_of(&place(6144), changes).into_iter().collect()
        };
        assert_eq!(of(&[bytes(256, 128)]), [11]);
        assert_eq!(of(&[bytes(256, 4), bytes(640, 4)]), [11, 14]);
        assert_eq!(of(&[bytes(255, 2)]), [10, 11]);
        let flip = Change::Flip {
            offset_bytes: 0,
            mask: 1,
        };
        assert!(of(&[bytes(0, 4), flip]).is_empty());
        assert_eq!(of(&[bytes(0, u32::MAX)]).len(), 9);
        assert_eq!(of(&[bytes(u32::MAX, u32::MAX)]).len(), 9);
    }
}
