//! TEMPORARY in-memory stand-in for the engine, so that the fronts can be tested before it lands.
#![allow(missing_docs, clippy::all)]

use backstitch_device::BlockDevice;
use backstitch_layout::LayoutKind;
pub use backstitch_layout::{
    Allocate, Attributes, DirectoryEntry, Error as LayoutError, FileSystemStatistics, FileType,
    InodeNumber, NewInode, RenameMode, Seek, SetAttributes, SetXattrMode, Timestamp,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("latched: {reason}")]
    Latched { reason: String },
}
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn errno(&self) -> i32 {
        use LayoutError as L;
        match self {
            Error::Latched { .. } => libc::EIO,
            Error::Layout(e) => match e {
                L::Miss | L::WaitForFrees | L::Again => libc::EIO,
                L::NotFound => libc::ENOENT,
                L::Exists => libc::EEXIST,
                L::NotADirectory => libc::ENOTDIR,
                L::IsADirectory => libc::EISDIR,
                L::NotEmpty => libc::ENOTEMPTY,
                L::NoSpace => libc::ENOSPC,
                L::FileTooLarge => libc::EFBIG,
                L::NameTooLong => libc::ENAMETOOLONG,
                L::TooManyLinks => libc::EMLINK,
                L::Invalid => libc::EINVAL,
                L::NotPermitted => libc::EPERM,
                L::AccessDenied => libc::EACCES,
                L::ReadOnly => libc::EROFS,
                L::NoAttribute => libc::ENODATA,
                L::Range => libc::ERANGE,
                L::NotSupported | L::Unsupported(_) => libc::EOPNOTSUPP,
                L::NoSuchAddress => libc::ENXIO,
                L::Loop => libc::ELOOP,
                L::Corrupt { .. } => libc::EUCLEAN,
                L::Device(_) => libc::EIO,
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ordering {
    #[default]
    Soft,
    Async,
    Sync,
}
impl std::str::FromStr for Ordering {
    type Err = String;
    fn from_str(s: &str) -> std::result::Result<Self, String> {
        Ok(match s {
            "soft" => Ordering::Soft,
            "async" => Ordering::Async,
            "sync" => Ordering::Sync,
            _ => return Err(format!("no such ordering: {s}")),
        })
    }
}
impl std::fmt::Display for Ordering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Ordering::Soft => "soft",
            Ordering::Async => "async",
            Ordering::Sync => "sync",
        })
    }
}

#[derive(Clone, Debug)]
pub struct MountOptions {
    pub read_only: bool,
    pub cache_bytes: u64,
    pub expire_seconds: f64,
    pub ordering: Ordering,
    pub mount_time: Timestamp,
}
impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            cache_bytes: 256 << 20,
            expire_seconds: 30.0,
            ordering: Ordering::Soft,
            mount_time: Timestamp::default(),
        }
    }
}
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryReport {
    pub needed: bool,
    pub seconds: f64,
    pub actions: Vec<String>,
}
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    pub ordering: String,
    pub ops: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Node {
    kind: u32,
    perm: u16,
    links: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    times: [(i64, u32); 3],
    data: Vec<u8>,
    entries: BTreeMap<u64, (Vec<u8>, u32)>,
    parent: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
    #[serde(skip)]
    references: u64,
}
#[derive(Default, Serialize, Deserialize)]
struct State {
    nodes: HashMap<u32, Node>,
    next: u32,
    cookie: u64,
    ops: u64,
}

pub struct Engine {
    state: Mutex<State>,
    device: Arc<dyn BlockDevice>,
    recovery: RecoveryReport,
    options: MountOptions,
}

const MAGIC: &[u8; 8] = b"TOYFS001";
const AT: u64 = 1 << 20;

fn now() -> (i64, u32) {
    let d = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    (d.as_secs() as i64, d.subsec_nanos())
}
fn ts(t: (i64, u32)) -> Timestamp {
    Timestamp {
        seconds: t.0,
        nanoseconds: t.1,
    }
}

