//! Scripts of user commands, several at a time (SPEC's SDET; Gaede 1981, 1982; Ganger et al. 2000,
//! figures 7 and 8; Seltzer et al. 2000, §7.3.3).
//!
//! The papers do not give the mix of commands. Here a script is 430 commands, drawn with the
//! weights below, in a home directory of its own. The weights and the sizes are assumed. The time
//! that commands compute is fitted to figure 7, in which the fastest curves end at about four
//! seconds of its processor for each script. So is the number of commands: with one script at a
//! time, synchronous writes make it six times slower. How that changes with more scripts is a
//! prediction.

use std::sync::Arc;
use std::time::Duration;

use crate::Result;
use crate::client::{Call, Clients};
use crate::contents::Contents;
use crate::random::Random;
use crate::workload::{Scale, Session, reference_time};

/// Commands of a script.
const COMMANDS: u64 = 430;
/// Files in a home directory at first.
const FILES: u64 = 20;
/// Scripts at a time.
pub(crate) const SCRIPTS: u64 = 5;

/// A command. Each has a weight and a computing time in seconds of the processor of figure 7.
#[derive(Clone, Copy)]
enum Command {
    /// ed: a file is read, and written through a temporary file.
    Edit,
    /// cc: a source is compiled to an object, through two temporary files.
    Compile,
    /// cp.
    Copy,
    /// rm.
    Remove,
    /// ls: the names, and each one's attributes.
    List,
    /// cat, grep, spell, nroff: a file is read.
    Read,
    /// mkdir, a file in it, rmdir.
    Directory,
}

const MIX: [(Command, u64, f64); 7] = [
    (Command::Edit, 20, 0.0056),
    (Command::Compile, 15, 0.035),
    (Command::Copy, 10, 0.0028),
    (Command::Remove, 10, 0.0028),
    (Command::List, 10, 0.0028),
    (Command::Read, 30, 0.0042),
    (Command::Directory, 5, 0.0056),
];

/// The work of all clients.
pub(super) struct Plan {
    clients: Arc<Clients>,
    commands: u64,
}

impl Plan {
    pub(super) fn draw(scale: &Scale, seed: u64, contents: Arc<Contents>) -> Result<Plan> {
        let commands = scale.count(None, COMMANDS);
        let scripts = scale.writers.unwrap_or(SCRIPTS).max(1);
        let drawn = (0..scripts).map(|number| Script::draw(seed, number, commands));
        let drawn: Result<Vec<_>> = drawn.collect();
        Ok(Plan {
            clients: Arc::new(Clients {
                scripts: drawn?,
                contents,
            }),
            commands: commands * scripts,
        })
    }

    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.files.run_clients(session.root, &self.clients)?;
        session.operations += self.commands;
        Ok(())
    }
}

/// A script being drawn.
struct Script {
    random: Random,
    calls: Vec<Call>,
    /// Number and size of each existing file.
    files: Vec<(u64, u64)>,
    next: u64,
}

/// The numbers of the nodes that a script has open.
const HOME: u32 = 1;
const FILE: u32 = 2;
const OTHER: u32 = 3;

fn name(file: u64) -> String {
    format!("file{file}")
}

impl Script {
    fn draw(seed: u64, number: u64, commands: u64) -> Result<Vec<Call>> {
        let mut script = Script {
            random: Random::new(seed, 100 + number),
            calls: vec![Call::MakeDirectory {
                parent: 0,
                name: format!("home{number}"),
                node: HOME,
            }],
            files: Vec::new(),
            next: 0,
        };
        for _ in 0..FILES {
            script.make();
        }
        let all: u64 = MIX.iter().map(|(_, weight, _)| weight).sum();
        for _ in 0..commands {
            let mut place = script.random.below(all);
            for (command, weight, seconds) in MIX {
                if place < weight {
                    script.command(command, reference_time("viking", seconds)?);
                    break;
                }
                place -= weight;
            }
        }
        script.calls.push(Call::Close { node: HOME });
        Ok(script.calls)
    }

    fn command(&mut self, command: Command, compute: Duration) {
        self.calls.push(Call::Compute(compute / 2));
        match command {
            Command::Edit => {
                let (file, bytes) = self.pick();
                self.read(file, bytes);
                self.temporary("ed.tmp", bytes);
                self.unlink(name(file));
                self.files.retain(|(other, _)| *other != file);
                self.make();
                self.unlink("ed.tmp".to_owned());
            }
            Command::Compile => {
                let (file, bytes) = self.pick();
                self.read(file, bytes);
                self.temporary("cc.i", bytes * 4);
                self.temporary("cc.s", bytes * 2);
                self.unlink("cc.i".to_owned());
                self.make();
                self.unlink("cc.s".to_owned());
            }
            Command::Copy => {
                let (file, bytes) = self.pick();
                self.read(file, bytes);
                self.make();
            }
            Command::Remove if self.files.len() as u64 > FILES / 2 => {
                let (file, _) = self.pick();
                self.unlink(name(file));
                self.files.retain(|(other, _)| *other != file);
            }
            Command::Remove => self.make(),
            Command::List => {
                self.calls.push(Call::List { node: HOME });
                let names = self.files.iter().map(|(file, _)| name(*file));
                let stats = names.map(|name| Call::Stat { parent: HOME, name });
                self.calls.extend(stats);
            }
            Command::Read => {
                let (file, bytes) = self.pick();
                self.read(file, bytes);
            }
            Command::Directory => self.directory(),
        }
        self.calls.push(Call::Compute(compute / 2));
    }

    fn pick(&mut self) -> (u64, u64) {
        self.files[self.random.below(self.files.len() as u64) as usize]
    }

    /// Makes a file of some size.
    fn make(&mut self) {
        let bytes = self.random.between(1 << 10, 16 << 10);
        let file = self.next;
        self.next += 1;
        self.files.push((file, bytes));
        self.write(HOME, name(file), FILE, file, bytes);
    }

    fn temporary(&mut self, name: &str, bytes: u64) {
        self.write(HOME, name.to_owned(), OTHER, bytes, bytes);
    }

    fn write(&mut self, parent: u32, name: String, node: u32, salt: u64, len_bytes: u64) {
        self.calls.push(Call::Create { parent, name, node });
        self.calls.push(Call::Write {
            node,
            salt,
            offset_bytes: 0,
            len_bytes,
        });
        self.calls.push(Call::Close { node });
    }

    fn read(&mut self, file: u64, len_bytes: u64) {
        let node = FILE;
        self.calls.push(Call::Open {
            parent: HOME,
            name: name(file),
            node,
        });
        self.calls.push(Call::Read {
            node,
            offset_bytes: 0,
            len_bytes,
        });
        self.calls.push(Call::Close { node });
    }

    fn unlink(&mut self, name: String) {
        self.calls.push(Call::Unlink { parent: HOME, name });
    }

    fn directory(&mut self) {
        const INSIDE: u32 = 4;
        let directory = "dir".to_owned();
        self.calls.push(Call::MakeDirectory {
            parent: HOME,
            name: directory.clone(),
            node: INSIDE,
        });
        self.write(INSIDE, "note".to_owned(), FILE, 1, 2048);
        self.calls.push(Call::Unlink {
            parent: INSIDE,
            name: "note".to_owned(),
        });
        self.calls.push(Call::Close { node: INSIDE });
        self.calls.push(Call::RemoveDirectory {
            parent: HOME,
            name: directory,
        });
    }
}
