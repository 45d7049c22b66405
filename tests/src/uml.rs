//! Linux as an ordinary program: a kernel with drivers that the host may lack.
//!
//! User-mode Linux boots in seconds, for any user, and shows images as its disks. Its root is the
//! host's, read-only, so it can run the host's commands.

use crate::command::{Outcome, wait_within};
use crate::requirements::find;
use crate::scratch::Scratch;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Disks that a guest can have: `MAX_DEV` of User-mode Linux's disk driver, `ubd`.
const DISKS_MAX: usize = 16;

/// The longest time for a boot and the script, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// The directory for the guest's results; it is a directory of the host.
pub const ANSWERS: &str = "/mnt/answers";

/// Boots a guest, runs a shell script in it as root, and powers it off. The guest sees `disks`
/// under the names that [`disk_name`] gives, and has a driver that is a module of its kernel. What
/// the script writes below [`ANSWERS`] is in the returned directory. `/mnt` is an empty file system
/// in memory, and the only place in which the script can make mount points.
///
/// # Panics
///
/// If it does not end by itself, or the script fails; with the output.
pub fn run_in_guest(scratch: &Scratch, disks: &[&Path], driver: &str, script: &str) -> PathBuf {
    assert!(disks.len() <= DISKS_MAX, "too many disks for one guest");
    let kernel = find("linux.uml").expect("linux.uml is missing");
    let answers = scratch.dir("answers");
    let init = scratch.path("init.sh");
    let text = init_script(&answers, &module(&kernel, driver), script);
    fs::write(&init, text).expect("cannot write a script");
    fs::set_permissions(&init, Permissions::from_mode(0o755)).expect("cannot make it executable");

    let console = scratch.path("console");
    let mut command = Command::new(kernel);
    command.args(["mem=128M", "rootfstype=hostfs", "root=/dev/root"]);
    command.args(["rootflags=/", "ro", "quiet", "con=null", "con0=fd:0,fd:1"]);
    // The default is a directory in the user's home.
    command.arg(format!("uml_dir={}/", scratch.dir("uml").display()));
    command.arg(format!("init={}", init.display()));
    for (number, disk) in disks.iter().enumerate() {
        command.arg(format!("ubd{number}={}", disk.display()));
    }
    let outcome = run_to_power_off(&mut command, &console);
    let done = fs::read_to_string(answers.join("done")).unwrap_or_default();
    assert!(done.trim() == "0", "{}", outcome.describe());
    answers
}

/// The guest's device of a disk, counted from 0.
pub fn disk_name(number: usize) -> String {
    let letter = char::from(b'a' + number as u8);
    format!("/dev/ubd{letter}")
}

/// The path of a module of the guest's kernel. Debian puts them beside the program, in a directory
/// named after the kernel's version.
fn module(kernel: &Path, driver: &str) -> PathBuf {
    let modules = kernel.with_file_name("../lib/uml/modules");
    let name = format!("kernel/fs/{driver}/{driver}.ko");
    fs::read_dir(&modules)
        .unwrap_or_else(|error| panic!("{}: {error}", modules.display()))
        .flatten()
        .map(|version| version.path().join(&name))
        .find(|module| module.is_file())
        .unwrap_or_else(|| panic!("no {name} in {}", modules.display()))
}

fn init_script(answers: &Path, module: &Path, script: &str) -> String {
    let (answers, module) = (answers.display(), module.display());
    format!(
        "#!/bin/sh
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
(
set -e
mount -t proc none /proc
mount -t tmpfs none /mnt
mkdir {ANSWERS}
mount -t hostfs none {ANSWERS} -o '{answers}'
insmod '{module}'
(
set -e
{script}
)
)
code=$?
[ $code = 0 ] || dmesg | tail
echo $code > {ANSWERS}/done
echo o > /proc/sysrq-trigger
sleep 60
"
    )
}

/// Runs the guest. It has processes of its own, which are killed even if it hangs.
fn run_to_power_off(command: &mut Command, console: &Path) -> Outcome {
    let log = File::create(console).expect("cannot make a file for the console");
    let errors = log.try_clone().expect("cannot duplicate a descriptor");
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let start = Instant::now();
    let mut child = command
        .process_group(0)
        .spawn()
        .expect("cannot run linux.uml");
    let status = wait_within(&mut child, LIMIT);
    if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
        // Usually none of them is left.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    Outcome {
        command: "linux.uml".to_owned(),
        code: status.and_then(|status| status.code()),
        timed_out: status.is_none(),
        stdout: fs::read(console).unwrap_or_default(),
        stderr: String::new(),
        elapsed: start.elapsed(),
    }
}
