//! `docs/FORMAT.md` against the structures of a journal: every field, in order, with its place and
//! size.

use backstitch_journal::format::RawSuperblock;
use backstitch_journal::format::commit::RawCommit;
use backstitch_journal::format::descriptor::{RawTag, RawTag3};
use backstitch_journal::format::external::RawDevice;
use backstitch_journal::format::revoke::RawRevoke;
use backstitch_journal::format::{RawHeader, RawTail};
use std::mem::offset_of;
use std::path::Path;

type Field = (usize, usize, String);

fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! fields {
    ($structure:ident: $($name:ident)*) => {{
        let fields: Vec<Field> = vec![$((
            offset_of!($structure, $name),
            size_of_field(|raw: &$structure| &raw.$name),
            stringify!($name).to_owned(),
        )),*];
        let last = fields.last().map(|(offset, bytes, _)| offset + bytes);
        assert_eq!(last, Some(size_of::<$structure>()), "a field is missing here");
        for pair in fields.windows(2) {
            assert_eq!(pair[0].0 + pair[0].1, pair[1].0, "a field is missing here");
        }
        (stringify!($structure), fields)
    }};
}

/// Rows of the table that follows a structure's mark.
fn documented(document: &str, structure: &str) -> Vec<Field> {
    let mark = format!("<!-- journal: struct {structure} -->");
    let section = document.split(&mark).nth(1);
    let section = section.unwrap_or_else(|| panic!("docs/FORMAT.md has no {mark}"));
    let section = section.split("\n<!-- ").next().unwrap_or(section);
    let section = section.split("\n## ").next().unwrap_or(section);
    section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| 0x")?.split(" | ");
            let offset = usize::from_str_radix(cells.next()?, 16).ok()?;
            let bytes = cells.next()?.parse().ok()?;
            Some((offset, bytes, cells.next()?.trim_matches('`').to_owned()))
        })
        .collect()
}

#[test]
fn the_document_has_every_field_of_a_journal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("../../docs/FORMAT.md")).unwrap();
    let structures = [
        fields!(RawHeader: h_magic h_blocktype h_sequence),
        fields!(RawSuperblock: s_header s_blocksize s_maxlen s_first s_sequence s_start s_errno s_feature_compat
            s_feature_incompat s_feature_ro_compat s_uuid s_nr_users s_dynsuper s_max_transaction s_max_trans_data
            s_checksum_type s_padding2 s_num_fc_blks s_head s_padding s_checksum s_users),
        fields!(RawTag: t_blocknr t_checksum t_flags t_blocknr_high),
        fields!(RawTag3: t_blocknr t_flags t_blocknr_high t_checksum),
        fields!(RawTail: t_checksum),
        fields!(RawRevoke: r_header r_count),
        fields!(RawCommit: h_header h_chksum_type h_chksum_size h_padding h_chksum h_commit_sec h_commit_nsec),
        fields!(RawDevice: s_inodes_count s_blocks_count_lo s_unused1 s_log_block_size s_unused2 s_magic s_unused3
            s_feature_incompat s_feature_ro_compat s_uuid),
    ];
    for (name, fields) in structures {
        assert_eq!(documented(&document, name), fields, "{name}");
    }
}
