//! `backstitch wafs append`.

use backstitch_files::error::{Error, Result, host};
use backstitch_files::show;
use backstitch_wafs::{Lsn, Wafs, WafsError};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const WHAT: &str = "wafs append";

/// What is read of standard input at a time.
const INPUT_BYTES: usize = 64 << 10;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The LSN of each record is printed, one a line, once the record is on stable storage.

Examples:
  backstitch wafs append app.log 'first record' 'second record'
  producer | backstitch wafs append --sync 100 app.log
  backstitch wafs append --whole app.log < picture.png"
)]
pub(crate) struct Args {
    /// The log
    file: PathBuf,
    /// Records; without any, each line of standard input is one
    #[arg(value_name = "RECORD")]
    records: Vec<OsString>,
    /// When to wait for stable storage: after `each` record, after every N, or at the `end`
    #[arg(long, value_name = "WHEN", default_value = "end")]
    sync: When,
    /// All of standard input is one record
    #[arg(long, conflicts_with = "records")]
    whole: bool,
    /// Records of standard input end with a zero byte
    #[arg(short = '0', long, conflicts_with_all = ["records", "whole"])]
    null: bool,
    /// Let go of the oldest records where there is no room
    #[arg(long)]
    overwrite: bool,
    /// Print no LSNs
    #[arg(short, long)]
    quiet: bool,
    /// The log is memory that survives a power cut: a file on persistent memory
    #[arg(long)]
    nvram: bool,
}

/// When `append` waits.
#[derive(Clone, Copy, Debug)]
enum When {
    After(u64),
    End,
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<When, String> {
        match text {
            "each" => Ok(When::After(1)),
            "end" => Ok(When::End),
            _ => match text.parse() {
                Ok(count) if count > 0 => Ok(When::After(count)),
                _ => Err("it takes 'each', a number or 'end'".into()),
            },
        }
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let wafs = super::mount(WHAT, &args.file, args.nvram)?;
    let mut appender = Appender {
        args,
        wafs: &wafs,
        count: 0,
        waiting: Vec::new(),
    };
    let done = appender.all();
    // What was appended before a failure is kept, and said.
    let synced = appender.sync();
    let failed = |why| Error::at_path(WHAT, &args.file, why);
    done.and(synced).and(wafs.unmount().map_err(failed))
}

struct Appender<'a> {
    args: &'a Args,
    wafs: &'a Wafs,
    /// Records since the last sync.
    count: u64,
    /// Their LSNs, where they are to be printed.
    waiting: Vec<Lsn>,
}

impl Appender<'_> {
    fn all(&mut self) -> Result<()> {
        let args = self.args;
        if !args.records.is_empty() {
            let mut words = args.records.iter();
            return words.try_for_each(|word| self.append(word.as_bytes()));
        }
        let cannot = |error: std::io::Error| Error::failed(WHAT, "standard input", host(&error));
        let mut input = BufReader::with_capacity(INPUT_BYTES, std::io::stdin().lock());
        let mut record = Vec::new();
        if args.whole {
            let most = self.wafs.longest_payload() + 1;
            input.take(most).read_to_end(&mut record).map_err(cannot)?;
            return self.append(&record);
        }
        let end = if args.null { 0 } else { b'\n' };
        loop {
            record.clear();
            if input.read_until(end, &mut record).map_err(cannot)? == 0 {
                return Ok(());
            }
            let payload = record.strip_suffix(&[end]).unwrap_or(&record);
            self.append(payload)?;
        }
    }

    fn append(&mut self, payload: &[u8]) -> Result<()> {
        let lsn = self.append_with_room(payload).map_err(|error| {
            let is_full = matches!(error, WafsError::Full { .. });
            let error = Error::at_path(WHAT, &self.args.file, error);
            match is_full {
                true => error.hint("--overwrite lets go of the oldest records"),
                false => error,
            }
        })?;
        self.count += 1;
        if !self.args.quiet {
            self.waiting.push(lsn);
        }
        match self.args.sync {
            When::After(count) if self.count >= count => self.sync(),
            _ => Ok(()),
        }
    }

    fn append_with_room(&self, payload: &[u8]) -> std::result::Result<Lsn, WafsError> {
        loop {
            match self.wafs.append(payload) {
                Err(WafsError::Full { .. }) if self.args.overwrite => self.let_go()?,
                done => return done,
            }
        }
    }

    /// Lets go of the oldest eighth of the log, so that it is not done for each record.
    fn let_go(&self) -> std::result::Result<(), WafsError> {
        let start = self.wafs.start();
        let enough = start.0 + self.wafs.log_bytes() / 8;
        let mut records = self.wafs.records(start)?;
        let mut keep = self.wafs.end();
        while let Some(record) = records.next()? {
            if record.lsn.0 >= enough {
                keep = record.lsn;
                break;
            }
        }
        self.wafs.checkpoint(keep)
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.wafs.sync_all();
        synced.map_err(|why| Error::at_path(WHAT, &self.args.file, why))?;
        self.count = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let lines: String = waiting.iter().map(|lsn| format!("{lsn}\n")).collect();
        show::print_bytes(WHAT, lines.as_bytes())
    }
}
