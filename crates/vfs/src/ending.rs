//! Freeing what was removed while it was open, and unmounting.

use backstitch_layout::Stop;
use backstitch_session::Task;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::{Error, Result};

impl Engine {
    /// Writes everything, ends all deferred work, marks the image clean and stops the writer. A
    /// second call does nothing. If the reclaim after a crash takes longer than
    /// [`MountOptions::reclaim_wait_seconds`](crate::MountOptions), the image stays as after a
    /// crash, and the next mount goes on with the reclaim.
    ///
    /// # Errors
    /// Where the device failed: the image is left as after a crash.
    pub fn unmount(&self) -> Result<()> {
        self.discard_last();
        let mut core = self.core.lock();
        if core.unmounted {
            return Ok(());
        }
        self.end_gathering(&mut core);
        core.unmounted = true;
        core.stopping = true;
        if let Some(snapshot) = self.snapshot.lock().as_ref() {
            snapshot.give_up(Error::Snapshot("it was unmounted meanwhile".to_owned()));
        }
        drop(core);
        self.join_threads();
        let mut core = self.core.lock();
        if let Some(error) = &core.latched {
            return Err(Error::Latched(error.clone()));
        }
        if core.fs.read_only_reason().is_some() && !core.store.is_dirty() {
            return Ok(());
        }
        self.drive(&mut core, Task::unmount(self.reclaim_wait))
            .map(drop)
    }

    /// Frees inodes that have lost their last reference, as far as that needs no block from the
    /// device. For the rest the writer is woken; waking it for all would cost more than freeing
    /// them here.
    pub(crate) fn free_ready(&self, core: &mut MutexGuard<'_, Core>) {
        while core.fs.deferred().ready > 0 {
            let freed = match core.unmounted {
                true => Err(Stop::Miss),
                false => core.session.free_ready(&mut &*self),
            };
            match freed {
                Ok(true) => continue,
                Err(Stop::Miss) => drop(self.wake_writer.notify_one()),
                Ok(false) | Err(_) => {}
            }
            return;
        }
    }
}
