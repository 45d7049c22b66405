//! `backstitch umount DIR`.

use super::info::superblock;
use super::sync::{sync_showing, writing_out_bar};
use backstitch_files::error::{Error, Result, host, warn_line};
use backstitch_files::image::{DeviceOptions, open_device};
use backstitch_files::mounted;
use backstitch_files::named::Named;
use backstitch_fuse::{MountError, Unmounter};
use backstitch_layout::tools::State;
use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Unmount, and wait until the daemon is gone and everything is on the disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch umount /mnt
  backstitch umount --lazy /mnt      detach it now, finish when its last file is closed
  umount /mnt; fusermount3 -u /mnt   unmount too, but do not wait for the disk; with a link /sbin/umount.backstitch
                                     to the binary umount does")]
pub(crate) struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// Detach it now even if files are in use, and wait until they are closed
    #[arg(short, long)]
    lazy: bool,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct MountPoint {
    dir: PathBuf,
    kind: String,
    /// What is mounted: the image.
    source: PathBuf,
    read_only: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let failed = |why: String| Error::at_path("umount", &args.dir, why);
    let dir = resolved(&args.dir)?;
    let table = std::fs::read("/proc/self/mountinfo").map_err(|e| failed(host(&e)))?;
    let mounts = parse_mounts(&table);
    // The last one lies on top.
    let mount = mounts.iter().rev().find(|mount| mount.dir == dir);
    let mount = mount.ok_or_else(|| {
        let error = failed("nothing is mounted there".into());
        match mounted::dir_of(&args.dir) {
            Some(dir) => error.hint(format!(
                "this image is mounted on {0}: backstitch umount {0}",
                dir.display()
            )),
            None => error,
        }
    })?;
    if !mount.kind.starts_with("fuse") {
        return Err(failed(format!(
            "not a backstitch mount, but {}",
            mount.kind
        )));
    }
    let counters = match backstitch_fuse::stats_of(&dir) {
        Ok(counters) => counters,
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOTCONN | libc::ECONNABORTED)
            ) =>
        {
            return clear_dead(args, &dir);
        }
        // With -o noxattr there are none.
        Err(_) if mount.kind == "fuse.backstitch" => return unmount_blindly(args, &dir, mount),
        Err(_) => return Err(failed("not a backstitch mount".into())),
    };
    let pid = counters["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok());
    let pid = pid
        .and_then(Pid::from_raw)
        .ok_or_else(|| failed("no process serves it".into()))?;
    let is_raw = counters["layout"] == "raw";
    if !args.lazy || is_raw {
        // Written now, what is left can be shown. What could not be written the image's mark tells
        // in the end, if it has one.
        let written = sync_showing(&dir);
        if is_raw {
            written.map_err(|e| failed(host(&e)))?;
        }
    }
    let daemon = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed(host(&e.into())))?;
    unmount(args, &dir)?;
    wait_for(&daemon).map_err(|e| failed(host(&e)))?;
    // A recorder knows nothing of what its image holds.
    let is_recorder = counters["kind"] == "recorder";
    if mount.read_only || is_recorder || is_raw {
        return Ok(());
    }
    check_clean(&counters)
}

/// Unmounts a mount that tells nothing of itself, and waits until nobody has its image any more.
fn unmount_blindly(args: &Args, dir: &Path, mount: &MountPoint) -> Result<()> {
    const TICK: Duration = Duration::from_millis(20);
    /// Others may go on reading what was mounted for reading.
    const PATIENCE_WITH_READERS: Duration = Duration::from_secs(2);
    if !args.lazy {
        // Written now, what is left can be shown; what fails the image's mark tells in the end.
        let _ = sync_showing(dir);
    }
    let image = &mount.source;
    let Ok(named) = Named::of("umount", image) else {
        // It is unmounted, whatever became of its image.
        return unmount(args, dir);
    };
    let holder = || named.holder(!mount.read_only);
    let ours = holder();
    unmount(args, dir)?;
    let started = Instant::now();
    let is_patient = || !mount.read_only || started.elapsed() < PATIENCE_WITH_READERS;
    while ours.is_some() && holder() == ours && is_patient() {
        std::thread::sleep(TICK);
    }
    // Who has it now has found out by itself whether it is clean.
    match mount.read_only || holder().is_some() {
        true => Ok(()),
        false => check_clean(&serde_json::json!({ "image": image })),
    }
}

/// The directory's own path, without asking the file system that is mounted there: its daemon may
/// be dead.
fn resolved(dir: &Path) -> Result<PathBuf> {
    let failed = |error: std::io::Error| Error::at_path("umount", dir, host(&error));
    let absolute = std::path::absolute(dir).map_err(failed)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if !absolute.is_symlink() => {
            Ok(parent.canonicalize().map_err(failed)?.join(name))
        }
        _ => absolute.canonicalize().map_err(failed),
    }
}

