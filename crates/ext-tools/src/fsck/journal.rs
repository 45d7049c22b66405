//! The journal's inode and superblock. The log's contents are not checked here: they were replayed
//! before the check.

use super::CheckError;
use super::state::Context;
use backstitch_ext::JournalFault;
use backstitch_ext::format::features::COMPAT_HAS_JOURNAL;
use backstitch_ext::format::inode::Inode;
use backstitch_ext::format::{FormatError, JOURNAL_INODE};
use backstitch_ext::journal::{Copy, Faults, map};
use backstitch_journal::Error;
use backstitch_journal::format::Superblock;
use backstitch_journal::format::superblock::{MIN_BLOCKS, SUPERBLOCK_BYTES};
use backstitch_layout::Error as LayoutError;
use backstitch_layout::tools::Source;
use backstitch_layout::tools::{Code, Findings, Location};
use backstitch_layout::{BlockNumber, JournalMap, Structure};

/// Looks at the journal inside the file system: at all that a mount needs of it.
pub(super) fn check<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
    notes: &mut Findings,
) -> Result<(), CheckError> {
    let sb = context.sb;
    let is_inside = sb.features.has_compat(COMPAT_HAS_JOURNAL) && sb.journal_inode == JOURNAL_INODE;
    if !is_inside || sb.inodes_count < JOURNAL_INODE.0 {
        return Ok(());
    }
    let mut scratch = Vec::new();
    let inode = Inode::parse(context.inode(JOURNAL_INODE, &mut scratch)?)?;
    let copy = Copy {
        pointers: inode.block,
        size: inode.size,
    };
    // The block by the inode's first pointer. A finding with a block is about the map, one without
    // is about the journal's superblock.
    let place = Location {
        block: Some(BlockNumber(inode.block[0].into())),
        ..Location::inode(JOURNAL_INODE)
    };
    let map = match find(context, &copy)? {
        Ok(map) if inode.links > 0 && map.blocks() >= MIN_BLOCKS => map,
        Ok(map) => {
            findings.add(Code::JournalInvalid, place, || {
                let (blocks, links) = (map.blocks(), inode.links);
                format!("the journal has {blocks} blocks and {links} links")
            });
            return Ok(());
        }
        Err(error) => {
            findings.add(Code::JournalInvalid, place, || error.to_string());
            return Ok(());
        }
    };
    check_superblock(context, &map, findings, notes)
}

/// The journal's blocks, or what is wrong with its inode.
pub(crate) fn find<S: Source + ?Sized>(
    context: &Context<'_, S>,
    copy: &Copy,
) -> Result<Result<JournalMap, LayoutError>, CheckError> {
    let read = |block: BlockNumber| {
        if !context.sb.is_valid_pointer(block) {
            return Err(LayoutError::corrupt(
                Structure::JOURNAL,
                JournalFault::NoSuchBlock { block },
            ));
        }
        let mut scratch = Vec::new();
        match context.block(block, &mut scratch) {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(CheckError::Device(error)) => Err(error.into()),
            Err(error) => Err(LayoutError::corrupt(Structure::JOURNAL, error)),
        }
    };
    match map(
        &read,
        context.sb,
        copy,
        Structure::Sole("the journal's inode"),
        Faults::Refuse,
    ) {
        Err(LayoutError::Device(error)) => Err(error.into()),
        found => Ok(found),
    }
}

fn check_superblock<S: Source + ?Sized>(
    context: &Context<'_, S>,
    map: &JournalMap,
    findings: &mut Findings,
    notes: &mut Findings,
) -> Result<(), CheckError> {
    let (sb, place) = (context.sb, Location::inode(JOURNAL_INODE));
    let (mut bytes, mut scratch) = ([0; SUPERBLOCK_BYTES], Vec::new());
    let first = map.block(0).unwrap_or_default();
    bytes.copy_from_slice(&context.block(first, &mut scratch)?[..SUPERBLOCK_BYTES]);
    let blocks = map.blocks();
    match Superblock::parse(&bytes, sb.block_size, blocks, 0) {
        Ok(journal) => {
            let unknown = journal.features.unreplayable().join(", ");
            if !unknown.is_empty() && !journal.is_empty() {
                let features = format!("{unknown} of the journal");
                return Err(FormatError::Incompatible { features }.into());
            }
            if !unknown.is_empty() {
                findings.add(Code::JournalInvalid, place, || {
                    format!("the journal, which is empty, uses {unknown}")
                });
            }
            if !journal.is_empty() {
                findings.add(Code::JournalInvalid, place, || {
                    "the journal holds transactions, but the superblock does not say so".into()
                });
            }
            for what in journal.oddities() {
                findings.add(Code::JournalInvalid, place, || {
                    format!("the journal has {what}")
                });
            }
            if journal.error_number != 0 {
                let number = journal.error_number;
                notes.add(Code::ErrorsRecorded, place, || {
                    format!("the journal was given up with error {number}")
                });
            }
        }
        Err(Error::Device(error)) => return Err(error.into()),
        Err(error) => findings.add(Code::JournalInvalid, place, || error.to_string()),
    }
    Ok(())
}
