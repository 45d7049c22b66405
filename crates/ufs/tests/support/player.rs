//! Random operations, each done in an image and in a directory of the host.

use backstitch_layout::{
    Allocate, Attributes, FileType, InodeNumber, NewInode, RenameMode, SetAttributes,
};
use backstitch_vfs::Engine;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plays operations on both.
pub(crate) struct Player {
    pub(crate) engine: Arc<Engine>,
    host: PathBuf,
    /// Directories and files that there are, by their paths from the root; the root is empty.
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    random: fastrand::Rng,
    /// Names of one player are not those of another.
    seed: u64,
    serial: u32,
}

impl Player {
    /// Begins with what the host's directory has.
    pub(crate) fn new(engine: Arc<Engine>, host: &Path, seed: u64) -> Player {
        let mut player = Player {
            engine,
            host: host.to_owned(),
            directories: vec![PathBuf::new()],
            files: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            seed,
            serial: 0,
        };
        let mut at = 0;
        while at < player.directories.len() {
            let directory = player.directories[at].clone();
            for entry in fs::read_dir(host.join(&directory)).unwrap() {
                let entry = entry.unwrap();
                let path = directory.join(entry.file_name());
                match entry.file_type().unwrap().is_dir() {
                    true => player.directories.push(path),
                    false => player.files.push(path),
                }
            }
            at += 1;
        }
        // The host lists them in any order.
        player.directories.sort();
        player.files.sort();
        player
    }

    /// The inode of a path, looked up name by name.
    fn inode(&self, path: &Path) -> Attributes {
        let mut at = self.engine.attributes(self.engine.root()).unwrap();
        for name in path {
            at = self
                .engine
                .lookup(at.inode, name.as_encoded_bytes())
                .unwrap();
            self.engine.forget(at.inode, 1);
        }
        at
    }

    fn parent(&self, path: &Path) -> InodeNumber {
        self.inode(path.parent().unwrap()).inode
    }

    fn name(path: &Path) -> &[u8] {
        path.file_name().unwrap().as_encoded_bytes()
    }

    fn directory(&mut self) -> PathBuf {
        let at = self.random.usize(..self.directories.len());
        self.directories[at].clone()
    }

    fn new_path(&mut self) -> PathBuf {
        self.serial += 1;
        let len = self.random.usize(..60);
        let name = format!("{}-{}{}", self.seed, self.serial, "n".repeat(len));
        self.directory().join(name)
    }

    fn regular(&mut self) -> Option<PathBuf> {
        (0..10).find_map(|_| {
            let at = self.random.usize(..self.files.len().max(1));
            let path = self.files.get(at)?;
            let kind = fs::symlink_metadata(self.host.join(path)).unwrap();
            kind.is_file().then(|| path.clone())
        })
    }

    /// One operation.
    pub(crate) fn step(&mut self) {
        match self.random.u32(..100) {
            0..12 => self.make_file(),
            12..18 => self.make_directory(),
            18..22 => self.make_symlink(),
            22..50 => self.write(),
            50..62 => self.resize(),
            62..65 => self.punch(),
            65 => self.zero(),
            66..70 => self.link(),
            70..84 => self.unlink(),
            84..88 => self.remove_directory(),
            _ => self.rename(),
        }
    }

    /// Makes an empty file.
    pub(crate) fn make_file_at(&mut self, path: &Path) {
        self.create(path, FileType::Regular, b"");
        fs::write(self.host.join(path), b"").unwrap();
        self.files.push(path.to_owned());
    }

    /// Makes a directory.
    pub(crate) fn make_directory_at(&mut self, path: &Path) {
        self.create(path, FileType::Directory, b"");
        fs::create_dir(self.host.join(path)).unwrap();
        self.directories.push(path.to_owned());
    }

    /// Gives a file another name.
    pub(crate) fn rename_to(&mut self, from: &Path, to: &Path) {
        let at = self.files.iter().position(|path| path == from).unwrap();
        self.rename_file(at, to.to_owned());
    }

    fn create(&mut self, path: &Path, file_type: FileType, target: &[u8]) {
        let new = NewInode {
            file_type,
            permissions: 0o755,
            umask: 0,
            uid: 0,
            gid: 0,
            device_number: 0,
            target,
        };
        let parent = self.parent(path);
        let made = self.engine.create(parent, Self::name(path), &new).unwrap();
        self.engine.forget(made.inode, 1);
    }

    fn make_file(&mut self) {
        let path = self.new_path();
        self.make_file_at(&path);
    }

    fn make_directory(&mut self) {
        let path = self.new_path();
        self.make_directory_at(&path);
    }

