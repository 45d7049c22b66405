//! The journal's superblock. What is in the journal is looked at by who replays it, which comes before any check.

use super::CheckError;
use super::finding::{Code, Findings, Location};
use super::source::Source;
use super::state::Context;
use crate::format::features::COMPAT_HAS_JOURNAL;
use crate::format::inode::Inode;
use crate::format::{FormatError, JOURNAL_INODE};
use backstitch_journal::Error;
use backstitch_journal::format::Superblock;
use backstitch_journal::format::superblock::SUPERBLOCK_BYTES;

/// Looks at the superblock of a journal inside the file system.
pub(super) fn check_superblock<S: Source + ?Sized>(
    context: &Context<'_, S>,
    findings: &mut Findings,
    notes: &mut Findings,
) -> Result<(), CheckError> {
    let sb = context.sb;
    let is_inside = sb.features.has_compat(COMPAT_HAS_JOURNAL) && sb.journal_inode == JOURNAL_INODE;
    if !is_inside || sb.inodes_count < JOURNAL_INODE {
        return Ok(());
    }
    let place = Location::inode(JOURNAL_INODE);
    let mut scratch = Vec::new();
    let inode = Inode::parse(context.inode(JOURNAL_INODE, &mut scratch)?)?;
    let first = u64::from(inode.block[0]);
    if !sb.is_valid_block(first) {
        findings.add(Code::JournalInvalid, place, || {
            format!("the journal begins at block {first}, which does not exist")
        });
        return Ok(());
    }
    let mut bytes = [0; SUPERBLOCK_BYTES];
    bytes.copy_from_slice(&context.block(first, &mut scratch)?[..SUPERBLOCK_BYTES]);
    let blocks = u32::try_from(inode.size >> sb.block_size_bits).unwrap_or(u32::MAX);
    match Superblock::parse(&bytes, sb.block_size, blocks, 0) {
        Ok(journal) => {
            let unknown = journal.features.unreplayable();
            if !unknown.is_empty() {
                let features = format!("{} of the journal", unknown.join(", "));
                return Err(FormatError::Incompatible { features }.into());
            }
            if !journal.is_empty() {
                notes.add(Code::JournalInvalid, place, || {
                    "the journal holds transactions, but the superblock does not say so".into()
                });
            }
            if journal.error_number != 0 {
                let number = journal.error_number;
                notes.add(Code::ErrorsRecorded, place, || {
                    format!("the journal was given up with error {number}")
                });
            }
        }
        Err(error @ Error::Incompatible { .. }) => {
            notes.add(Code::JournalInvalid, place, || error.to_string());
        }
        Err(error) => findings.add(Code::JournalInvalid, place, || error.to_string()),
    }
    Ok(())
}
