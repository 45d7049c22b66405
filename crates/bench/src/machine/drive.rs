//! Running the session's tasks with I/O on the simulated drives, and operations on the file system,
//! step by step.

use backstitch_device::DeviceError;
use backstitch_layout::{Error as LayoutError, FileSystem, Step, Stop, Timestamp};
use backstitch_ordering::{Operation, PatchId, Volume};
use backstitch_session::{Clock, NextTry, Outcome, Poll, Task};
use backstitch_store::{Batch, BlockClass};

use super::cpu::Work;
use super::schedule::Event;
use super::{Machine, engine};
use crate::Result;

/// The most blocks that one request reads.
const RUN_BLOCKS: usize = 256;
/// How long a task that wants a block waits for another task's read of it before it looks again.
const OTHERS_READ: std::time::Duration = std::time::Duration::from_millis(1);

impl Machine {
    /// Runs a task to its end.
    pub(super) async fn drive(&self, mut task: Task) -> Result<Outcome> {
        loop {
            let polled = {
                let session = &mut self.core.borrow_mut().session;
                let polled = task.poll(session, &mut self.time());
                if session.take_news() {
                    self.schedule.tell(Event::News);
                }
                polled
            };
            match polled.map_err(engine)? {
                Poll::Done(outcome) => return Ok(outcome),
                Poll::Changed => {}
                Poll::Read => {
                    if let Err(error) = self.read_wanted().await {
                        task.failed(error);
                    }
                }
                Poll::Write(batch) => self.write_out(batch).await,
                Poll::Wait => self.schedule.event(Event::News).await,
                Poll::Rest(time) => self.schedule.sleep(time).await,
                Poll::Turn => {
                    if self.core.borrow().session.store.is_filling() {
                        self.schedule.tell(Event::Writer);
                    }
                    self.schedule.turn().await;
                }
            }
        }
    }

    /// Writes a batch that was handed out, and reports it done. Where the drive's queue keeps the
    /// order the batch is only handed to it.
    pub(super) async fn write_out(&self, batch: Batch) {
        self.cpu
            .work(&self.schedule, Work::Batch(batch.len()))
            .await;
        if self.has_chains {
            return self.queue_in_chains(batch).await;
        }
        let result = self.write_batch(&batch.writes).await;
        self.written(batch, result);
    }

    /// Reports a batch, or a part of one, and wakes those who may have waited for it.
    pub(super) fn written(&self, batch: Batch, result: std::result::Result<(), DeviceError>) {
        let now = self.now();
        let is_due = {
            let session = &mut self.core.borrow_mut().session;
            session.written(batch, result, now);
            session.is_issue_due(now)
        };
        self.schedule.tell(Event::News);
        // The writer may have waited for this batch.
        if is_due {
            self.schedule.tell(Event::Writer);
        }
    }

    /// Reads the blocks that steps missed, adjacent ones with one request. Blocks in the host's
    /// cache cost no request.
    pub(super) async fn read_wanted(&self) -> std::result::Result<(), DeviceError> {
        let wanted = {
            let store = &mut self.core.borrow_mut().session.store;
            // Metadata that may be wanted soon is not read ahead here.
            drop(store.take_wanted_soon());
            store.take_wanted()
        };
        let Some((volume, _)) = wanted.first().copied() else {
            // Another task is reading the block already.
            self.schedule.event_within(Event::News, OTHERS_READ).await;
            return Ok(());
        };
        let block_bytes = u64::from(self.block_bytes);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let missing = {
            let cached = &self.core.borrow().cached;
            let is_kept =
                |block: u64| cached.has((block * block_bytes, block_bytes)) == block_bytes;
            let blocks = wanted.iter().map(|(_, block)| *block);
            blocks.filter(|block| !is_kept(*block)).collect::<Vec<_>>()
        };
        for block in missing {
            let at = block * block_bytes;
            match ranges.last_mut() {
                Some((start, len))
                    if *start + *len == at && *len < RUN_BLOCKS as u64 * block_bytes =>
                {
                    *len += block_bytes;
                }
                _ => ranges.push((at, block_bytes)),
            }
        }
        let read = self.read_ranges(&ranges).await;
        let blocks = Work::Blocks(wanted.len());
        self.cpu.work(&self.schedule, blocks).await;
        let mut core = self.core.borrow_mut();
        if let Err(error) = read {
            core.session.store.abandon(&wanted);
            return Err(error);
        }
        for (_, block) in wanted {
            let mut data = backstitch_device::Buffer::zeroed(self.block_bytes as usize);
            self.drives.peek(block * block_bytes, data.make_unique())?;
            (core.session.store).insert(volume, block, BlockClass::Metadata, data);
        }
        drop(core);
        self.schedule.tell(Event::News);
        Ok(())
    }

    /// Does one operation, after writing what was gathered.
    pub(super) async fn run<T>(
        &self,
        work: Work,
        operation: Option<Operation<'_>>,
        body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        self.cpu.work(&self.schedule, work).await;
        self.end_gathering().await?;
        self.operate(operation, body).await
    }

    /// Does one operation, repeating it after each miss, step and wait.
    pub(super) async fn operate<T>(
        &self,
        operation: Option<Operation<'_>>,
        mut body: impl FnMut(&mut dyn FileSystem, &mut Volume<'_>, Timestamp) -> Step<T>,
    ) -> Result<T> {
        self.core.borrow_mut().operations += 1;
        let mut wait_for = Vec::new();
        loop {
            if operation.is_some() {
                self.before_step().await?;
            }
            let at = self.time().stamp();
            let step = {
                let core = &mut *self.core.borrow_mut();
                let engaged = core.engaged.as_slice();
                core.session
                    .step(operation, at, engaged, &mut wait_for, &mut body)
            };
            match step {
                Ok(value) => {
                    self.after_step(&mut wait_for).await?;
                    return Ok(value);
                }
                Err(stop) => self.before_next_try(stop, &mut wait_for).await?,
            }
        }
    }

    async fn before_step(&self) -> Result<()> {
        if self.core.borrow().session.latched.is_some() {
            return Err(engine(LayoutError::ReadOnly));
        }
        self.throttle().await?;
        if self.core.borrow_mut().session.has_room() {
            return Ok(());
        }
        self.drive(Task::make_room()).await.map(drop)
    }

    async fn before_next_try(&self, stop: Stop, wait_for: &mut Vec<PatchId>) -> Result<()> {
        let next = NextTry::after(stop, &self.core.borrow().session).map_err(engine)?;
        match next {
            NextTry::Read => self.read_wanted().await.map_err(engine),
            NextTry::Turn => {
                let mut now = (self.core.borrow_mut().session).take_waits_of_step(wait_for);
                self.after_step(&mut now).await?;
                self.schedule.turn().await;
                Ok(())
            }
            NextTry::Task(task) => self.drive(task).await.map(drop),
        }
    }

    async fn after_step(&self, wait_for: &mut Vec<PatchId>) -> Result<()> {
        {
            let (now, session) = (self.now(), &mut self.core.borrow_mut().session);
            let is_due = session.is_issue_due(now);
            let store = &mut session.store;
            store.trim();
            if is_due || store.graph().has_fired() || store.is_filling() {
                self.schedule.tell(Event::Writer);
            }
        }
        self.make_stable(std::mem::take(wait_for)).await
    }

    /// Waits until patches are on stable storage, writing what is needed.
    pub(super) async fn make_stable(&self, targets: Vec<PatchId>) -> Result<()> {
        if targets.is_empty() {
            return Ok(());
        }
        self.drive(Task::make_stable(targets)).await?;
        self.settle().await;
        Ok(())
    }
}
