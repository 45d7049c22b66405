//! The registry of layouts: the one place that names them.
//!
//! A layout is a crate of its format and its write path, and one of its tools; it is registered
//! here by a line in [`ALL`] and its rules in [`RULES`]. Those above ask for one by the type that a
//! user names or by what a device holds, and use it through [`Tools`] and
//! [`LayoutKind`](backstitch_layout::LayoutKind). [`Raw`] has no tools: it shows a volume as one
//! file. Depends on all layouts; they know nothing of it.

use backstitch_device::BlockDevice;
use backstitch_ext_tools::ExtTools;
use backstitch_layout::JournalHost;
use backstitch_layout::tools::Tools;
use backstitch_rules::Site;

pub use backstitch_ext::rules::Rule as ExtRule;
pub use backstitch_raw::Raw;
pub use backstitch_unixfs::rules::Rule;

/// The tools of every layout that has some; the first is [`usual`].
pub const ALL: &[&dyn Tools] = &[&ExtTools];

/// The order rules that layouts share, and those that each of them states.
pub const RULES: &[&[Site]] = &[Rule::SITES, ExtRule::SITES];

/// The layout of file systems for which nobody names a type.
pub fn usual() -> &'static dyn Tools {
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

/// The tools that make file systems of a type (`mkfs -t`), and the features that the type adds.
pub fn named(name: &str) -> Option<(&'static dyn Tools, &'static [&'static str])> {
    ALL.iter().find_map(|tools| {
        let mut types = tools.types().iter();
        let (_, features) = types.find(|(known, _)| *known == name)?;
        Some((*tools, *features))
    })
}

/// The tools for what a device holds, by its magic number; `None` where nobody knows that.
pub fn found(device: &dyn BlockDevice) -> Option<&'static dyn Tools> {
    ALL.iter().copied().find(|tools| tools.is_on(device))
}

/// The same, and where nobody knows it the [`usual`] ones, whose errors say what is missing.
pub fn of(device: &dyn BlockDevice) -> &'static dyn Tools {
    found(device).unwrap_or(usual())
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_device::MemoryDevice;
    use backstitch_layout::tools::Mkfs;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_made_by_name_is_found_by_its_magic_number() {
        for tools in ALL {
            for (name, features) in tools.types() {
                let device = MemoryDevice::new(8 << 20);
                assert!(found(&device).is_none(), "{name}");
                let (by_name, of_type) = named(name).unwrap();
                assert_eq!(of_type, *features);
                let mkfs = Mkfs {
                    features: features.iter().map(|word| (*word).to_owned()).collect(),
                    ..Mkfs::new([1; 16], [2; 16], 1_700_000_000)
                };
                assert_eq!(by_name.make(&mkfs, &device).unwrap().type_name, *name);
                let info = found(&device).unwrap().info(&device).unwrap();
                assert_eq!((info.type_name, info.uuid), (*name, [1; 16]));
            }
        }
        assert!(named("ext9").is_none());
    }

    #[test]
    fn no_type_is_claimed_twice() {
        let types = || ALL.iter().flat_map(|tools| tools.types());
        let names = BTreeSet::from_iter(types().map(|(name, _)| name));
        assert_eq!(names.len(), types().count());
    }
}
