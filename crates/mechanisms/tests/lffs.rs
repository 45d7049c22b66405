//! Whose a log of operations is, with file systems that are nothing but what they say of their log.

use std::sync::{Arc, Mutex};

use backstitch_device::{BlockDevice, MemoryDevice};
use backstitch_layout::{
    Findable, HomeContents, JournalHost, JournalPlace, Left, LogDamage, LogKind, LogNote,
    LogReport, LogSite, NotedPlace, Orphans, RecoveryMark, Result, Timestamp,
};
use backstitch_lffs::rules::Rule;
use backstitch_lffs::{LogMap, Unmounted};
use backstitch_mechanisms::Ordering;
use backstitch_rules::watch;
use backstitch_wafs::Wafs;
use serde_json::{Value, json};

const BLOCK: u32 = 1024;
const HOME_BLOCKS: u64 = 64;
const LOG_BLOCKS: u64 = 128;
const NOW: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 0,
};

/// A file system: its device, and what its superblock says.
struct Home {
    device: MemoryDevice,
    note: Mutex<(Option<NotedPlace>, Left)>,
}

impl Home {
    fn new(place: Option<NotedPlace>, left: Left) -> Home {
        Home {
            device: MemoryDevice::new((HOME_BLOCKS * u64::from(BLOCK)) as usize),
            note: Mutex::new((place, left)),
        }
    }

    fn place(&self) -> Option<NotedPlace> {
        self.note.lock().unwrap().0.clone()
    }

    fn leave(&self, left: Left) {
        self.note.lock().unwrap().1 = left;
    }

    fn left(&self) -> Left {
        self.note.lock().unwrap().1
    }

    fn site<'a>(&'a self, log: Option<&'a MemoryDevice>) -> LogSite<'a> {
        LogSite {
            device: &self.device,
            log_device: log.map(|log| log as _),
            host: Some(self),
        }
    }

    /// What a mount does before there is a mechanism.
    fn mounted(&self, log: Option<&MemoryDevice>) -> Findable {
        self.recovered(log, LogDamage::Refuse).unwrap();
        wafs().claim(self.site(log)).unwrap();
        wafs().find(self.site(log)).unwrap()
    }

    fn recovered(&self, log: Option<&MemoryDevice>, damage: LogDamage) -> Result<Vec<LogReport>> {
        let kinds = [file(), log_behind(), wafs()].into_iter();
        let reports = kinds.map(|kind| kind.recover(self.site(log), NOW, damage));
        reports.filter_map(Result::transpose).collect()
    }

    fn first_byte(&self, block: usize) -> u8 {
        self.device.snapshot()[block * BLOCK as usize]
    }
}

impl HomeContents for Home {
    fn can_hold(&self, _: u64, _: &[u8]) -> bool {
        true
    }
}

impl JournalHost for Home {
    fn place(&self, _: &dyn BlockDevice) -> Result<Option<JournalPlace>> {
        Ok(None)
    }

    fn damaged_places(&self, _: &dyn BlockDevice) -> Result<Vec<JournalPlace>> {
        Ok(Vec::new())
    }

    fn check_mountable(&self, _: &dyn BlockDevice) -> Result<()> {
        Ok(())
    }

    fn set_recovery(&self, _: &dyn BlockDevice, _: RecoveryMark) -> Result<()> {
        Ok(())
    }

    fn next_orphans(&self, _: &dyn BlockDevice, _: Timestamp, _: usize) -> Result<Orphans> {
        Ok(Orphans::default())
    }

    fn drop_orphans(&self, _: &dyn BlockDevice) -> Result<()> {
        Ok(())
    }

    fn log_note(&self, _: &dyn BlockDevice) -> Result<Option<LogNote>> {
        let (place, left) = self.note.lock().unwrap().clone();
        Ok(Some(LogNote {
            block_bytes: BLOCK,
            home_blocks: HOME_BLOCKS,
            place,
            left,
        }))
    }

    fn note_log(&self, _: &dyn BlockDevice, uuid: [u8; 16]) -> Result<()> {
        self.note.lock().unwrap().0 = Some(NotedPlace::Elsewhere(uuid));
        Ok(())
    }

    fn forget_log(&self, _: &dyn BlockDevice) -> Result<()> {
        self.note.lock().unwrap().0 = None;
        Ok(())
    }

    fn log_is_home(&self, _: &dyn BlockDevice) -> Result<()> {
        self.leave(Left::Clean);
        Ok(())
    }
}

fn file() -> &'static dyn LogKind {
    Ordering::LFFS_FILE.log_kind().unwrap()
}

fn log_behind() -> &'static dyn LogKind {
    Ordering::LFFS_WAFS_1ASYNC.log_kind().unwrap()
}

fn wafs() -> &'static dyn LogKind {
    Ordering::LFFS_WAFS_2ASYNC.log_kind().unwrap()
}

fn made(name: u8, blocks: u64) -> MemoryDevice {
    let log = MemoryDevice::new((blocks * u64::from(BLOCK)) as usize);
    Wafs::make(&log, [name; 16], 0).unwrap();
    log
}