fn unmount(args: &Args, dir: &Path) -> Result<()> {
    let unmounter = Unmounter::new(dir);
    let done = if args.lazy {
        unmounter.detach()
    } else {
        unmounter.unmount()
    };
    done.map_err(|error| match error {
        MountError::Unmount { reason, .. } if reason.raw_os_error() == Some(libc::EBUSY) => {
            Error::at_path("umount", &args.dir, "in use").hint(format!(
                "fuser -vm {0} shows by whom; --lazy takes it off now, and waits for them",
                args.dir.display()
            ))
        }
        MountError::Unmount { reason, .. } => Error::at_path("umount", &args.dir, host(&reason)),
        other => Error::at_path("umount", &args.dir, other),
    })
}

/// A daemon that died left its mount behind: takes that off, and says what happened.
fn clear_dead(args: &Args, dir: &Path) -> Result<()> {
    unmount(args, dir)?;
    warn_line(&format!(
        "umount: {}: its daemon had died; the mount is gone now, and the next one recovers the image",
        args.dir.display()
    ));
    Ok(())
}

/// Waits for the daemon's end, with a word on a terminal if that takes long.
fn wait_for(daemon: &OwnedFd) -> std::io::Result<()> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let started = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: 200_000_000,
    };
    loop {
        let mut ends = [PollFd::new(daemon, PollFlags::IN)];
        match poll(&mut ends, Some(&tick)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
        if bar.is_none() && started.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            bar = Some(writing_out_bar());
        }
        if let Some(bar) = &bar {
            bar.tick();
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(())
}

/// A daemon that could not write everything leaves the image marked as in use: why, as far as the
/// counters of the mount told.
fn check_clean(counters: &serde_json::Value) -> Result<()> {
    let image = Path::new(counters["image"].as_str().unwrap_or_default());
    if Named::of("umount", image).is_ok_and(|named| !named.file.exists()) {
        warn_line(&format!(
            "umount: {}: renamed or removed meanwhile: whether all of it was written is not known",
            image.display()
        ));
        return Ok(());
    }
    let read_only = DeviceOptions {
        read_only: true,
        ..Default::default()
    };
    let device = open_device("umount", image, read_only)?;
    if backstitch_formats::found(&*device).is_none() {
        // Blocks that hold no file system have no mark.
        return Ok(());
    }
    if superblock("umount", image, &*device)?.state == State::Clean {
        return Ok(());
    }
    let left = |why: String| Error::at_path("umount", image, why);
    let fsck = format!("backstitch fsck -n {}", image.display());
    Err(match counters["read_only"].as_str() {
        Some(reason) => left(format!(
            "left marked as in use, as it became read-only: {reason}"
        ))
        .hint(fsck),
        None if counters["reclaim"]["running"] == true => {
            left("left marked as in use: what a crash left is not all reclaimed".to_owned())
                .hint("the next mount goes on with it; the log has what else may have failed")
        }
        None => {
            left("left marked as in use: not everything could be written".to_owned()).hint(format!(
                "{fsck} finds what is damaged; the log of a mount with --log FILE says what failed"
            ))
        }
    })
}

fn parse_mounts(table: &[u8]) -> Vec<MountPoint> {
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter_map(parse_mount).collect()
}

/// `ID PARENT MAJ:MIN ROOT DIR OPTIONS [TAGS…] - TYPE SOURCE OPTIONS`, blanks in names as `\040`.
fn parse_mount(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|&byte| byte == b' ');
    let dir = unescape(words.nth(4)?);
    let read_only = words
        .next()?
        .split(|&byte| byte == b',')
        .any(|option| option == b"ro");
    let mut behind = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (behind.next()?, behind.next().unwrap_or_default());
    let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
    Some(MountPoint {
        dir: path(dir),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: path(unescape(source)),
        read_only,
    })
}

fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let code = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| {
                let digits = std::str::from_utf8(digits).ok()?;
                u8::from_str_radix(digits, 8).ok()
            });
        match code {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn mountinfo_lines() {
        let table =
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            40 35 0:40 / /tmp/a\\040b\\134 ro,noatime shared:7 - fuse.backstitch /x.img rw,user_id=0\n";
        let mounts = parse_mounts(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].kind, "ext3");
        assert_eq!(mounts[1].dir.as_os_str(), OsStr::from_bytes(b"/tmp/a b\\"));
        assert_eq!(mounts[1].kind, "fuse.backstitch");
        assert_eq!(mounts[1].source, Path::new("/x.img"));
        assert!(mounts[1].read_only && !mounts[0].read_only);
        assert_eq!(parse_mounts(b"\nshort line\n"), vec![]);
    }
}
