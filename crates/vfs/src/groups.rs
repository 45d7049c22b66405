//! Patchgroups: order between sets of operations, without waiting (Frost et al., SOSP 2007, §5).
//!
//! `backstitch_ordering::Groups` says what a group is, and why groups cannot form a circle or keep
//! anything in memory. Here they get the engine's lock, and operations get their groups. An
//! operation runs in its caller's thread from beginning to end, so the groups belong to the thread
//! during that time ([`Engine::under`]), and no operation needs a further argument.

use backstitch_ordering::{GroupError, GroupId, PatchId};
use backstitch_session::Session;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::under::{Listener, Under, enter, under};
use crate::{Error, InodeNumber, Result};

/// The length in flushes, about, of a chain of groups that users of a shared directory may have to
/// wait for.
const LONGEST_SHARED_CHAIN: u8 = 64;
/// The permission bits by which others than the owner may write. With an access list, the group's
/// bits are the most that any user or group named in it may have.
const OTHERS_WRITE: u16 = 0o022;

impl Engine {
    /// Makes a patchgroup.
    ///
    /// # Errors
    /// Where there are too many.
    pub fn group_create(&self) -> Result<GroupId> {
        Ok(self.core.lock().groups.create()?)
    }

    /// Forgets a patchgroup: what was done under it stays, and so does the order that it gave. Its
    /// listeners are told.
    pub fn group_close(&self, group: GroupId) {
        let mut core = self.core.lock();
        core.groups.close(group);
        let told = core.take_listeners(|l, _| l.group == group);
        drop(core);
        told.into_iter().for_each(|l| (l.tell)());
    }

    /// Makes everything that will be done under `after` come after everything that was done under
    /// `before`. `before` is sealed.
    ///
    /// # Errors
    /// [`GroupError`]: `after` was engaged, or is sealed; `before` is engaged.
    pub fn group_depend(&self, after: GroupId, before: GroupId) -> Result<()> {
        let mut core = self.core.lock();
        let Session { store, groups, .. } = &mut core.session;
        groups.depend(store.graph_mut(), after, before)?;
        if let Some(observer) = self.observer.get() {
            observer.group_depends(after, before);
        }
        Ok(())
    }

    /// Engages a group: operations may then run [`under`](Self::under) it.
    ///
    /// # Errors
    /// [`GroupError::Sealed`].
    pub fn group_engage(&self, group: GroupId) -> Result<()> {
        let mut core = self.core.lock();
        let Session { store, groups, .. } = &mut core.session;
        Ok(groups.engage(store.graph_mut(), group)?)
    }

    /// Takes one engagement back.
    ///
    /// # Errors
    /// [`GroupError::NotEngaged`].
    pub fn group_disengage(&self, group: GroupId) -> Result<()> {
        Ok(self.core.lock().groups.disengage(group)?)
    }

    /// Replaces a group by a new one that comes after it and is engaged if it was; the old one is
    /// closed. Returns the group itself if nothing that counts was done under it. No operation may
    /// be running under it.
    ///
    /// # Errors
    /// As [`group_create`](Self::group_create) and [`group_depend`](Self::group_depend).
    pub fn group_advance(&self, group: GroupId, is_engaged: bool) -> Result<GroupId> {
        let mut core = self.core.lock();
        let Session { store, groups, .. } = &mut core.session;
        if groups.is_blank(group)? {
            return Ok(group);
        }
        let next = groups.create()?;
        if is_engaged {
            groups.disengage(group)?;
        }
        groups.depend(store.graph_mut(), next, group)?;
        if let Some(observer) = self.observer.get() {
            observer.group_depends(next, group);
        }
        if is_engaged {
            groups.engage(store.graph_mut(), next)?;
        }
        groups.close(group);
        let listeners = core.listeners.iter_mut().filter(|l| l.group == group);
        listeners.for_each(|l| l.group = next);
        Ok(next)
    }

    /// Runs operations of this thread under groups, which are engaged: what they change comes after
    /// everything that was done under the groups that these depend on.
    pub fn under<T>(&self, groups: &[GroupId], body: impl FnOnce() -> T) -> T {
        let _under = self.enter(groups);
        body()
    }

    /// As [`under`](Self::under), until the guard is dropped.
    pub fn enter(&self, groups: &[GroupId]) -> Under {
        enter((!groups.is_empty()).then(|| groups.into()))
    }

