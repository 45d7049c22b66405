//! Patchgroups: order between sets of operations, without waiting (Frost et al., SOSP 2007, §5).
//!
//! What a group is, and why groups cannot form a circle or hold anything in memory, is said in
//! `backstitch_ordering::Groups`. Here they get the engine's lock, and operations get their groups:
//! an operation runs in its caller's thread from beginning to end, so the groups are the thread's
//! for as long ([`Engine::under`]), and no operation needs one more argument.

use backstitch_ordering::{GroupError, GroupId, PatchId};
use backstitch_session::Session;
use parking_lot::MutexGuard;

use crate::engine::{Core, Engine};
use crate::under::{Listener, Under, enter, under};
use crate::{Error, InodeNumber, Result};

/// The flushes, about, that a chain of groups may make other users of a directory wait for.
const LONGEST_SHARED_CHAIN: u8 = 64;
/// Its group or anybody may write: of an access list the former says what anyone named there may.
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

    /// From now on operations may be run [`under`](Self::under) the group.
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

    /// A group that comes after this one and takes its place: engaged if this is, which is closed.
    /// The group itself where nothing that counts was done under it. Nobody may be running an
    /// operation under it.
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

    /// Before names change in a directory that others may change too: where the chain of groups
    /// behind this is long, it is written first. A name lies in the space that the one before it
    /// left, and its patch waits for that one's, so a caller that puts a name there next and wants
    /// it on the disk would wait for the whole chain, a flush for each link.
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

    /// Puts everything that was done under the group onto stable storage, and what it comes after.
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

    /// Waits until everything that was done under the group is on stable storage, without having
    /// anything written for it: as late as the write-back has it.
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

    /// Calls `tell` once everything that was done under the group by now is on stable storage (or
    /// never will be, for the device failed, or the group was closed): in another thread, or at
    /// once.
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

    /// A batch is complete, or will never be: tells those who waited for it. They may call the
    /// engine.
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
