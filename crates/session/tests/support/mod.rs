//! A session that is driven by hand, without threads, on a device in memory.

#![allow(dead_code)] // Each test uses its part.

use std::sync::Arc;
use std::time::Duration;

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_ext::Ext2;
use backstitch_ext_tools::mkfs;
use backstitch_layout::operations;
use backstitch_layout::{
    FileSystem, FileType, InodeNumber, NewInode, OpenRequest, Step, Stop, Timestamp,
};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::{Mechanism, Operation, PatchId, Volume};
use backstitch_session::{Access, Clock, Error, Found, Outcome, Poll, Session, Task, log};
use backstitch_store::{Batch, Limits, Optimisations, Store, drive};

const BLOCK_BYTES: u32 = 1024;

/// A second for each step.
pub(crate) struct Steps(pub(crate) u64);

impl Clock for Steps {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0)
    }

    fn stamp(&mut self) -> (Duration, Timestamp) {
        self.0 += 1;
        let seconds = 1_700_000_000 + self.0 as i64;
        let nanoseconds = 0;
        (
            self.now(),
            Timestamp {
                seconds,
                nanoseconds,
            },
        )
    }
}

pub(crate) struct Life {
    pub(crate) session: Session,
    pub(crate) clock: Steps,
    pub(crate) device: Arc<dyn BlockDevice>,
}

impl Life {
    pub(crate) fn begin() -> Life {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
        mkfs::write(&made(), &*device).unwrap();
        let (mut life, found) = Life::open(device);
        life.finish(Task::start(found.first)).unwrap();
        life
    }

    /// With a journal, which changes go through under this ordering.
    pub(crate) fn begin_under(ordering: Ordering) -> Life {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4 << 20));
        let mut made = made();
        made.features.push("has_journal".to_owned());
        made.journal_bytes = Some(1 << 20);
        mkfs::write(&made, &*device).unwrap();
        let access = Access {
            read_only: false,
            now: Timestamp::default(),
            without_journal: false,
            ordering,
        };
        let prepared = log::prepare(device, None, &Ext2, &access).unwrap();
        let mechanism = log::mechanism(&access, false, prepared.log).unwrap();
        let (mut life, found) = Life::open_with(prepared.device, mechanism);
        life.finish(Task::start(found.first)).unwrap();
        life
    }

    pub(crate) fn open(device: Arc<dyn BlockDevice>) -> (Life, Found) {
        Life::open_with(device, backstitch_mechanisms::make_without_log())
    }

    fn open_with(device: Arc<dyn BlockDevice>, mut mechanism: Box<dyn Mechanism>) -> (Life, Found) {
        let mut store = Store::new(Limits::default(), Optimisations::BOTH);
        let volume = store.add_volume(BLOCK_BYTES);
        let request = OpenRequest {
            read_only: false,
            now: Timestamp::default(),
            without_journal: false,
            journaled: mechanism.log().is_some(),
            unwritable_journal: None,
        };
        let devices = [device.clone()];
        let read = |store: &mut Store| drive::read_wanted(store, &devices).map(drop);
        let opened = Session::open(store, mechanism, volume, &Ext2, &*device, &request, read);
        let (session, found) = opened.unwrap();
        let life = Life {
            session,
            clock: Steps(0),
            device,
        };
        (life, found)
    }

    /// Polls until the task needs a batch written, time, somebody else, or nothing.
    pub(crate) fn poll_to_rest(&mut self, task: &mut Task) -> Result<Poll, Error> {
        loop {
            match task.poll(&mut self.session, &mut self.clock)? {
                Poll::Read => self.read_wanted(),
                Poll::Changed | Poll::Turn => {}
                need => return Ok(need),
            }
        }
    }

    fn read_wanted(&mut self) {
        let devices = [self.device.clone()];
        drive::read_wanted(&mut self.session.store, &devices).unwrap();
    }

    /// Polls until the task needs a batch written, somebody else, or nothing.
    pub(crate) fn poll(&mut self, task: &mut Task) -> Result<Poll, Error> {
        loop {
            match self.poll_to_rest(task)? {
                Poll::Rest(_) => {}
                need => return Ok(need),
            }
        }
    }

    pub(crate) fn write(&mut self, batch: Batch) {
        let result = drive::perform(std::slice::from_ref(&self.device), &batch.writes);
        self.session.written(batch, result, self.clock.now());
    }

    pub(crate) fn finish(&mut self, mut task: Task) -> Result<Outcome, Error> {
        loop {
            match self.poll(&mut task)? {
                Poll::Write(batch) => self.write(batch),
                Poll::Done(outcome) => return Ok(outcome),
                need => panic!("it is alone: {need:?}"),
            }
        }
    }

    /// Makes a file, and says what has to be on stable storage for it to be there.
    pub(crate) fn make(&mut self, name: &str) -> Vec<PatchId> {
        let new = NewInode {
            file_type: FileType::Regular,
            permissions: 0o644,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target: &[],
        };
        let root = self.session.fs.root();
        let made = self.change(
            operations::create(root, name.as_bytes(), &new),
            &mut |fs, v, now| fs.create(v, root, name.as_bytes(), &new, now),
        );
        let mut targets = Vec::new();
        let at = self.clock.stamp();
        let looked = self
            .session
            .step(None, at, &[], &mut Vec::new(), &mut |fs, v, _| {
                fs.flush_targets(v, made, false, &mut targets);
                Ok(())
            });
        looked.unwrap();
        targets
    }

    /// Removes the only name of a file that nobody has open.
    pub(crate) fn remove(&mut self, name: &str) {
        let root = self.session.fs.root();
        self.change(
            operations::remove(root, name.as_bytes(), false),
            &mut |fs, v, now| fs.unlink(v, root, name.as_bytes(), now),
        );
    }

    /// One step that changes something; again after each miss.
    fn change(
        &mut self,
        operation: Operation<'_>,
        body: &mut impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<InodeNumber>,
    ) -> InodeNumber {
        loop {
            let at = self.clock.stamp();
            let step = (self.session).step(Some(operation), at, &[], &mut Vec::new(), body);
            match step {
                Ok(inode) => return inode,
                Err(Stop::Miss) => self.read_wanted(),
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }
}

fn made() -> mkfs::Mkfs {
    mkfs::Mkfs {
        block_size: Some(BLOCK_BYTES),
        ..mkfs::Mkfs::new([7; 16], [9; 16], 1_600_000_000)
    }
}

/// The batch that a task asks for.
pub(crate) fn batch(need: Poll) -> Batch {
    match need {
        Poll::Write(batch) => batch,
        need => panic!("{need:?}"),
    }
}
