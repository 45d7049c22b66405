//! The tree of an image: every path, with what is there.

use crate::error::{Error, Result};
use crate::image::{Access, on_fresh_device};
use crate::walk::{Order, walk};
use backstitch_device::BlockDevice;
use backstitch_vfs::FileType;
use std::path::Path;
use std::sync::Arc;

/// A path of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// From the root on.
    pub path: Vec<u8>,
    /// What is there.
    pub file_type: FileType,
    /// Its size.
    pub size_bytes: u64,
    /// How many names it has.
    pub links: u32,
}

/// What an image was found to have.
#[derive(Debug, Default)]
pub struct Listing {
    /// The first paths, those of a directory sorted.
    pub listed: Vec<Listed>,
    /// How many there are, those included that are not listed.
    pub count: usize,
    /// Why the rest of them could not be found.
    pub error: Option<Error>,
}

/// Lists the paths of what a device holds, as a mount that writes nothing finds it: with its log
/// replayed, in memory. The second device is that of a log which has one of its own.
pub fn listing(
    what: &'static str,
    name: &Path,
    devices: (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>),
    most: usize,
) -> Listing {
    let mut listing = Listing::default();
    let walked: Result<()> = on_fresh_device(what, name, devices, Access::Read, false, |image| {
        let root = image.resolve(b"/", false)?;
        walk(
            image,
            b"/",
            root,
            usize::MAX,
            Order::Before,
            &mut |visited| {
                listing.count += 1;
                if listing.listed.len() < most {
                    let attributes = &visited.held.attributes;
                    listing.listed.push(Listed {
                        path: visited.path.to_vec(),
                        file_type: attributes.file_type,
                        size_bytes: attributes.size_bytes,
                        links: attributes.links,
                    });
                }
                Ok(())
            },
        )
    });
    listing.error = walked.err();
    listing
}
