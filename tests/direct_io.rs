//! Direct I/O and the kernel's page cache: once a direct write is complete, no buffered read shows
//! the earlier contents.

use backstitch_tests::command::{run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::scratch::Scratch;
use backstitch_tests::{require, say, setting};
use std::path::Path;

#[test]
fn asynchronous_direct_writes_leave_no_stale_page() {
    require!("fuse", "root", "mke2fs", "cc");
    let scratch = Scratch::new("direct_io");
    let program = scratch.path("direct_io");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("direct_io.c");
    let mut compiler = tool("cc");
    compiler.args(["-Wall", "-Werror", "-O1", "-pthread", "-o"]);
    run(compiler.arg(&program).arg(source)).expect_success();
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &[]);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let seconds = setting("DIRECT_IO_SECONDS", 4).to_string();
    let mut writer = std::process::Command::new(&program);
    let outcome = run(writer.arg(dir.join("file")).arg(seconds)).expect_success();
    say(outcome.text().trim());
    mounted.unmount();
}
