//! Judging states with foreign tools: `e2fsck`, and the kernel's own driver.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::campaign::Observer;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::replayed;
use backstitch_formats::Layout;

/// Checks a sample of the states with foreign tools.
pub struct Foreign {
    directory: tempfile::TempDir,
    e2fsck_every: u64,
    kernel_every: u64,
    number: AtomicU64,
    /// States that `e2fsck` looked at.
    pub checked: AtomicU64,
    /// States that the kernel mounted and read.
    pub mounted: AtomicU64,
    /// Held during a mount: there are few loop devices.
    loop_device: Mutex<()>,
}

impl Foreign {
    /// Whether these tools know images of a layout.
    pub fn knows(layout: Layout) -> bool {
        layout.name().starts_with("ext")
    }

    /// One state in `e2fsck_every` is given to `e2fsck -fn`, and one in `kernel_every` is mounted
    /// by the kernel from a loop device, which takes root. With 0, none is.
    ///
    /// # Errors
    /// Where no directory for the images can be made.
    pub fn new(e2fsck_every: u64, kernel_every: u64) -> io::Result<Foreign> {
        Ok(Foreign {
            directory: tempfile::tempdir()?,
            e2fsck_every,
            kernel_every,
            number: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            mounted: AtomicU64::new(0),
            loop_device: Mutex::new(()),
        })
    }

    fn image(&self, state: &Fork) -> io::Result<PathBuf> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.path().join(format!("{number}.img"));
        let (home, journal) = state.to_devices();
        fs::write(&path, home)?;
        if let Some(journal) = journal {
            fs::write(journal_of(&path), journal)?;
        }
        Ok(path)
    }

    /// The state after the replay of a log of ours, which no foreign tool can replay.
    fn without_our_log(state: &Fork) -> io::Result<Fork> {
        match needs_recovery(state) {
            true => Ok(state.clone()),
            false => replayed(state).map_err(io::Error::other),
        }
    }

    fn e2fsck(&self, state: &Fork) -> io::Result<Option<String>> {
        let state = &Self::without_our_log(state)?;
        let path = self.image(state)?;
        // With a journal to replay, e2fsck replays it first, and then nothing at all may be wrong.
        let has_journal = needs_recovery(state);
        let how = if has_journal { "-fy" } else { "-fn" };
        let journal = journal_of(&path);
        let mut command = Command::new("e2fsck");
        command.arg(how);
        if journal.exists() {
            command.arg("-j").arg(&journal);
        }
        let output = command.arg(&path).output()?;
        remove(&path)?;
        self.checked.fetch_add(1, Ordering::Relaxed);
        // Exit codes from 8 on mean that the check was not done (fsck(8)); so does the end by a
        // signal.
        if output.status.code().is_none_or(|code| code >= 8) {
            return Err(io::Error::other(format!("it ended with {}", output.status)));
        }
        let report = String::from_utf8_lossy(&output.stdout);
        let bad = match has_journal {
            true => unexpected_after_replay(&report),
            false => unexpected_of_e2fsck(&report),
        };
        Ok((!bad.is_empty()).then(|| format!("e2fsck: {}", bad.join("; "))))
    }

    fn kernel(&self, state: &Fork) -> io::Result<Option<String>> {
        let _one = self.loop_device.lock().unwrap_or_else(|p| p.into_inner());
        let state = &Self::without_our_log(state)?;
        let image = self.image(state)?;
        let place = image.with_extension("mnt");
        fs::create_dir(&place)?;
        let journal = journal_of(&image);
        let journal = journal.exists().then(|| Loop::of(&journal)).transpose()?;
        let options = match &journal {
            Some(journal) => format!("loop,journal_path={}", journal.0),
            // The kernel replays a journal even for a read-only mount, but not onto a read-only
            // loop device.
            None if needs_recovery(state) => "loop".to_owned(),
            None => "loop,ro".to_owned(),
        };
        let mounted = said(
            Command::new("mount")
                .args([
                    "-t",
                    if needs_recovery(state) {
                        "ext4"
                    } else {
                        "ext2"
                    },
                ])
                .args(["-o", &options])
                .arg(&image)
                .arg(&place),
        );
        let found = match mounted {
            Ok(()) => {
                let read = read_all(&place).err().map(|error| error.to_string());
                unmount(&place)?;
                read
            }
            Err(why) => Some(why),
        };
        fs::remove_dir(&place)?;
        drop(journal);
        remove(&image)?;
        self.mounted.fetch_add(1, Ordering::Relaxed);
        Ok(found.map(|what| format!("the kernel: {what}")))
    }
}

