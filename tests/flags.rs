//! The flags of `chattr`: stored, shown and obeyed, with the same results as the kernel's own
//! driver.

use backstitch_tests::command::{run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use std::path::Path;

/// Files and directories before the first command: immutable `f` and `i`, append-only `g` and `p`,
/// and a directory whose flags are inherited.
const SETUP: &str = "
echo a > f; echo a > g; mkdir i p h u; echo a > i/x; echo a > p/x; echo a > other; mkdir full
chown 65534:65534 u; chattr +i f i; chattr +a g p; chattr +SDdA h";

/// The commands, line by line. Exit codes and output are compared.
const TRIED: &[&str] = &[
    "cat f g i/x",
    "echo b > f",
    "echo b >> f",
    "rm -f f",
    "mv f z",
    "ln f z",
    "chmod 600 f",
    "chown 1 f",
    "touch f",
    "touch -d 2001-01-01 f",
    "truncate -s 0 f",
    "truncate -s 9000 f",
    "setfattr -n user.a -v b f",
    "mv other f",
    "dd if=/dev/zero of=f bs=1 count=1 conv=notrunc status=none",
    "echo b > g",
    "echo b >> g; cat g",
    "dd if=/dev/zero of=g bs=1 count=1 conv=notrunc status=none",
    "dd if=/dev/zero of=g bs=1 count=1 conv=notrunc oflag=append status=none; stat -c %s g",
    "truncate -s 0 g",
    "truncate -s 9000 g",
    "rm -f g",
    "mv g z",
    "ln g z",
    "chmod 600 g",
    "chown 1 g",
    "touch g",
    "touch -d 2001-01-01 g",
    "setfattr -n user.a -v b g",
    "echo b > i/new",
    "mkdir i/new",
    "ln other i/new",
    "mv other i/new",
    "rm -f i/x",
    "mv i/x i/y",
    "mv i/x y",
    "echo b >> i/x; cat i/x",
    "chmod 700 i",
    "touch i",
    "rm -rf i",
    "mv i j",
    "echo b > p/new; cat p/new",
    "mkdir p/d",
    "rmdir p/d",
    "ln other p/link",
    "rm -f p/x",
    "mv p/x p/y",
    "mv -f full/x p/x",
    "echo b > full/y; mv -f full/y p/x",
    "mv -f full/y p/y; ls p",
    "chmod 700 p",
    "touch p",
    "setpriv --reuid 65534 --clear-groups sh -c 'echo a > u/own; chattr +i u/own'",
    "setpriv --reuid 65534 --clear-groups chattr +a u/own",
    "setpriv --reuid 65534 --clear-groups chattr +dA u/own",
    "setpriv --reuid 65534 --clear-groups chattr +d other",
    "mkdir h/e; echo a > h/f; mkfifo h/p; mkdir h/e/e; lsattr -d h/e h/f h/e/e",
    "chattr =j h/f; lsattr h/f; chattr = h/f; lsattr h/f",
    "chattr -i f; echo c > f; cat f; rm f",
    "chattr -a g; echo c > g; cat g",
    "chattr +T h; lsattr -d . f g i p h u other",
];

fn verdicts(dir: &Path) -> Vec<String> {
    let shell = |script: &str| {
        let mut command = tool("sh");
        command.args(["-c", script]).current_dir(dir);
        let outcome = run(&mut command);
        format!(
            "{script}: {:?} {}{}",
            outcome.code,
            outcome.text(),
            outcome.stderr
        )
    };
    let setup = shell(SETUP);
    assert!(setup.contains("Some(0)"), "{setup}");
    TRIED.iter().map(|line| shell(line)).collect()
}

#[test]
fn flags_are_obeyed_as_the_kernel_does() {
    require!(
        "fuse",
        "loop",
        "mke2fs",
        "chattr",
        "setfattr",
        "setpriv",
        "backstitch"
    );
    let scratch = Scratch::new("flags");
    let dir = scratch.dir("mnt");
    let [theirs, ours] =
        ["theirs.img", "ours.img"].map(|name| Image::mke2fs(&scratch, name, "32M", &["-I", "256"]));
    let mounted = Mounted::by_kernel(&theirs, &dir, "");
    let expected = verdicts(&dir);
    mounted.unmount();
    let mounted = Mounted::under_test(&ours, &dir, &Options::with("check_open"));
    let found = verdicts(&dir);
    let list = |dir: &Path| {
        let mut command = tool("lsattr");
        let text = run(command.args(["-R", "-v", "-l"]).arg(dir))
            .expect_success()
            .text();
        // The kernel lists a hashed directory in another order.
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let shown = list(&dir);
    mounted.unmount();
    for (ours, theirs) in found.iter().zip(&expected) {
        assert_eq!(ours, theirs);
    }
    ours.expect_clean();
    let mounted = Mounted::by_kernel(&ours, &dir, "ro");
    assert_eq!(list(&dir), shown, "what the kernel shows of our image");
    mounted.unmount();
}

/// Without a request at each open, the kernel lets everybody open the file. Then the change is
/// refused.
#[test]
fn what_a_flag_forbids_never_happens() {
    require!("fuse", "root", "mke2fs", "chattr", "backstitch", "python3");
    let scratch = Scratch::new("flags_unasked");
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(&scratch, "disk.img", "32M", &["-I", "256"]);
    for options in ["", "writeback_cache"] {
        let mounted = Mounted::under_test(&image, &dir, &Options::with(options));
        let script = "
import mmap, os, subprocess, sys, time
def attempt(what):
    try:
        what()
    except OSError as error:
        return error.errno
def flags(change, name):
    subprocess.run(['chattr', change, name], check=True)
def write(name, how, at=None):
    fd = os.open(name, os.O_WRONLY | how)
    try:
        os.write(fd, b'new') if at is None else os.pwrite(fd, b'new', at)
        os.fsync(fd)
    finally:
        os.close(fd)
def mapped(name):
    fd = os.open(name, os.O_RDWR)
    pages = mmap.mmap(fd, 4096)
    pages[:3] = b'new'
    try:
        pages.flush()
        os.fsync(fd)
    finally:
        pages.close()
        os.close(fd)
def shows(name, text):
    for _ in range(100):
        if open(name, 'rb').read().rstrip(b'\\0') == text:
            return
        time.sleep(0.05)
    sys.exit(f'{name}: {open(name, \"rb\").read()[:20]}')
for name in 'fixed', 'grows', 'map':
    open(name, 'w').write('old')
os.truncate('map', 4096)
flags('+i', 'fixed')
flags('+i', 'map')
flags('+a', 'grows')
assert attempt(lambda: write('fixed', 0)) == 1
assert attempt(lambda: write('fixed', os.O_APPEND)) == 1
assert attempt(lambda: os.truncate('fixed', 1)) == 1
assert attempt(lambda: mapped('map')) in (1, 5)
shows('fixed', b'old')
shows('map', b'old')
assert attempt(lambda: write('grows', 0, 0)) == 1
assert attempt(lambda: write('grows', os.O_APPEND)) is None
shows('grows', b'oldnew')
assert attempt(lambda: write('grows', os.O_APPEND)) is None
shows('grows', b'oldnewnew')
for name in 'fixed', 'grows', 'map':
    flags('-ia', name)
    os.remove(name)
";
        let mut python = tool("python3");
        run(python.args(["-c", script]).current_dir(&dir)).expect_success();
        mounted.unmount();
    }
    image.expect_clean();
}
