//! The machine as [`Files`] for workloads, with several clients at the same time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use backstitch_drives::SimulatedDevice;
use backstitch_layout::{
    FileType, InodeNumber, LayoutKind, NewInode, Rename, RenameMode, SetAttributes, Timestamp,
};
use backstitch_vfs::{GroupId, MountOptions};

use super::Machine;
use super::chains::report_done;
use super::schedule::{Event, Tasks};
use super::writer::write_back;
use crate::Result;
use crate::client::{Call, Clients, Nodes};
use crate::contents::Contents;
use crate::disk::Disk;
use crate::files::{Entry, Files, Found, Node};

/// Files of a file system on a simulated drive.
pub(crate) struct MachineFiles {
    machine: Rc<Machine>,
    tasks: Tasks,
    root: Node,
}

fn inode(node: Node) -> InodeNumber {
    // All these nodes were made from inode numbers.
    InodeNumber(node.0 as u32)
}

fn node(inode: InodeNumber) -> Node {
    Node(inode.0.into())
}

fn new(file_type: FileType, permissions: u16, target: &str) -> NewInode<'_> {
    NewInode {
        file_type,
        permissions,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: target.as_bytes(),
    }
}

impl MachineFiles {
    /// Mounts the file system of a drive, whose log may be on another one, in the computer that
    /// `disk` describes.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn mount(
        device: Arc<SimulatedDevice>,
        log_device: Option<Arc<SimulatedDevice>>,
        layout: &dyn LayoutKind,
        options: &MountOptions,
        disk: &Disk,
    ) -> Result<MachineFiles> {
        let (machine, found) = Machine::open(device, log_device, layout, options, disk)?;
        let machine = Rc::new(machine);
        let mut files = MachineFiles {
            root: node(machine.root),
            machine: machine.clone(),
            tasks: Tasks::default(),
        };
        let reports = report_done(machine.clone());
        files.tasks.spawn(&machine.schedule, reports);
        files.run(machine.start(found))?;
        let writer = write_back(machine.clone());
        files.tasks.spawn(&machine.schedule, writer);
        Ok(files)
    }

    /// Unmounts the file system.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn unmount(mut self) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.end())
    }

    /// The machine, for its counters.
    pub(crate) fn machine(&self) -> &Rc<Machine> {
        &self.machine
    }

    fn run<T>(&mut self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.tasks.run(&self.machine.schedule, call)?
    }

    fn make(&mut self, parent: Node, name: &str, new: &NewInode<'_>) -> Result<Node> {
        let machine = self.machine.clone();
        let made = self.run(machine.create(inode(parent), name, new))?;
        Ok(node(made))
    }

    fn set(&mut self, node: Node, set: &SetAttributes) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.set_attributes(inode(node), set))
    }
}

impl Files for MachineFiles {
    fn root(&self) -> Node {
        self.root
    }

    fn now(&self) -> Duration {
        self.machine.now()
    }

    fn processor_busy(&self) -> Duration {
        self.machine.cpu_busy()
    }

    fn compute(&mut self, work: Duration) -> Result<()> {
        let machine = self.machine.clone();
        self.run(async {
            machine.cpu.compute(&machine.schedule, work).await;
            Ok(())
        })
    }

    fn compute_if_simulated(&mut self, work: Duration) -> Result<()> {
        self.compute(work)
    }

