//! A recorder that cannot keep everything: it waits for nobody, its memory is bounded, and what is
//! missing is counted.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstitch_device::WriteRequest;
use backstitch_store::{Happening, Scope, VolumeId, Watcher};
use backstitch_trace::replay::replay;
use backstitch_trace::stats::Stats;
use backstitch_trace::{
    CHUNK_MAGIC, Keep, Moment, Recorder, Recording, RecordingError, Trace, state_at,
};

/// Bytes of the name in each operation: one operation fills a chunk.
const NAME_BYTES: usize = 64 << 10;

/// Tells of an operation that made something: two events.
fn operate(recorder: &Recorder, number: u64) {
    let name = vec![b'n'; NAME_BYTES];
    let scope = Scope {
        word: "create",
        objects: &[2],
        names: &[&name],
        range_bytes: (0, 0),
    };
    recorder.happened(&Happening::Begin(Duration::from_millis(number), scope));
    recorder.happened(&Happening::Made(10 + number));
}

#[test]
fn memory_is_bounded_and_what_is_missing_is_counted() {
    const MOST_BYTES: usize = 1 << 20;
    let recorder = Recorder::in_memory(&Recording::default(), MOST_BYTES);
    for number in 0..100 {
        operate(&recorder, number);
    }
    assert!(recorder.is_over());
    let (lost, records) = (recorder.lost(), recorder.records());
    // Each operation that is there has its beginning, its time and what it made.
    assert!(lost > 100 && lost < 200, "{lost}");
    let bytes = recorder.finish();
    assert!(bytes.len() > MOST_BYTES / 2 && bytes.len() < MOST_BYTES + 2 * NAME_BYTES);
    let trace = Trace::new(&bytes).unwrap();
    let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
    assert_eq!((state.lost, state.records), (Some(lost), records + 1));
    let stats = Stats::of(&trace).unwrap();
    assert_eq!(stats.json()["lost_events"], lost);
    assert_eq!(stats.operations["create"].operations * 2 + lost, 200);
}

#[test]
fn a_batch_that_is_not_all_there_is_missing() {
    const MOST_BYTES: usize = 256 << 10;
    let recording = Recording {
        with_contents: true,
        ..Recording::default()
    };
    let recorder = Recorder::in_memory(&recording, MOST_BYTES);
    let request = WriteRequest {
        offset_bytes: 0,
        buffers: vec![vec![7; 64 << 10][..].into(); 16],
    };
    recorder.happened(&Happening::Batch {
        now: Duration::ZERO,
        number: 1,
        goal: "sync",
        writes: &[(VolumeId(0), vec![request])],
    });
    assert!(recorder.is_over());
    assert_eq!(recorder.lost(), 1);
    let bytes = recorder.finish();
    let state = state_at(&Trace::new(&bytes).unwrap(), Moment::End, Keep::Live);
    assert_eq!(state.unwrap().lost, Some(1));
}

#[test]
fn a_batch_that_was_on_its_way_at_the_beginning_is_missing() {
    let recording = Recording {
        with_contents: true,
        ..Recording::default()
    };
    let recorder = Recorder::in_memory(&recording, 1 << 20);
    for number in [7, 8] {
        if number == 8 {
            recorder.happened(&Happening::Batch {
                now: Duration::ZERO,
                number,
                goal: "sync",
                writes: &[],
            });
        }
        recorder.happened(&Happening::Flushed(Duration::ZERO, number));
    }
    let bytes = recorder.finish();
    let done = replay(&Trace::new(&bytes).unwrap(), |_, _, _| Ok(())).unwrap();
    assert_eq!((done.batches, done.unknown, done.is_whole), (1, 1, false));
}

#[test]
fn a_trace_that_ends_between_two_chunks_is_cut_off_all_the_same() {
    let recorder = Recorder::in_memory(&Recording::default(), 1 << 20);
    for number in 0..5 {
        operate(&recorder, number);
    }
    let bytes = recorder.finish();
    let starts = bytes.windows(4).enumerate();
    let starts = starts.filter(|(_, window)| *window == CHUNK_MAGIC);
    let ends: Vec<usize> = starts.map(|(at, _)| at).collect();
    assert!(ends.len() > 4, "{ends:?}");
    for end in ends {
        let state = state_at(&Trace::new(&bytes[..end]).unwrap(), Moment::End, Keep::Live);
        assert!(state.unwrap().is_cut, "{end}");
    }
    let state = state_at(&Trace::new(&bytes).unwrap(), Moment::End, Keep::Live);
    assert!(!state.unwrap().is_cut);
}

/// Waits before its first write until it is let go.
struct Gate {
    opens: Option<Receiver<()>>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(opens) = self.opens.take() {
            opens.recv().map_err(io::Error::other)?;
        }
        self.written.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_stands_still_holds_nobody_up() {
    let (open, opens) = channel();
    let written = Arc::new(Mutex::new(Vec::new()));
    let gate = Gate {
        opens: Some(opens),
        written: written.clone(),
    };
    let recorder = Recorder::into_writer(&Recording::default(), gate).unwrap();
    for number in 0..400 {
        operate(&recorder, number);
    }
    let lost = recorder.lost();
    assert!(lost > 0, "the queue has no bound");
    open.send(()).unwrap();
    let (events, kept) = match recorder.finish_writing() {
        Err(RecordingError::Lost { events, kept }) => (events, kept),
        other => panic!("{other:?}"),
    };
    let bytes = written.lock().unwrap().clone();
    assert_eq!((events, kept.bytes), (lost, bytes.len() as u64));
    let trace = Trace::new(&bytes).unwrap();
    let state = state_at(&trace, Moment::End, Keep::Live).unwrap();
    assert_eq!((state.lost, state.records), (Some(lost), kept.records));
    let stats = Stats::of(&trace).unwrap();
    assert_eq!(stats.operations["create"].operations * 2 + lost, 800);
}

#[test]
fn a_writer_that_fails_ends_the_recording() {
    let (open, opens) = channel();
    drop(open);
    let gate = Gate {
        opens: Some(opens),
        written: Arc::default(),
    };
    let recorder = Recorder::into_writer(&Recording::default(), gate).unwrap();
    for number in 0..400 {
        operate(&recorder, number);
    }
    let done = recorder.finish_writing();
    assert!(matches!(done, Err(RecordingError::Writer(_))), "{done:?}");
}
