//! A small key-value store over a write-ahead log: what the library is for.
//!
//! `cargo run -p backstitch-wafs --example kv -- FILE set KEY VALUE | get KEY | del KEY | list`
//!
//! The map lives in memory. Each change is a record that is on the disk before the change is
//! answered for. When the log is half full, the whole map is written as one record behind the
//! others, and a checkpoint lets those before it go: so opening reads one such snapshot and the
//! changes since, and a crash at any point finds either the old records or the snapshot.

use backstitch_device::{FileDevice, OpenOptions};
use backstitch_wafs::{Lsn, Wafs, WafsError, host_clock};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The size of a new store's log. A snapshot is one record, of at most a quarter of it.
const LOG_BYTES: u64 = 16 << 20;

const SET: u8 = b'+';
const DELETE: u8 = b'-';
const SNAPSHOT: u8 = b'=';

struct Store {
    log: Wafs,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Store {
    fn open(path: &Path) -> Result<Store> {
        let device = match path.exists() {
            true => FileDevice::open(path, OpenOptions::default())?,
            false => {
                let device = FileDevice::create(path, LOG_BYTES)?;
                // Any sixteen bytes that another log on this device did not have.
                let uuid = u128::from(host_clock()()) | 1 << 127;
                Wafs::make(&device, uuid.to_le_bytes(), host_clock()())?;
                device
            }
        };
        let log = Wafs::mount(Arc::new(device), host_clock())?;
        let mut map = BTreeMap::new();
        let mut records = log.records(log.start())?;
        while let Some(record) = records.next()? {
            apply(&mut map, record.payload)?;
        }
        drop(records);
        Ok(Store { log, map })
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut record = vec![SET];
        put(&mut record, key);
        put(&mut record, value);
        self.change(&record)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut record = vec![DELETE];
        put(&mut record, key);
        self.change(&record)
    }

    /// Logs a change, waits for the disk, and makes it.
    fn change(&mut self, record: &[u8]) -> Result<()> {
        if self.log.free_bytes() < self.log.log_bytes() / 2 {
            self.snapshot()?;
        }
        let lsn = self.log.append(record)?;
        self.log.sync(lsn)?;
        apply(&mut self.map, record)
    }

    fn snapshot(&mut self) -> Result<()> {
        let mut record = vec![SNAPSHOT];
        for (key, value) in &self.map {
            put(&mut record, key);
            put(&mut record, value);
        }
        let lsn: Lsn = self.log.append(&record).map_err(|error| match error {
            WafsError::TooLong { .. } => "the store is too large for its log".into(),
            other => Box::<dyn Error>::from(other),
        })?;
        // Only once the snapshot is on the disk may the records before it go.
        self.log.sync(lsn)?;
        Ok(self.log.checkpoint(lsn)?)
    }
}

/// Appends a length and bytes.
fn put(record: &mut Vec<u8>, bytes: &[u8]) {
    record.extend((bytes.len() as u32).to_le_bytes());
    record.extend(bytes);
}

/// Takes what [`put`] appended.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, behind) = rest.split_first_chunk()?;
    let (bytes, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = behind;
    Some(bytes)
}

fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, record: &[u8]) -> Result<()> {
    let unknown = "a record that this program did not write";
    let (kind, mut rest) = record.split_first().ok_or(unknown)?;
    match *kind {
        SET => {
            let (key, value) = take(&mut rest).zip(take(&mut rest)).ok_or(unknown)?;
            map.insert(key.into(), value.into());
        }
        DELETE => {
            map.remove(take(&mut rest).ok_or(unknown)?);
        }
        SNAPSHOT => {
            map.clear();
            while let Some(key) = take(&mut rest) {
                map.insert(key.into(), take(&mut rest).ok_or(unknown)?.into());
            }
        }
        _ => return Err(unknown.into()),
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [file, command, operands @ ..] = &words[..] else {
        return Err("kv FILE set KEY VALUE | get KEY | del KEY | list".into());
    };
    let mut store = Store::open(Path::new(file))?;
    match (*command, operands) {
        ("set", [key, value]) => store.set(key.as_bytes(), value.as_bytes())?,
        ("del", [key]) => store.delete(key.as_bytes())?,
        ("get", [key]) => match store.map.get(key.as_bytes()) {
            Some(value) => println!("{}", String::from_utf8_lossy(value)),
            None => return Err(format!("no key '{key}'").into()),
        },
        ("list", []) => {
            for (key, value) in &store.map {
                let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
                println!("{key} {value}");
            }
        }
        _ => return Err("set KEY VALUE, get KEY, del KEY or list".into()),
    }
    Ok(store.log.unmount()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_for_is_there_and_the_log_turns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let value = vec![b'v'; 30_000];
        let key = |number: u32| format!("key {}", number % 50).into_bytes();
        for round in 0..4_u32 {
            // Dropped without an unmount: as a crash leaves it.
            let mut store = Store::open(&path).unwrap();
            for number in 0..300 {
                store.set(&key(round * 300 + number), &value).unwrap();
            }
            store.delete(&key(round)).unwrap();
            assert_eq!(store.map.len(), 49);
        }
        let store = Store::open(&path).unwrap();
        assert!(store.log.end().0 > 2 * LOG_BYTES && store.log.start().0 > LOG_BYTES);
        assert_eq!(store.map.len(), 49);
        assert!(store.map.values().all(|v| *v == value) && !store.map.contains_key(&key(3)));
    }
}