    fn make_directory(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node> {
        self.make(parent, name, &new(FileType::Directory, permissions, ""))
    }

    fn create(&mut self, parent: Node, name: &str, permissions: u16) -> Result<Node> {
        self.make(parent, name, &new(FileType::Regular, permissions, ""))
    }

    fn symlink(&mut self, parent: Node, name: &str, target: &str) -> Result<()> {
        let made = self.make(parent, name, &new(FileType::Symlink, 0o777, target))?;
        self.close(made)
    }

    fn read_link(&mut self, parent: Node, name: &str) -> Result<Vec<u8>> {
        let machine = self.machine.clone();
        self.run(async {
            let found = machine.lookup(inode(parent), name).await?.inode;
            let target = machine.read_link(found).await?;
            machine.forget(found).await?;
            Ok(target)
        })
    }

    fn link(&mut self, file: Node, parent: Node, name: &str) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.link(inode(file), inode(parent), name))
    }

    fn rename(&mut self, parent: Node, from: &str, to: &str) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.rename(&Rename {
            from: inode(parent),
            from_name: from.as_bytes(),
            to: inode(parent),
            to_name: to.as_bytes(),
            mode: RenameMode::default(),
        }))
    }

    fn free_blocks(&mut self) -> Result<u64> {
        let machine = self.machine.clone();
        Ok(self.run(machine.statistics())?.free_blocks)
    }

    fn lookup(&mut self, parent: Node, name: &str) -> Result<Found> {
        let machine = self.machine.clone();
        Ok(self.run(machine.lookup(inode(parent), name))?.into())
    }

    fn write(&mut self, node: Node, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.write(inode(node), offset_bytes, data))
    }

    fn read(
        &mut self,
        node: Node,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.read(inode(node), offset_bytes, len_bytes, into))
    }

    fn truncate(&mut self, node: Node, size_bytes: u64) -> Result<()> {
        let set = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        self.set(node, &set)
    }

    fn set_permissions(&mut self, node: Node, permissions: u16) -> Result<()> {
        let set = SetAttributes {
            permissions: Some(permissions),
            ..SetAttributes::default()
        };
        self.set(node, &set)
    }

    fn set_times(&mut self, node: Node, seconds: i64) -> Result<()> {
        let time = Some(Timestamp {
            seconds,
            nanoseconds: 0,
        });
        let set = SetAttributes {
            accessed: time,
            modified: time,
            ..SetAttributes::default()
        };
        self.set(node, &set)
    }

    fn list(&mut self, directory: Node) -> Result<Vec<Entry>> {
        let machine = self.machine.clone();
        self.run(machine.list(inode(directory)))
    }

    fn unlink(&mut self, parent: Node, name: &str) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.unlink(inode(parent), name))
    }

    fn remove_directory(&mut self, parent: Node, name: &str) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.remove_directory(inode(parent), name))
    }

    fn close(&mut self, node: Node) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.forget(inode(node)))
    }

    fn fsync(&mut self, node: Node) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.fsync(inode(node)))
    }

    fn sync(&mut self) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.sync())
    }

    fn begin_group(&mut self, before: Option<GroupId>) -> Result<GroupId> {
        let machine = self.machine.clone();
        self.run(machine.begin_group(before))
    }

    fn end_group(&mut self, group: GroupId) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.end_group(group))
    }

    fn sync_group(&mut self, group: GroupId) -> Result<()> {
        let machine = self.machine.clone();
        self.run(machine.sync_group(group))
    }

    fn close_group(&mut self, group: GroupId) -> Result<()> {
        self.machine.close_group(group);
        Ok(())
    }

    fn run_clients(&mut self, root: Node, clients: &Arc<Clients>) -> Result<()> {
        let left = Rc::new(Cell::new(clients.scripts.len()));
        let ended = Rc::new(RefCell::new(Ok(())));
        let machine = self.machine.clone();
        for number in 0..clients.scripts.len() {
            let (machine, clients) = (machine.clone(), clients.clone());
            let (left, ended) = (left.clone(), ended.clone());
            let client = async move {
                let script = &clients.scripts[number];
                let done = machine.client(root, script, &clients.contents).await;
                if done.is_err() && ended.borrow().is_ok() {
                    *ended.borrow_mut() = done;
                }
                left.set(left.get() - 1);
                machine.schedule.tell(Event::Client);
            };
            self.tasks.spawn(&self.machine.schedule, client);
        }
        self.run(async {
            while left.get() > 0 {
                machine.schedule.event(Event::Client).await;
            }
            Ok(())
        })?;
        ended.replace(Ok(()))
    }
}

impl Machine {
    /// Runs the script of one client.
    async fn client(&self, root: Node, script: &[Call], contents: &Contents) -> Result<()> {
        let mut nodes = Nodes::at(root);
        let mut buffer = Vec::new();
        for call in script {
            self.perform(&mut nodes, call, contents, &mut buffer)
                .await?;
        }
        Ok(())
    }

    async fn perform(
        &self,
        nodes: &mut Nodes,
        call: &Call,
        contents: &Contents,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let at = |number: &u32| nodes.get(*number).map(inode);
        match call {
            Call::MakeDirectory { parent, name, node } => {
                let new = new(FileType::Directory, 0o755, "");
                let made = self.create(at(parent)?, name, &new).await?;
                nodes.put(*node, self::node(made));
            }
            Call::Create { parent, name, node } => {
                let new = new(FileType::Regular, 0o644, "");
                let made = self.create(at(parent)?, name, &new).await?;
                nodes.put(*node, self::node(made));
            }
            Call::Open { parent, name, node } => {
                let found = self.lookup(at(parent)?, name).await?.inode;
                nodes.put(*node, self::node(found));
            }
            Call::Stat { parent, name } => {
                let found = self.lookup(at(parent)?, name).await?.inode;
                self.forget(found).await?;
            }
            Call::Write {
                node,
                salt,
                offset_bytes,
                len_bytes,
            } => {
                let mut done = 0;
                while done < *len_bytes {
                    let start = offset_bytes + done;
                    let piece = contents.piece(*salt, start, len_bytes - done);
                    self.write(at(node)?, start, piece).await?;
                    done += piece.len() as u64;
                }
            }
            Call::Read {
                node,
                offset_bytes,
                len_bytes,
            } => {
                let len_bytes = *len_bytes as usize;
                self.read(at(node)?, *offset_bytes, len_bytes, buffer)
                    .await?;
            }
            Call::List { node } => drop(self.list(at(node)?).await?),
            Call::Unlink { parent, name } => self.unlink(at(parent)?, name).await?,
            Call::RemoveDirectory { parent, name } => {
                self.remove_directory(at(parent)?, name).await?;
            }
            Call::Fsync { node } => self.fsync(at(node)?).await?,
            Call::Close { node } => self.forget(at(node)?).await?,
            Call::Compute(work) => self.cpu.compute(&self.schedule, *work).await,
        }
        Ok(())
    }
}
