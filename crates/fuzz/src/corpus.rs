//! Initial inputs: structures of sound images, logs and tables, and lists of damages that reach
//! every kind of place.

mod answers;
mod ufs;

use std::path::Path;

use backstitch_device::write_log::{EntryFlags, LogWriter};
use backstitch_ext::format::inode::POINTERS;
use backstitch_ext::format::posix_acl::Acl;
use backstitch_ext::format::{Inode, extent};
use tempfile::TempDir;

use crate::base::{self, Base};
use crate::places::{Places, What};
use crate::targets::extents::{BLOCK_BYTES, NODES, NODES_AT};

/// A target's name, a description of the input, and the input.
pub type Seed = (&'static str, String, Vec<u8>);

/// The most inodes, and the most blocks of each kind, that are taken from one image.
const OF_EACH: usize = 12;

/// The inputs that need no foreign image.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (number, base) in base::all().iter().enumerate() {
        seeds.extend(of_image(base.name, &base.bytes()));
        seeds.extend(damages(["fsck", "mount"], number as u8, base));
    }
    for (number, base) in base::ufs::all().iter().enumerate() {
        seeds.extend(damages(["ufs_fsck", "ufs_mount"], number as u8, base));
        seeds.extend(ufs::of_base(number as u8, base));
    }
    seeds.extend(replays());
    seeds.extend(acls());
    seeds.extend(trees().map(|(what, bytes)| ("extents", what.to_owned(), bytes)));
    seeds.extend(tables());
    seeds.extend(groups());
    seeds.extend(traces());
    seeds.extend(answers::seeds());
    seeds.extend(logs());
    seeds
}

/// The structures of a sound image, for the targets that take a single one.
pub fn of_image(name: &str, bytes: &[u8]) -> Vec<Seed> {
    let places = Places::of(bytes);
    let part = |range: &std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
    let several = |what| places.holding(what).iter().take(OF_EACH).enumerate();
    let mut seeds = Vec::new();
    let mut add = |target, what: &str, number: usize, parts: &[&[u8]]| {
        seeds.push((target, format!("{name}-{what}-{number}"), parts.concat()));
    };
    let kilobytes = (bytes.len() as u32 >> 10).to_le_bytes();
    let [head, table] = [What::Superblock, What::Descriptors].map(|what| places.holding(what));
    if let ([head, ..], [table, ..]) = (head, table) {
        add(
            "superblock",
            "head",
            0,
            &[&kilobytes, part(head), part(table)],
        );
    }
    for (number, range) in several(What::Inodes) {
        let inode = part(range);
        add("inode", "inode", number, &[inode]);
        let extra = Inode::parse(inode).map_or(0, |inode| inode.extra_isize);
        add("xattr", "inode", number, &[&extra.to_le_bytes(), inode]);
    }
    for (number, range) in several(What::Directories) {
        add(
            "directory",
            "entries",
            number,
            &[&[0xff, 0, 0, 0, 1], part(range)],
        );
    }
    for (number, range) in several(What::Indexes) {
        add(
            "directory",
            "index",
            number,
            &[&[0xff, 0, 0, 0, 0], part(range)],
        );
    }
    for (number, range) in several(What::Attributes) {
        add("xattr", "block", number, &[&[32, 0], part(range)]);
    }
    let log = places.holding(What::Journal);
    for (number, range) in log.iter().enumerate().skip(1) {
        let size = places.block_bytes.trailing_zeros() as u8 - 10;
        let head = &part(&log[0])[..1024];
        add(
            "journal_format",
            "record",
            number,
            &[&[size], head, part(range)],
        );
    }
    seeds
}

