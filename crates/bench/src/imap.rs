//! `imap`: moving messages from one mailbox to another as a mail server does it (Frost et al. 2007,
//! §5.2, §8.5, figure 11), in three ways.
//!
//! A mailbox is one file in which messages follow each other (mbox), as the paper's server keeps
//! it. The client selects the source, makes the destination, and for each message says COPY (it is
//! appended, and the file's times are set) and STORE (the mark stays in memory until the mailbox is
//! written, as it does there). EXPUNGE writes the source without the marked messages, CHECK asks
//! for both mailboxes to be safe. In no order of writes may a message be lost.
//!
//! * **fsync**: the mailbox is fsynced after each COPY into it, each EXPUNGE and each CHECK: what
//!   the unmodified server does.
//! * **patchgroups**: each command is a patchgroup that comes after the one before it; EXPUNGE and
//!   CHECK sync theirs.
//! * **fsync-durable**: only EXPUNGE and CHECK fsync. Safe only where the mechanism keeps the order
//!   of operations by itself: journals.
//!
//! The device charges for each flush (5 ms by default), so that the figures do not hang on the
//! host's disk: it sleeps as long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backstitch_device::{BlockDevice, MemoryDevice, SlowFlushDevice};
use backstitch_formats::{Layout, usual};
use backstitch_vfs::{
    Engine, FileType, GroupId, InodeNumber, MountOptions, NewInode, Ordering, SetAttributes,
    Timestamp,
};

use crate::contents::Contents;
use crate::measure::{check, make};
use crate::paper::PaperFigure;
use crate::{CpuTime, EngineFigures, Error, Phase, Result, Run};

/// What the server does so that a crash loses no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImapVariant {
    /// Fsync after each command that changes a mailbox.
    Fsync,
    /// A patchgroup for each command, after the one before.
    Patchgroups,
    /// Fsync after commands whose caller asks for durability.
    FsyncDurable,
}

impl ImapVariant {
    /// All of them.
    pub const ALL: [ImapVariant; 3] = [
        ImapVariant::Fsync,
        ImapVariant::Patchgroups,
        ImapVariant::FsyncDurable,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ImapVariant::Fsync => "fsync",
            ImapVariant::Patchgroups => "patchgroups",
            ImapVariant::FsyncDurable => "fsync-durable",
        }
    }

    /// Whether it loses no message in a crash under this mechanism.
    pub fn is_safe(self, ordering: Ordering) -> bool {
        self != ImapVariant::FsyncDurable || ordering.has_log()
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct ImapSpec {
    /// The layout of the file system.
    pub layout: Layout,
    /// The mechanism.
    pub ordering: Ordering,
    /// The way.
    pub variant: ImapVariant,
    /// Messages to move: the paper has 1,000.
    pub messages: u64,
    /// The size of each: the paper has 2 kB.
    pub message_bytes: u64,
    /// What the device charges for each flush.
    pub flush_seconds: f64,
    /// The size of the file system.
    pub size_bytes: u64,
    /// The bound on buffers.
    pub cache_bytes: u64,
    /// What the messages are drawn from.
    pub seed: u64,
    /// Check the image in the end.
    pub check: bool,
}

impl ImapSpec {
    /// The paper's, under a mechanism in one of the ways.
    pub fn new(ordering: Ordering, variant: ImapVariant) -> ImapSpec {
        ImapSpec {
            layout: usual(),
            ordering,
            variant,
            messages: 1000,
            message_bytes: 2048,
            flush_seconds: 0.005,
            size_bytes: 256 << 20,
            cache_bytes: 256 << 20,
            seed: 1,
            check: false,
        }
    }

    fn is_full(&self) -> bool {
        let full = ImapSpec::new(self.ordering, self.variant);
        self.messages == full.messages && self.message_bytes == full.message_bytes
    }

    /// What figure 11 has for it.
    fn paper(&self) -> Option<PaperFigure> {
        let value = match (self.ordering.name(), self.variant) {
            ("soft", ImapVariant::Fsync) => 8083.0,
            ("soft", ImapVariant::Patchgroups) => 3015.0,
            ("journal=full", ImapVariant::Fsync) => 7114.0,
            ("journal=full", ImapVariant::Patchgroups) => 32.0,
            // Linux's ext3; the prototype is said to be similar.
            ("journal=full", ImapVariant::FsyncDurable) => 26.0,
            _ => return None,
        };
        self.is_full().then_some(PaperFigure {
            source: "Frost et al. 2007, figure 11",
            value,
            unit: "write_requests",
        })
    }
}

/// The server: two mailboxes and what it knows of them.
struct Server<'a> {
    engine: &'a Engine,
    variant: ImapVariant,
    source: InodeNumber,
    /// The group of the last command.
    last: Option<GroupId>,
    commands: u64,
}

