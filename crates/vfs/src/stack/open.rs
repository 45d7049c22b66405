//! Opening the file systems of a stack, one after the other.

use backstitch_device::BlockDevice;
use backstitch_layout::{
    Error, FileSystem, FileType, InodeNumber, LogDamage, LogKind, LogSite, OpenRequest, Opened,
    Result, Step, Stop,
};
use backstitch_mechanisms::{Ordering, logs, make_without_log, usual_for};
use backstitch_ordering::{Mechanism, NoLog, Volume};
use backstitch_session::log::default_ordering;
use rustc_hash::{FxHashMap, FxHashSet};

use super::device::{FileDevice, Run};
use super::file_system::Stacked;
use super::members::{Above, MOST_MEMBERS, Member, Members, Part};
use super::{InnerPath, Stack, StackVolume, VolumeInfo};

impl Stack {
    pub(super) fn first(&self) -> Result<&StackVolume> {
        let none = || Error::Unsupported("the stack has no file systems".to_owned());
        self.volumes.first().ok_or_else(none)
    }

    /// Whether each file system comes after those that hold its files.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Unsupported(what));
        if self.volumes.len() > MOST_MEMBERS {
            return wrong(format!("a stack has {MOST_MEMBERS} file systems at most"));
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            let paths = [&volume.file, &volume.journal, &volume.at];
            let is_after = |path: &InnerPath| path.volume < index;
            if volume.file.is_some() != (index > 0) || !paths.into_iter().flatten().all(is_after) {
                let name = &volume.name;
                return wrong(format!("{name} comes before the file system it is in"));
            }
        }
        match self.front < self.volumes.len() {
            true => Ok(()),
            false => wrong("the stack's front is not one of its volumes".to_owned()),
        }
    }
}

/// A stack that is being opened: some of its file systems are open.
pub(super) struct Opening<'o, 'v> {
    stack: &'o Stack,
    v: &'o mut Volume<'v>,
    device: &'o dyn BlockDevice,
    request: &'o OpenRequest,
    members: Members,
    recovery_needed: bool,
    actions: Vec<String>,
    infos: Vec<VolumeInfo>,
}

impl<'o, 'v> Opening<'o, 'v> {
    pub(super) fn new(
        stack: &'o Stack,
        v: &'o mut Volume<'v>,
        device: &'o dyn BlockDevice,
        request: &'o OpenRequest,
    ) -> Self {
        let block_bytes = u64::from(v.block_bytes());
        Opening {
            stack,
            v,
            device,
            request,
            members: Members {
                all: Vec::new(),
                covers: FxHashMap::default(),
                front: stack.front,
                now: request.now,
                block_bytes,
            },
            recovery_needed: false,
            actions: Vec::new(),
            infos: Vec::new(),
        }
    }

    /// Opens all of them, and returns facts about each.
    pub(super) fn inspect(mut self) -> Result<Vec<VolumeInfo>> {
        for index in 0..self.stack.volumes.len() {
            self.add(index)?;
        }
        Ok(self.infos)
    }

    pub(super) fn run(mut self) -> Result<Opened> {
        if self.request.read_only {
            self.v.only_read();
        }
        for index in 0..self.stack.volumes.len() {
            self.add(index)?;
        }
        Ok(Opened {
            file_system: Box::new(Stacked::new(self.members)),
            recovery_needed: self.recovery_needed,
            actions: self.actions,
            // All file systems are already marked as in use.
            first: Vec::new(),
        })
    }

