//! Random operations on a tree, for doing the same on two file systems and comparing what each answers.

use crate::random::Random;
use rustix::fs::{FileType, OFlags, RenameFlags, XattrFlags};

/// How many files can be held open at a time.
pub(crate) const SLOTS: u64 = 4;

/// One thing to do. Paths are below the root.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "they are the system calls of the same names")]
pub enum Operation {
    Open {
        slot: u64,
        path: String,
        flags: OFlags,
        mode: u32,
    },
    Close {
        slot: u64,
    },
    Write {
        slot: u64,
        at: u64,
        len: u64,
        fill: u64,
    },
    Read {
        slot: u64,
        at: u64,
        len: u64,
    },
    TruncateOpen {
        slot: u64,
        size: u64,
    },
    PunchHole {
        slot: u64,
        at: u64,
        len: u64,
    },
    SeekData {
        slot: u64,
        at: u64,
        hole: bool,
    },
    CopyRange {
        from: u64,
        at: u64,
        to: u64,
        to_at: u64,
        len: u64,
    },
    Sync {
        slot: u64,
    },
    StatOpen {
        slot: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Mknod {
        path: String,
        kind: FileType,
        mode: u32,
        device: u64,
    },
    Rename {
        from: String,
        to: String,
        flags: RenameFlags,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        user: Option<u32>,
        group: Option<u32>,
    },
    SetTimes {
        path: String,
        accessed: i64,
        modified: i64,
    },
    SetAttribute {
        path: String,
        name: String,
        len: u64,
        fill: u64,
        flags: XattrFlags,
    },
    SetAcl {
        path: String,
        default: bool,
        mode: u16,
        named: u16,
    },
    GetAttribute {
        path: String,
        name: String,
    },
    ListAttributes {
        path: String,
    },
    RemoveAttribute {
        path: String,
        name: String,
    },
    Stat {
        path: String,
    },
    ReadLink {
        path: String,
    },
    List {
        path: String,
    },
}

/// Operations to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Extended attributes and ACLs.
    pub attributes: bool,
    /// Punching holes.
    pub holes: bool,
}

impl Operation {
    /// A random one: on few names, so that they meet each other.
    pub fn random(random: &mut Random, choice: Choice) -> Self {
        match random.below(100) {
            0..40 => Self::random_on_open(random, choice),
            40..85 => Self::random_on_names(random),
            _ => Self::random_on_attributes(random, choice),
        }
    }

    fn random_on_open(random: &mut Random, choice: Choice) -> Self {
        let slot = random.below(SLOTS);
        let at = random.file_size(3 << 20);
        let len = random.file_size(200_000);
        match random.below(20) {
            0..5 => {
                let mut flags = *random.pick(&[OFlags::RDWR, OFlags::RDWR, OFlags::RDONLY]);
                for (flag, chance) in [
                    (OFlags::CREATE, 2),
                    (OFlags::EXCL, 4),
                    (OFlags::TRUNC, 6),
                    (OFlags::APPEND, 8),
                ] {
                    flags |= if random.one_in(chance) {
                        flag
                    } else {
                        OFlags::empty()
                    };
                }
                Self::Open {
                    slot,
                    path: path(random),
                    flags,
                    mode: mode(random),
                }
            }
            5 => Self::Close { slot },
            6..11 => Self::Write {
                slot,
                at,
                len,
                fill: random.next_u64(),
            },
            11..14 => Self::Read { slot, at, len },
            14 => Self::TruncateOpen {
                slot,
                size: size(random),
            },
            15 if choice.holes => Self::PunchHole { slot, at, len },
            15 | 16 => Self::SeekData {
                slot,
                at,
                hole: random.one_in(2),
            },
            17 => {
                let (to, to_at) = (random.below(SLOTS), random.file_size(1 << 20));
                Self::CopyRange {
                    from: slot,
                    at,
                    to,
                    to_at,
                    len,
                }
            }
            18 => Self::Sync { slot },
            _ => Self::StatOpen { slot },
        }
    }