/// Makes an image with a full mailbox, moves its messages to another one, and checks that they are
/// there.
///
/// # Errors
///
/// Where something fails on the way, a message is not there in the end, or a check was asked for
/// and the image is not clean.
pub fn measure_imap(spec: &ImapSpec) -> Result<Run> {
    let memory = Arc::new(MemoryDevice::new(spec.size_bytes as usize));
    let flush = Duration::from_secs_f64(spec.flush_seconds.clamp(0.0, 60.0));
    let device: Arc<dyn BlockDevice> = Arc::new(SlowFlushDevice::new(memory.clone(), flush));
    make(spec.layout, &*memory, true, spec.ordering)?;
    let contents = Contents::new(spec.seed);
    let engine = mount(spec, &device)?;
    let source = create(&engine, "mailbox.src")?;
    let mut filled = 0;
    while filled < spec.messages * spec.message_bytes {
        let left = spec.messages * spec.message_bytes - filled;
        let piece = contents.piece(0, filled, left);
        engine.write(source, filled, piece)?;
        filled += piece.len() as u64;
    }
    engine.unmount()?;

    let engine = mount(spec, &device)?;
    let source = engine.lookup(engine.root(), b"mailbox.src")?.inode;
    let before = engine.stats();
    let (cpu, started) = (CpuTime::now(), Instant::now());
    let mut server = Server {
        engine: &engine,
        variant: spec.variant,
        source,
        last: None,
        commands: 0,
    };
    let (destination, phases) = server.move_all(spec)?;
    let elapsed_seconds = started.elapsed().as_secs_f64();
    let commands = server.commands;
    let cpu = CpuTime::now().since(cpu);
    let figures = EngineFigures::between(&before, &engine.stats());
    compare(&engine, spec, &contents, destination)?;
    engine.unmount()?;
    if spec.check {
        check("imap", spec.layout, spec.ordering, &*memory)?;
    }
    Ok(Run {
        workload: "imap",
        ordering: Some(spec.ordering.to_string()),
        opt: Some("both".to_owned()),
        variant: Some(spec.variant.name().to_owned()),
        target: format!("memory, {} ms a flush", spec.flush_seconds * 1e3),
        host_speed: None,
        trace: Vec::new(),
        elapsed_seconds,
        cpu_user_seconds: cpu.user_seconds,
        cpu_sys_seconds: cpu.sys_seconds,
        operations: commands,
        operations_per_second: commands as f64 / elapsed_seconds.max(1e-9),
        engine: Some(figures),
        phases,
        recovery: None,
        paper: spec.paper(),
    })
}

fn mount(spec: &ImapSpec, device: &Arc<dyn BlockDevice>) -> Result<Arc<Engine>> {
    let options = MountOptions {
        cache_bytes: spec.cache_bytes,
        ordering: spec.ordering,
        ..MountOptions::default()
    };
    Ok(Engine::mount(
        device.clone(),
        spec.layout.layout(),
        &options,
    )?)
}

fn create(engine: &Engine, name: &str) -> Result<InodeNumber> {
    let new = NewInode {
        file_type: FileType::Regular,
        permissions: 0o600,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: &[],
    };
    let made = engine.create(engine.root(), name.as_bytes(), &new)?;
    Ok(made.inode)
}

/// Every message is in the one mailbox and none in the other.
fn compare(
    engine: &Engine,
    spec: &ImapSpec,
    contents: &Contents,
    destination: InodeNumber,
) -> Result<()> {
    let expected = spec.messages * spec.message_bytes;
    let mut found = Vec::new();
    engine.read(destination, 0, expected as usize + 1, &mut found)?;
    let mut at = 0;
    while at < found.len() {
        let piece = contents.piece(0, at as u64, (found.len() - at) as u64);
        if found[at..at + piece.len()] != *piece {
            break;
        }
        at += piece.len();
    }
    if at as u64 == expected && found.len() == at {
        return Ok(());
    }
    Err(Error::ShortRead {
        what: "mailbox.dst".to_owned(),
        expected,
        found: at as u64,
    })
}

