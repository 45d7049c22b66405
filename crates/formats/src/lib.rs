//! The registry of layouts: the one place that names them.
//!
//! A layout consists of a crate for its format and write path, and one for its tools. It is
//! registered here by a line in [`ALL`] and its rules in [`RULES`]. Crates above ask for one by the
//! type that a user names or by what a device holds, pass it on as a [`Layout`], and use it through
//! [`Tools`] and [`LayoutKind`]. [`Raw`] has no tools: it shows a volume as one file. This crate
//! depends on all layouts; they know nothing of it.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use backstitch_device::{BlockDevice, DeviceError, OverlayDevice};
use backstitch_ext_tools::ExtTools;
use backstitch_layout::tools::{CheckError, Losses, RepairOptions, Tools};
use backstitch_layout::{JournalHost, LayoutKind};
use backstitch_rules::Site;
use backstitch_ufs_tools::UfsTools;
use thiserror::Error;

pub use backstitch_ext::rules::Rule as ExtRule;
pub use backstitch_raw::Raw;
pub use backstitch_ufs::rules::Rule as UfsRule;
pub use backstitch_unixfs::rules::Rule;

/// Every layout that has tools; the first is [`usual`].
pub const ALL: &[Layout] = &[Layout::by(&ExtTools), Layout::by(&UfsTools)];

/// The order rules that layouts share, and those that each of them states.
pub const RULES: &[&[Site]] = &[Rule::SITES, ExtRule::SITES, UfsRule::SITES];

/// A registered layout, by its tools, and one of the types that it makes.
#[derive(Clone, Copy)]
pub struct Layout {
    tools: &'static dyn Tools,
    /// The index of the type among those that the layout makes.
    type_index: usize,
}

/// There is no layout that makes file systems of this type.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown type '{name}': this version has {}", types().join(", "))]
pub struct Unknown {
    /// The type.
    pub name: String,
}

impl Layout {
    /// The layout with these tools, for the first of its types.
    const fn by(tools: &'static dyn Tools) -> Layout {
        Layout {
            tools,
            type_index: 0,
        }
    }

    /// The name of the type: the layout's first one, unless another one was asked for.
    pub fn name(self) -> &'static str {
        let types = self.tools.types();
        types.get(self.type_index).map_or("", |(name, _)| name)
    }

    /// Whether a device holds what was asked for: a file system of this layout, and of its type where
    /// the layout can tell.
    pub fn is_what(self, device: &dyn BlockDevice) -> bool {
        let is_type = |name| name == self.name();
        self.tools.is_on(device) && self.tools.type_on(device).is_none_or(is_type)
    }

    /// The features that its type adds to the layout's usual ones.
    pub fn type_features(self) -> &'static [&'static str] {
        let types = self.tools.types();
        types
            .get(self.type_index)
            .map_or(&[], |(_, features)| features)
    }

    /// The part of the layout that mounts such an image.
    pub fn layout(self) -> &'static dyn LayoutKind {
        self.tools.layout()
    }
}

impl Deref for Layout {
    type Target = dyn Tools;

    fn deref(&self) -> &Self::Target {
        self.tools
    }
}

impl Default for Layout {
    fn default() -> Layout {
        usual()
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Layout {}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = Unknown;

    /// The layout that makes file systems of this type.
    fn from_str(name: &str) -> Result<Layout, Unknown> {
        let found = named(name).map(|(layout, _)| layout);
        found.ok_or_else(|| Unknown { name: name.into() })
    }
}

/// The layout that is used where no type is named.
pub const fn usual() -> Layout {
    ALL[0]
}

/// How the [`usual`] layout hosts a journal.
///
/// # Panics
/// If it hosts none.
pub fn journal_host() -> &'static dyn JournalHost {
    let host = usual().layout().journal_host();
    host.expect("the usual layout hosts a journal")
}

/// The types of file systems that can be made (`mkfs -t`).
pub fn types() -> Vec<&'static str> {
    let all = ALL.iter().flat_map(|layout| layout.types());
    all.map(|(name, _)| *name).collect()
}

