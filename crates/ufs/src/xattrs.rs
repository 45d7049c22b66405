//! Extended attributes of UFS2: in up to two blocks of the inode's own, as
//! [`format::attributes`](crate::format::attributes) has them.

use backstitch_layout::{BlockNumber, Error, InodeNumber, Step, Stop, Structure};
use backstitch_ordering::Volume;
use backstitch_unixfs::Run;
use backstitch_unixfs::format::Space;

use crate::format::Inode;
use crate::format::fault::AttributesFault;
use crate::state::UfsFormat;

impl<const BIG: bool> UfsFormat<BIG> {
    /// The fragments that an inode's attributes are in.
    pub(crate) fn runs_of_attributes(&self, number: InodeNumber, inode: &Inode) -> Step<Vec<Run>> {
        let corrupt = |fault| Error::corrupt(Structure::Attributes(number), fault);
        let (block_bytes, bytes) = (self.sb.block_bytes, inode.attribute_bytes);
        if bytes > 2 * block_bytes {
            return Err(corrupt(AttributesFault::TooLong { bytes }).into());
        }
        let mut runs = Vec::new();
        for (index, block) in (0..).zip(inode.attribute_pointers) {
            let len = bytes.saturating_sub(index * block_bytes).min(block_bytes);
            let run = Run {
                start: BlockNumber(block),
                len: len.div_ceil(self.sb.fragment_bytes).into(),
            };
            if run.len == 0 {
                break;
            }
            if block == 0 || !self.is_data_run(run) {
                return Err(corrupt(AttributesFault::NoBlock { block }).into());
            }
            runs.push(run);
        }
        Ok(runs)
    }

    /// The bytes of an inode's attributes.
    pub(crate) fn attribute_bytes(
        &self,
        v: &mut Volume<'_>,
        number: InodeNumber,
        inode: &Inode,
    ) -> Step<Vec<u8>> {
        let runs = self.runs_of_attributes(number, inode)?;
        let fragments = || runs.iter().flat_map(|run| run.blocks());
        if fragments().filter(|fragment| !v.want(*fragment)).count() > 0 {
            return Err(Stop::Miss);
        }
        let mut bytes = Vec::new();
        for fragment in fragments() {
            bytes.extend_from_slice(v.read(fragment)?);
        }
        bytes.truncate(inode.attribute_bytes as usize);
        Ok(bytes)
    }
}

/// The error for attributes that are wrong.
pub(crate) fn corrupt(number: InodeNumber, fault: AttributesFault) -> Error {
    Error::corrupt(Structure::Attributes(number), fault)
}
