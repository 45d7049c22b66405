//! Patchgroups by the numbers that a workload gives them.

use backstitch_layout::Result;
use backstitch_ordering::{GroupError, GroupId};

use super::{Mount, Watcher};
use crate::operation::Operation;

impl Mount {
    fn group(&mut self, number: u32) -> std::result::Result<GroupId, GroupError> {
        if let Some(group) = self.numbered.get(&number) {
            return Ok(*group);
        }
        let group = self.groups.create()?;
        self.numbered.insert(number, group);
        Ok(group)
    }

    /// Engages or disengages a group, or states a dependency. Other operations do nothing.
    ///
    /// # Errors
    /// Where the groups refuse it.
    pub fn change_groups(&mut self, operation: &Operation) -> std::result::Result<(), GroupError> {
        match *operation {
            Operation::Engage(number) => {
                let group = self.group(number)?;
                self.session
                    .groups
                    .engage(self.session.store.graph_mut(), group)?;
                self.engaged.push(group);
            }
            Operation::Disengage(number) => {
                let group = self.group(number)?;
                self.groups.disengage(group)?;
                self.engaged.retain(|other| *other != group);
            }
            Operation::Depend(after, before) => {
                let (later, earlier) = (self.group(after)?, self.group(before)?);
                self.session
                    .groups
                    .depend(self.session.store.graph_mut(), later, earlier)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The numbers of the groups that are engaged.
    pub fn engaged_numbers(&self) -> impl Iterator<Item = u32> {
        let engaged = |id: &GroupId| self.engaged.contains(id);
        let groups = self.numbered.iter();
        groups.filter(move |(_, id)| engaged(id)).map(|(n, _)| *n)
    }

    /// Makes stable what was done under a group, and all that must come before it.
    pub fn sync_group(&mut self, number: u32, watcher: &mut dyn Watcher) -> Result<()> {
        let targets = match self.numbered.get(&number) {
            Some(group) => self.groups.targets(self.store.graph(), *group),
            None => Ok(Vec::new()),
        };
        // A group that the workload closed has nothing left to wait for.
        self.sync(&targets.unwrap_or_default(), watcher)
    }
}
