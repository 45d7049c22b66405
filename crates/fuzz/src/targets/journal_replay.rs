//! The replay of a journal.
//!
//! The input is the number of a base image, the journal's features, and the records of its log:
//! whole transactions and arbitrary records. Damages to the image follow, which may hit the log
//! too.

use backstitch_device::{BlockDevice, Buffer};
use backstitch_formats::journal_host;
use backstitch_journal::format::{
    BlockKind, Features, Header, MAGIC_BYTES, Sequence, features, revoke,
};
use backstitch_journal::recovery::Damage;
use backstitch_journal::{Journal, Transaction, dump};
use backstitch_layout::{JournalPlace, RecoveryMark, Timestamp};
use backstitch_mechanisms::jbd2;
use zerocopy::IntoBytes;

use super::fsck::contents;
use crate::base::{self, Base, TIME_SECONDS};
use crate::{Input, damage};

/// The most records of an input.
const RECORDS: usize = 24;
/// The most copies or revocations of a record.
const COPIES: u8 = 8;
/// The kind of record that ends the list in an input.
const END: u8 = 0;

/// After a replay a second one finds nothing. If the replay is refused, nothing was changed.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let journaled: Vec<&Base> = base::all().iter().filter(|base| base.has_journal).collect();
    let base = input.pick(&journaled).expect("there are some");
    let device = base.device();
    compose(&mut input, base, &*device);
    damage::all(&mut input, base, &*device);
    if let Some((_, journal)) = open(&*device) {
        let _ = dump::lines(&journal, &mut |line| drop(line.to_string()));
    }
    let before = contents(&*device);
    if let Err(error) = recover(&*device, Damage::Refuse) {
        let is_refused = open(&*device).is_some_and(|(place, journal)| {
            place.needs_recovery && journal.scan(place.home_blocks).is_err()
        });
        assert!(
            !is_refused || contents(&*device) == before,
            "changed, and yet refused: {error}"
        );
        // If the log was given up, the orphans are left for a later recovery.
        let later = recover(&*device, Damage::Skip).and_then(|_| recover(&*device, Damage::Skip));
        if later.is_err() {
            return;
        }
    }
    let after = contents(&*device);
    // A block brought home may have been a damaged map of the journal itself.
    let Ok(again) = recover(&*device, Damage::Refuse) else {
        return;
    };
    let again = again.map(|report| report.actions()).unwrap_or_default();
    assert!(again.is_empty(), "done again: {again:?}");
    assert!(contents(&*device) == after, "changed by a second recovery");
}

fn recover(
    device: &dyn BlockDevice,
    damage: Damage,
) -> backstitch_layout::Result<Option<jbd2::Report>> {
    let now = Timestamp {
        seconds: TIME_SECONDS.into(),
        nanoseconds: 0,
    };
    jbd2::recover(device, None, journal_host(), now, damage)
}

fn open(device: &dyn BlockDevice) -> Option<(JournalPlace, Journal<'_>)> {
    let place = journal_host().place(device).ok()??;
    let journal = jbd2::open(device, None, &place).ok()?;
    Some((place, journal))
}

/// Features of a journal: each kind of checksum, and both widths of block numbers.
fn features(choice: u8) -> Features {
    let [compat, sums] = match choice % 4 {
        0 => [0, 0],
        1 => [features::COMPAT_CHECKSUM, 0],
        2 => [0, features::INCOMPAT_CSUM_V2],
        _ => [0, features::INCOMPAT_CSUM_V3],
    };
    let wide = match choice & 4 {
        0 => 0,
        _ => features::INCOMPAT_64BIT,
    };
    Features {
        compat,
        incompat: sums | wide | features::INCOMPAT_REVOKE,
        ro_compat: 0,
    }
}

