//! The kernel's own driver reads what we write on UFS, byte for byte.
//!
//! The host need not have that driver, since user-mode Linux brings it along, read-only. Images
//! made by our `mkfs` and by `makefs`, of both versions and in both byte orders, are filled and
//! changed through our mount, then unmounted. Then a guest mounts them all. `look.py` describes
//! each tree twice, through our mount before it is unmounted and through the kernel's, and the two
//! descriptions must be equal.
//!
//! The seed is printed, and `SEED` repeats it.
//!
//! # What the driver cannot show
//!
//! According to its source in Linux 6.1:
//!
//! - A UFS2 whose superblock is not at byte 65,536, the only place in which `ufs_fill_super` looks.
//!   `makefs` puts it at byte 8,192, so a copy is put into the other place while the guest mounts.
//! - Fragments of more than 4,096 bytes: `ufs_fill_super` refuses them. Such geometries are left
//!   out here.
//! - Fractions of a second in UFS1: `ufs1_read_inode` sets them to zero. Whole seconds are compared.
//! - Device numbers above 255: `ufs_get_inode_dev` decodes 16 bits. None is made.
//! - Device numbers in a UFS2 of big-endian machines: the same function takes the first four bytes
//!   of eight, the wrong half. They are not compared there.

mod work;

use backstitch_tests::command::{run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::uml::{ANSWERS, disk_name, run_in_guest};
use backstitch_tests::{require, say};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use work::Geometry;

/// A kind of image.
#[derive(Clone, Copy, Debug)]
struct Kind {
    version: u32,
    is_big_endian: bool,
    block_bytes: u64,
    fragment_bytes: u64,
}

const fn kind(version: u32, order: &str, block_bytes: u64, fragment_bytes: u64) -> Kind {
    Kind {
        version,
        is_big_endian: order.as_bytes()[0] == b'b',
        block_bytes,
        fragment_bytes,
    }
}

const OURS: [Kind; 8] = [
    kind(2, "le", 32_768, 4_096),
    kind(2, "le", 4_096, 512),
    kind(2, "le", 8_192, 2_048),
    kind(2, "be", 16_384, 2_048),
    kind(1, "le", 4_096, 512),
    kind(1, "le", 16_384, 4_096),
    kind(1, "le", 4_096, 4_096),
    kind(1, "be", 8_192, 1_024),
];

const OF_MAKEFS: [Kind; 8] = [
    kind(1, "le", 8_192, 1_024),
    kind(1, "le", 16_384, 2_048),
    kind(1, "be", 4_096, 512),
    kind(1, "be", 4_096, 4_096),
    kind(2, "le", 4_096, 512),
    kind(2, "le", 32_768, 4_096),
    kind(2, "be", 8_192, 1_024),
    kind(2, "be", 16_384, 4_096),
];

impl Kind {
    fn geometry(&self) -> Geometry {
        let (block_bytes, fragment_bytes) = (self.block_bytes, self.fragment_bytes);
        Geometry {
            version: self.version,
            block_bytes,
            fragment_bytes,
        }
    }

    fn by_us(&self, scratch: &Scratch, name: &str) -> Image {
        let version = format!("ufs{}", self.version);
        let (block, fragment) = (
            self.block_bytes.to_string(),
            self.fragment_bytes.to_string(),
        );
        let mut arguments = vec!["-t", &version, "-b", &block, "-f", &fragment];
        if self.is_big_endian {
            arguments.extend(["-O", "big_endian"]);
        }
        Image::ours(scratch, name, "128M", &arguments)
    }

    fn by_makefs(&self, scratch: &Scratch, name: &str, tree: &Path) -> Image {
        let options = format!(
            "version={},bsize={},fsize={}",
            self.version, self.block_bytes, self.fragment_bytes
        );
        let order = if self.is_big_endian { "be" } else { "le" };
        // `makefs` makes no inodes beyond those of the tree and these.
        let arguments = ["-B", order, "-f", "2000", "-o", &options];
        Image::makefs(scratch, name, "128m", &arguments, tree)
    }
}

/// One name as `look.py` describes it.
type Entry = Map<String, Value>;

/// A tree as `look.py` describes it.
type Seen = BTreeMap<String, Entry>;

/// A disk of the guest.
struct Disk {
    what: String,
    kind: Kind,
    path: PathBuf,
    /// The number of a partition, or empty.
    partition: &'static str,
    /// Whether the superblock is at a place in which the driver does not look for it.
    is_superblock_elsewhere: bool,
    /// The description of the tree in our mount.
    ours: PathBuf,
}

impl Disk {
    /// The guest's script for the disk with this number.
    fn script(&self, number: usize) -> String {
        let device = disk_name(number) + self.partition;
        let variant = ["44bsd", "ufs2"][self.kind.version as usize - 1];
        let mut mount = format!("mount -t ufs -o ro,ufstype={variant} {device} /mnt/{number}");
        if self.is_superblock_elsewhere {
            // The bytes at that place belong to the tree, and are restored afterwards.
            mount = format!(
                "dd if={device} of=/mnt/held bs=8192 skip=8 count=1 status=none
dd if={device} of={device} bs=8192 skip=1 seek=8 count=1 conv=notrunc status=none
{mount}
dd if=/mnt/held of={device} bs=8192 seek=8 conv=notrunc status=none"
            );
        }
        let (looker, ours) = (script("look.py"), &self.ours);
        format!(
            "mkdir /mnt/{number}
{mount}
python3 -B '{}' /mnt/{number} {ANSWERS}/{number} '{}'
umount /mnt/{number}
",
            looker.display(),
            ours.display()
        )
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("kernel_ufs")
        .join(name)
}

/// Describes a tree in our mount.
fn look(image: &Image, dir: &Path) -> PathBuf {
    let list = image.path().with_extension("ours");
    let mut command = tool("python3");
    command.arg("-B").arg(script("look.py"));
    run(command.arg(dir).arg(&list)).expect_success();
    list
}

/// Makes a tree in the image if it is empty, and changes what is there.
fn work_on(scratch: &Scratch, image: Image, kind: Kind, is_empty: bool, seed: u64) -> Disk {
    let name = image.path().file_stem().unwrap_or_default();
    let what = format!("{name:?} {kind:?}");
    let dir = scratch.dir("mnt");
    let (mut random, geometry) = (Random::new(seed), kind.geometry());
    let options = Options::with("noatime");
    if is_empty {
        let mounted = Mounted::under_test(&image, &dir, &options);
        expect_done(&what, work::fill(&dir, &mut random, geometry));
        mounted.unmount();
    }
    let mounted = Mounted::under_test(&image, &dir, &options);
    let holes = dir.join("holes");
    expect_done(&what, work::holes(&holes, &mut random, geometry));
    let changes = expect_done(&what, work::change(&dir, &mut random, geometry));
    let played = expect_done(&what, work::play(&dir.join("played"), seed, 1_000));
    assert!(changes > 100 && played > 200, "{what}: {changes}, {played}");
    expect_done(&what, fs::write(dir.join("marker"), marker(seed)));
    expect_done(&what, work::make_readable(&dir));
    let ours = look(&image, &dir);
    mounted.unmount();
    image.expect_clean();
    let disk = Disk {
        what,
        kind,
        path: image.path().to_owned(),
        partition: "",
        is_superblock_elsewhere: !is_empty && kind.version == 2,
        ours,
    };
    expect_same_by_sleuthkit(&disk);
    disk
}

#[track_caller]
fn expect_done<T>(what: &str, result: std::io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Sleuthkit shows the same. It does not find a superblock at another place either.
fn expect_same_by_sleuthkit(disk: &Disk) {
    if disk.is_superblock_elsewhere {
        return;
    }
    let mut command = tool("python3");
    command.arg("-B").arg(script("sleuthkit.py"));
    command.arg(&disk.path).arg(&disk.ours);
    let fragment = disk.kind.fragment_bytes.to_string();
    let outcome = run(command.arg(fragment)).expect_success();
    assert!(
        outcome.stdout.is_empty(),
        "{}: {}",
        disk.what,
        outcome.describe()
    );
}

/// For each disk, what we showed and what the kernel's driver shows.
fn seen_by_both(scratch: &Scratch, disks: &[Disk]) -> Vec<(Seen, Seen)> {
    let scripts = disks
        .iter()
        .enumerate()
        .map(|(number, disk)| disk.script(number));
    let script: String = scripts.collect();
    let paths: Vec<&Path> = disks.iter().map(|disk| disk.path.as_path()).collect();
    let answers = run_in_guest(scratch, &paths, "ufs", &script);
    let both = disks.iter().enumerate().map(|(number, disk)| {
        let theirs = answers.join(number.to_string());
        (read_list(&disk.ours), read_list(&theirs))
    });
    both.collect()
}

fn read_list(path: &Path) -> Seen {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let entries = text.lines().map(|line| {
        let entry: Entry = serde_json::from_str(line).expect("look.py writes JSON");
        (entry["name"].as_str().unwrap_or_default().to_owned(), entry)
    });
    entries.collect()
}

/// The differences, one in a line.
fn differences(kind: Kind, ours: &Seen, theirs: &Seen) -> Vec<String> {
    let mut found = Vec::new();
    for (name, entry) in ours {
        let Some(other) = theirs.get(name) else {
            found.push(format!("{name:?}: the kernel does not show it"));
            continue;
        };
        let (entry, other) = (comparable(kind, entry), comparable(kind, other));
        let fields = entry
            .keys()
            .chain(other.keys().filter(|key| !entry.contains_key(*key)));
        for field in fields.filter(|field| entry.get(*field) != other.get(*field)) {
            let shown = |entry: &Entry| {
                entry
                    .get(field)
                    .map_or("nothing".to_owned(), Value::to_string)
            };
            let (one, two) = (shown(&entry), shown(&other));
            found.push(format!(
                "{name:?}: {field} is {one}, the kernel shows {two}"
            ));
        }
    }
    let only_theirs = theirs.keys().filter(|name| !ours.contains_key(*name));
    found.extend(only_theirs.map(|name| format!("{name:?}: only the kernel shows it")));
    found
}

/// An entry without what the driver cannot show, see the head of this file.
fn comparable(kind: Kind, entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    if kind.version == 1 {
        for field in ["accessed", "modified", "changed"] {
            let seconds = entry[field].as_i64().map(|ns| ns.div_euclid(1_000_000_000));
            entry.insert(field.to_owned(), seconds.into());
        }
    }
    if kind.version == 2 && kind.is_big_endian {
        entry.remove("device");
    }
    entry
}

#[track_caller]
fn expect_same(disk: &Disk, ours: &Seen, theirs: &Seen) {
    let found = differences(disk.kind, ours, theirs);
    let shown = found
        .iter()
        .take(40)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        found.is_empty(),
        "{}: {} differences\n{shown}",
        disk.what,
        found.len()
    );
}

/// The contents of a file that every image gets. In an image they are found by their bytes.
fn marker(seed: u64) -> Vec<u8> {
    Random::new(!seed).bytes(400)
}

/// A copy of a disk in which one bit of the marker is changed.
fn damaged(disk: &Disk, marker: &[u8]) -> Disk {
    let path = disk.path.with_extension("damaged");
    run(tool("cp").arg("--sparse=always").arg(&disk.path).arg(&path)).expect_success();
    let bytes = fs::read(&path).expect("cannot read an image");
    let mut sectors = bytes.chunks(512);
    let sector = sectors.position(|sector| sector.starts_with(marker));
    let at = sector.expect("the marker is not in the image") * 512 + marker.len() - 1;
    Image::at(path.clone()).patch(at as u64, &[bytes[at] ^ 1]);
    Disk {
        what: "a damaged copy".to_owned(),
        path,
        ours: disk.ours.clone(),
        ..*disk
    }
}

#[test]
fn the_kernel_reads_what_we_write_on_our_images() {
    require!(
        "fuse",
        "backstitch",
        "linux.uml",
        "insmod",
        "fls",
        "python3"
    );
    let scratch = Scratch::new("kernel_ufs_ours");
    let seed = Random::seed("kernel_ufs_ours");
    let mut disks = Vec::new();
    for (number, kind) in (0..).zip(OURS) {
        let image = kind.by_us(&scratch, &format!("ours-{number}.img"));
        disks.push(work_on(&scratch, image, kind, true, seed + number));
    }
    disks.push(damaged(&disks[0], &marker(seed)));
    let mut seen = seen_by_both(&scratch, &disks);
    let (ours, theirs) = seen.pop().expect("the damaged copy");
    let found = differences(OURS[0], &ours, &theirs);
    let is_it = |line: &String| line.starts_with("\"marker\": contents");
    assert!(
        found.len() == 1 && found.iter().all(is_it),
        "one bit differs: {found:?}"
    );
    for (disk, (ours, theirs)) in disks.iter().zip(seen) {
        expect_same(disk, &ours, &theirs);
    }
}

#[test]
fn the_kernel_reads_what_we_write_on_images_of_makefs() {
    require!(
        "fuse",
        "backstitch",
        "linux.uml",
        "insmod",
        "fls",
        "python3",
        "makefs"
    );
    let scratch = Scratch::new("kernel_ufs_makefs");
    let seed = Random::seed("kernel_ufs_makefs");
    let mut disks = Vec::new();
    for (number, kind) in (0..).zip(OF_MAKEFS) {
        let tree = scratch.dir(&format!("tree-{number}"));
        let mut random = Random::new(seed ^ number);
        work::fill(&tree, &mut random, kind.geometry()).expect("the host cannot hold the tree");
        let image = kind.by_makefs(&scratch, &format!("makefs-{number}.img"), &tree);
        disks.push(work_on(&scratch, image, kind, false, seed + number));
    }
    for (disk, (ours, theirs)) in disks.iter().zip(seen_by_both(&scratch, &disks)) {
        expect_same(disk, &ours, &theirs);
    }
}

/// Where the file system of that disk begins, and how long it is, in bytes.
const SLICE: (u64, u64) = (16 << 10, 306_167_808);

/// A disk of FreeBSD 4: the superblock has the form from before UFS2, which a mount for writing brings up
/// to date. As it is, where the kernel finds the slice by itself; and its file system alone, changed.
#[test]
fn the_kernel_reads_what_we_write_on_a_disk_of_freebsd() {
    require!(
        "fuse",
        "backstitch",
        "linux.uml",
        "insmod",
        "fls",
        "python3"
    );
    let packed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/freebsd-disk-ufs1.gz");
    if !packed.is_file() {
        say(&format!("skipped: {} is not there", packed.display()));
        return;
    }
    let scratch = Scratch::new("kernel_ufs_disk");
    let seed = Random::seed("kernel_ufs_disk");
    let unpack = |to: &Path, filter: &str| {
        let mut unpack = tool("sh");
        let line = format!("gunzip -c \"$1\" {filter} | cp --sparse=always /dev/stdin \"$2\"");
        run(unpack.args(["-c", &line, "sh"]).arg(&packed).arg(to)).expect_success();
    };
    let (whole, slice) = (scratch.path("disk.img"), scratch.path("slice.img"));
    unpack(&whole, "");
    let (begin, length) = SLICE;
    unpack(
        &slice,
        &format!("| tail -c +{} | head -c {length}", begin + 1),
    );
    let dir = scratch.dir("mnt");
    let image = Image::at(whole.clone());
    let mounted = Mounted::under_test(&image, &dir, &Options::with("ro,partition=1a"));
    let ours = look(&image, &dir);
    mounted.unmount();
    let kind = kind(1, "le", 16_384, 2_048);
    let what = "a changed disk of FreeBSD";
    let image = Image::ours_at(slice.clone());
    let mounted = Mounted::under_test(&image, &dir, &Options::with("noatime"));
    let mut random = Random::new(seed);
    expect_done(what, fs::remove_dir_all(dir.join("bigdir")));
    expect_done(what, fs::rename(dir.join("foo"), dir.join("bar2")));
    let new = dir.join("new");
    expect_done(what, fs::create_dir(&new));
    expect_done(what, work::fill(&new, &mut random, kind.geometry()));
    expect_done(
        what,
        work::holes(&dir.join("holes"), &mut random, kind.geometry()),
    );
    expect_done(what, work::play(&dir.join("played"), seed, 1_000));
    expect_done(what, work::make_readable(&dir));
    let changed = look(&image, &dir);
    mounted.unmount();
    image.expect_clean();
    let disks = [
        Disk {
            what: "a disk of FreeBSD".to_owned(),
            kind,
            path: whole,
            partition: "1",
            is_superblock_elsewhere: false,
            ours,
        },
        Disk {
            what: what.to_owned(),
            kind,
            path: slice,
            partition: "",
            is_superblock_elsewhere: false,
            ours: changed,
        },
    ];
    expect_same_by_sleuthkit(&disks[1]);
    for (disk, (ours, theirs)) in disks.iter().zip(seen_by_both(&scratch, &disks)) {
        assert!(ours.len() > 20, "{}: {} names", disk.what, ours.len());
        expect_same(disk, &ours, &theirs);
    }
}