impl State {
    fn node(&mut self, i: InodeNumber) -> Result<&mut Node> {
        self.ops += 1;
        self.nodes
            .get_mut(&i.0)
            .ok_or(Error::Layout(LayoutError::NotFound))
    }
    fn dir(&mut self, i: InodeNumber) -> Result<&mut Node> {
        let n = self.node(i)?;
        if n.kind != FileType::Directory.mode_bits() {
            return Err(LayoutError::NotADirectory.into());
        }
        Ok(n)
    }
    fn find(&mut self, d: InodeNumber, name: &[u8]) -> Result<(u64, u32)> {
        if name.len() > 255 {
            return Err(LayoutError::NameTooLong.into());
        }
        let n = self.dir(d)?;
        n.entries
            .iter()
            .find(|(_, (k, _))| k == name)
            .map(|(c, (_, i))| (*c, *i))
            .ok_or(Error::Layout(LayoutError::NotFound))
    }
    fn attr(&mut self, i: InodeNumber) -> Result<Attributes> {
        let n = self.node(i)?;
        Ok(Attributes {
            inode: i,
            generation: 1,
            file_type: FileType::from_mode(n.kind).unwrap(),
            permissions: n.perm,
            links: n.links,
            uid: n.uid,
            gid: n.gid,
            device_number: n.rdev,
            size_bytes: if n.kind == FileType::Directory.mode_bits() {
                4096
            } else {
                n.data.len() as u64
            },
            sectors: n.data.len().div_ceil(512) as u64,
            block_size_bytes: 4096,
            accessed: ts(n.times[0]),
            modified: ts(n.times[1]),
            changed: ts(n.times[2]),
            created: None,
        })
    }
    fn add(&mut self, d: InodeNumber, name: &[u8], i: u32) -> Result<()> {
        self.cookie += 1;
        let c = self.cookie;
        let n = self.dir(d)?;
        n.entries.insert(c + 2, (name.to_vec(), i));
        n.times[1] = now();
        n.times[2] = now();
        Ok(())
    }
    fn cut(&mut self, d: InodeNumber, c: u64) {
        let n = self.nodes.get_mut(&d.0).unwrap();
        n.entries.remove(&c);
        n.times[1] = now();
        n.times[2] = now();
    }
    fn drop_link(&mut self, i: u32, k: u32) {
        let n = self.nodes.get_mut(&i).unwrap();
        n.links = n.links.saturating_sub(k);
        n.times[2] = now();
        self.reap(i);
    }
    fn reap(&mut self, i: u32) {
        if let Some(n) = self.nodes.get(&i) {
            if n.links == 0 && n.references == 0 {
                self.nodes.remove(&i);
            }
        }
    }
}