fn opened(log: &MemoryDevice) -> Unmounted<'_> {
    let blocks = log.size_bytes() / u64::from(BLOCK);
    Unmounted::open(
        log,
        &Arc::new(LogMap::new(BLOCK, std::iter::once(0..blocks))),
    )
    .unwrap()
}

/// A mount ends in a crash that leaves one group in the log.
fn crash(home: &Home, log: &MemoryDevice, block: u64, byte: u8) {
    let blocks = [(block, vec![byte; BLOCK as usize])];
    opened(log).write_alone(&blocks).unwrap();
    home.leave(Left::InUse);
}

fn refusal(found: Findable) -> String {
    found.err().expect("it is refused")
}

#[test]
fn what_a_crash_left_is_never_tied_to_another_log() {
    let (home, log, other) = (
        Home::new(None, Left::Clean),
        made(1, LOG_BLOCKS),
        made(2, LOG_BLOCKS),
    );
    home.mounted(Some(&log)).map(drop).unwrap();
    let noted = home.place();
    assert!(noted.is_some());
    crash(&home, &log, 7, 9);
    for _ in 0..2 {
        let why = refusal(home.mounted(Some(&other)));
        assert!(why.contains("not the log"), "{why}");
        assert_eq!((home.place(), home.left()), (noted.clone(), Left::InUse));
    }
    let reports = home.recovered(Some(&other), LogDamage::Refuse).unwrap();
    assert!(reports.iter().any(|report| report.not_empty.is_some()));
    home.mounted(Some(&log)).map(drop).unwrap();
    assert_eq!((home.first_byte(7), home.left()), (9, Left::Clean));
}

#[test]
fn a_log_that_two_share_loses_nothing_and_mixes_nothing_up() {
    let (one, two) = (Home::new(None, Left::Clean), Home::new(None, Left::Clean));
    let log = made(1, LOG_BLOCKS);
    // Both have been mounted with it, and are unmounted.
    two.mounted(Some(&log)).map(drop).unwrap();
    one.mounted(Some(&log)).map(drop).unwrap();
    assert_ne!(one.place(), two.place());
    crash(&one, &log, 7, 9);
    let (name, before) = (opened(&log).uuid(), log.snapshot());
    let why = refusal(two.mounted(Some(&log)));
    assert!(why.contains("another file system"), "{why}");
    assert!(log.snapshot() == before, "the log was changed");
    one.mounted(Some(&log)).map(drop).unwrap();
    assert_eq!(one.first_byte(7), 9);
    // The log is free, and its next name is new.
    two.mounted(Some(&log)).map(drop).unwrap();
    assert_ne!(opened(&log).uuid(), name);
    crash(&two, &log, 8, 5);
    one.mounted(Some(&log))
        .map(drop)
        .expect_err("it is the other's");
    two.mounted(Some(&log)).map(drop).unwrap();
    assert_eq!((one.first_byte(8), two.first_byte(8)), (0, 5));
}

#[test]
fn a_log_that_is_too_short_is_refused() {
    let home = Home::new(None, Left::Clean);
    let (short, enough) = (made(1, 8 + 60), made(1, 8 + 64));
    let why = refusal(home.mounted(Some(&short)));
    assert!(why.contains("too short"), "{why}");
    assert_eq!(home.place(), None);
    home.mounted(Some(&enough)).map(drop).unwrap();
}

#[test]
fn a_log_in_a_file_is_not_written_as_one_on_a_device() {
    let in_file = NotedPlace::File(std::iter::once(10..60).collect());
    for place in [in_file, NotedPlace::Lost("it is gone".to_owned())] {
        let (home, log) = (
            Home::new(Some(place.clone()), Left::ByOthers),
            made(1, LOG_BLOCKS),
        );
        let why = refusal(wafs().find(home.site(Some(&log))).unwrap());
        assert!(why.contains("lffs-file"), "{why}");
        wafs().claim(home.site(Some(&log))).unwrap();
        assert_eq!(home.place(), Some(place));
    }
}

#[test]
fn damage_around_a_log_that_is_not_needed_keeps_nobody_out() {
    let lost = || Some(NotedPlace::Lost("it is gone".to_owned()));
    for left in [Left::Clean, Left::ByOthers] {
        let home = Home::new(lost(), left);
        let reports = home.recovered(None, LogDamage::Refuse).unwrap();
        assert!(reports[0].actions[0].contains("it is gone"));
        assert_eq!(home.place(), lost());
        assert!(refusal(file().find(home.site(None)).unwrap()).contains("it is gone"));
        home.recovered(None, LogDamage::GiveUp).unwrap();
        assert_eq!(home.place(), None);
    }
    let home = Home::new(lost(), Left::InUse);
    assert_eq!(file().needs_recovery(home.site(None)).unwrap(), Some(true));
    home.recovered(None, LogDamage::Refuse)
        .expect_err("the rest is in the log");
    home.recovered(None, LogDamage::GiveUp).unwrap();
    assert_eq!(home.place(), None);
}

