//! The formats, one entry each.

mod containers;
mod file_systems;
mod files;
mod members;

use super::{Closer, Kind, Place, Signature};

const fn format(
    name: &'static str,
    kind: Kind,
    reader: &'static str,
    magic: &'static [(Place, &'static [u8])],
    closer: Option<Closer>,
) -> Signature {
    Signature {
        name,
        kind,
        reader,
        magic,
        closer,
    }
}

/// All formats that are recognised, the most telling first.
pub fn signatures() -> impl Iterator<Item = &'static Signature> {
    let tables = [
        containers::CONTAINERS,
        file_systems::FILE_SYSTEMS,
        members::MEMBERS,
        files::FILES,
    ];
    tables.into_iter().flatten()
}