/// The path of an image's journal, if that is on a device of its own.
fn journal_of(image: &Path) -> PathBuf {
    image.with_extension("journal")
}

fn remove(image: &Path) -> io::Result<()> {
    fs::remove_file(image)?;
    match fs::remove_file(journal_of(image)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A loop device, detached when this is dropped.
struct Loop(String);

impl Loop {
    fn of(file: &Path) -> io::Result<Loop> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()?;
        match made.status.success() {
            true => Ok(Loop(String::from_utf8_lossy(&made.stdout).trim().into())),
            false => Err(io::Error::other(
                String::from_utf8_lossy(&made.stderr).trim().to_owned(),
            )),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A device that stays behind shows in `losetup -l`, and does not change the state's
        // verdict.
        let _ = said(Command::new("losetup").args(["-d", &self.0]));
    }
}

/// Unmounts what the kernel has mounted. Tries repeatedly, since a program that looks at all mounts
/// of the host may keep it busy for a moment.
fn unmount(place: &Path) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(50);
    let mut tries = 0;
    loop {
        match said(Command::new("umount").arg(place)) {
            Err(why) if why.contains("busy") && tries < 100 => tries += 1,
            other => return other.map_err(io::Error::other),
        }
        std::thread::sleep(PAUSE);
    }
}

impl Observer for Foreign {
    fn state(&self, state: &Fork, fingerprint: u128) -> Option<String> {
        // Not the bits by which states to reclaim are chosen.
        let choice = (fingerprint >> 64) as u64;
        let asked = |every: u64| every != 0 && choice.is_multiple_of(every);
        let mut said = None;
        if asked(self.e2fsck_every) {
            said = self.each_level(state, Foreign::e2fsck, "e2fsck");
        }
        if said.is_none() && asked(self.kernel_every) {
            said = self.each_level(state, Foreign::kernel, "the kernel");
        }
        said
    }
}

impl Foreign {
    /// Checks an image and those inside it.
    fn each_level(
        &self,
        state: &Fork,
        ask: fn(&Foreign, &Fork) -> io::Result<Option<String>>,
        who: &str,
    ) -> Option<String> {
        let said = unable(ask(self, &state.outermost()), who);
        match state.inner() {
            _ if said.is_some() => said,
            Ok(inner) => self.each_level(&inner?, ask, who),
            Err(error) => Some(format!("the image inside cannot be read: {error}")),
        }
    }
}

/// A check that could not be done is a failure.
fn unable(found: io::Result<Option<String>>, who: &str) -> Option<String> {
    found.unwrap_or_else(|error| Some(format!("{who} could not be asked: {error}")))
}

/// Runs a command; what it printed if it fails.
fn said(command: &mut Command) -> Result<(), String> {
    let Output { status, stderr, .. } = command.output().map_err(|error| error.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&stderr).trim().to_owned()),
    }
}

/// Lists and reads everything.
fn read_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            read_all(&entry.path())?;
        } else if metadata.is_symlink() {
            fs::read_link(entry.path())?;
        } else if metadata.is_file() {
            let mut file = fs::File::open(entry.path())?;
            let mut buffer = [0; 1 << 16];
            while file.read(&mut buffer)? > 0 {}
        }
    }
    Ok(())
}

