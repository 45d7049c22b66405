//! The table of signatures: every entry by bytes put together here, many by images that foreign
//! tools make, and images of ext2 to ext4, which are never taken for anything else.

use backstitch_device::signature::{Kind, Place, Signature, erase, find, signatures};
use backstitch_device::{BlockDevice, FileDevice, MemoryDevice, OpenOptions, Result, WriteRequest};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// A large device with few bytes on it.
struct Sparse {
    size_bytes: u64,
    pieces: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Sparse {
    fn new(size_bytes: u64) -> Sparse {
        let pieces = Mutex::default();
        Sparse { size_bytes, pieces }
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        self.pieces.lock().unwrap().push((offset, bytes.to_vec()));
    }
}

impl BlockDevice for Sparse {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn name(&self) -> String {
        "sparse".to_owned()
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        let end = offset_bytes + buffer.len() as u64;
        for (at, bytes) in &*self.pieces.lock().unwrap() {
            for (n, byte) in bytes.iter().enumerate() {
                let at = at + n as u64;
                if (offset_bytes..end).contains(&at) {
                    buffer[(at - offset_bytes) as usize] = *byte;
                }
            }
        }
        Ok(())
    }

    fn submit(&self, batch: &[WriteRequest]) -> Result<()> {
        for request in batch {
            let mut at = request.offset_bytes;
            for buffer in &request.buffers {
                self.put(at, buffer);
                at += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Further bytes of an image of that format, where more is checked: from the magic on, or from the
/// start.
fn more(name: &str, magic_at: u64) -> Vec<(u64, Vec<u8>)> {
    let boot = || {
        let mut sector = vec![0; 22];
        sector[..3].copy_from_slice(&[0xeb, 0x3c, 0x90]);
        sector[11..13].copy_from_slice(&512_u16.to_le_bytes());
        (sector[13], sector[16]) = (4, 2);
        sector
    };
    let entry = |kind: u8| {
        let mut entry = vec![0; 16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        entry[12..16].copy_from_slice(&2048_u32.to_le_bytes());
        entry
    };
    match name {
        "a FAT file system" => vec![(0, boot())],
        "an HFS file system" => vec![(magic_at + 20, 4096_u32.to_be_bytes().to_vec())],
        "an HFS+ file system" => vec![(magic_at + 2, vec![0, 4])],
        "a Minix file system" => {
            let fields = [100_u16, 0, 1, 1, 7, 0].map(u16::to_le_bytes).concat();
            vec![(magic_at - 16, fields)]
        }
        "a Minix file system (version 3)" => vec![(magic_at + 4, vec![0, 16])],
        "a NILFS2 file system" => {
            vec![(magic_at - 6, vec![2, 0, 0, 0]), (magic_at + 2, vec![0, 1])]
        }
        "a JFFS2 file system" => vec![(2, vec![0x03, 0x20])],
        "a JFFS2 file system (big-endian)" => vec![(2, vec![0x20, 0x03])],
        "an LVM physical volume" => vec![(magic_at + 24, b"LVM2 001".to_vec())],
        "an LVM 1 physical volume" => vec![(2, vec![1, 0])],
        "a GFS2 file system" => vec![(magic_at + 4, vec![0, 0, 0, 1])],
        "a UDF file system" => vec![(magic_at + 2048, b"NSR02".to_vec())],
        "a PC partition table (MBR)" => vec![(446, entry(0x83))],
        // Words whose XOR is zero.
        "a partition table of a Sun" => vec![(510, vec![0xda, 0xbe])],
        "a partition table of a Mac" => vec![(0, b"ER".to_vec())],
        "a gzip file" => vec![(2, vec![8])],
        "a bzip2 file" => vec![(3, b"91AY&SY".to_vec())],
        "a program for Windows" => vec![(0x3c, vec![0x80]), (0x80, b"PE\0\0".to_vec())],
        "text" => vec![(0, "Dear reader, schöne Grüße\n".into())],
        _ => vec![],
    }
}

fn places(place: Place, size_bytes: u64) -> Vec<u64> {
    match place {
        Place::Start(at) => vec![at],
        Place::Each(at, step, count) => vec![at, at + step * (count - 1)],
        Place::End(before) => vec![size_bytes - before],
        Place::RoundedEnd(before, unit) => vec![size_bytes / unit * unit - before],
    }
}

fn names(device: &dyn BlockDevice) -> Vec<&'static str> {
    let found = find(device).unwrap();
    found.iter().map(|found| found.signature.name).collect()
}

#[test]
fn every_entry_is_recognised_at_every_place_and_erased() {
    // The size is no multiple of any unit, and beyond the last place of any magic.
    let size_bytes = (300 << 30) + 512;
    for Signature {
        name, kind, magic, ..
    } in signatures()
    {
        for (place, bytes) in *magic {
            for at in places(*place, size_bytes) {
                let device = Sparse::new(size_bytes);
                for (at, bytes) in more(name, at) {
                    device.put(at, &bytes);
                }
                device.put(at, bytes);
                let found = find(&device).unwrap();
                let same = found.iter().find(|found| found.signature.name == *name);
                assert!(same.is_some(), "{name} at {at}: {:?}", names(&device));
                assert_eq!(same.unwrap().signature.kind, *kind);
                let erased = erase(&device).unwrap();
                assert!(erased.iter().any(|erased| erased.name == *name), "{name}");
                assert_eq!(names(&device), [""; 0], "{name} at {at} is still there");
            }
        }
    }
}

#[test]
fn the_table_is_large_and_says_what_reads_each() {
    let mut seen = HashSet::new();
    for signature in signatures() {
        assert!(
            seen.insert(signature.name),
            "{} is there twice",
            signature.name
        );
        let reader = signature.reader_of("x.img");
        assert!(
            !reader.contains("{}") && !reader.contains("mkfs"),
            "{reader}"
        );
        assert!(reader.len() > 10, "{}", signature.name);
    }
    assert!(seen.len() >= 40);
    let of = |kind| signatures().filter(|s| s.kind == kind).count();
    assert!(of(Kind::FileSystem) >= 30 && of(Kind::Member) >= 10 && of(Kind::Container) >= 8);
}

#[test]
fn nothing_is_seen_in_zeros_noise_and_short_devices() {
    for size in [0, 1, 511, 1024, 4096, 1 << 20] {
        assert_eq!(names(&MemoryDevice::new(size)), [""; 0], "{size} zeros");
    }
    // The end of a boot sector alone is no table.
    let mut bytes = vec![0; 1 << 20];
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(names(&MemoryDevice::from_bytes(bytes)), [""; 0]);
    let mut state = 1_u64;
    for _ in 0..40 {
        let noise = (0..1 << 18).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        });
        let device = MemoryDevice::from_bytes(noise.collect());
        assert_eq!(names(&device), [""; 0]);
    }
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(more);
    dirs.find_map(|dir| Some(dir.join(name)).filter(|path| path.is_file()))
}

/// What a foreign tool makes of a sparse file: its name, its Debian package, and a script in which
/// `$T` is the tool and `x` the file.
const MADE: &[(&str, &str, &str, &str)] = &[
    (
        "mkfs.xfs",
        "xfsprogs",
        "truncate -s 320M x; $T -q x",
        "an XFS file system",
    ),
    (
        "mkfs.btrfs",
        "btrfs-progs",
        "truncate -s 128M x; $T -q x",
        "a btrfs file system",
    ),
    (
        "mkswap",
        "util-linux",
        "truncate -s 8M x; chmod 600 x; $T x",
        "Linux swap space",
    ),
    (
        "mkfs.minix",
        "util-linux-extra",
        "truncate -s 8M x; $T x",
        "a Minix file system",
    ),
    (
        "mkfs.minix",
        "util-linux-extra",
        "truncate -s 8M x; $T -3 x",
        "a Minix file system (version 3)",
    ),
    (
        "mkfs.cramfs",
        "util-linux-extra",
        "mkdir d; echo a > d/a; $T d x",
        "a cramfs file system",
    ),
    (
        "mkfs.bfs",
        "util-linux-extra",
        "truncate -s 8M x; $T x",
        "an SCO BFS file system",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f qcow2 x 1G",
        "a qcow2 disk image",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f qed x 1G",
        "a QED disk image",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f vmdk x 1G",
        "a VMware disk image (VMDK)",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f vdi x 1G",
        "a VirtualBox disk image (VDI)",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f vpc x 1G",
        "a Virtual PC disk image (VHD)",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f vpc -o subformat=fixed x 64M",
        "a Virtual PC disk image (VHD)",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f vhdx x 1G",
        "a Hyper-V disk image (VHDX)",
    ),
    (
        "qemu-img",
        "qemu-utils",
        "$T create -q -f parallels x 1G",
        "a Parallels disk image",
    ),
    (
        "mksquashfs",
        "squashfs-tools",
        "mkdir d; echo a > d/a; $T d x -quiet -no-progress",
        "a squashfs file system",
    ),
    (
        "mkfs.erofs",
        "erofs-utils",
        "mkdir d; echo a > d/a; $T x d",
        "an EROFS file system",
    ),
    (
        "mkfs.fat",
        "dosfstools",
        "truncate -s 8M x; $T x",
        "a FAT file system",
    ),
    (
        "mkfs.f2fs",
        "f2fs-tools",
        "truncate -s 128M x; $T -q x",
        "an F2FS file system",
    ),
    (
        "mkfs.ntfs",
        "ntfs-3g",
        "truncate -s 8M x; $T -q -F x",
        "an NTFS file system",
    ),
    (
        "genisoimage",
        "genisoimage",
        "mkdir d; echo a > d/a; $T -quiet -o x d",
        "an ISO 9660 file system (a CD or DVD)",
    ),
    (
        "sfdisk",
        "fdisk",
        "truncate -s 8M x; echo , | $T -q x",
        "a PC partition table (MBR)",
    ),
    (
        "sgdisk",
        "gdisk",
        "truncate -s 8M x; $T -n 1 x",
        "a GUID partition table (GPT)",
    ),
    (
        "cryptsetup",
        "cryptsetup-bin",
        "truncate -s 32M x; echo a | $T -q luksFormat --pbkdf pbkdf2 --pbkdf-force-iterations 1000 x",
        "an encrypted volume (LUKS)",
    ),
    ("gzip", "gzip", "echo abc | $T > x", "a gzip file"),
    ("xz", "xz-utils", "echo abc | $T > x", "an xz file"),
    ("zstd", "zstd", "echo abc | $T -q > x", "a zstd file"),
    ("bzip2", "bzip2", "echo abc | $T > x", "a bzip2 file"),
    ("bzip2", "bzip2", "$T < /dev/null > x", "a bzip2 file"),
    ("tar", "tar", "echo a > a; $T -cf x a", "a tar archive"),
    (
        "cpio",
        "cpio",
        "echo a > a; echo a | $T -o --quiet > x",
        "a cpio archive",
    ),
    (
        "sqlite3",
        "sqlite3",
        "$T x 'create table t(a)'",
        "an SQLite database",
    ),
];

fn shell(dir: &Path, tool: &Path, script: &str) {
    let status = Command::new("sh")
        .args(["-e", "-c", &format!("rm -rf x d a; {script}")])
        .env("T", tool)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "{script}");
}

fn open(path: &Path, read_only: bool) -> FileDevice {
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    FileDevice::open(path, options).unwrap()
}

#[test]
fn what_foreign_tools_make_is_recognised_and_erased() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut tried = 0;
    for (name, package, script, expected) in MADE {
        let Some(tool) = tool(name) else {
            eprintln!("skipped: {name} is missing (Debian package {package})");
            continue;
        };
        shell(dir.path(), &tool, script);
        tried += 1;
        assert_eq!(
            names(&open(&path, true)).first(),
            Some(expected),
            "{script}"
        );
        let device = open(&path, false);
        erase(&device).unwrap();
        assert_eq!(names(&device), [""; 0], "{script}: something is left");
        drop(device);
        // util-linux finds nothing any more either.
        if let Some(wipefs) = self::tool("wipefs") {
            let left = Command::new(wipefs).arg("-p").arg(&path).output().unwrap();
            let left = String::from_utf8_lossy(&left.stdout).into_owned();
            let left: Vec<&str> = left.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(left, [""; 0], "{script}");
        }
    }
    assert!(tried > 0 || tool("gzip").is_none());
}

#[test]
fn ext_is_never_taken_for_anything_else() {
    let Some(mke2fs) = tool("mke2fs") else {
        eprintln!("skipped: mke2fs is missing (Debian package e2fsprogs)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    for kind in ["ext2", "ext3", "ext4"] {
        for block in [1024, 2048, 4096] {
            let script = format!("truncate -s 12M x; $T -q -F -t {kind} -b {block} x");
            shell(dir.path(), &mke2fs, &script);
            let device = open(&path, false);
            // Numbers that look like the magic of Minix, HFS, HFS+, NILFS, F2FS, VxFS and EROFS.
            let numbers: [(u64, &[u8]); 7] = [
                (1040, &[0x7f, 0x13]),
                (1040, &[0x8f, 0x13]),
                (1024, b"BD"),
                (1024, b"H+\0\x04"),
                (1030, &[0x34, 0x34]),
                (1024, &[0x10, 0x20, 0xf5, 0xf2]),
                (1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
            ];
            assert_eq!(names(&device), ["an ext2, ext3 or ext4 file system"]);
            for (at, bytes) in numbers {
                let mut before = vec![0; bytes.len()];
                device.read(at, &mut before).unwrap();
                device.write(at, bytes).unwrap();
                let seen = names(&device);
                assert_eq!(
                    seen,
                    ["an ext2, ext3 or ext4 file system"],
                    "{bytes:?} at {at}"
                );
                device.write(at, &before).unwrap();
            }
        }
    }
}
