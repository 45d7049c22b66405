//! Patchgroups: order between sets of operations, without waiting (Frost et al. 2007, §5).

use backstitch_vfs::GroupId;

use super::cpu::Work;
use super::{Machine, engine};
use crate::Result;

impl Machine {
    /// Begins a group that comes after `before`, which is closed. All changes belong to it from
    /// then on, whichever client makes them.
    pub(super) async fn begin_group(&self, before: Option<GroupId>) -> Result<GroupId> {
        // What was written before does not belong to this group.
        self.end_gathering().await?;
        let core = &mut *self.core.borrow_mut();
        let session = &mut core.session;
        let begun = session.groups.create().and_then(|group| {
            let graph = session.store.graph_mut();
            if let Some(before) = before {
                session.groups.depend(graph, group, before)?;
                session.groups.close(before);
            }
            session.groups.engage(graph, group)?;
            Ok(group)
        });
        let group = begun.map_err(engine)?;
        core.engaged = Some(group);
        Ok(group)
    }

    /// Ends the group: later changes do not belong to it.
    pub(super) async fn end_group(&self, group: GroupId) -> Result<()> {
        self.end_gathering().await?;
        let core = &mut *self.core.borrow_mut();
        core.engaged = None;
        core.session.groups.disengage(group).map_err(engine)
    }

    /// Puts what was done under the group, and what that comes after, onto stable storage.
    pub(super) async fn sync_group(&self, group: GroupId) -> Result<()> {
        self.cpu.work(&self.schedule, Work::Sync).await;
        let targets = {
            let session = &self.core.borrow().session;
            session.groups.targets(session.store.graph(), group)
        };
        self.make_stable(targets.map_err(engine)?).await
    }

    /// Forgets the group. The order that it gave remains.
    pub(super) fn close_group(&self, group: GroupId) {
        self.core.borrow_mut().session.groups.close(group);
    }
}
