//! We read what the kernel writes, the kernel reads what we write, and e2fsck finds nothing, for
//! every kind of ext2 that `mke2fs` makes.

use backstitch_tests::command::{backstitch, run};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::populate::{Ability, populate};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::tree::{Compare, Tree, expect_equal};
use std::fs;
use std::path::Path;

/// A kind of ext2.
struct Variant {
    name: &'static str,
    arguments: &'static [&'static str],
    ability: Ability,
}

const fn ability(block_bytes: u64) -> Ability {
    Ability {
        block_bytes,
        attributes: true,
        wide_times: true,
        large_files: true,
    }
}

macro_rules! variants {
    ($($name:ident: $arguments:expr, $ability:expr;)+) => {
        $(#[test]
        fn $name() {
            round_trip(&Variant { name: stringify!($name), arguments: &$arguments, ability: $ability });
        })+
    };
}

variants! {
    // mke2fs gives an image of this size blocks of 1024 bytes.
    defaults: [], ability(1024);
    blocks_of_1024: ["-b", "1024"], ability(1024);
    blocks_of_2048: ["-b", "2048"], ability(2048);
    blocks_of_4096_small_inodes: ["-b", "4096", "-I", "128"],
        Ability { wide_times: false, ..ability(4096) };
    blocks_of_1024_small_inodes: ["-b", "1024", "-I", "128"],
        Ability { wide_times: false, ..ability(1024) };
    revision_0: ["-b", "1024", "-r", "0"],
        Ability { attributes: false, wide_times: false, large_files: false, block_bytes: 1024 };
    without_file_types: ["-b", "1024", "-O", "^filetype"], ability(1024);
    without_sparse_superblocks: ["-b", "1024", "-O", "^sparse_super,^resize_inode"], ability(1024);
    without_large_files: ["-b", "2048", "-O", "^large_file"],
        Ability { large_files: false, ..ability(2048) };
    without_resize_inode: ["-b", "4096", "-O", "^resize_inode"], ability(4096);
    without_directory_index: ["-b", "1024", "-O", "^dir_index"], ability(1024);
    without_attributes: ["-b", "1024", "-O", "^ext_attr"],
        Ability { attributes: false, ..ability(1024) };
    without_anything: ["-b", "4096", "-I", "128", "-O", "none"],
        Ability { attributes: false, wide_times: false, large_files: false, block_bytes: 4096 };
}

fn round_trip(variant: &Variant) {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck");
    let scratch = Scratch::new(variant.name);
    let by_kernel = kernel_writes_we_read(&scratch, variant);
    we_write_kernel_reads(&scratch, variant);
    we_change_what_the_kernel_wrote(&scratch, &by_kernel);
}

fn make(scratch: &Scratch, name: &str, variant: &Variant) -> Image {
    let arguments: Vec<&str> = variant
        .arguments
        .iter()
        .copied()
        .chain(["-N", "4000"])
        .collect();
    Image::mke2fs(scratch, name, "160M", &arguments)
}

/// A mount's tree, when nothing may change, not even access times.
fn capture(scratch: &Scratch, image: &Image, kernel: bool) -> Tree {
    let dir = scratch.dir("looking");
    let mounted = if kernel {
        Mounted::by_kernel(image, &dir, "ro")
    } else {
        Mounted::under_test(image, &dir, &Options::with("ro"))
    };
    let tree = Tree::capture(&dir);
    mounted.unmount();
    tree
}

fn kernel_writes_we_read(scratch: &Scratch, variant: &Variant) -> Image {
    let image = make(scratch, "by-kernel.img", variant);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::by_kernel(&image, &dir, "");
    populate(&dir, 1, variant.ability).expect("the kernel cannot hold the tree");
    mounted.unmount();
    let (theirs, ours) = (
        capture(scratch, &image, true),
        capture(scratch, &image, false),
    );
    expect_equal(
        "kernel (left) wrote, we (right) read",
        &theirs,
        &ours,
        Compare::SameImage,
    );
    if backstitch_tests::requirements::missing("backstitch").is_none() {
        expect_same_through_commands(scratch, &image, &theirs);
    }
    image
}

fn we_write_kernel_reads(scratch: &Scratch, variant: &Variant) {
    let image = make(scratch, "by-us.img", variant);
    let initially = image.free_counts();
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    populate(&dir, 2, variant.ability).expect("we cannot hold the tree");
    let written = Tree::capture(&dir);
    mounted.unmount();
    image.expect_clean();
    let (theirs, ours) = (
        capture(scratch, &image, true),
        capture(scratch, &image, false),
    );
    expect_equal(
        "written (left), remounted (right)",
        &written,
        &ours,
        Compare::SameImageRead,
    );
    expect_equal(
        "we (right) wrote, kernel (left) read",
        &theirs,
        &ours,
        Compare::SameImage,
    );

    let mounted = Mounted::by_kernel(&image, &dir, "");
    remove_all(&dir);
    mounted.unmount();
    image.expect_clean();
    // The root directory may have grown.
    let (blocks, inodes) = image.free_counts();
    assert_eq!(
        inodes, initially.1,
        "the kernel did not get all of our inodes back"
    );
    assert!(
        initially.0 - blocks <= 4,
        "{blocks} of {} blocks free",
        initially.0
    );
}

