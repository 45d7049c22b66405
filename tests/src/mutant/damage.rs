//! Generates damages, by the structure of the image. The seed determines them completely.

use super::atlas::{Atlas, Class, Spot};
use crate::random::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The most damages of a mutant.
const MOST_DAMAGES: u64 = 8;
/// A field: its name, its offset, its width in bytes.
type Field = (&'static str, usize, usize);

const SUPERBLOCK_FIELDS: &[Field] = &[
    ("s_inodes_count", 0, 4),
    ("s_blocks_count", 4, 4),
    ("s_r_blocks_count", 8, 4),
    ("s_free_blocks_count", 12, 4),
    ("s_free_inodes_count", 16, 4),
    ("s_first_data_block", 20, 4),
    ("s_log_block_size", 24, 4),
    ("s_log_frag_size", 28, 4),
    ("s_blocks_per_group", 32, 4),
    ("s_frags_per_group", 36, 4),
    ("s_inodes_per_group", 40, 4),
    ("s_mtime", 44, 4),
    ("s_mnt_count", 52, 2),
    ("s_magic", 56, 2),
    ("s_state", 58, 2),
    ("s_errors", 60, 2),
    ("s_creator_os", 72, 4),
    ("s_rev_level", 76, 4),
    ("s_first_ino", 84, 4),
    ("s_inode_size", 88, 2),
    ("s_block_group_nr", 90, 2),
    ("s_feature_compat", 92, 4),
    ("s_feature_incompat", 96, 4),
    ("s_feature_ro_compat", 100, 4),
    ("s_reserved_gdt_blocks", 206, 2),
    ("s_journal_uuid", 208, 4),
    ("s_journal_inum", 224, 4),
    ("s_journal_dev", 228, 4),
    ("s_last_orphan", 232, 4),
    ("s_def_hash_version", 252, 1),
    ("s_jnl_backup_type", 253, 1),
    ("s_desc_size", 254, 2),
    ("s_first_meta_bg", 260, 4),
    ("s_jnl_blocks[0]", 268, 4),
    ("s_jnl_blocks[12]", 316, 4),
    ("s_min_extra_isize", 348, 2),
    ("s_flags", 352, 4),
];

const DESCRIPTOR_FIELDS: &[Field] = &[
    ("bg_block_bitmap", 0, 4),
    ("bg_inode_bitmap", 4, 4),
    ("bg_inode_table", 8, 4),
    ("bg_free_blocks_count", 12, 2),
    ("bg_free_inodes_count", 14, 2),
    ("bg_used_dirs_count", 16, 2),
    ("bg_flags", 18, 2),
];

const INODE_FIELDS: &[Field] = &[
    ("i_mode", 0, 2),
    ("i_uid", 2, 2),
    ("i_size", 4, 4),
    ("i_dtime", 20, 4),
    ("i_links_count", 26, 2),
    ("i_blocks", 28, 4),
    ("i_flags", 32, 4),
    ("i_block[0]", 40, 4),
    ("i_block[1]", 44, 4),
    ("i_block[5]", 60, 4),
    ("i_block[12]", 88, 4),
    ("i_block[13]", 92, 4),
    ("i_block[14]", 96, 4),
    ("i_generation", 100, 4),
    ("i_file_acl", 104, 4),
    ("i_size_high", 108, 4),
    ("i_faddr", 112, 4),
    ("i_blocks_high", 116, 2),
    ("i_file_acl_high", 118, 2),
    ("i_extra_isize", 128, 2),
    ("attributes in the inode", 160, 4),
    ("attributes in the inode", 168, 4),
];

const ENTRY_FIELDS: &[Field] = &[
    ("inode", 0, 4),
    ("rec_len", 4, 2),
    ("name_len", 6, 1),
    ("file_type", 7, 1),
    ("name", 8, 1),
];

const ATTRIBUTE_FIELDS: &[Field] = &[
    ("h_magic", 0, 4),
    ("h_refcount", 4, 4),
    ("h_blocks", 8, 4),
    ("h_hash", 12, 4),
    ("e_name_len", 32, 1),
    ("e_name_index", 33, 1),
    ("e_value_offs", 34, 2),
    ("e_value_block", 36, 4),
    ("e_value_size", 40, 4),
    ("e_hash", 44, 4),
    ("e_name", 48, 1),
];

const INDEX_FIELDS: &[Field] = &[
    ("dx hash_version", 28, 1),
    ("dx info_length", 29, 1),
    ("dx indirect_levels", 30, 1),
    ("dx limit", 32, 2),
    ("dx count", 34, 2),
    ("dx block[0]", 36, 4),
    ("dx hash[1]", 40, 4),
    ("dx block[1]", 44, 4),
    ("'..'", 12, 4),
];

/// All big-endian.
const JOURNAL_SUPERBLOCK_FIELDS: &[Field] = &[
    ("h_magic", 0, 4),
    ("h_blocktype", 4, 4),
    ("s_blocksize", 12, 4),
    ("s_maxlen", 16, 4),
    ("s_first", 20, 4),
    ("s_sequence", 24, 4),
    ("s_start", 28, 4),
    ("s_errno", 32, 4),
    ("s_feature_compat", 36, 4),
    ("s_feature_incompat", 40, 4),
    ("s_feature_ro_compat", 44, 4),
    ("s_uuid", 48, 4),
    ("s_nr_users", 64, 4),
    ("s_max_transaction", 72, 4),
    ("s_checksum_type", 80, 1),
];

const JOURNAL_HEADER_FIELDS: &[Field] = &[
    ("h_magic", 0, 4),
    ("h_blocktype", 4, 4),
    ("h_sequence", 8, 4),
    ("first tag's block or count", 12, 4),
    ("first tag's flags", 16, 4),
    ("second word", 36, 4),
    ("second tag's flags", 40, 4),
];

/// Damages a copy of an image, and returns descriptions of the damages.
///
/// # Panics
///
/// If the image cannot be read or written.
pub fn damage(image: &File, atlas: &Atlas, seed: u64) -> Vec<String> {
    let mut damager = Damager {
        image,
        atlas,
        random: Random::new(seed),
        log: Vec::new(),
    };
    let count = match damager.random.one_in(2) {
        true => 1,
        false => damager.random.between(2, MOST_DAMAGES + 1),
    };
    for _ in 0..count {
        damager.one();
    }
    damager.log
}

struct Damager<'a> {
    image: &'a File,
    atlas: &'a Atlas,
    random: Random,
    log: Vec<String>,
}

