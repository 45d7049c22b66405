//! The socket of patchgroups by itself, without a mount.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_fuse::{Control, Engine};
use backstitch_layout::tools::Mkfs;
use backstitch_vfs::MountOptions;
use patchgroup::protocol::{Op, decode_answer, send_request};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

/// What the kernel keeps of `backstitch-every`.
const EVERY: &str = "backstitch-ever";
const PATIENCE: Duration = Duration::from_secs(10);

fn connected(control: &Control) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let name = control.socket_name().unwrap();
    connect(&socket, &SocketAddrUnix::new_abstract_name(name).unwrap()).unwrap();
    socket
}

fn answer(socket: &OwnedFd) -> io::Result<i32> {
    let mut bytes = [0; 16];
    let (length, _) = recv(socket, &mut bytes[..], RecvFlags::empty())?;
    decode_answer(&bytes[..length])
}

/// The threads of this process that sync a group now and then.
fn syncing() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == EVERY).count()
}

/// Waits until there are `wanted` of them.
fn settles_at(wanted: usize) -> bool {
    let start = Instant::now();
    while syncing() != wanted && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    syncing() == wanted
}

#[test]
fn one_thread_syncs_a_group_now_and_then_and_ends_with_it() {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let mkfs = Mkfs::new([1; 16], [2; 16], 1_700_000_000);
    usual().make(&mkfs, &*device).unwrap();
    let engine = Engine::mount(device, usual().layout(), &MountOptions::default()).unwrap();
    let control = Control::new(engine.clone(), false);
    let group = connected(&control);
    send_request(&group, Op::Create, b"", &[group.as_fd()]).unwrap();
    answer(&group).unwrap();
    let order = |milliseconds: u64| {
        let socket = connected(&control);
        let argument = milliseconds.to_ne_bytes();
        send_request(&socket, Op::Order, &argument, &[group.as_fd()]).unwrap();
        answer(&socket).unwrap();
    };
    for round in 0..50 {
        // Some of them never come.
        order(if round % 2 == 0 { 3_600_000 } else { u64::MAX });
    }
    assert!(settles_at(1), "{} threads for one group", syncing());
    order(0);
    assert!(settles_at(0), "{} threads for none", syncing());
    order(u64::MAX);
    assert!(settles_at(1), "{} threads", syncing());
    drop(group);
    assert!(settles_at(0), "{} threads after the group's end", syncing());
    drop(control);
    engine.unmount().unwrap();
}