impl Server<'_> {
    /// The session; the destination.
    fn move_all(&mut self, spec: &ImapSpec) -> Result<(InodeNumber, Vec<Phase>)> {
        let mut phases = Vec::new();
        let mut phase = |name, started: Instant, operations| {
            phases.push(Phase {
                name,
                started: Duration::ZERO,
                elapsed_seconds: started.elapsed().as_secs_f64(),
                operations,
            });
        };
        let started = Instant::now();
        let mut destination = InodeNumber(0);
        self.command(|server| {
            destination = create(server.engine, "mailbox.dst")?;
            Ok(())
        })?;
        for message in 0..spec.messages {
            self.command(|server| server.copy(spec, destination, message))?;
            if self.variant == ImapVariant::Fsync {
                self.engine.fsync(destination, false)?;
            }
        }
        phase("copy", started, 1 + spec.messages);
        let started = Instant::now();
        self.command(|server| server.expunge())?;
        self.make_durable(&[self.source])?;
        phase("expunge", started, 1);
        let started = Instant::now();
        self.make_durable(&[destination, self.source])?;
        phase("check", started, 1);
        if let Some(last) = self.last.take() {
            self.engine.group_close(last);
        }
        Ok((destination, phases))
    }

    /// A command, under a group of its own where the server uses them.
    fn command(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.commands += 1;
        if self.variant != ImapVariant::Patchgroups {
            return body(self);
        }
        let engine = self.engine;
        let group = engine.group_create()?;
        if let Some(before) = self.last.replace(group) {
            engine.group_depend(group, before)?;
            engine.group_close(before);
        }
        engine.group_engage(group)?;
        let done = engine.under(&[group], || body(self));
        engine.group_disengage(group)?;
        done
    }

    /// COPY: the message is appended, and the times are set as the paper's server does it.
    fn copy(&mut self, spec: &ImapSpec, destination: InodeNumber, message: u64) -> Result<()> {
        let at = message * spec.message_bytes;
        let mut text = Vec::new();
        self.engine
            .read(self.source, at, spec.message_bytes as usize, &mut text)?;
        self.engine.write(destination, at, &text)?;
        let time = Some(Timestamp {
            seconds: 1_200_000_000 + message as i64,
            nanoseconds: 0,
        });
        let times = SetAttributes {
            accessed: time,
            modified: time,
            ..SetAttributes::default()
        };
        self.engine.set_attributes(destination, &times)?;
        Ok(())
    }

    /// EXPUNGE: every message was marked, so that nothing of the mailbox is left.
    fn expunge(&mut self) -> Result<()> {
        let empty = SetAttributes {
            size_bytes: Some(0),
            ..SetAttributes::default()
        };
        self.engine.set_attributes(self.source, &empty)?;
        Ok(())
    }

    fn make_durable(&mut self, mailboxes: &[InodeNumber]) -> Result<()> {
        match (self.variant, self.last) {
            (ImapVariant::Patchgroups, Some(last)) => self.engine.group_sync(last)?,
            _ => {
                for mailbox in mailboxes {
                    self.engine.fsync(*mailbox, false)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_moves_all_messages_and_patchgroups_wait_least() {
        for ordering in [
            Ordering::SOFT,
            Ordering::JOURNAL_WRITEBACK,
            Ordering::JOURNAL_ORDERED,
            Ordering::JOURNAL_FULL,
        ] {
            let flushes = ImapVariant::ALL
                .into_iter()
                .filter(|variant| variant.is_safe(ordering))
                .map(|variant| {
                    let spec = ImapSpec {
                        messages: 40,
                        flush_seconds: 0.0,
                        size_bytes: 32 << 20,
                        check: true,
                        ..ImapSpec::new(ordering, variant)
                    };
                    let run = measure_imap(&spec).unwrap();
                    run.engine.unwrap().flushes
                });
            let flushes: Vec<u64> = flushes.collect();
            assert!(flushes[0] >= 40, "{ordering}: {flushes:?}");
            assert!(flushes[1] * 4 < flushes[0], "{ordering}: {flushes:?}");
        }
    }
}
