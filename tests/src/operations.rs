//! Random operations on a tree, to be done on two file systems, so that the answers can be
//! compared.

use crate::random::Random;
use rustix::fs::{FileType, OFlags, RenameFlags, XattrFlags};

/// How many files can be held open at a time.
pub(crate) const SLOTS: u64 = 4;

/// An operation. Paths are relative to the root.
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

/// Which operations are generated.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Extended attributes and ACLs.
    pub attributes: bool,
    /// The largest size of an attribute's value, apart from values that are far too large.
    pub attribute_bytes: u64,
    /// Punching holes.
    pub holes: bool,
}

/// Generates operations on few names, so that they affect each other, and mostly on names that
/// exist.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    choice: Choice,
    names: Vec<String>,
}

/// The most names that are remembered as existing.
const MOST_NAMES: usize = 100;

impl Generator {
    /// Starts from a seed.
    pub fn new(seed: u64, choice: Choice) -> Self {
        Self {
            random: Random::new(seed),
            choice,
            names: Vec::new(),
        }
    }

    /// Remembers the name that an operation has made.
    pub fn learn(&mut self, operation: &Operation) {
        use Operation as O;
        let path = match operation {
            O::Open { path, flags, .. } if flags.contains(OFlags::CREATE) => path,
            O::Mkdir { path, .. } | O::Symlink { path, .. } | O::Mknod { path, .. } => path,
            O::Link { to, .. } | O::Rename { to, .. } => to,
            _ => return,
        };
        if self.names.len() < MOST_NAMES {
            self.names.push(path.clone());
        } else {
            let forgotten = self.random.below(MOST_NAMES as u64) as usize;
            self.names[forgotten].clone_from(path);
        }
    }

    /// The next operation.
    pub fn operation(&mut self) -> Operation {
        match self.random.below(100) {
            0..40 => self.on_open(),
            40..85 => self.on_names(),
            _ => self.on_attributes(),
        }
    }

    fn on_open(&mut self) -> Operation {
        use Operation as O;
        let slot = self.random.below(SLOTS);
        let at = self.random.file_size(3 << 20);
        let len = self.random.file_size(200_000);
        match self.random.below(20) {
            0..5 => O::Open {
                slot,
                path: self.path(),
                flags: self.flags(),
                mode: self.mode(),
            },
            5 => O::Close { slot },
            6..11 => O::Write {
                slot,
                at,
                len,
                fill: self.random.next_u64(),
            },
            11..14 => O::Read { slot, at, len },
            14 => O::TruncateOpen {
                slot,
                size: self.size(),
            },
            15 if self.choice.holes => O::PunchHole { slot, at, len },
            15 | 16 => O::SeekData {
                slot,
                at,
                hole: self.random.one_in(2),
            },
            17 => {
                let (to, to_at) = (self.random.below(SLOTS), self.random.file_size(1 << 20));
                O::CopyRange {
                    from: slot,
                    at,
                    to,
                    to_at,
                    len,
                }
            }
            18 => O::Sync { slot },
            _ => O::StatOpen { slot },
        }
    }

