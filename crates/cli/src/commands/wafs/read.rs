//! `backstitch wafs read` and `wafs tail`.

use super::{lsn, open_to_read};
use backstitch_files::base64;
use backstitch_files::error::{Error, Result, host};
use backstitch_files::show;
use backstitch_layout::Timestamp;
use backstitch_wafs::{Log, Lsn, Record, Records};
use serde_json::json;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often `tail -f` looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch wafs read app.log                    all records, a line each
  backstitch wafs read --from 4096 -n 1 app.log   the record at LSN 4096
  backstitch wafs read --json app.log | jq .lsn")]
pub(crate) struct ReadArgs {
    /// The log
    file: PathBuf,
    /// The first record
    #[arg(long, value_name = "LSN", value_parser = lsn)]
    from: Option<Lsn>,
    /// At most so many records
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch wafs tail app.log
  backstitch wafs tail -n 0 -f app.log     what is appended from now on")]
pub(crate) struct TailArgs {
    /// The log
    file: PathBuf,
    /// The number of records
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// Go on with those that are appended
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    form: Form,
}

/// How records are printed.
#[derive(Debug, clap::Args)]
struct Form {
    /// Its LSN and its time before each record
    #[arg(short, long)]
    long: bool,
    /// A zero byte behind each record, and no newline
    #[arg(short = '0', long, conflicts_with = "raw")]
    null: bool,
    /// Nothing behind a record
    #[arg(long)]
    raw: bool,
    /// A JSON document a line; a record that is no text is in `payload_base64`
    #[arg(long, conflicts_with_all = ["long", "null", "raw"])]
    json: bool,
}

impl Form {
    fn print(&self, out: &mut impl Write, record: &Record<'_>) -> io::Result<()> {
        let time = Timestamp {
            seconds: (record.time / 1_000_000_000) as i64,
            nanoseconds: (record.time % 1_000_000_000) as u32,
        };
        let time = || show::time_long(time);
        if self.json {
            let (name, text) = match std::str::from_utf8(record.payload) {
                Ok(text) => ("payload", text.to_owned()),
                Err(_) => ("payload_base64", base64::encode(record.payload)),
            };
            let line = json!({
                "lsn": record.lsn.0,
                "previous": record.previous.map(|lsn| lsn.0),
                "next": record.next.0,
                "time": time(),
                "mount": record.mount,
                name: text,
            });
            return writeln!(out, "{line}");
        }
        if self.long {
            write!(out, "{} {} ", record.lsn, time())?;
        }
        out.write_all(record.payload)?;
        match (self.null, self.raw) {
            (true, _) => out.write_all(&[0]),
            (_, true) => Ok(()),
            _ => out.write_all(b"\n"),
        }
    }
}

/// Prints records to standard output.
struct Printer<'a> {
    what: &'static str,
    file: &'a Path,
    form: &'a Form,
    out: BufWriter<StdoutLock<'static>>,
}

impl Printer<'_> {
    /// Prints records to their end, but at most `count`; whether the reader is still there.
    fn all(&mut self, records: &mut Records<'_>, count: u64) -> Result<bool> {
        let mut left = count;
        while left > 0 {
            let record = records.next();
            let record = match record {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(why) => {
                    // What was whole is printed first.
                    let _ = self.out.flush();
                    return Err(Error::at_path(self.what, self.file, why));
                }
            };
            let printed = self.form.print(&mut self.out, &record);
            if !self.is_read(printed)? {
                return Ok(false);
            }
            left -= 1;
        }
        let flushed = self.out.flush();
        self.is_read(flushed)
    }

    fn is_read(&self, printed: io::Result<()>) -> Result<bool> {
        match printed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Error::failed(self.what, "standard output", host(&error))),
        }
    }
}

fn printer<'a>(what: &'static str, file: &'a Path, form: &'a Form) -> Printer<'a> {
    Printer {
        what,
        file,
        form,
        out: BufWriter::new(io::stdout().lock()),
    }
}

pub(super) fn run(args: &ReadArgs) -> Result<()> {
    const WHAT: &str = "wafs read";
    let failed = |why| Error::at_path(WHAT, &args.file, why);
    let device = open_to_read(WHAT, &args.file)?;
    let log = Log::open(&*device).map_err(failed)?;
    let from = args.from.unwrap_or(log.start());
    let mut records = log.records(from).map_err(failed)?;
    let mut printer = printer(WHAT, &args.file, &args.form);
    printer.all(&mut records, args.count.unwrap_or(u64::MAX))?;
    Ok(())
}

pub(super) fn tail(args: &TailArgs) -> Result<()> {
    const WHAT: &str = "wafs tail";
    let failed = |why| Error::at_path(WHAT, &args.file, why);
    let device = open_to_read(WHAT, &args.file)?;
    let mut log = Log::open(&*device).map_err(failed)?;
    let mut printer = printer(WHAT, &args.file, &args.form);
    let mut from = log.end();
    let mut before = log.last();
    for _ in 0..args.count {
        let Some(lsn) = before else { break };
        let mut records = log.records(lsn).map_err(failed)?;
        let record = records.next().map_err(failed)?;
        from = lsn;
        before = record.and_then(|record| record.previous);
        before = before.filter(|lsn| *lsn >= log.start());
    }
    loop {
        // Records that were let go since the last look are not missed by an error.
        let mut records = log.records(from.max(log.start())).map_err(failed)?;
        if !printer.all(&mut records, u64::MAX)? || !args.follow {
            return Ok(());
        }
        from = log.end();
        std::thread::sleep(LOOK_EVERY);
        log.refresh().map_err(failed)?;
    }
}
