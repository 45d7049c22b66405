//! Images of ext3 in files, operations on them while mounted, and the verdicts of e2fsck and
//! debugfs.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use backstitch_device::MemoryDevice;
use backstitch_formats::usual;
use backstitch_vfs::{Engine, FileType, InodeNumber, MountOptions, Ordering};

use crate::support::{check, new_inode};

/// Numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) as usize) % bound
    }
}

/// An image on a file, until the test ends.
pub(crate) struct Image {
    folder: PathBuf,
    pub(crate) path: PathBuf,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn run(program: &str, words: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(program).args(words).output();
    let done = done.unwrap_or_else(|e| panic!("{program} (Debian package e2fsprogs): {e}"));
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.code(), said)
}

impl Image {
    /// An ext3 image as mke2fs makes it.
    pub(crate) fn new(name: &str, options: &[&str], size: &str) -> Image {
        let folder =
            std::env::temp_dir().join(format!("backstitch-htree-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("image");
        let word = path.to_string_lossy().into_owned();
        let mut words = vec!["-q", "-F", "-t", "ext3"];
        words.extend(options);
        words.extend([word.as_str(), size]);
        let (code, said) = run("mke2fs", &words);
        assert_eq!(code, Some(0), "{said}");
        Image { folder, path }
    }

    pub(crate) fn word(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    pub(crate) fn debugfs(&self, command: &str) -> String {
        let (code, said) = run("debugfs", &["-w", "-R", command, &self.word()]);
        assert_eq!(code, Some(0), "{said}");
        said
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Mounts a copy in memory, calls `work`, and writes the copy back.
    pub(crate) fn with<T>(&self, ordering: &str, work: impl FnOnce(&Engine) -> T) -> T {
        let memory = Arc::new(MemoryDevice::from_bytes(self.bytes()));
        let engine = mount(memory.clone(), ordering);
        assert_eq!(engine.read_only_reason(), None);
        let result = work(&engine);
        engine.unmount().unwrap();
        std::fs::write(&self.path, memory.snapshot()).unwrap();
        result
    }

    /// Checks that e2fsck and our own check find nothing.
    pub(crate) fn assert_sound(&self, what: &str) {
        let (code, said) = run("e2fsck", &["-fn", &self.word()]);
        assert_eq!(code, Some(0), "{what}: {said}");
        let report = check(&MemoryDevice::from_bytes(self.bytes()));
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    }

    /// The levels of the index of `/d` below its root's own, as debugfs says; `None` where it has
    /// none.
    pub(crate) fn levels(&self) -> Option<u32> {
        let said = self.debugfs("htree_dump /d");
        let line = said.lines().find(|l| l.contains("Indirect levels:"))?;
        line.rsplit(' ').next()?.trim().parse().ok()
    }
}

pub(crate) fn mount(memory: Arc<MemoryDevice>, ordering: &str) -> Arc<Engine> {
    let ordering: Ordering = ordering.parse().unwrap();
    let options = MountOptions {
        ordering,
        commit_seconds: 0.2,
        cache_bytes: 64 << 20,
        without_journal: ordering.name() == "soft",
        ..MountOptions::default()
    };
    Engine::mount(memory, usual().layout(), &options).unwrap()
}

pub(crate) fn directory(engine: &Engine) -> InodeNumber {
    match engine.lookup(engine.root(), b"d") {
        Ok(found) => found.inode,
        Err(_) => {
            let new = new_inode(FileType::Directory);
            engine.create(engine.root(), b"d", &new).unwrap().inode
        }
    }
}

/// All names of a directory as a reader gets them, but for `.` and `..`.
pub(crate) fn list(engine: &Engine, directory: InodeNumber) -> Vec<Vec<u8>> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let before = cookie;
        let collect = &mut |entry: &backstitch_vfs::DirectoryEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            cookie = entry.next_cookie;
            true
        };
        engine.read_directory(directory, before, collect).unwrap();
        if cookie == before {
            return names;
        }
    }
}

/// Fills `/d` with names of `bytes` bytes until there are `count`, or no more fit; returns how many
/// were made.
pub(crate) fn fill(engine: &Engine, bytes: usize, from: usize, count: usize) -> usize {
    /// Links of one inode.
    const LINKS: usize = 30_000;
    let d = directory(engine);
    let new = new_inode(FileType::Regular);
    let mut inode = None;
    for index in from..from + count {
        let name = format!("{index:0bytes$}").into_bytes();
        let made = match inode.filter(|_| index % LINKS != 0) {
            Some(inode) => engine.link(inode, d, &name).map(|_| inode),
            None => engine.create(d, &name, &new).map(|made| made.inode),
        };
        match made {
            Ok(made) => inode = Some(made),
            Err(error) => {
                assert_eq!(error.errno(), 28, "{error}");
                return index - from;
            }
        }
    }
    count
}
