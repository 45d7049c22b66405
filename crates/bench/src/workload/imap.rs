//! `imap`: moving messages from one mailbox to another as a mail server does it (Frost et al. 2007,
//! §5.2, §8.5, figure 11), in three ways.
//!
//! A mailbox is one file with all its messages one after the other (mbox), as with the paper's
//! server. The client selects the source and makes the destination. For each message it says COPY
//! (the message is appended, and the file's times are set) and STORE (the mark stays in memory
//! until the mailbox is written, as with that server). EXPUNGE writes the source without the marked
//! messages; CHECK asks for both mailboxes to be durable. A crash must never lose a message.

use backstitch_vfs::{GroupId, Ordering};

use crate::files::Node;
use crate::workload::{Scale, Session};
use crate::{Error, Result};

/// The paper's numbers.
const MESSAGES: u64 = 1000;
const MESSAGE_BYTES: u64 = 2048;

const SOURCE: &str = "mailbox.src";
const DESTINATION: &str = "mailbox.dst";
/// Bytes of a write when the mailbox is made, and of a read when the result is checked.
const PIECE_BYTES: u64 = 64 << 10;

/// How the server makes sure that a crash loses no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImapVariant {
    /// Fsync of the mailbox after each COPY into it, each EXPUNGE and each CHECK, as the unmodified
    /// server does.
    Fsync,
    /// Each command is a patchgroup that comes after the one before. EXPUNGE and CHECK sync theirs.
    Patchgroups,
    /// Fsync only after EXPUNGE and CHECK, whose callers ask for durability. Safe only if the
    /// mechanism keeps the order of operations by itself, as one with a log does.
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

    /// Whether a crash loses no message under this mechanism.
    pub fn is_safe(self, ordering: Ordering) -> bool {
        self != ImapVariant::FsyncDurable || ordering.has_log()
    }
}

/// The work of the server and its client.
pub(super) struct Plan {
    variant: ImapVariant,
    messages: u64,
    message_bytes: u64,
}

/// The server, with the two mailboxes.
struct Server<'p> {
    plan: &'p Plan,
    source: Node,
    /// The group of the last command.
    last: Option<GroupId>,
}

impl Plan {
    pub(super) fn of(scale: &Scale, variant: ImapVariant) -> Plan {
        Plan {
            variant,
            messages: scale.count(scale.files, MESSAGES),
            message_bytes: scale.min_bytes.unwrap_or(MESSAGE_BYTES).max(1),
        }
    }

    fn bytes(&self) -> u64 {
        self.messages * self.message_bytes
    }

    /// Makes the full mailbox.
    pub(super) fn prepare(&self, session: &mut Session<'_>) -> Result<()> {
        let source = session.files.create(session.root, SOURCE, 0o600)?;
        session.write_contents(source, 0, 0, self.bytes(), PIECE_BYTES)?;
        session.files.close(source)
    }

    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let mut server = Server {
            plan: self,
            source: session.files.lookup(session.root, SOURCE)?.node,
            last: None,
        };
        let mut destination = session.root;
        session.phase("copy", |s| {
            server.command(s, |s, _| {
                destination = s.files.create(s.root, DESTINATION, 0o600)?;
                Ok(())
            })?;
            for message in 0..self.messages {
                server.command(s, |s, server| server.copy(s, destination, message))?;
                if self.variant == ImapVariant::Fsync {
                    s.files.fsync(destination)?;
                }
            }
            Ok(())
        })?;
        session.phase("expunge", |s| {
            // Every message is marked, so nothing of the mailbox is left.
            server.command(s, |s, server| s.files.truncate(server.source, 0))?;
            server.make_durable(s, &[server.source])
        })?;
        session.phase("check", |s| {
            s.counted(|s| server.make_durable(s, &[destination, server.source]))
        })?;
        if let Some(last) = server.last {
            session.files.close_group(last)?;
        }
        session.files.close(destination)?;
        session.files.close(server.source)
    }

    /// Checks that all messages are in one mailbox and none in the other.
    pub(super) fn verify(&self, session: &mut Session<'_>) -> Result<()> {
        let fault = |what: &str, expected, found| Error::ShortRead {
            what: what.to_owned(),
            expected,
            found,
        };
        let source = session.files.stat(session.root, SOURCE)?;
        if source != 0 {
            return Err(fault(SOURCE, 0, source));
        }
        let destination = session.files.lookup(session.root, DESTINATION)?;
        let mut read = Vec::new();
        let mut at = 0;
        while at < self.bytes() {
            let piece = session
                .contents
                .piece(0, at, PIECE_BYTES.min(self.bytes() - at));
            (session.files).read(destination.node, at, piece.len(), &mut read)?;
            if read != piece {
                return Err(fault(DESTINATION, self.bytes(), at));
            }
            at += piece.len() as u64;
        }
        if destination.size_bytes != self.bytes() {
            return Err(fault(DESTINATION, self.bytes(), destination.size_bytes));
        }
        session.files.close(destination.node)
    }
}

impl Server<'_> {
    /// Does a command, under a group of its own if the server uses groups.
    fn command(
        &mut self,
        session: &mut Session<'_>,
        body: impl FnOnce(&mut Session<'_>, &mut Self) -> Result<()>,
    ) -> Result<()> {
        session.counted(|session| {
            if self.plan.variant != ImapVariant::Patchgroups {
                return body(session, self);
            }
            let before = self.last.take();
            let group = session.files.begin_group(before)?;
            self.last = Some(group);
            let done = body(session, self);
            session.files.end_group(group)?;
            done
        })
    }

    /// COPY: appends the message, and sets the times, as the paper's server does.
    fn copy(&mut self, session: &mut Session<'_>, destination: Node, message: u64) -> Result<()> {
        let len_bytes = self.plan.message_bytes;
        let at = message * len_bytes;
        let mut text = Vec::new();
        (session.files).read(self.source, at, len_bytes as usize, &mut text)?;
        session.files.write(destination, at, &text)?;
        let seconds = 1_200_000_000 + message as i64;
        session.files.set_times(destination, seconds)
    }

    fn make_durable(&self, session: &mut Session<'_>, mailboxes: &[Node]) -> Result<()> {
        match (self.plan.variant, self.last) {
            (ImapVariant::Patchgroups, Some(last)) => session.files.sync_group(last),
            _ => {
                let mut mailboxes = mailboxes.iter();
                mailboxes.try_for_each(|mailbox| session.files.fsync(*mailbox))
            }
        }
    }
}