fn we_change_what_the_kernel_wrote(scratch: &Scratch, image: &Image) {
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(image, &dir, &Options::default());
    change(&dir).expect("we cannot change what the kernel wrote");
    let changed = Tree::capture(&dir);
    mounted.unmount();
    image.expect_clean();
    let theirs = capture(scratch, image, true);
    let what = "we (left) changed, kernel (right) read";
    expect_equal(what, &changed, &theirs, Compare::SameImageRead);

    let mounted = Mounted::under_test(image, &dir, &Options::default());
    remove_all(&dir);
    mounted.unmount();
    image.expect_clean();
}

/// Changes everything that `populate` makes: directories with an index, shared attributes, sparse
/// files, hard links.
fn change(dir: &Path) -> std::io::Result<()> {
    let crowded = dir.join("crowded");
    let mut names: Vec<_> = fs::read_dir(&crowded)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    for (number, name) in names.iter().enumerate().filter(|(_, name)| name.is_file()) {
        match number % 4 {
            0 => fs::remove_file(name)?,
            1 => fs::rename(name, name.with_extension("renamed"))?,
            2 => fs::write(name, vec![number as u8; number * 10])?,
            _ => fs::hard_link(name, dir.join(format!("linked-{number}")))?,
        }
    }
    fs::rename(dir.join("names"), crowded.join("names"))?;
    fs::remove_file(dir.join("links/one"))?;
    for name in fs::read_dir(dir.join("files"))?.flatten() {
        let file = fs::File::options().write(true).open(name.path())?;
        let size = file.metadata()?.len();
        file.set_len(size / 2)?;
        file.set_len(size)?;
    }
    let attributes = dir.join("attributes");
    if attributes.exists() {
        for name in ["shares-2", "shares-3", "acl", "many"] {
            fs::remove_file(attributes.join(name))?;
        }
        let value = b"changed".as_slice();
        let flags = rustix::fs::XattrFlags::REPLACE;
        rustix::fs::setxattr(attributes.join("shares-4"), "user.large", value, flags)?;
        rustix::fs::removexattr(
            attributes.join("default-acl"),
            backstitch_tests::acl::DEFAULT,
        )?;
    }
    Ok(())
}

fn remove_all(dir: &Path) {
    for entry in fs::read_dir(dir).expect("cannot list the root").flatten() {
        if entry.file_name() == "lost+found" {
            continue;
        }
        let path = entry.path();
        let directory = entry.file_type().expect("cannot stat").is_dir();
        let removed = if directory {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
    }
}

/// The commands that read an image without mounting it show the same as the kernel.
fn expect_same_through_commands(scratch: &Scratch, image: &Image, theirs: &Tree) {
    let place = |name: &str| format!("{}:/{name}", image.path().display());
    let dir = scratch.dir("mnt");
    let mounted = Mounted::by_kernel(image, &dir, "ro");
    let small = theirs
        .files()
        .filter(|(_, size)| *size < 1 << 20)
        .step_by(5);
    for name in small.filter_map(|(name, _)| name.to_str()) {
        let ours = run(backstitch().arg("cat").arg(place(name)))
            .expect_success()
            .stdout;
        let same = ours == fs::read(dir.join(name)).expect("the kernel cannot read a file");
        assert!(same, "backstitch cat shows {name} differently");
    }
    mounted.unmount();

    let listed = run(backstitch().arg("ls").arg(place("links")))
        .expect_success()
        .text();
    for name in ["one", "two", "other", "short", "target-500"] {
        assert!(
            listed.contains(name),
            "backstitch ls does not list {name}:\n{listed}"
        );
    }
    for name in [
        "files/only-a-hole",
        "links/two",
        "special/fifo",
        "modes/file-6711",
        "crowded",
    ] {
        let stat = theirs
            .stat(Path::new(name))
            .expect("a name that populate makes");
        let ours = run(backstitch().args(["stat", "--json"]).arg(place(name))).expect_success();
        let json = ours.json()[0].clone();
        let number = |key: &str| json[key].as_u64();
        assert_eq!(
            number("inode"),
            Some(stat.st_ino),
            "inode of {name}: {json}"
        );
        assert_eq!(
            number("size_bytes"),
            Some(stat.st_size as u64),
            "size of {name}: {json}"
        );
        assert_eq!(
            number("links"),
            Some(stat.st_nlink),
            "links of {name}: {json}"
        );
    }
}