    fn make_symlink(&mut self) {
        let path = self.new_path();
        let target = "t".repeat(self.random.usize(1..300));
        self.create(&path, FileType::Symlink, target.as_bytes());
        symlink(&target, self.host.join(&path)).unwrap();
        self.files.push(path);
    }

    fn write(&mut self) {
        let Some(path) = self.regular() else { return };
        let inode = self.inode(&path);
        let size = inode.size_bytes;
        let offset = match self.random.u32(..4) {
            0 => self.random.u64(..size + 1),
            1 => size + self.random.u64(..100_000),
            _ => size,
        };
        let most = [100, 3_000, 20_000, 200_000][self.random.usize(..4)];
        let len = self.random.usize(1..most);
        let data = super::pattern(self.random.u64(..), len);
        let written = self.engine.write(inode.inode, offset, &data).unwrap();
        assert_eq!(written, len);
        let host = self.open(&path);
        host.write_all_at(&data, offset).unwrap();
    }

    fn open(&self, path: &Path) -> fs::File {
        let path = self.host.join(path);
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap()
    }

    fn resize(&mut self) {
        let Some(path) = self.regular() else { return };
        let inode = self.inode(&path);
        let size = match self.random.u32(..3) {
            0 => inode.size_bytes + self.random.u64(..60_000),
            _ => self.random.u64(..inode.size_bytes + 1),
        };
        let set = SetAttributes {
            size_bytes: Some(size),
            ..SetAttributes::default()
        };
        self.engine.set_attributes(inode.inode, &set).unwrap();
        self.open(&path).set_len(size).unwrap();
    }

    fn punch(&mut self) {
        let Some(path) = self.regular() else { return };
        let inode = self.inode(&path);
        if inode.size_bytes == 0 {
            return;
        }
        let offset = self.random.u64(..inode.size_bytes);
        let len = self.random.u64(1..100_000);
        self.engine
            .allocate(inode.inode, Allocate::PunchHole, offset, len)
            .unwrap();
        let end = inode.size_bytes.min(offset + len);
        let zeros = vec![0; (end - offset) as usize];
        self.open(&path).write_all_at(&zeros, offset).unwrap();
    }

    /// Zeros of which a part is behind the end.
    fn zero(&mut self) {
        let Some(path) = self.regular() else { return };
        let inode = self.inode(&path);
        let offset = self.random.u64(..inode.size_bytes + 1);
        let end = inode.size_bytes + self.random.u64(1..60_000);
        let how = Allocate::ZeroRange { keep_size: false };
        self.engine
            .allocate(inode.inode, how, offset, end - offset)
            .unwrap();
        let host = self.open(&path);
        host.set_len(offset).unwrap();
        host.set_len(end).unwrap();
    }

    fn link(&mut self) {
        let Some(path) = self.regular() else { return };
        let to = self.new_path();
        let inode = self.inode(&path).inode;
        let parent = self.parent(&to);
        self.engine.link(inode, parent, Self::name(&to)).unwrap();
        self.engine.forget(inode, 1);
        fs::hard_link(self.host.join(path), self.host.join(&to)).unwrap();
        self.files.push(to);
    }

    fn unlink(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let at = self.random.usize(..self.files.len());
        let path = self.files.swap_remove(at);
        let parent = self.parent(&path);
        self.engine.unlink(parent, Self::name(&path)).unwrap();
        fs::remove_file(self.host.join(path)).unwrap();
    }

    fn remove_directory(&mut self) {
        let at = self.random.usize(..self.directories.len());
        let path = self.directories[at].clone();
        let is_empty = fs::read_dir(self.host.join(&path))
            .unwrap()
            .next()
            .is_none();
        if at == 0 || !is_empty {
            return;
        }
        let parent = self.parent(&path);
        self.engine.rmdir(parent, Self::name(&path)).unwrap();
        fs::remove_dir(self.host.join(path)).unwrap();
        self.directories.swap_remove(at);
    }

    fn rename(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let at = self.random.usize(..self.files.len());
        let to = self.new_path();
        self.rename_file(at, to);
    }

    fn rename_file(&mut self, at: usize, to: PathBuf) {
        let from = self.files[at].clone();
        let (from_parent, to_parent) = (self.parent(&from), self.parent(&to));
        let (from_name, to_name) = (Self::name(&from), Self::name(&to));
        self.engine
            .rename(
                from_parent,
                from_name,
                to_parent,
                to_name,
                RenameMode::Replace,
            )
            .unwrap();
        fs::rename(self.host.join(&from), self.host.join(&to)).unwrap();
        self.files[at] = to;
    }
}