impl Engine {
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        _layout: &dyn LayoutKind,
        options: &MountOptions,
    ) -> Result<Arc<Engine>> {
        let mut head = [0u8; 16];
        device.read(AT, &mut head).map_err(LayoutError::from)?;
        let mut state = State {
            next: 11,
            ..State::default()
        };
        if &head[..8] == MAGIC {
            let len = u64::from_le_bytes(head[8..].try_into().unwrap()) as usize;
            let mut b = vec![0; len];
            device.read(AT + 16, &mut b).map_err(LayoutError::from)?;
            state = serde_json::from_slice(&b).unwrap();
        } else {
            let root = Node {
                kind: FileType::Directory.mode_bits(),
                perm: 0o755,
                links: 2,
                uid: 0,
                gid: 0,
                rdev: 0,
                times: [now(); 3],
                data: vec![],
                entries: BTreeMap::new(),
                parent: 2,
                xattrs: BTreeMap::new(),
                references: 0,
            };
            state.nodes.insert(2, root);
        }
        Ok(Arc::new(Engine {
            state: Mutex::new(state),
            device,
            recovery: RecoveryReport::default(),
            options: options.clone(),
        }))
    }
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }
    pub fn read_only_reason(&self) -> Option<String> {
        None
    }
    pub fn layout_name(&self) -> &str {
        "toy"
    }
    pub fn ordering_name(&self) -> &str {
        match self.options.ordering {
            Ordering::Soft => "soft",
            Ordering::Async => "async",
            Ordering::Sync => "sync",
        }
    }
    pub fn root(&self) -> InodeNumber {
        InodeNumber(2)
    }
    fn rw(&self) -> Result<()> {
        if self.options.read_only {
            Err(LayoutError::ReadOnly.into())
        } else {
            Ok(())
        }
    }
    pub fn lookup(&self, dir: InodeNumber, name: &[u8]) -> Result<Attributes> {
        let mut s = self.state.lock();
        let i = match name {
            b"." => dir.0,
            b".." => s.dir(dir)?.parent,
            _ => s.find(dir, name)?.1,
        };
        s.node(InodeNumber(i))?.references += 1;
        s.attr(InodeNumber(i))
    }
    pub fn forget(&self, inode: InodeNumber, references: u64) {
        let mut s = self.state.lock();
        if let Ok(n) = s.node(inode) {
            n.references -= references;
            s.reap(inode.0);
        }
    }
    pub fn attributes(&self, inode: InodeNumber) -> Result<Attributes> {
        self.state.lock().attr(inode)
    }
    pub fn set_attributes(&self, inode: InodeNumber, set: &SetAttributes) -> Result<Attributes> {
        self.rw()?;
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        if let Some(p) = set.permissions {
            n.perm = p;
        }
        if let Some(u) = set.uid {
            n.uid = u;
        }
        if let Some(g) = set.gid {
            n.gid = g;
        }
        if let Some(z) = set.size_bytes {
            if z > 1 << 32 {
                return Err(LayoutError::FileTooLarge.into());
            }
            n.data.resize(z as usize, 0);
            n.times[1] = now();
        }
        if let Some(t) = set.accessed {
            n.times[0] = (t.seconds, t.nanoseconds);
        }
        if let Some(t) = set.modified {
            n.times[1] = (t.seconds, t.nanoseconds);
        }
        n.times[2] = now();
        s.attr(inode)
    }
    pub fn create(&self, dir: InodeNumber, name: &[u8], new: &NewInode) -> Result<Attributes> {
        self.rw()?;
        let mut s = self.state.lock();
        match s.find(dir, name) {
            Ok(_) => return Err(LayoutError::Exists.into()),
            Err(Error::Layout(LayoutError::NotFound)) => {}
            Err(e) => return Err(e),
        }
        s.next += 1;
        let i = s.next;
        let is_dir = new.file_type == FileType::Directory;
        let d = s.dir(dir)?;
        let mut gid = new.gid;
        let mut perm = new.permissions & !new.umask;
        if d.perm & 0o2000 != 0 {
            gid = d.gid;
            if is_dir {
                perm |= 0o2000;
            }
        }
        if is_dir {
            d.links += 1;
        }
        let node = Node {
            kind: new.file_type.mode_bits(),
            perm,
            links: if is_dir { 2 } else { 1 },
            uid: new.uid,
            gid,
            rdev: new.device_number,
            times: [now(); 3],
            data: new.target.to_vec(),
            entries: BTreeMap::new(),
            parent: dir.0,
            xattrs: BTreeMap::new(),
            references: 1,
        };
        s.nodes.insert(i, node);
        s.add(dir, name, i)?;
        s.attr(InodeNumber(i))
    }
    pub fn link(&self, inode: InodeNumber, dir: InodeNumber, name: &[u8]) -> Result<Attributes> {
        self.rw()?;
        let mut s = self.state.lock();
        if s.find(dir, name).is_ok() {
            return Err(LayoutError::Exists.into());
        }
        let n = s.node(inode)?;
        n.links += 1;
        n.references += 1;
        n.times[2] = now();
        s.add(dir, name, inode.0)?;
        s.attr(inode)
    }
    pub fn unlink(&self, dir: InodeNumber, name: &[u8]) -> Result<()> {
        self.rw()?;
        let mut s = self.state.lock();
        let (c, i) = s.find(dir, name)?;
        if s.node(InodeNumber(i))?.kind == FileType::Directory.mode_bits() {
            return Err(LayoutError::IsADirectory.into());
        }
        s.cut(dir, c);
        s.drop_link(i, 1);
        Ok(())
    }
    pub fn rmdir(&self, dir: InodeNumber, name: &[u8]) -> Result<()> {
        self.rw()?;
        let mut s = self.state.lock();
        let (c, i) = s.find(dir, name)?;
        if !s.dir(InodeNumber(i))?.entries.is_empty() {
            return Err(LayoutError::NotEmpty.into());
        }
        s.cut(dir, c);
        s.drop_link(i, 2);
        s.dir(dir)?.links -= 1;
        Ok(())
    }
    pub fn rename(
        &self,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.rw()?;
        let mut s = self.state.lock();
        let (c, i) = s.find(from, from_name)?;
        let is_dir = s.node(InodeNumber(i))?.kind == FileType::Directory.mode_bits();
        let target = s.find(to, to_name).ok();
        if mode == RenameMode::Exchange {
            return Err(LayoutError::Invalid.into());
        }
        if let Some((tc, ti)) = target {
            if mode == RenameMode::NoReplace {
                return Err(LayoutError::Exists.into());
            }
            if ti == i {
                return Ok(());
            }
            let tn = s.node(InodeNumber(ti))?;
            let tdir = tn.kind == FileType::Directory.mode_bits();
            if tdir && !tn.entries.is_empty() {
                return Err(LayoutError::NotEmpty.into());
            }
            if tdir && !is_dir {
                return Err(LayoutError::IsADirectory.into());
            }
            if !tdir && is_dir {
                return Err(LayoutError::NotADirectory.into());
            }
            s.cut(to, tc);
            s.drop_link(ti, if tdir { 2 } else { 1 });
            if tdir {
                s.dir(to)?.links -= 1;
            }
        }
        s.cut(from, c);
        s.add(to, to_name, i)?;
        if is_dir {
            s.dir(from)?.links -= 1;
            s.dir(to)?.links += 1;
            s.dir(InodeNumber(i))?.parent = to.0;
        }
        s.node(InodeNumber(i))?.times[2] = now();
        Ok(())
    }
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        Ok(self.state.lock().node(inode)?.data.clone())
    }
    pub fn read(
        &self,
        inode: InodeNumber,
        offset_bytes: u64,
        len_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        let a = (offset_bytes as usize).min(n.data.len());
        let b = (a + len_bytes).min(n.data.len());
        into.extend_from_slice(&n.data[a..b]);
        Ok(())
    }
    pub fn write(&self, inode: InodeNumber, offset_bytes: u64, data: &[u8]) -> Result<usize> {
        self.rw()?;
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        let end = offset_bytes as usize + data.len();
        if n.data.len() < end {
            n.data.resize(end, 0);
        }
        n.data[offset_bytes as usize..end].copy_from_slice(data);
        n.times[1] = now();
        n.times[2] = now();
        Ok(data.len())
    }
    pub fn touch_accessed(&self, inode: InodeNumber) {
        let mut s = self.state.lock();
        if let Ok(n) = s.node(inode) {
            let t = now();
            if n.times[0] <= n.times[1] || n.times[0] <= n.times[2] || n.times[0].0 + 86400 < t.0 {
                n.times[0] = t;
            }
        }
    }
    pub fn fsync(&self, _inode: InodeNumber, _data_only: bool) -> Result<()> {
        self.sync()
    }
    pub fn sync(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let s = self.state.lock();
        let b = serde_json::to_vec(&*s).unwrap();
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&(b.len() as u64).to_le_bytes());
        out.extend_from_slice(&b);
        self.device.write(AT, &out).map_err(LayoutError::from)?;
        self.device.flush().map_err(LayoutError::from)?;
        Ok(())
    }
    pub fn allocate(
        &self,
        inode: InodeNumber,
        how: Allocate,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<()> {
        self.rw()?;
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        let (keep, zero) = match how {
            Allocate::Reserve { keep_size } => (keep_size, false),
            Allocate::PunchHole => (true, true),
            Allocate::ZeroRange { keep_size } => (keep_size, true),
        };
        let end = (offset_bytes + len_bytes) as usize;
        if !keep && n.data.len() < end {
            n.data.resize(end, 0);
        }
        if zero {
            let a = (offset_bytes as usize).min(n.data.len());
            let b = end.min(n.data.len());
            n.data[a..b].fill(0);
        }
        Ok(())
    }
    pub fn seek(&self, inode: InodeNumber, offset_bytes: u64, what: Seek) -> Result<u64> {
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        if offset_bytes >= n.data.len() as u64 {
            return Err(LayoutError::NoSuchAddress.into());
        }
        Ok(match what {
            Seek::Data => offset_bytes,
            Seek::Hole => n.data.len() as u64,
        })
    }
    pub fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        len_bytes: u64,
    ) -> Result<u64> {
        let mut b = vec![];
        self.read(from, from_offset, len_bytes as usize, &mut b)?;
        Ok(self.write(to, to_offset, &b)? as u64)
    }
    pub fn read_directory(
        &self,
        dir: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry) -> bool,
    ) -> Result<()> {
        self.walk(dir, cookie, &mut |e, _| emit(e))
    }
    pub fn read_directory_plus(
        &self,
        dir: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry, &Attributes) -> bool,
    ) -> Result<()> {
        let mut taken = vec![];
        let r = self.walk(dir, cookie, &mut |e, a| {
            let ok = emit(e, a);
            if ok && e.name != b"." && e.name != b".." {
                taken.push(e.inode);
            }
            ok
        });
        let mut s = self.state.lock();
        for i in taken {
            s.node(i)?.references += 1;
        }
        r
    }
    fn walk(
        &self,
        dir: InodeNumber,
        cookie: u64,
        emit: &mut dyn FnMut(&DirectoryEntry, &Attributes) -> bool,
    ) -> Result<()> {
        let mut s = self.state.lock();
        let n = s.dir(dir)?;
        let mut all = vec![(1, b".".to_vec(), dir.0), (2, b"..".to_vec(), n.parent)];
        all.extend(n.entries.iter().map(|(c, (k, i))| (*c, k.clone(), *i)));
        for (c, name, i) in all {
            if c <= cookie {
                continue;
            }
            let a = s.attr(InodeNumber(i))?;
            let e = DirectoryEntry {
                inode: InodeNumber(i),
                file_type: Some(a.file_type),
                name: &name,
                next_cookie: c,
            };
            if !emit(&e, &a) {
                break;
            }
        }
        Ok(())
    }
    pub fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        n.xattrs
            .get(&*String::from_utf8_lossy(name))
            .cloned()
            .ok_or(LayoutError::NoAttribute.into())
    }
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<()> {
        self.rw()?;
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        let k = String::from_utf8_lossy(name).to_string();
        match (mode, n.xattrs.contains_key(&k)) {
            (SetXattrMode::Create, true) => return Err(LayoutError::Exists.into()),
            (SetXattrMode::Replace, false) => return Err(LayoutError::NoAttribute.into()),
            _ => {}
        }
        n.xattrs.insert(k, value.to_vec());
        Ok(())
    }
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        let mut out = vec![];
        for k in n.xattrs.keys() {
            out.extend_from_slice(k.as_bytes());
            out.push(0);
        }
        Ok(out)
    }
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        self.rw()?;
        let mut s = self.state.lock();
        let n = s.node(inode)?;
        n.xattrs
            .remove(&*String::from_utf8_lossy(name))
            .map(|_| ())
            .ok_or(LayoutError::NoAttribute.into())
    }
    pub fn statistics(&self) -> Result<FileSystemStatistics> {
        Ok(FileSystemStatistics {
            block_size_bytes: 4096,
            blocks: self.device.size_bytes() / 4096,
            free_blocks: self.device.size_bytes() / 8192,
            available_blocks: self.device.size_bytes() / 8192,
            inodes: 100000,
            free_inodes: 90000,
            name_max_bytes: 255,
        })
    }
    pub fn stats(&self) -> Stats {
        Stats {
            ordering: self.ordering_name().into(),
            ops: self.state.lock().ops,
        }
    }
    pub fn unmount(&self) -> Result<()> {
        self.sync()
    }
}