#[test]
fn so_does_damage_of_its_superblocks() {
    let log = made(1, LOG_BLOCKS);
    let home = Home::new(None, Left::Clean);
    home.mounted(Some(&log)).map(drop).unwrap();
    for superblock in 0..2_u64 {
        log.write(superblock * 4096 + 100, &[0xff; 16]).unwrap();
    }
    for (left, is_refused) in [
        (Left::Clean, false),
        (Left::ByOthers, false),
        (Left::InUse, true),
    ] {
        home.leave(left);
        // What is on the log's own device is found whether the kind is "behind" or "other".
        let refused = home.recovered(Some(&log), LogDamage::Refuse);
        assert_eq!(refused.is_err(), is_refused, "{left:?}");
        let reports = home.recovered(Some(&log), LogDamage::GiveUp).unwrap();
        assert!(!reports[0].actions.is_empty(), "{left:?}");
    }
}

#[test]
fn a_layout_that_hosts_no_log_is_not_told_to_make_one() {
    let device = MemoryDevice::new(1 << 20);
    let log = made(1, LOG_BLOCKS);
    for log_device in [None, Some(&log as &dyn BlockDevice)] {
        let site = LogSite {
            device: &device,
            log_device,
            host: None,
        };
        for kind in [
            file(),
            wafs(),
            Ordering::LFFS_WAFS_2SYNC.log_kind().unwrap(),
        ] {
            let why = refusal(kind.find(site).unwrap());
            assert!(why.contains("of this type"), "{why}");
            assert!(!why.contains("mkfs"), "{why}");
        }
    }
}

/// Somebody has repaired the file system, or written it by other means, since its log was written.
#[test]
fn what_a_log_holds_from_before_a_repair_is_dropped() {
    for left in [Left::Clean, Left::ByOthers] {
        let (home, log) = (Home::new(None, Left::Clean), made(1, LOG_BLOCKS));
        home.mounted(Some(&log)).map(drop).unwrap();
        crash(&home, &log, 7, 9);
        home.leave(left);
        home.recovered(Some(&log), LogDamage::Refuse).unwrap();
        assert_eq!(home.first_byte(7), 0, "{left:?}");
        assert!(opened(&log).is_empty(), "{left:?}");
    }
}

/// The rule is off, and the test that is about it fails.
#[test]
fn without_the_question_whose_a_log_is_a_test_fails() {
    let test: fn() = what_a_log_holds_from_before_a_repair_is_dropped;
    assert_eq!(watch::not_missed(&[(Rule::LogIsOfThisMount, test)]), []);
}

/// What people are told of the log.
fn described(home: &Home, log: Option<&MemoryDevice>) -> serde_json::Map<String, Value> {
    let kinds = [file(), log_behind(), wafs()].into_iter();
    let told = kinds.filter_map(|kind| kind.describe(home.site(log)).unwrap());
    let told: Vec<_> = told.collect();
    assert!(told.len() < 2, "two kinds tell of it: {told:?}");
    told.into_iter().next().unwrap_or_default()
}

#[test]
fn what_is_in_a_log_is_told() {
    let (home, log) = (Home::new(None, Left::Clean), made(1, LOG_BLOCKS));
    assert!(described(&home, None).is_empty());
    home.mounted(Some(&log)).map(drop).unwrap();
    let told = described(&home, Some(&log));
    assert_eq!(
        (&told["ordering"], &told["place"]),
        (&json!("lffs-wafs=2"), &json!("device"))
    );
    assert_eq!(told["size_bytes"], LOG_BLOCKS * u64::from(BLOCK));
    let state = |told: &serde_json::Map<String, Value>| {
        let names = ["is_empty", "needs_recovery", "records"];
        names.map(|name| told.get(name).cloned().unwrap_or_default())
    };
    assert_eq!(state(&told), [json!(true), json!(false), json!(0)]);
    crash(&home, &log, 7, 9);
    let told = described(&home, Some(&log));
    let [is_empty, needs_recovery, records] = state(&told);
    assert_eq!((is_empty, needs_recovery), (json!(false), json!(true)));
    assert!(
        records.as_u64().unwrap() > 0 && told["used_bytes"].as_u64().unwrap() > u64::from(BLOCK)
    );
    // Without the device, or with another one, all that is known is that it is needed.
    let other = made(2, LOG_BLOCKS);
    for at_hand in [None, Some(&other)] {
        let told = described(&home, at_hand);
        assert_eq!(
            (&told["place"], &told["uuid"]),
            (&json!("elsewhere"), &described(&home, Some(&log))["uuid"])
        );
        assert_eq!(state(&told), [Value::Null, json!(true), Value::Null]);
    }
    // Repaired by others since.
    home.leave(Left::Clean);
    let [is_empty, needs_recovery, _] = state(&described(&home, Some(&log)));
    assert_eq!((is_empty, needs_recovery), (json!(false), json!(false)));
}
