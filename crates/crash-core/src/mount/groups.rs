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

    /// Engages a group, takes that back, or states a dependency; any other operation does nothing.
    ///
    /// # Errors
    /// What the groups say to it.
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

    /// Puts what was done under a group onto stable storage, and what it comes after.
    pub fn sync_group(&mut self, number: u32, watcher: &mut dyn Watcher) -> Result<()> {
        let targets = match self.numbered.get(&number) {
            Some(group) => self.groups.targets(self.store.graph(), *group),
            None => Ok(Vec::new()),
        };
        // A group that the workload closed has nothing left to wait for.
        self.sync(&targets.unwrap_or_default(), watcher)
    }
}