    fn add(&mut self, index: usize) -> Result<()> {
        let plan = &self.stack.volumes[index];
        let opened = match &plan.file {
            None => self.open_on_device(plan),
            Some(file) => self.open_in_file(index, plan, file),
        };
        let opened = opened.map_err(|error| match error {
            Error::Unsupported(what) => Error::Unsupported(format!("{}: {what}", plan.name)),
            Error::NotFound => Error::Unsupported(format!("{}: no such file", plan.name)),
            other => other,
        });
        let (fs, above) = opened?;
        Members::check_numbers(&plan.name, &fs.statistics())?;
        if let Some(reason) = fs.read_only_reason().filter(|_| !self.request.read_only) {
            self.note(plan, &format!("read-only: {reason}"));
        }
        let files = above.iter().flat_map(|above| above.parts.clone());
        for part in files.collect::<Vec<_>>() {
            let host = &mut self.members.all[part.host];
            host.in_use.insert(part.inode);
            host.fs.hold(part.inode);
        }
        self.members.all.push(Member {
            name: plan.name.clone(),
            fs,
            above,
            in_use: FxHashSet::default(),
        });
        self.mark_in_use(index)?;
        match &plan.at {
            Some(at) => self.cover(index, plan, at),
            None => Ok(()),
        }
    }

    fn note(&mut self, plan: &StackVolume, what: &str) {
        self.actions.push(format!("{}: {what}", plan.name));
    }

