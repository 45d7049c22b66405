//! What the page of `trace serve` answers. The input is questions, and then a trace: a file as it
//! is, or records that get the heads and checksums of one.

use std::sync::Arc;

use backstitch_device::MemoryDevice;
use backstitch_trace::{CHUNK_HEAD_BYTES, CHUNK_MAGIC, MAGIC, Trace, VERSION, WITH_CONTENTS};
use backstitch_trace_page::{Answering, Answers, Devices, Judge, Judgement, Live};

use crate::Input;

/// The trace is a file as it is.
pub const AS_IT_IS: u8 = 1;
/// It has contents.
pub const HAS_CONTENTS: u8 = 2;
/// It has the image that it begins with.
pub const HAS_IMAGE: u8 = 4;
/// Its records are in two chunks.
pub const IN_TWO: u8 = 8;
/// It is that of a mount which is followed.
pub const IS_LIVE: u8 = 16;
/// It says of its image that it is as large as one may be.
const IS_LARGE: u8 = 32;

/// Far more than the longest answer: a thousand patches with the words for their operations.
const MOST_REPLY_BYTES: usize = 16 << 20;
const MOST_QUESTIONS: u8 = 12;
const IMAGE_BYTES: usize = 64 << 10;

/// What can be asked for.
pub const PATHS: [&str; 17] = [
    "moment",
    "states",
    "state",
    "about",
    "line",
    "next",
    "search",
    "records",
    "block",
    "why/dirty",
    "why/wait",
    "why/written",
    "why/crash",
    "why/cut",
    "live",
    "halt",
    "",
];

/// What can be said of it, each with the values that are words.
pub const KEYS: [(&str, &[&str]); 20] = [
    ("record", &["0"]),
    ("from", &["0"]),
    ("to", &["999999"]),
    ("kind", &["operation", "batch", "wait", "flush"]),
    ("back", &["1"]),
    ("text", &["/", "a", "%ff"]),
    ("path", &["/", "/a", "%23", "%2Fa%2f.."]),
    ("inode", &["2"]),
    ("patch", &["1"]),
    ("cluster", &["0"]),
    ("by", &["operation", "block"]),
    ("since", &["0"]),
    ("block", &["0"]),
    ("blocks", &["all", "0,1,2", "1,,x,99999999999"]),
    ("ticket", &["1"]),
    ("number", &["0"]),
    ("with", &["1"]),
    ("without", &["2"]),
    ("patches", &["1,2,3"]),
    ("recording", &["1"]),
];

/// Looks at the beginning and the end of each state.
struct Reader;

impl Judge for Reader {
    fn beginning(&self) -> Result<Option<Devices>, String> {
        let device = || Arc::new(MemoryDevice::new(IMAGE_BYTES));
        Ok(Some(Devices {
            image: device(),
            log: Some(device()),
            block_bytes: 512,
        }))
    }

    fn judge(&self, state: &Devices) -> Judgement {
        let mut bytes = [0; 512];
        for device in [Some(&state.image), state.log.as_ref()]
            .into_iter()
            .flatten()
        {
            let size = device.size_bytes();
            for at in [0, size.saturating_sub(512)] {
                if let Err(error) = device.read(at, &mut bytes) {
                    panic!("{at} of {size} bytes: {error}");
                }
            }
        }
        Judgement::default()
    }
}

/// A question, with up to four words that say more.
fn question(input: &mut Input<'_>) -> String {
    let mut asked = input.pick(&PATHS).map_or("", |path| path).to_owned();
    let words = input.byte() % 5;
    for at in 0..words {
        let Some((key, values)) = input.pick(&KEYS) else {
            break;
        };
        asked.push(if at == 0 { '?' } else { '&' });
        asked += key;
        asked.push('=');
        match input.byte() {
            0..0x80 => asked += &input.word().to_string(),
            0x80..0xa0 => asked += &input.long().to_string(),
            0xa0..0xf0 => asked += input.pick(values).map_or("", |value| value),
            _ => {
                let most = usize::from(input.byte() % 32);
                asked += &String::from_utf8_lossy(input.bytes(most));
            }
        }
    }
    asked
}

