//! fsx: random reads, writes, mappings, truncations and holes in one file, with every byte checked.
//!
//! `FSX_OPS` is the number of operations (20,000 by default, 10,000 on UFS; `make test-fsx` does
//! 200,000), and `SEED` the seed. More than [`EACH`] are done in several runs, with a seed each.

use backstitch_tests::command::{run_within, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::random::Random;
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};
use std::time::Duration;

/// The most operations of one run. fsx 0.3.2 keeps the mapping of each `mapread`. The more there are, the
/// longer the kernel takes for each truncation, and with 65,530, after half a million operations, it
/// allows no more.
const EACH: u64 = 20_000;

/// All operations that fsx knows, the slow ones less often.
const CONFIGURATION: &str = "
flen = 1500000
nomsyncafterwrite = false

# The C library refuses to allocate nothing.
[opsize]
min = 1
max = 100000

[weights]
close_open = 1.0
invalidate = 0.5
mapread = 3.0
mapwrite = 3.0
read = 4.0
write = 6.0
truncate = 3.0
fsync = 0.1
fdatasync = 0.1
posix_fallocate = 1.0
punch_hole = 2.0
sendfile = 1.0
posix_fadvise = 0.5
copy_file_range = 2.0
";

#[test]
fn blocks_of_1024() {
    fsx("fsx_1024", |s| ext2(s, "1024"), "", 20_000);
}

#[test]
fn blocks_of_4096() {
    fsx("fsx_4096", |s| ext2(s, "4096"), "", 20_000);
}

#[test]
fn ufs2_with_fragments_of_512() {
    let arguments = ["-t", "ufs2", "-b", "4096", "-f", "512"];
    let make = |s: &Scratch| Image::ours(s, "disk.img", "128M", &arguments);
    fsx("fsx_ufs2", make, "", 10_000);
}

#[test]
fn ufs1_with_fragments_of_1024() {
    let arguments = ["-t", "ufs1", "-b", "8192", "-f", "1024"];
    let make = |s: &Scratch| Image::ours(s, "disk.img", "128M", &arguments);
    fsx("fsx_ufs1", make, "", 10_000);
}

/// With a cache so small that most blocks are written and read back, often with pending
/// dependencies.
#[test]
fn with_a_small_cache() {
    fsx(
        "fsx_small_cache",
        |s| ext2(s, "1024"),
        "cache=1M,expire=1",
        20_000,
    );
}

fn ext2(scratch: &Scratch, block: &str) -> Image {
    Image::mke2fs(scratch, "disk.img", "128M", &["-b", block])
}

fn fsx(name: &str, make: impl FnOnce(&Scratch) -> Image, options: &str, operations: u64) {
    require!("fuse", "mke2fs", "e2fsck", "fsx");
    if backstitch_tests::mount::Backend::from_env() == backstitch_tests::mount::Backend::Kernel {
        require!("loop");
    }
    let scratch = Scratch::new(name);
    let image = make(&scratch);
    let configuration = scratch.path("fsx.toml");
    std::fs::write(&configuration, CONFIGURATION).expect("cannot write the configuration");
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::with(options));
    let (seed, operations) = (Random::seed(name), setting("FSX_OPS", operations));
    let artifacts = scratch.dir("artifacts");
    let mut seconds = 0.0;
    for (seed, done) in (seed..).zip((0..operations).step_by(EACH as usize)) {
        let count = EACH.min(operations - done);
        let mut command = tool("fsx");
        command.arg("-f").arg(&configuration);
        command.arg("-P").arg(&artifacts);
        command.args(["-S", &seed.to_string(), "-N", &count.to_string(), "-q"]);
        let limit = Duration::from_secs(60 + count / 50);
        let outcome = run_within(command.arg(dir.join("file")), limit).expect_success();
        seconds += outcome.elapsed.as_secs_f64();
        say(&format!(
            "{name}: {} operations in {seconds:.1} s",
            done + count
        ));
    }
    mounted.unmount();
    image.expect_clean();
}