/// Sound trees of extents: one with a leaf in the inode, and one with two levels below it.
pub fn trees() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let node = |depth: u16, entries: &[[u32; 3]], size: usize| {
        let room = (size / 12 - 1) as u16;
        let head = [extent::MAGIC, entries.len() as u16, room, depth, 0, 0];
        let mut bytes: Vec<u8> = head.iter().flat_map(|half| half.to_le_bytes()).collect();
        bytes.extend(entries.iter().flatten().flat_map(|word| word.to_le_bytes()));
        bytes.resize(size, 0);
        bytes
    };
    // Entries: the file's block; the length or the node; the block on the disk. All blocks are free
    // ones.
    let unwritten = u32::from(extent::WRITTEN_MAX) + 3;
    let places = NODES_AT + NODES;
    let below = |block: u32, number: u32| [block, NODES_AT + number, 0];
    let root = POINTERS * 4;
    let few = [
        [0, 2, places],
        [7, unwritten, places + 2],
        [40, 5, places + 9],
    ];
    let many: Vec<[u32; 3]> = (0..80).map(|n| [100 + 3 * n, 1, places + n]).collect();
    let two = [
        node(2, &[below(0, 0)], root),
        node(1, &[below(0, 1), below(100, 2)], BLOCK_BYTES),
        node(0, &few, BLOCK_BYTES),
        node(0, &many, BLOCK_BYTES),
    ];
    [("leaf", node(0, &few, root)), ("two-levels", two.concat())].into_iter()
}

/// The sound image, and for each kind of place one damage by each method. Two orderings for mounts.
fn damages([check, mount]: [&'static str; 2], number: u8, base: &Base) -> Vec<Seed> {
    let mut lists = vec![("sound".to_owned(), Vec::new())];
    for (kind, places) in base.places().enumerate() {
        for method in 0..8_u8 {
            let which = (usize::from(method) * 5 % places) as u8;
            let list = vec![
                kind as u8,
                which,
                method * 9,
                0,
                method | 24,
                method,
                1,
                2,
                3,
            ];
            lists.push((format!("{kind}-{method}"), list));
        }
    }
    let mut seeds = Vec::new();
    for (what, list) in lists {
        let name = format!("{}-{what}", base.name);
        seeds.push((check, name.clone(), [&[number][..], &list].concat()));
        for how in [0, 1] {
            let head = [number, how + number % 4, 0];
            let input = [&head[..], &list].concat();
            seeds.push((mount, format!("{name}-{how}"), input));
        }
    }
    seeds
}

/// Logs with each kind of checksum, and with each kind of record.
fn replays() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for base in 0..4_u8 {
        seeds.push(("journal_replay", format!("{base}-as-it-is"), vec![base]));
        for uses in 4..12_u8 {
            // Two transactions of three copies and a revocation, a record of another kind, and a
            // transaction that revokes.
            let copies = [
                0, 2, 5, 1, 10, 0, 3, 1, 2, 3, 2, 7, 0, 0, 0, 0x80, 1, 3, 0, 0, 0,
            ];
            let transaction = [&[1, 11, 9][..], &copies, &[2, 5, 1]].concat();
            let input = [
                &[base, uses, uses * 9, 0, 7, 0, 0, 0][..],
                &transaction,
                &[5, 2, 1, 9, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0],
                &transaction,
                &[1, 8, 9, 1, 17],
                &[0],
            ]
            .concat();
            seeds.push(("journal_replay", format!("{base}-{uses}"), input));
        }
    }
    seeds
}

fn acls() -> Vec<Seed> {
    let linux = [
        &2_u32.to_le_bytes()[..],
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 6, 0, 77, 0, 0, 0],
        &[4, 0, 5, 0, 255, 255, 255, 255],
        &[8, 0, 5, 0, 88, 0, 0, 0],
        &[16, 0, 7, 0, 255, 255, 255, 255],
        &[32, 0, 4, 0, 255, 255, 255, 255],
    ]
    .concat();
    let disk = Acl::from_linux(&linux).map_or_else(Vec::new, |acl| acl.to_disk());
    [("linux", linux), ("disk", disk)]
        .map(|(name, list)| ("acl", name.to_owned(), [&[0xa4, 1][..], &list].concat()))
        .into()
}