/// The head of a trace.
fn head(how: u8) -> Vec<u8> {
    let flags = match how & HAS_CONTENTS {
        0 => 0,
        _ => WITH_CONTENTS,
    };
    let areas = r#"[{"offset_bytes":4096,"len_bytes":8192,"what":"inode table","first_inode":1,"inode_bytes":128}]"#;
    let image = match how & (HAS_IMAGE | IS_LARGE) {
        0 => String::new(),
        large if large & IS_LARGE != 0 => format!(r#","image_bytes":{}"#, 1 << 30),
        _ => format!(r#","image_bytes":{IMAGE_BYTES},"log_bytes":{IMAGE_BYTES}"#),
    };
    let description = format!(r#"{{"root":2,"areas":{areas}{image}}}"#);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend((description.len() as u32).to_le_bytes());
    bytes.extend(description.into_bytes());
    bytes
}

/// A chunk of records, with what they are coded relative to: its first record, the time and the
/// largest number of a patch.
fn chunk(records: u32, relative: [u64; 3], body: &[u8]) -> Vec<u8> {
    let mut chunk = vec![0; CHUNK_HEAD_BYTES];
    chunk[0..4].copy_from_slice(&CHUNK_MAGIC);
    chunk[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    chunk[12..16].copy_from_slice(&records.to_le_bytes());
    for (at, number) in (16..).step_by(8).zip(relative) {
        chunk[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    chunk.extend_from_slice(body);
    let sum = crc32c::crc32c(&chunk[8..]);
    chunk[4..8].copy_from_slice(&sum.to_le_bytes());
    chunk
}

/// The chunks of a trace whose records are what is left of the input.
fn chunks(how: u8, input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let records = u32::from(input.word());
    if how & IN_TWO == 0 {
        return vec![chunk(records, [0; 3], input.rest())];
    }
    let (more, len) = (u32::from(input.word()), usize::from(input.word()));
    let relative = [input.long(), input.long(), input.long()];
    let first = chunk(records, [0; 3], input.bytes(len));
    vec![first, chunk(more, relative, input.rest())]
}

/// Whatever the trace holds and whatever is asked, there is an answer, of a bounded length.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (how, count) = (input.byte(), input.byte() % MOST_QUESTIONS);
    let questions: Vec<String> = (0..count).map(|_| question(&mut input)).collect();
    if how & AS_IT_IS != 0 {
        if let Ok(trace) = Trace::new(input.rest()) {
            ask(&Answers::new("a".to_owned(), trace), &questions);
        }
        return;
    }
    let (head, chunks) = (head(how), chunks(how, &mut input));
    if how & IS_LIVE != 0 {
        let live = Live::new("a mount".to_owned());
        assert_eq!(live.begin(head), Ok(()), "our own head");
        for chunk in chunks {
            // What is damaged ends it; what came before is still there.
            let _ = live.take(chunk);
            ask(&live, &questions);
        }
        let _ = live.answer("halt", "nonce");
        let halted: Vec<String> = questions.iter().map(|of| format!("at/1/{of}")).collect();
        return ask(&live, &halted);
    }
    let file = [head, chunks.concat()].concat();
    match Trace::new(&file) {
        Ok(trace) => {
            let answers = Answers::new("a".to_owned(), trace).judged_by(&Reader);
            ask(&answers, &questions);
        }
        Err(error) => panic!("our own head: {error}"),
    }
}

fn ask(answers: &impl Answering, questions: &[String]) {
    for question in questions {
        let reply = answers.answer(question, "nonce");
        let (status, len) = (reply.status, reply.body.len());
        assert!(matches!(status, 200 | 400 | 404), "{question}: {status}");
        assert!(len <= MOST_REPLY_BYTES, "{question}: {len} bytes");
    }
}