/// Whether the superblock says that the journal must be replayed.
fn needs_recovery(state: &Fork) -> bool {
    const SUPERBLOCK: usize = 1024;
    const FEATURE_INCOMPAT: usize = 0x60;
    const RECOVER: u8 = 4;
    let at = SUPERBLOCK + FEATURE_INCOMPAT;
    let size = state.block_bytes() as usize;
    state.block((at / size) as u64)[at % size] & RECOVER != 0
}

/// The remarks in a report of `e2fsck -fy` on what is wrong after the replay of the journal.
fn unexpected_after_replay(report: &str) -> Vec<String> {
    const FRAMES: [&str; 7] = [
        "e2fsck ",
        "Pass ",
        "recovering journal",
        "orphaned inode",
        "FILE SYSTEM WAS MODIFIED",
        " files (",
        "Padding at end of",
    ];
    let lines = report.lines().map(str::trim);
    let is_said = |line: &&str| !line.is_empty() && !FRAMES.iter().any(|f| line.contains(f));
    lines.filter(is_said).map(str::to_owned).collect()
}

/// What e2fsck may find after a crash under soft updates, grouped by reason.
const EXPECTED: &[&str] = &[
    // Frames of the report.
    "e2fsck ",
    "Pass ",
    "WARNING",
    " files (",
    "Padding at end of",
    "IGNORED",
    "Unattached inode",
    "Free blocks count wrong",
    "Free inodes count wrong",
    "Directories count wrong",
    // Space and inodes marked as used.
    "Block bitmap differences:  -",
    "Inode bitmap differences:  -",
    // Counts too high, sizes and block counts off.
    "i_blocks is",
    "i_size is",
    // Unconnected inodes and directories, two names of a moved directory.
    "Unconnected directory inode",
    // For a directory with two names, e2fsck reports the one that `..` does not agree with. Our own
    // check tells whether that is allowed.
    "'..' in",
    "is a link to directory",
    "zero-length",
];

/// The remarks in a report of `e2fsck -fn` on what no crash may leave under a mechanism that keeps
/// order.
pub fn unexpected_of_e2fsck(report: &str) -> Vec<String> {
    report
        .lines()
        .map(without_question)
        .filter(|line| !line.is_empty() && !is_expected(line))
        .map(str::to_owned)
        .collect()
}

fn is_expected(line: &str) -> bool {
    for (found, wanted) in [
        ("ref count is", "should be"),
        ("has reference count", "should be"),
    ] {
        if line.contains(found) {
            return matches!((number(line, found), number(line, wanted)), (Some(f), Some(w)) if f >= w);
        }
    }
    if line.contains("bitmap differences") {
        return !line.contains('+');
    }
    EXPECTED.iter().any(|expected| line.contains(expected))
}

fn number(line: &str, behind: &str) -> Option<u64> {
    let rest = line.split(behind).nth(1)?.trim_start();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// A remark of e2fsck without the question and the answer "no" at its end.
fn without_question(line: &str) -> &str {
    const QUESTIONS: [&str; 4] = [
        "Clear? no",
        "Fix? no",
        "Connect to /lost+found? no",
        "IGNORED.",
    ];
    let line = line.trim();
    QUESTIONS
        .iter()
        .find_map(|question| line.strip_suffix(question))
        .unwrap_or(line)
        .trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaks_are_expected_and_damage_is_not() {
        let fine = "Pass 1: Checking inodes, blocks, and sizes\n\
                    Inode 12 ref count is 3, should be 2.  Fix? no\n\
                    Block bitmap differences:  -300 -301\nFix? no\n";
        assert!(
            unexpected_of_e2fsck(fine).is_empty(),
            "{:?}",
            unexpected_of_e2fsck(fine)
        );
        let bad = "Inode 12 ref count is 1, should be 2.  Fix? no\n\
                   Block bitmap differences:  +300\n\
                   Entry 'foo' in / (2) has deleted/unused inode 12.  Clear? no\n";
        assert_eq!(unexpected_of_e2fsck(bad).len(), 3);
    }
}
