//! Mounting: by the system call as root, else by the set-user-ID program `fusermount3`.

use crate::answer::Errno;
use crate::device::Device;
use rustix::io::retry_on_intr;
use rustix::mount::{MountFlags, mount as mount_at};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::ffi::CString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program that mounts for users, and takes the number of a socket in [`HELPER_SOCKET`].
const HELPER: &str = "fusermount3";
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// How a mount is to look to the system.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What is shown as the mount's source.
    pub source: String,
    /// What is shown as its type, behind `fuse.`.
    pub subtype: String,
    /// No writes.
    pub read_only: bool,
    /// Device nodes work.
    pub devices: bool,
    /// Set-user-ID and set-group-ID work.
    pub set_user_id: bool,
    /// Programs can be run.
    pub execute: bool,
    /// Reads move access times.
    pub access_times: bool,
    /// The kernel follows each write with `FSYNC`.
    pub synchronous: bool,
    /// Names are changed synchronously.
    pub synchronous_names: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub check_permissions: bool,
    /// Further options for the kernel, as they are.
    pub more: Vec<String>,
}

/// Mounts at `dir`, and returns the connection, which a [`Session`](crate::Session) has to
/// negotiate on before anything there is answered.
///
/// # Errors
///
/// What the kernel or `fusermount3` says.
pub fn mount(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    match mount_as_root(dir, options) {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            mount_by_helper(dir, options)
        }
        done => done,
    }
}

fn mount_as_root(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let connection = Device::open()?;
    let mode = dir.metadata()?.mode();
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    let number = connection.as_raw_fd();
    let mut data = format!("fd={number},rootmode={mode:o},user_id={uid},group_id={gid}");
    data += &format!(",subtype={}", options.subtype);
    let switches = [
        (options.allow_other, "allow_other"),
        (options.check_permissions, "default_permissions"),
    ];
    let words = switches
        .into_iter()
        .filter_map(|(on, word)| on.then_some(word));
    for word in words.chain(options.more.iter().map(String::as_str)) {
        data.push(',');
        data += word;
    }
    let data = CString::new(data)?;
    mount_at(
        options.source.as_str(),
        dir,
        "fuse",
        flags(options),
        data.as_c_str(),
    )?;
    Ok(connection)
}

fn flags(options: &MountOptions) -> MountFlags {
    let all = [
        (options.read_only, MountFlags::RDONLY),
        (!options.devices, MountFlags::NODEV),
        (!options.set_user_id, MountFlags::NOSUID),
        (!options.execute, MountFlags::NOEXEC),
        (!options.access_times, MountFlags::NOATIME),
        (options.synchronous, MountFlags::SYNCHRONOUS),
        (options.synchronous_names, MountFlags::DIRSYNC),
    ];
    let on = all.into_iter().filter(|(on, _)| *on);
    on.fold(MountFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// The helper's options, which it takes as one string.
fn words(options: &MountOptions) -> String {
    let either = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
    // It takes commas and backslashes in a name only behind a backslash.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![
        format!("fsname={source}"),
        format!("subtype={}", options.subtype),
        either(options.read_only, "ro", "rw").into(),
        either(options.devices, "dev", "nodev").into(),
        either(options.set_user_id, "suid", "nosuid").into(),
        either(options.execute, "exec", "noexec").into(),
        either(options.access_times, "atime", "noatime").into(),
        either(options.synchronous, "sync", "async").into(),
    ];
    let switches = [
        (options.synchronous_names, "dirsync"),
        (options.allow_other, "allow_other"),
        (options.check_permissions, "default_permissions"),
    ];
    words.extend(
        switches
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, word)| word.into()),
    );
    words.extend(options.more.iter().cloned());
    words.join(",")
}

fn mount_by_helper(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(words(options))
        .arg("--")
        .arg(dir)
        // As its standard input no other program that is started meanwhile inherits it.
        .stdin(Stdio::from(theirs))
        .env(HELPER_SOCKET, "0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(
            "users mount by the program fusermount3, which is not there: install fuse3",
        ),
        _ => error,
    })?;
    let received = receive(&ours);
    let said = end_of(&mut child)?;
    match received? {
        Some(connection) => Ok(connection),
        None => Err(refusal(&said)),
    }
}

/// The connection that the helper sends; `None` if it ends without.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    let received =
        retry_on_intr(|| recvmsg(socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut sent = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(sent.next())
}

/// What a helper says until it ends.
fn end_of(child: &mut Child) -> io::Result<String> {
    let mut said = Vec::new();
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_end(&mut said)?;
    }
    child.wait()?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The helper's last line, without its name.
fn refusal(said: &str) -> io::Error {
    let kind = match said.contains("user_allow_other") {
        true => io::ErrorKind::PermissionDenied,
        false => io::ErrorKind::Other,
    };
    let last = said.trim().lines().last().unwrap_or_default();
    let reason = match last.trim_start_matches("fusermount3: ") {
        "" => "fusermount3 failed without a word",
        reason => reason,
    };
    io::Error::new(kind, reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MountOptions {
        MountOptions {
            source: "a,b\\c".into(),
            subtype: "test".into(),
            read_only: true,
            devices: false,
            set_user_id: false,
            execute: true,
            access_times: true,
            synchronous: false,
            synchronous_names: true,
            allow_other: false,
            check_permissions: true,
            more: vec!["context=x".into()],
        }
    }

    #[test]
    fn words_of_the_helper() {
        assert_eq!(
            words(&options()),
            "fsname=a\\,b\\\\c,subtype=test,ro,nodev,nosuid,exec,atime,async,dirsync,\
             default_permissions,context=x"
        );
    }

    #[test]
    fn flags_of_the_system_call() {
        let expected =
            MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::DIRSYNC;
        assert_eq!(flags(&options()), expected);
    }

    #[test]
    fn refusals_are_short() {
        let said = "fusermount3: failed to access mountpoint /x: Permission denied\n";
        let reason = "failed to access mountpoint /x: Permission denied";
        assert_eq!(refusal(said).to_string(), reason);
        let said = "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n";
        assert_eq!(refusal(said).kind(), io::ErrorKind::PermissionDenied);
        assert!(!refusal("").to_string().is_empty());
    }
}