    /// Repeats the steps of `body` until what they read is in memory.
    fn until_read<T>(
        &mut self,
        mut body: impl FnMut(&mut Members, &mut Volume<'_>) -> Step<T>,
    ) -> Result<T> {
        loop {
            match body(&mut self.members, self.v) {
                Err(Stop::Miss) => {
                    self.v.read_missing(self.device)?;
                }
                done => return done.map_err(Stop::into_error),
            }
        }
    }

    fn open_on_device(
        &mut self,
        plan: &StackVolume,
    ) -> Result<(Box<dyn FileSystem>, Option<Above>)> {
        let (device, request) = (self.device, self.request);
        let opened = self.until_read(|_, v| plan.layout.open(v, device, request))?;
        let block_bytes = self.members.block_bytes;
        let kind = default_ordering(device, None, plan.layout)?;
        self.infos.push(VolumeInfo {
            layout: opened.file_system.name(),
            ordering: plan.ordering.unwrap_or(kind),
            blocks: device.size_bytes() / block_bytes,
            block_bytes: block_bytes as u32,
            holes: 0,
            recovery_needed: opened.recovery_needed,
        });
        Ok((self.take(plan, opened)?, None))
    }

    /// Takes over what opening a file system found, and puts on stable storage what must be there
    /// first.
    fn take(&mut self, plan: &StackVolume, opened: Opened) -> Result<Box<dyn FileSystem>> {
        self.recovery_needed |= opened.recovery_needed;
        for action in &opened.actions {
            self.note(plan, action);
        }
        self.v.write_now(self.device, &opened.first)?;
        Ok(opened.file_system)
    }

    fn mark_in_use(&mut self, index: usize) -> Result<()> {
        if self.request.read_only || self.members.all[index].fs.read_only_reason().is_some() {
            return Ok(());
        }
        let marked =
            self.until_read(|members, v| members.call(index, v, |fs, v| fs.mark_in_use(v)))?;
        self.v.write_now(self.device, &marked)?;
        let Some(above) = &mut self.members.all[index].above else {
            return Ok(());
        };
        if let Some(log) = above.mechanism.log() {
            let started = self.v.start_log(log, above.volume);
            self.v.write_now(self.device, &[started])?;
        }
        Ok(())
    }

    /// Makes the file system show in place of a directory.
    fn cover(&mut self, index: usize, plan: &StackVolume, at: &InnerPath) -> Result<()> {
        let (inode, file_type, _) = self.find(at).map_err(|error| match error {
            Error::NotFound => {
                let (name, path) = (&plan.name, String::from_utf8_lossy(&at.path));
                Error::Unsupported(format!(
                    "{name}: the directory {path}, where it should appear, does not exist"
                ))
            }
            other => other,
        })?;
        if file_type != FileType::Directory {
            let what = format!(
                "{}: the place where it should appear is not a directory",
                plan.name
            );
            return Err(Error::Unsupported(what));
        }
        self.members.covers.insert((at.volume, inode), index);
        self.members.all[at.volume].fs.hold(inode);
        Ok(())
    }

    /// The inode at the end of a path, its type and its size.
    fn find(&mut self, path: &InnerPath) -> Result<(InodeNumber, FileType, u64)> {
        let host = path.volume;
        let names: Vec<&[u8]> = (path.path.split(|b| *b == b'/'))
            .filter(|name| !name.is_empty())
            .collect();
        self.until_read(|members, v| {
            members.call(host, v, |fs, v| {
                let mut inode = fs.root();
                for name in &names {
                    inode = fs.lookup(v, inode, name)?;
                }
                let attributes = fs.attributes(v, inode)?;
                Ok((inode, attributes.file_type, attributes.size_bytes))
            })
        })
    }

    fn open_in_file(
        &mut self,
        index: usize,
        plan: &StackVolume,
        file: &InnerPath,
    ) -> Result<(Box<dyn FileSystem>, Option<Above>)> {
        let spans_volumes = self.v.spans_volumes();
        for path in [Some(file), plan.journal.as_ref()].into_iter().flatten() {
            self.check_host(path.volume, spans_volumes)?;
        }
        let is_read_only = self.request.read_only
            || self.members.all[file.volume]
                .fs
                .read_only_reason()
                .is_some();
        if plan
            .journal
            .as_ref()
            .is_some_and(|log| log.volume != file.volume)
        {
            let what = "its journal is in another file system than it is itself".to_owned();
            return Err(Error::Unsupported(what));
        }
        let volume =
            self.until_read(|members, v| members.call(file.volume, v, |_, v| Ok(v.add_volume())))?;
        let mut parts = vec![self.part(file, 0)?];
        if let Some(path) = &plan.journal {
            parts.push(self.part(path, parts[0].blocks)?);
        }
        for part in &parts {
            let part = part.clone();
            self.until_read(|members, v| members.learn(&part, v, volume, 0, part.blocks))?;
        }
        let mut above = Above {
            mechanism: make_without_log(),
            volume,
            parts,
        };
        self.check_block_bytes(plan, &above, is_read_only)?;
        let wanted = self.ordering(plan, &above)?;
        let kind = match is_read_only {
            true => usual_for(false),
            false => wanted,
        };
        if kind.promises().orders_by_batches {
            return Err(Error::Unsupported(format!(
                "under --ordering {kind} a file system cannot lie in a file of another one: take soft"
            )));
        }
        if kind.has_log() {
            self.make_whole(index, plan, &above)?;
        }
        if is_read_only && self.needs_replay(plan, &above)? {
            let what = "its journal must be replayed, and nothing may be written here: mount it without ro once";
            return Err(Error::Unsupported(what.to_owned()));
        }
        above.mechanism = self.mechanism(plan, &above, kind, is_read_only)?;
        let request = OpenRequest {
            read_only: is_read_only,
            without_journal: false,
            journaled: above.mechanism.log().is_some(),
            ..self.request.clone()
        };
        let home = self.as_device(plan, &above, 0, is_read_only)?;
        let opened = self.open_inside((index, plan), &mut above, &home, &request)?;
        let block_bytes = self.members.block_bytes as u32;
        self.infos.push(VolumeInfo {
            layout: opened.file_system.name(),
            ordering: wanted,
            blocks: above.parts[0].blocks,
            block_bytes,
            holes: self.holes(&above).len() as u64,
            recovery_needed: opened.recovery_needed,
        });
        Ok((self.take(plan, opened)?, Some(above)))
    }

    /// Opens the file system once its volume is there. As after any step, blocks that it misses are
    /// given places and read; but it is not among the members yet.
    fn open_inside(
        &mut self,
        (index, plan): (usize, &StackVolume),
        above: &mut Above,
        home: &dyn BlockDevice,
        request: &OpenRequest,
    ) -> Result<Opened> {
        loop {
            let mut inner = (self.v).enter(&mut *above.mechanism, above.volume, index as u8);
            let opened = plan.layout.open(&mut inner, home, request);
            let wait_for = inner.leave();
            self.v.answer_after(wait_for);
            if !matches!(opened, Err(Stop::Miss)) {
                return opened.map_err(Stop::into_error);
            }
            let wanted = self.v.take_places_wanted(above.volume);
            self.give_places(index, plan, above, &wanted)?;
            self.v.read_missing(self.device)?;
        }
    }

    /// The blocks that have no place.
    fn holes(&self, above: &Above) -> Vec<u64> {
        let all: u64 = above.parts.iter().map(|part| part.blocks).sum();
        (0..all)
            .filter(|block| self.v.place_of(above.volume, *block).is_none())
            .collect()
    }

    /// Whether the file system can hold volumes.
    fn check_host(&self, host: usize, engine_spans: bool) -> Result<()> {
        let member = &self.members.all[host];
        let spans_volumes = match &member.above {
            None => engine_spans,
            Some(above) => above.mechanism.kind().promises().spans_volumes(),
        };
        match spans_volumes || self.request.read_only {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "the file system that holds it, {}, must be mounted with soft updates",
                member.name
            ))),
        }
    }

    /// The file at a path as a part of a volume.
    fn part(&mut self, path: &InnerPath, first: u64) -> Result<Part> {
        let (inode, file_type, size_bytes) = self.find(path)?;
        let blocks = size_bytes / self.members.block_bytes;
        let name = String::from_utf8_lossy(&path.path).into_owned();
        if file_type != FileType::Regular || blocks == 0 {
            let what = format!("{name} is not a file of at least one block");
            return Err(Error::Unsupported(what));
        }
        if self.members.is_in_use(path.volume, inode) {
            let what = format!("{name} holds another volume of the stack");
            return Err(Error::Unsupported(what));
        }
        Ok(Part {
            host: path.volume,
            inode,
            first,
            blocks,
        })
    }

    /// A file as a device.
    fn as_device(
        &mut self,
        plan: &StackVolume,
        above: &Above,
        part: usize,
        is_read_only: bool,
    ) -> Result<FileDevice<'o>> {
        let Part { first, blocks, .. } = above.parts[part];
        let mut runs: Vec<Run> = Vec::new();
        for at in 0..blocks {
            let there = self.v.place_of(above.volume, first + at);
            let next = |run: &Run| run.there.map(|there| there + run.count);
            match runs.last_mut() {
                Some(run) if next(run) == there && run.there.is_some() == there.is_some() => {
                    run.count += 1;
                }
                _ => runs.push(Run {
                    first: at,
                    there,
                    count: 1,
                }),
            }
        }
        Ok(FileDevice {
            device: self.device,
            name: plan.name.clone(),
            block_bytes: self.members.block_bytes,
            blocks,
            runs,
            is_read_only,
        })
    }

    fn check_block_bytes(
        &mut self,
        plan: &StackVolume,
        above: &Above,
        is_read_only: bool,
    ) -> Result<()> {
        let home = self.as_device(plan, above, 0, is_read_only)?;
        let (inner, outer) = (plan.layout.block_bytes(&home)?, self.members.block_bytes);
        match u64::from(inner) == outer {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "its blocks have {inner} bytes, those of the file system that holds it {outer}: they must be the same"
            ))),
        }
    }

    fn ordering(&mut self, plan: &StackVolume, above: &Above) -> Result<Ordering> {
        let kind = match plan.ordering {
            Some(kind) => kind,
            None => {
                let home = self.as_device(plan, above, 0, true)?;
                let log = self.journal_device(plan, above, true)?;
                let log = log.as_ref().map(|log| log as &dyn BlockDevice);
                default_ordering(&home, log, plan.layout)?
            }
        };
        if kind.log_kind().is_some_and(LogKind::is_claimed) {
            return Err(Error::Unsupported(format!(
                "a file system of a stack cannot have the ordering {kind}"
            )));
        }
        let is_second = kind.has_log() && self.members.log().is_some();
        match is_second {
            true => Err(Error::Unsupported(
                "only one file system of a stack can have a journal".to_owned(),
            )),
            false => Ok(kind),
        }
    }

    fn journal_device(
        &mut self,
        plan: &StackVolume,
        above: &Above,
        is_read_only: bool,
    ) -> Result<Option<FileDevice<'o>>> {
        match plan.journal {
            Some(_) => self.as_device(plan, above, 1, is_read_only).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a log must be replayed.
    fn needs_replay(&mut self, plan: &StackVolume, above: &Above) -> Result<bool> {
        let home = self.as_device(plan, above, 0, true)?;
        let site = LogSite {
            device: &home,
            log_device: None,
            host: plan.layout.journal_host(),
        };
        for kind in logs() {
            if kind.needs_recovery(site)? == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the mechanism; one with a log recovers that first.
    fn mechanism(
        &mut self,
        plan: &StackVolume,
        above: &Above,
        kind: Ordering,
        is_read_only: bool,
    ) -> Result<Box<dyn Mechanism>> {
        let Some(log_kind) = kind.log_kind() else {
            return kind.make(None).map_err(unsupported);
        };
        let home = self.as_device(plan, above, 0, is_read_only)?;
        let log = self.journal_device(plan, above, is_read_only)?;
        let log = log.as_ref().map(|log| log as &dyn BlockDevice);
        let site = LogSite {
            device: &home,
            log_device: log,
            host: plan.layout.journal_host(),
        };
        match (site.host, is_read_only) {
            (Some(host), true) => host.check_mountable(&home)?,
            (Some(host), false) => host.check_replayable(&home)?,
            (None, _) => {}
        }
        let report = log_kind.recover(site, self.request.now, LogDamage::Refuse)?;
        for action in report.unwrap_or_default().actions {
            self.recovery_needed = true;
            self.note(plan, &action);
        }
        let found = log_kind.find(site)?.map_err(Error::Unsupported)?;
        kind.make(Some(found.place)).map_err(unsupported)
    }

    /// Gives every block of a volume a place that is on stable storage.
    fn make_whole(&mut self, index: usize, plan: &StackVolume, above: &Above) -> Result<()> {
        let holes = self.holes(above);
        if holes.is_empty() {
            return Ok(());
        }
        self.note(plan, &format!("gave {} blocks a place", holes.len()));
        self.give_places(index, plan, above, &holes)?;
        for part in &above.parts {
            let (host, inode) = (part.host, part.inode);
            let mut targets = Vec::new();
            self.until_read(|members, v| {
                members.call(host, v, |fs, v| {
                    targets.clear();
                    fs.sync_targets(v, inode, true, &mut targets);
                    Ok(())
                })
            })?;
            self.v.write_now(self.device, &targets)?;
        }
        Ok(())
    }

    /// As [`Members::fill`], for a file system that is not among the members yet.
    fn give_places(
        &mut self,
        index: usize,
        plan: &StackVolume,
        above: &Above,
        wanted: &[u64],
    ) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        debug_assert_eq!(self.members.all.len(), index);
        let mut rest = wanted;
        while let Some(first) = rest.first().copied() {
            const MOST_BLOCKS: usize = 256;
            let together = (first..).zip(rest).take_while(|(at, block)| at == *block);
            let run = together.take(MOST_BLOCKS).count();
            let parts = above.parts.clone();
            self.until_read(|members, v| {
                members.fill_parts(&parts, above.volume, v, first, run as u64)
            })
            .map_err(|error| match error {
                Error::NoSpace => Error::Unsupported(format!(
                    "{}: the file system that holds it has no space for it",
                    plan.name
                )),
                other => other,
            })?;
            rest = &rest[run..];
        }
        Ok(())
    }
}

fn unsupported(error: NoLog) -> Error {
    Error::Unsupported(error.to_string())
}