    fn random_on_names(random: &mut Random) -> Self {
        let path = path(random);
        match random.below(32) {
            0..5 => Self::Mkdir {
                path,
                mode: mode(random),
            },
            5..7 => Self::Rmdir { path },
            7..11 => Self::Unlink { path },
            11..14 => Self::Link {
                from: path,
                to: self::path(random),
            },
            14..16 => {
                let long = if random.one_in(3) {
                    "t".repeat(random.below(5000) as usize)
                } else {
                    path
                };
                Self::Symlink {
                    target: long,
                    path: self::path(random),
                }
            }
            16 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice];
                let kind = *random.pick(&kinds);
                let device = if kind == FileType::CharacterDevice {
                    rustix::fs::makedev(1, 3)
                } else {
                    0
                };
                Self::Mknod {
                    path,
                    kind,
                    mode: mode(random),
                    device,
                }
            }
            17..24 => {
                let flags = match random.below(8) {
                    0 => RenameFlags::NOREPLACE,
                    1 => RenameFlags::EXCHANGE,
                    _ => RenameFlags::empty(),
                };
                Self::Rename {
                    from: path,
                    to: self::path(random),
                    flags,
                }
            }
            24 | 25 => Self::Truncate {
                path,
                size: size(random),
            },
            26 | 27 => Self::Stat { path },
            28 => Self::ReadLink { path },
            _ => Self::List { path },
        }
    }

    fn random_on_attributes(random: &mut Random, choice: Choice) -> Self {
        let path = path(random);
        let names = [
            "user.a",
            "user.b",
            "user.longer-name",
            "trusted.t",
            "security.s",
            "other.x",
        ];
        let name = (*random.pick(&names)).to_owned();
        match random.below(if choice.attributes { 16 } else { 8 }) {
            0..4 => Self::Chmod {
                path,
                mode: random.below(0o10000) as u32,
            },
            4 | 5 => {
                let one = |random: &mut Random| (!random.one_in(3)).then(|| random.below(9) as u32);
                Self::Chown {
                    path,
                    user: one(random),
                    group: one(random),
                }
            }
            6 | 7 => {
                let time = |random: &mut Random| random.below(1_000_000_000) as i64;
                Self::SetTimes {
                    path,
                    accessed: time(random),
                    modified: time(random),
                }
            }
            8..11 => {
                let flags = match random.below(6) {
                    0 => XattrFlags::CREATE,
                    1 => XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                };
                let largest = if random.one_in(10) { 9000 } else { 700 };
                let len = random.file_size(largest);
                // Few different values, so that inodes come to share them.
                Self::SetAttribute {
                    path,
                    name,
                    len,
                    fill: random.below(2),
                    flags,
                }
            }
            11 => {
                let (mode, named) = (random.below(0o1000) as u16, random.below(8) as u16);
                Self::SetAcl {
                    path,
                    default: random.one_in(2),
                    mode,
                    named,
                }
            }
            12 => Self::RemoveAttribute { path, name },
            13 => Self::ListAttributes { path },
            _ => Self::GetAttribute { path, name },
        }
    }
}

fn path(random: &mut Random) -> String {
    const DIRECTORIES: [&str; 3] = ["d0", "d1", "d2"];
    const FILES: [&str; 8] = ["f0", "f1", "f2", "f3", "f4", "d0", "d1", "d2"];
    let mut path = String::new();
    for _ in 0..random.below(3) {
        path.push_str(random.pick::<&str>(&DIRECTORIES));
        path.push('/');
    }
    match random.below(100) {
        0 => path.push_str(&"n".repeat(255)),
        1 => path.push_str(&"n".repeat(256)),
        2 => path.push('.'),
        3 => path.push_str(".."),
        4 => path.push_str("f0/"),
        // Sometimes many names in one directory, so that it grows.
        5..30 => {
            let number = random.below(300);
            path.push_str(&format!("g{number}-{}", "z".repeat(number as usize % 60)));
        }
        _ => path.push_str(random.pick::<&str>(&FILES)),
    }
    path
}

fn mode(random: &mut Random) -> u32 {
    *random.pick(&[0o644, 0o600, 0o755, 0o777, 0o2775, 0o1777, 0o4755])
}

fn size(random: &mut Random) -> u64 {
    match random.below(30) {
        0 => 1 << 62,
        1 => 5 << 30,
        _ => random.file_size(5 << 20),
    }
}