    /// Bounds the wait of other users of a directory, before a name changes there under a
    /// patchgroup. If others may write in the directory, and the chain of groups behind this one is
    /// long, the chain is written first. For a new name takes space that an earlier one left, and
    /// its patch waits for that one's: a user who fsyncs it would wait for the whole chain, a flush
    /// for each link.
    pub(crate) fn bound_chain(&self, directory: InodeNumber) -> Result<()> {
        let Some(under) = under() else {
            return Ok(());
        };
        let mut heads = Vec::new();
        let is_long = |heads: &mut Vec<PatchId>, core: &Core| {
            heads.clear();
            core.groups.heads(core.store.graph(), &under, heads);
            let mut depths = heads.iter().map(|head| core.store.graph().depth(*head));
            depths.any(|depth| depth >= LONGEST_SHARED_CHAIN)
        };
        if !is_long(&mut heads, &self.core.lock())
            || self.attributes(directory)?.permissions & OTHERS_WRITE == 0
        {
            return Ok(());
        }
        self.make_stable(&mut self.core.lock(), heads)
    }

    /// Puts everything that was done under the group onto stable storage, and before it what it
    /// comes after.
    ///
    /// # Errors
    /// `EIO` where the device failed.
    pub fn group_sync(&self, group: GroupId) -> Result<()> {
        let mut core = self.core.lock();
        let targets = core.group_targets(group)?;
        if let Some(observer) = self.observer.get() {
            observer.group_sync_asked(group);
        }
        self.make_stable(&mut core, targets)
    }

    /// Whether everything that was done under the group is on stable storage.
    ///
    /// # Errors
    /// `EIO` where the device failed: what is missing will never be there.
    pub fn group_is_durable(&self, group: GroupId) -> Result<bool> {
        let core = self.core.lock();
        let is_durable = core.group_targets(group)?.is_empty();
        match &core.latched {
            Some(error) if !is_durable => Err(Error::Latched(error.clone())),
            _ => Ok(is_durable),
        }
    }

    /// Waits until everything that was done under the group is on stable storage, without asking
    /// for any write: the write-back decides when.
    ///
    /// # Errors
    /// `EIO` where the device failed.
    pub fn group_wait(&self, group: GroupId) -> Result<()> {
        let mut core = self.core.lock();
        let targets = core.group_targets(group)?;
        while targets.iter().any(|id| core.store.graph().is_live(*id)) {
            if let Some(error) = &core.latched {
                return Err(Error::Latched(error.clone()));
            }
            self.batch_done.wait(&mut core);
        }
        Ok(())
    }

    /// Calls `tell` once everything that was done under the group by now is on stable storage, or
    /// once it never will be, because the device failed or the group was closed. The call may come
    /// from another thread, or at once from this one.
    ///
    /// # Errors
    /// Where there is no such group.
    pub fn group_listen(&self, group: GroupId, tell: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut core = self.core.lock();
        let targets = core.group_targets(group)?;
        if targets.is_empty() || core.latched.is_some() {
            drop(core);
            tell();
            return Ok(());
        }
        core.listeners.push(Listener {
            group,
            targets,
            tell: Box::new(tell),
        });
        Ok(())
    }

    /// Tells the listeners that have nothing left to wait for, after a batch completed or failed
    /// for good. They may call the engine.
    pub(crate) fn tell_listeners(&self, core: &mut MutexGuard<'_, Core>) {
        if core.listeners.is_empty() {
            return;
        }
        let all = core.latched.is_some();
        let told = core.take_listeners(|l, core| {
            while let Some(last) = l.targets.last()
                && !core.is_live(*last)
            {
                l.targets.pop();
            }
            all || l.targets.is_empty()
        });
        if !told.is_empty() {
            MutexGuard::unlocked(core, || told.into_iter().for_each(|l| (l.tell)()));
        }
    }
}

impl Core {
    fn group_targets(&self, group: GroupId) -> std::result::Result<Vec<PatchId>, GroupError> {
        self.groups.targets(self.store.graph(), group)
    }

    fn take_listeners(
        &mut self,
        mut is_taken: impl FnMut(&mut Listener, &backstitch_patch::Graph) -> bool,
    ) -> Vec<Listener> {
        let graph = self.session.store.graph();
        let (taken, left) = std::mem::take(&mut self.listeners)
            .into_iter()
            .map(|mut listener| (is_taken(&mut listener, graph), listener))
            .partition::<Vec<_>, _>(|(is_taken, _)| *is_taken);
        self.listeners = left.into_iter().map(|(_, l)| l).collect();
        taken.into_iter().map(|(_, l)| l).collect()
    }
}