/// A piece of a disk: the sector's number, and the bytes.
fn piece(sector: u8, bytes: &[u8]) -> Vec<u8> {
    [&[sector][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

/// An entry of a PC's partition table.
fn entry(kind: u8, first: u32, sectors: u32) -> Vec<u8> {
    let head = [0, 0, 0, 0, kind, 0, 0, 0];
    [&head[..], &first.to_le_bytes(), &sectors.to_le_bytes()].concat()
}

fn tables() -> Vec<Seed> {
    let mbr = |entries: &[Vec<u8>]| {
        let mut sector = [vec![0; 446], entries.concat()].concat();
        sector.resize(510, 0);
        [&sector[..], &[0x55, 0xaa]].concat()
    };
    let plain = mbr(&[entry(0x83, 8, 100), entry(0x82, 108, 50)]);
    let extended = mbr(&[entry(0x83, 8, 40), entry(0x05, 60, 100)]);
    let chain = mbr(&[entry(0x83, 2, 10), entry(0x05, 20, 30)]);
    let last = mbr(&[entry(0x83, 2, 10)]);
    let slice = mbr(&[entry(0xa5, 0, 200)]);
    // `c` is the whole disk, and begins where the slice does.
    let label_entry = |sectors: u32, first: u32, kind: u8| {
        let tail = [0, 0, 0, 0, kind, 8, 16, 0];
        [&sectors.to_le_bytes()[..], &first.to_le_bytes(), &tail].concat()
    };
    let mut label = vec![0; 148];
    label[40..44].copy_from_slice(&512_u32.to_le_bytes());
    label[138] = 4;
    label.extend(label_entry(60, 10, 7));
    label.extend(label_entry(40, 80, 1));
    label.extend(label_entry(200, 0, 0));
    label.extend(label_entry(20, 130, 7));
    let protective = mbr(&[entry(0xee, 1, 199)]);
    let seed = |name: &str, how: u8, pieces: &[Vec<u8>]| {
        let input = [&[how, 200, 0][..], &pieces.concat()].concat();
        ("partition", name.to_owned(), input)
    };
    vec![
        seed("mbr", 0, &[piece(0, &plain)]),
        seed(
            "extended",
            0,
            &[piece(0, &extended), piece(60, &chain), piece(80, &last)],
        ),
        seed("bsd-in-mbr", 8, &[piece(0, &slice), piece(1, &label)]),
        seed("bsd", 8, &[piece(1, &label)]),
        seed(
            "gpt",
            2,
            &[
                piece(0, &protective),
                piece(1, &gpt(2, 4)),
                piece(2, &gpt_entries()),
            ],
        ),
        seed(
            "gpt-backup",
            2,
            &[
                piece(0, &protective),
                piece(0x81, &gpt(2, 2)),
                piece(2, &gpt_entries()),
            ],
        ),
        seed(
            "gpt-4k",
            6,
            &[
                piece(0, &protective),
                piece(8, &gpt(2, 4)),
                piece(16, &gpt_entries()),
            ],
        ),
    ]
}

/// A header without checksums, which the target adds.
fn gpt(entries_at: u64, entries: u32) -> Vec<u8> {
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[10] = 1;
    header[12] = 92;
    header[40..48].copy_from_slice(&6_u64.to_le_bytes());
    header[48..56].copy_from_slice(&190_u64.to_le_bytes());
    header[72..80].copy_from_slice(&entries_at.to_le_bytes());
    header[80..84].copy_from_slice(&entries.to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    header
}

fn gpt_entries() -> Vec<u8> {
    let one = |kind: u8, first: u64, last: u64| {
        let mut entry = vec![kind; 32];
        entry.extend(first.to_le_bytes());
        entry.extend(last.to_le_bytes());
        entry.resize(56, 0);
        entry.extend(b"n\0a\0m\0e\0");
        entry.resize(128, 0);
        entry
    };
    [one(1, 8, 20), one(2, 21, 22), vec![0; 256]].concat()
}

/// Steps of a program: two groups, each operation of the protocol, and malformed messages.
fn groups() -> Vec<Seed> {
    let say =
        |count: u8, op: u8, choices: &[u8]| [&[count << 4 | 4, 0, 0, op][..], choices].concat();
    let all = [
        vec![0, 0],
        say(1, 1, &[0]),
        say(2, 1, &[1, 0]),
        say(1, 2, &[0]),
        vec![3, 0],
        say(1, 10, &[0]),
        say(1, 4, &[0]),
        say(1, 5, &[0]),
        say(1, 6, &[0]),
        say(1, 3, &[0]),
        vec![0x14, 0, 3, 7, b'a', b'b', b'c', 0],
        say(1, 8, &[0]),
        vec![0x14, 0, 8, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0],
        say(1, 0, &[7]),
        say(5, 4, &[0, 1, 6, 7, 0]),
        vec![2, 0, 1, 2, 3],
        vec![1, 0],
    ];
    vec![("patchgroup", "every-operation".to_owned(), all.concat())]
}

fn traces() -> Vec<Seed> {
    let script = "creat A/foo #12; mkdir A; symlink to%20there A/s; write #12 4096 5000; append foo hex:00ff; \
                  truncate foo 7; falloc foo 0 10; punch foo 1 2; zero-keep foo 3 4; link A/foo B/bar; \
                  unlink #3/x%2fy; rmdir A; rename A B; setxattr foo user.a v; removexattr foo user.a; \
                  setacl /; open foo; close foo; fsync /; fdatasync foo; sync; work; exchange A #3/b; \
                  chmod foo 4755; chown #3 1000 100; as 0 7 644; said 17%0a; depend 2 1; engage 2; \
                  disengage 2; sync-group 2";
    let lines = script.replace("; ", "\n");
    let trace = format!(
        "# backstitch trace 1\n# image size=8388608 block=4096 uid=3 gid=4\n# note: a note\n\
         mkdir /d #12\nsync\n# setup ends\n{lines}\n"
    );
    let given = trace.replace("gid=4", "gid=4 given");
    [
        ("script", script.to_owned()),
        ("trace", trace),
        ("given", given),
    ]
    .map(|(name, text)| ("trace", name.to_owned(), text.into_bytes()))
    .into()
}

fn logs() -> Vec<Seed> {
    let composed = [
        &[1, 0][..],
        &[0, 0, 1, 0, 0, 0, 0],
        &[2, 0, 3, 1, 0, 0, 0],
        &[4, 0, 2, 4, 0, 0, 0],
        &[0, 0, 0, 8, 5, 0, 0, b'h', b'e', b'l', b'l', b'o'],
        &[1, 0, 1, 2, 0, 0, 0],
    ]
    .concat();
    // Three stretches, the last of them beyond the device's end.
    let stretches = vec![1, 0, 1, 1, 2, 2, 64, 0, 5, 10, 0, 80, 64, 0];
    let mut seeds = vec![
        ("write_log", "composed".to_owned(), composed),
        ("undo", "composed".to_owned(), stretches),
    ];
    // Without a place for a file there is one seed less.
    if let Ok(directory) = TempDir::new()
        && let Some(log) = written(&directory.path().join("log"))
    {
        let input = [&[0][..], &log].concat();
        seeds.push(("write_log", "written".to_owned(), input));
    }
    seeds
}

fn written(path: &Path) -> Option<Vec<u8>> {
    let mut log = LogWriter::create(path).ok()?;
    log.write(0, &[b'd'; 1024], EntryFlags::default()).ok()?;
    log.flush().ok()?;
    log.mark("a mark").ok()?;
    log.write(4096, &[b'e'; 512], EntryFlags::FUA).ok()?;
    log.discard(512, 512).ok()?;
    log.count().ok()?;
    std::fs::read(path).ok()
}
