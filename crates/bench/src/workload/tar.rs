//! Unpacking a tree as GNU tar does it for root, and removing it as `rm -r` does.

use crate::Result;
use crate::files::Node;
use crate::tree::{PlannedDirectory, PlannedEntry, PlannedFile};
use crate::workload::Session;

/// Bytes of a record: tar reads one at a time, and writes the part of a file in it with one call.
const RECORD_BYTES: u64 = 10_240;
/// Bytes of a header, and the unit to which contents are padded.
const HEADER_BYTES: u64 = 512;

/// Unpacks `tree` below the session's root.
pub(super) fn unpack(session: &mut Session<'_>, tree: &PlannedDirectory) -> Result<()> {
    let mut archive = Archive { position: 0 };
    archive.directory(session, session.root, tree)
}

/// tar's position in the archive, which determines where writes are split.
struct Archive {
    position: u64,
}

impl Archive {
    fn directory(
        &mut self,
        session: &mut Session<'_>,
        parent: Node,
        planned: &PlannedDirectory,
    ) -> Result<()> {
        self.position += HEADER_BYTES;
        let node = session.files.make_directory(parent, &planned.name, 0o700)?;
        session.operations += 1;
        for entry in &planned.entries {
            match entry {
                PlannedEntry::File(file) => self.file(session, node, file)?,
                PlannedEntry::Directory(below) => self.directory(session, node, below)?,
            }
        }
        // tar sets a directory's times and mode when it is done with its contents.
        session.files.set_times(node, planned.modified_seconds)?;
        session.files.set_permissions(node, 0o755)?;
        session.files.close(node)
    }

    fn file(&mut self, session: &mut Session<'_>, parent: Node, file: &PlannedFile) -> Result<()> {
        self.position += HEADER_BYTES;
        let node = session.files.create(parent, &file.name, 0o600)?;
        let mut done = 0;
        while done < file.size_bytes {
            let in_record = RECORD_BYTES - self.position % RECORD_BYTES;
            let len = in_record.min(file.size_bytes - done);
            session.write_contents(node, file.salt, done, len, len)?;
            done += len;
            self.position += len;
        }
        self.position = self.position.next_multiple_of(HEADER_BYTES);
        session.files.set_times(node, file.modified_seconds)?;
        session.files.set_permissions(node, file.permissions)?;
        session.operations += 1;
        session.files.close(node)
    }
}

/// Removes everything below `name`, depth first in the directory's own order, and then the
/// directory.
pub(super) fn remove_tree(session: &mut Session<'_>, parent: Node, name: &str) -> Result<()> {
    let directory = session.files.lookup(parent, name)?.node;
    for entry in session.files.list(directory)? {
        if entry.is_directory {
            remove_tree(session, directory, &entry.name)?;
        } else {
            session.files.unlink(directory, &entry.name)?;
            session.operations += 1;
        }
    }
    session.files.remove_directory(parent, name)?;
    session.operations += 1;
    session.files.close(directory)
}