impl Damager<'_> {
    fn one(&mut self) {
        match self.random.below(20) {
            0..=3 => self.whole_block(),
            4 => self.run_of_blocks(),
            5 | 6 => self.some_bytes(),
            7 | 8 => self.bit(),
            9 => self.field_of(Class::Superblock, SUPERBLOCK_FIELDS),
            10 => self.field_of(Class::Backup, SUPERBLOCK_FIELDS),
            11 => self.descriptor(),
            12..=14 => self.inode(),
            15 => self.pointer(),
            16 => self.entry(),
            17 => self.attributes_or_index(),
            _ => self.journal(),
        }
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.image
            .read_exact_at(&mut bytes, offset)
            .expect("cannot read an image");
        bytes
    }

    fn write(&mut self, offset: u64, bytes: &[u8], what: String) {
        self.image
            .write_all_at(bytes, offset)
            .expect("cannot damage an image");
        self.log.push(what);
    }

    /// Any part of any class: rare structures are chosen as often as common ones.
    fn any_spot(&mut self) -> (Class, Spot) {
        let classes: Vec<Class> = self.atlas.spots.keys().copied().collect();
        let class = *self.random.pick(&classes);
        (class, *self.random.pick(&self.atlas.spots[&class]))
    }

    fn spot_of(&mut self, class: Class) -> Option<Spot> {
        let spots = self.atlas.spots.get(&class)?;
        Some(*self.random.pick(spots))
    }

    fn place(&self, class: Class, spot: Spot) -> String {
        format!(
            "block {} ({})",
            spot.offset / self.atlas.block_bytes,
            class.name()
        )
    }

    fn whole_block(&mut self) {
        let (class, spot) = self.any_spot();
        let place = self.place(class, spot);
        let (bytes, what) = match self.random.below(8) {
            0..=2 => (self.random.bytes(spot.length), "random bytes over"),
            3 | 4 => (vec![0; spot.length], "zeros over"),
            5 => (vec![0xff; spot.length], "ones over"),
            // A sector that was not written, or was written wrongly.
            6 => (
                self.random.bytes(512),
                "a sector of random bytes over the start of",
            ),
            _ => {
                let (other, from) = self.any_spot();
                let length = spot.length.min(from.length);
                let bytes = self.read(from.offset, length);
                let what = format!("a copy of {} over {place}", self.place(other, from));
                return self.write(spot.offset, &bytes, what);
            }
        };
        self.write(spot.offset, &bytes, format!("{what} {place}"));
    }

    fn run_of_blocks(&mut self) {
        let (class, spot) = self.any_spot();
        let block_bytes = self.atlas.block_bytes;
        let first = spot.offset / block_bytes;
        let count = self.random.between(2, 9).min(self.atlas.blocks - first);
        let is_random = self.random.one_in(2);
        let length = (count * block_bytes) as usize;
        let (bytes, what) = match is_random {
            true => (self.random.bytes(length), "random bytes"),
            false => (vec![0; length], "zeros"),
        };
        let offset = first * block_bytes;
        let place = self.place(class, spot);
        self.write(
            offset,
            &bytes,
            format!("{what} over {count} blocks from {place} on"),
        );
    }

    fn some_bytes(&mut self) {
        let (class, spot) = self.any_spot();
        let count = self.random.between(1, 17);
        let at = self.random.below(spot.length as u64 - count);
        let bytes = self.random.bytes(count as usize);
        let place = self.place(class, spot);
        let what = format!("{count} random bytes at {at} in {place}");
        self.write(spot.offset + at, &bytes, what);
    }

    fn bit(&mut self) {
        let (class, spot) = self.any_spot();
        // The important fields are mostly at the beginning.
        let range = match self.random.one_in(2) {
            true => 64,
            false => spot.length as u64,
        };
        let (at, bit) = (self.random.below(range), self.random.below(8));
        let flipped = self.read(spot.offset + at, 1)[0] ^ 1 << bit;
        let place = self.place(class, spot);
        self.write(
            spot.offset + at,
            &[flipped],
            format!("bit {bit} of byte {at} in {place} flipped"),
        );
    }

    /// A value that a field should not have.
    fn wrong(&mut self, old: u64, width: usize) -> u64 {
        let ones = u64::MAX >> (64 - 8 * width);
        let value = match self.random.below(12) {
            0 => 0,
            1 => 1,
            2 => ones,
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 | 6 => old ^ 1 << self.random.below(8 * width as u64),
            7 => self.random.below(64),
            8 => self.random.below(self.atlas.blocks),
            9 => {
                // A block that something else uses.
                let (_, spot) = self.any_spot();
                spot.offset / self.atlas.block_bytes
            }
            10 => old.wrapping_mul(2),
            _ => self.random.next_u64(),
        };
        value & ones
    }

    /// Changes a field, and describes that.
    fn field(&mut self, base: u64, field: Field, is_big: bool, place: &str) {
        let (name, at, width) = field;
        let mut bytes = self.read(base + at as u64, width);
        let in_order = |bytes: &mut Vec<u8>| {
            if is_big {
                bytes.reverse();
            }
        };
        in_order(&mut bytes);
        let old = bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte));
        let new = self.wrong(old, width);
        let mut bytes = new.to_le_bytes()[..width].to_vec();
        in_order(&mut bytes);
        self.write(
            base + at as u64,
            &bytes,
            format!("{name} of {place}: {old:#x} to {new:#x}"),
        );
    }

    fn field_of(&mut self, class: Class, fields: &[Field]) {
        let Some(spot) = self.spot_of(class) else {
            return self.inode();
        };
        let is_big = matches!(class, Class::JournalSuperblock | Class::JournalHeader);
        let (field, place) = (*self.random.pick(fields), self.place(class, spot));
        self.field(spot.offset, field, is_big, &place);
    }

    fn descriptor(&mut self) {
        let has_backup = self.atlas.spots.contains_key(&Class::DescriptorBackup);
        let class = match self.random.one_in(3) && has_backup {
            true => Class::DescriptorBackup,
            false => Class::Descriptors,
        };
        let spot = self.spot_of(class).expect("every image has descriptors");
        // The last descriptors may be unused space, which can be damaged too.
        let groups = self.read(spot.offset, spot.length);
        let used = groups
            .chunks_exact(32)
            .take_while(|raw| raw.iter().any(|byte| *byte != 0));
        let group = self.random.below(used.count() as u64);
        let field = *self.random.pick(DESCRIPTOR_FIELDS);
        let place = format!("descriptor {group} in {}", self.place(class, spot));
        self.field(spot.offset + group * 32, field, false, &place);
    }

    fn inode(&mut self) {
        let is_important = self.random.one_in(2) || self.atlas.inodes.is_empty();
        let list = match is_important {
            true => &self.atlas.important,
            false => &self.atlas.inodes,
        };
        let (number, offset) = *self.random.pick(list);
        let length = self.atlas.inode_bytes as usize;
        let place = format!("inode {number}");
        match self.random.below(12) {
            0 => {
                let bytes = self.random.bytes(length);
                self.write(offset, &bytes, format!("random bytes over {place}"));
            }
            1 => self.write(offset, &vec![0; length], format!("zeros over {place}")),
            _ => {
                let fits = |field: &&Field| field.1 + field.2 <= length;
                let fields: Vec<Field> = INODE_FIELDS.iter().filter(fits).copied().collect();
                let field = *self.random.pick(&fields);
                self.field(offset, field, false, &place);
            }
        }
    }

    fn pointer(&mut self) {
        let class = match self.random.one_in(4) {
            true if self.atlas.spots.contains_key(&Class::JournalIndirect) => {
                Class::JournalIndirect
            }
            _ => Class::Indirect,
        };
        let Some(spot) = self.spot_of(class) else {
            return self.inode();
        };
        let words = spot.length / 4;
        // In most of them the pointers are at the beginning.
        let index = match self.random.one_in(3) {
            true => self.random.below(words as u64),
            false => self.random.below(8),
        };
        let place = self.place(class, spot);
        self.field(
            spot.offset,
            ("a pointer", index as usize * 4, 4),
            false,
            &place,
        );
    }

    fn entry(&mut self) {
        let (offset, entry) = self.random.pick(&self.atlas.entries).clone();
        let field = *self.random.pick(ENTRY_FIELDS);
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let place = format!("the entry '{name}' in block {}", entry.block);
        self.field(offset + entry.at as u64, field, false, &place);
    }

    fn attributes_or_index(&mut self) {
        let (class, fields) = match self.random.one_in(2) {
            true => (Class::Attributes, ATTRIBUTE_FIELDS),
            false => (Class::Index, INDEX_FIELDS),
        };
        self.field_of(class, fields);
    }

    fn journal(&mut self) {
        let (class, fields) = match self.random.one_in(2) {
            true => (Class::JournalSuperblock, JOURNAL_SUPERBLOCK_FIELDS),
            false => (Class::JournalHeader, JOURNAL_HEADER_FIELDS),
        };
        self.field_of(class, fields);
    }
}