    fn on_names(&mut self) -> Operation {
        use Operation as O;
        let path = self.path();
        match self.random.below(32) {
            0..5 => O::Mkdir {
                path,
                mode: self.mode(),
            },
            5..7 => O::Rmdir { path },
            7..11 => O::Unlink { path },
            11..14 => O::Link {
                from: path,
                to: self.path(),
            },
            14..16 => {
                let long = self.random.one_in(3);
                let target = if long {
                    "t".repeat(self.random.below(5000) as usize)
                } else {
                    path
                };
                O::Symlink {
                    target,
                    path: self.path(),
                }
            }
            16 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice];
                let kind = *self.random.pick(&kinds);
                let device = kind == FileType::CharacterDevice;
                let device = if device { rustix::fs::makedev(1, 3) } else { 0 };
                O::Mknod {
                    path,
                    kind,
                    mode: self.mode(),
                    device,
                }
            }
            17..24 => {
                let flags = match self.random.below(8) {
                    0 => RenameFlags::NOREPLACE,
                    1 => RenameFlags::EXCHANGE,
                    _ => RenameFlags::empty(),
                };
                O::Rename {
                    from: path,
                    to: self.path(),
                    flags,
                }
            }
            24 | 25 => O::Truncate {
                path,
                size: self.size(),
            },
            26 | 27 => O::Stat { path },
            28 => O::ReadLink { path },
            _ => O::List { path },
        }
    }

    fn on_attributes(&mut self) -> Operation {
        use Operation as O;
        const NAMES: [&str; 6] = [
            "user.a",
            "user.b",
            "user.longer-name",
            "trusted.t",
            "security.s",
            "other.x",
        ];
        let path = self.path();
        let name = (*self.random.pick(&NAMES)).to_owned();
        match self
            .random
            .below(if self.choice.attributes { 16 } else { 8 })
        {
            0..4 => O::Chmod {
                path,
                mode: self.random.below(0o10000) as u32,
            },
            4 | 5 => O::Chown {
                path,
                user: self.owner(),
                group: self.owner(),
            },
            6 | 7 => O::SetTimes {
                path,
                accessed: self.time(),
                modified: self.time(),
            },
            8..11 => {
                let flags = match self.random.below(6) {
                    0 => XattrFlags::CREATE,
                    1 => XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                };
                // Larger than what fits, or so small that all of them fit into one block. For sizes
                // between these it matters whether a file system stores some of them in the inode.
                let len = match self.random.below(10) {
                    0 => self.random.between(5000, 9000),
                    _ => self.random.below(self.choice.attribute_bytes),
                };
                // Few different values, so that inodes share them.
                O::SetAttribute {
                    path,
                    name,
                    len,
                    fill: self.random.below(2),
                    flags,
                }
            }
            11 => {
                let mode = self.random.below(0o1000) as u16;
                let (named, default) = (self.random.below(8) as u16, self.random.one_in(2));
                O::SetAcl {
                    path,
                    default,
                    mode,
                    named,
                }
            }
            12 => O::RemoveAttribute { path, name },
            13 => O::ListAttributes { path },
            _ => O::GetAttribute { path, name },
        }
    }

    fn path(&mut self) -> String {
        const DIRECTORIES: [&str; 3] = ["d0", "d1", "d2"];
        const FILES: [&str; 8] = ["f0", "f1", "f2", "f3", "f4", "d0", "d1", "d2"];
        if !self.names.is_empty() && !self.random.one_in(3) {
            return self.random.pick(&self.names).clone();
        }
        let mut path = String::new();
        for _ in 0..self.random.below(3) {
            path.push_str(self.random.pick::<&str>(&DIRECTORIES));
            path.push('/');
        }
        match self.random.below(100) {
            0 => path.push_str(&"n".repeat(255)),
            1 => path.push_str(&"n".repeat(256)),
            2 => path.push('.'),
            3 => path.push_str("d0/.."),
            4 => path.push_str("f0/"),
            // Sometimes many names in one directory, so that it grows.
            5..30 => {
                let number = self.random.below(300);
                path.push_str(&format!("g{number}-{}", "z".repeat(number as usize % 60)));
            }
            _ => path.push_str(self.random.pick::<&str>(&FILES)),
        }
        path
    }

    fn flags(&mut self) -> OFlags {
        let mut flags = *self
            .random
            .pick(&[OFlags::RDWR, OFlags::RDWR, OFlags::RDONLY]);
        let others = [
            (OFlags::CREATE, 2),
            (OFlags::EXCL, 6),
            (OFlags::TRUNC, 6),
            (OFlags::APPEND, 8),
        ];
        for (flag, chance) in others {
            flags |= if self.random.one_in(chance) {
                flag
            } else {
                OFlags::empty()
            };
        }
        flags
    }

    fn mode(&mut self) -> u32 {
        *self
            .random
            .pick(&[0o644, 0o600, 0o755, 0o777, 0o2775, 0o1777, 0o4755])
    }

    fn size(&mut self) -> u64 {
        match self.random.below(30) {
            0 => 1 << 62,
            1 => 5 << 30,
            _ => self.random.file_size(5 << 20),
        }
    }

    fn owner(&mut self) -> Option<u32> {
        (!self.random.one_in(3)).then(|| self.random.below(9) as u32)
    }

    fn time(&mut self) -> i64 {
        self.random.below(1_000_000_000) as i64
    }
}