/// The layout that makes file systems of a type, and the features that the type adds.
pub fn named(name: &str) -> Option<(Layout, &'static [&'static str])> {
    ALL.iter().find_map(|layout| {
        let mut types = layout.types().iter();
        let type_index = types.position(|(known, _)| *known == name)?;
        let found = Layout {
            type_index,
            ..*layout
        };
        Some((found, found.type_features()))
    })
}

/// The layout of a device's file system, by its magic number; `None` where no layout knows it.
pub fn found(device: &dyn BlockDevice) -> Option<Layout> {
    let layout = ALL.iter().copied().find(|layout| layout.is_on(device))?;
    let of_type = layout.type_on(device).and_then(named);
    Some(of_type.map_or(layout, |(layout, _)| layout))
}

/// The same; where no layout knows it, the [`usual`] one, whose errors say what is missing.
pub fn of(device: &dyn BlockDevice) -> Layout {
    found(device).unwrap_or_default()
}

/// A layout of which a device has a copy of a superblock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundByCopy {
    /// The layout.
    pub layout: Layout,
    /// Whether the rest of the device agrees with the copy: most names stay in their directories.
    /// Otherwise the copy may be left from an earlier file system.
    pub makes_sense: bool,
}

/// The layouts whose repair succeeds on a device that no layout recognises: each has found a copy
/// of its superblock. Nothing is written.
///
/// # Errors
/// The device's, where nothing was found.
pub fn found_by_copies(
    device: &Arc<dyn BlockDevice>,
    options: &RepairOptions,
) -> Result<Vec<FoundByCopy>, DeviceError> {
    let (mut found, mut failed) = (Vec::new(), None);
    for layout in ALL.iter().copied() {
        let trial = OverlayDevice::new(device.clone());
        match layout.repair(&trial, options) {
            Ok(outcome) => {
                if outcome.after.is_none_or(|after| after.ended_early) {
                    continue;
                }
                let makes_sense = outcome
                    .losses
                    .is_some_and(|losses| most_names_stay(&losses));
                found.push(FoundByCopy {
                    layout,
                    makes_sense,
                });
            }
            Err(CheckError::Device(error)) => failed = Some(error),
            Err(CheckError::Format(_)) => {}
        }
    }
    match failed.filter(|_| found.is_empty()) {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

/// Whether more names are kept than lost. Kept are names that stay where they were, and (if the
/// root is lost) names within directories that move to `lost+found`.
fn most_names_stay(losses: &Losses) -> bool {
    let kept = losses.names_before - losses.names_gone + losses.moved_with_names;
    let nameless = losses.moved_to_lost_found - losses.moved_with_names;
    kept > losses.names_gone + nameless
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::MemoryDevice;
    use backstitch_layout::tools::Mkfs;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_made_by_name_is_found_by_its_magic_number() {
        for layout in ALL {
            for (name, features) in layout.types() {
                let device = MemoryDevice::new(8 << 20);
                assert!(found(&device).is_none(), "{name}");
                let (by_name, of_type) = named(name).unwrap();
                assert_eq!(of_type, *features);
                assert_eq!(by_name.name(), *name);
                let mkfs = Mkfs {
                    features: features.iter().map(|word| (*word).to_owned()).collect(),
                    ..Mkfs::new([1; 16], [2; 16], 1_700_000_000)
                };
                assert_eq!(by_name.make(&mkfs, &device).unwrap().type_name, *name);
                let there = found(&device).unwrap();
                let info = there.info(&device).unwrap();
                assert_eq!((info.type_name, info.uuid), (*name, [1; 16]));
                assert!(there.is_what(&device) && by_name.is_what(&device));
                let others = types().into_iter().filter_map(named);
                for (other, _) in others.filter(|(other, _)| other.is_what(&device)) {
                    let is_ext = |name: &str| name.starts_with("ext");
                    let is_right = other == by_name || is_ext(name) && is_ext(other.name());
                    assert!(is_right, "{} is taken for {}", name, other.name());
                }
            }
        }
        let refused = "ext9".parse::<Layout>().unwrap_err().to_string();
        assert!(
            types().iter().all(|name| refused.contains(name)),
            "{refused}"
        );
    }

    #[test]
    fn no_type_is_claimed_twice() {
        assert_eq!(BTreeSet::from_iter(types()).len(), types().len());
    }
}