/// Puts records into the log. Without any in the input, the log stays as it is in the base image.
fn compose(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice) {
    let uses = input.byte();
    if uses == END {
        return;
    }
    let (_, mut journal) = open(device).expect("a sound image");
    let first = journal.superblock().first;
    let room = journal.superblock().log_blocks();
    let start = first + u32::from(input.word()) % room;
    let mut sequence = Sequence(input.number());
    let mut sb = journal.superblock().clone();
    sb.set_features(features(uses));
    sb.set_tail(start, sequence);
    let blocks = vec![(0, Buffer::from(&sb.encode()[..]))];
    let write = |blocks: &[(u32, Buffer)]| {
        let written = blocks
            .iter()
            .try_for_each(|block| journal.device().write(std::slice::from_ref(block)));
        written.expect("a place of the log");
    };
    write(&blocks);
    let mut at = start;
    for _ in 0..RECORDS {
        let kind = input.byte();
        let log = match kind % 8 {
            END => break,
            1..=4 => transaction(input, base, device).encode(&sb, sequence),
            5 => vec![revocations(input, &sb, sequence)],
            6 => vec![anything(input, sb.block_bytes, sequence)],
            _ => vec![Buffer::from(vec![input.byte(); sb.block_bytes as usize])],
        };
        if (1..=4).contains(&(kind % 8)) && kind & 0x80 == 0 {
            sequence = sequence.next();
        }
        for block in log {
            write(&[(at, block)]);
            at = sb.advance(at, 1);
        }
    }
    journal = open(device).expect("a journal that was just written").1;
    drop(journal);
    let mark = RecoveryMark {
        needed: true,
        ..RecoveryMark::default()
    };
    journal_host()
        .set_recovery(device, mark)
        .expect("a sound image");
}

/// Copies of blocks as they are in the image, each with a few bytes from the input.
fn transaction(input: &mut Input<'_>, base: &Base, device: &dyn BlockDevice) -> Transaction {
    let counts = input.byte();
    let mut transaction = Transaction {
        time: (u64::from(TIME_SECONDS) + u64::from(input.byte()), 0),
        ..Transaction::default()
    };
    for _ in 0..counts % COPIES {
        let home = home(input, base);
        let mut bytes = vec![0; base.block_bytes() as usize];
        // The copy of a home that does not exist is zeros.
        let _ = device.read(home.saturating_mul(base.block_bytes()), &mut bytes);
        let at = usize::from(input.word()) % bytes.len();
        let change = input.byte();
        let room = bytes.len() - at;
        let bytes_of_input = input.bytes(usize::from(change % 16).min(room));
        bytes[at..at + bytes_of_input.len()].copy_from_slice(bytes_of_input);
        if change & 0x80 != 0 {
            bytes[..4].copy_from_slice(&MAGIC_BYTES);
        }
        transaction.copies.push((home, bytes));
    }
    for _ in 0..counts / COPIES % COPIES {
        transaction.revokes.push(home(input, base));
    }
    transaction
}

/// A block in a meaningful part, or any block.
fn home(input: &mut Input<'_>, base: &Base) -> u64 {
    match input.byte() % 4 {
        0 => input.long(),
        1 => base.number(input).into(),
        _ => {
            let place = base.place(input);
            place.map_or(0, |place| place.start / base.block_bytes())
        }
    }
}

fn revocations(
    input: &mut Input<'_>,
    sb: &backstitch_journal::format::Superblock,
    sequence: Sequence,
) -> Buffer {
    let blocks: Vec<u64> = (0..input.byte() % COPIES)
        .map(|_| input.long() >> 8)
        .collect();
    let checksums = sb.checksums();
    revoke::encode(sb.block_bytes, sb.features, &checksums, sequence, &blocks).into()
}

/// A record of any kind with arbitrary contents.
fn anything(input: &mut Input<'_>, block_bytes: u32, sequence: Sequence) -> Buffer {
    let kind = BlockKind::of(u32::from(input.byte() % 6)).unwrap_or(BlockKind::Commit);
    let mut block = Header::encode(kind, sequence).as_bytes().to_vec();
    let length = usize::from(input.byte());
    block.extend_from_slice(input.bytes(length));
    block.resize(block_bytes as usize, 0);
    block.into()
}
