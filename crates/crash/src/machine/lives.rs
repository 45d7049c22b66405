//! From one life of an image to the next: power cuts in the middle of a workload, and mounts with
//! another mechanism.

use backstitch_crash_core::closed;
use backstitch_crash_core::device::ForkDevice;
use backstitch_crash_core::frontier::Frontier;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::mount::{Engine, Nobody, Watcher};
use backstitch_crash_core::operation::Operation;
use backstitch_device::BlockDevice;
use backstitch_layout::tools::{CheckOptions, Code, DeviceSource};
use backstitch_layout::{LogSite, LogTrial, Result};
use backstitch_mechanisms::{Ordering, logs};
use fastrand::Rng as Random;

use super::{Machine, full};

impl Machine {
    /// Cuts the power with some of the changes in memory on the disk, and mounts the result. What
    /// it shows then counts as on stable storage.
    ///
    /// # Errors
    /// Where it cannot be mounted.
    pub(crate) fn crashed(&self, random: &mut Random) -> Result<Machine> {
        let Frontier { nodes, mut states } = Frontier::new(&self.mount.store, self.mount.fork());
        let left = states.fork(&nodes, &closed::some(&nodes, random));
        let mut machine = Machine::over(left, self.engine)?;
        // Names are settled only afterwards, since the removal of a directory's wrong name need not
        // be on the disk.
        machine.learn_all(&mut Nobody)?;
        machine.mount.settle_names(&mut Nobody)?;
        machine.settle_second_names()?;
        machine.note_maps_behind();
        Ok(machine)
    }

    /// Cuts the power with no change that is only in memory on the disk, and mounts the result.
    /// What it shows counts as on stable storage. The reclaim has not done anything yet.
    ///
    /// # Errors
    /// Where it cannot be mounted.
    pub(crate) fn cut(&self) -> Result<Machine> {
        let mut machine = Machine::over(self.mount.fork(), self.engine)?;
        machine.learn_all(&mut Nobody)?;
        machine.note_maps_behind();
        machine.is_unsettled = true;
        machine.model.borrow_mut().doubt_second_names();
        Ok(machine)
    }

    /// Removes a directory's second name from the model once the reclaim has decided between them.
    pub(super) fn look_whether_settled(&mut self) -> Result<()> {
        if self.is_unsettled && self.mount.fs.reclaim_progress().is_settled {
            self.is_unsettled = false;
            self.settle_second_names()?;
        }
        Ok(())
    }

    /// Mounts what a crash left, and settles which of a directory's two names is right. What it
    /// shows then counts as on stable storage.
    ///
    /// # Errors
    /// Where it cannot be mounted.
    pub(crate) fn recovered(left: Fork, engine: Engine) -> Result<Machine> {
        let mut machine = Machine::over(left, engine)?;
        machine.mount.settle_names(&mut Nobody)?;
        machine.mount.drain(&mut Nobody)?;
        machine.learn_all(&mut Nobody)?;
        machine.note_maps_behind();
        Ok(machine)
    }

    /// Notes the files that the crash left with blocks beyond their ends.
    fn note_maps_behind(&mut self) {
        let fork = self.mount.fork();
        let kind = fork.kind();
        let device = ForkDevice::new(fork);
        if let Ok(report) = kind
            .tools()
            .check(&DeviceSource(&device), &CheckOptions::QUICK)
        {
            let behind = report.findings.iter();
            let behind = behind.filter(|finding| finding.code == Code::SizeBelowMapped);
            let inodes = behind.filter_map(|finding| finding.location.inode);
            self.model.borrow_mut().maps_behind = inodes.collect();
        }
    }

    /// Unmounts, and mounts with this mechanism if the image can have it, else with the same as
    /// before.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn remounted(
        &mut self,
        ordering: Option<Ordering>,
        watcher: &mut dyn Watcher,
    ) -> Result<Machine> {
        self.mount.unmount(watcher)?;
        let before = self.engine.ordering;
        let is_possible = |next: &Ordering| {
            let log = |of: &Ordering| of.log_kind().map(|kind| kind.name());
            log(next) == log(&before) && before.promises().keeps_order()
        };
        let engine = Engine {
            ordering: ordering.filter(is_possible).unwrap_or(before),
            ..self.engine
        };
        Machine::new(self.mount.fork(), engine, watcher)
    }

    /// Makes this machine the successor of one that has ended: the counts of promises and of
    /// operations go on.
    pub(crate) fn follow(&self, before: &Machine) {
        self.model.borrow_mut().promises += before.model.borrow().promises;
        self.begun.set(before.begun.get());
    }
}

/// The image, prepared as the first operations of a workload ask.
///
/// # Errors
/// Where its journal cannot be found, or it cannot be filled.
pub(crate) fn prepared(image: &Fork, operations: &[Operation], engine: Engine) -> Result<Fork> {
    let mut image = image.clone();
    for operation in operations {
        match operation {
            Operation::LogBlocks(blocks) => image = tried(image, LogTrial::Blocks(*blocks))?,
            Operation::LogSequence(number) => image = tried(image, LogTrial::Sequence(*number))?,
            Operation::FewBlocks(left) => image = full::with_few_blocks(image, *left, engine)?,
            _ => break,
        }
    }
    Ok(image)
}

/// The image with its empty log changed as a workload asks, if its log supports that.
fn tried(mut image: Fork, trial: LogTrial) -> Result<Fork> {
    let device = ForkDevice::new(image.clone());
    let (home, other) = device.parts();
    let kind = image.kind();
    let site = LogSite {
        device: &home,
        log_device: other.as_ref().map(|other| other as &dyn BlockDevice),
        host: kind.journal_host(),
    };
    for kind in logs() {
        if let Some((block, bytes)) = kind.trial(site, trial)? {
            image.set_block(block, bytes.into());
            break;
        }
    }
    Ok(image)
}
