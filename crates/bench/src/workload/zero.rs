//! Empty files, created and deleted one after the other (Seltzer et al. 2000, table 4).

use crate::Result;
use crate::workload::Session;

pub(super) fn run(session: &mut Session<'_>, files: u64) -> Result<()> {
    let directory = session.files.make_directory(session.root, "zero", 0o755)?;
    for number in 0..files {
        let name = format!("f{number:06}");
        let node = session.files.create(directory, &name, 0o644)?;
        session.files.close(node)?;
        session.files.unlink(directory, &name)?;
        session.operations += 1;
    }
    session.files.close(directory)
}
