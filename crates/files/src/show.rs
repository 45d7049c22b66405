//! Printing: tables, JSON, names, modes, times.

use crate::error::{Error, Result, host};
use backstitch_vfs::{Attributes, FileType, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};

/// Writes bytes to standard output. It is no error if its reader has closed it.
pub fn print_bytes(what: &str, bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::failed(what, "standard output", host(&error)))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON document.
pub fn print_json(what: &str, document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(document);
    let mut text = text.map_err(|error| Error::failed(what, "JSON", error))?;
    text.push('\n');
    print_bytes(what, text.as_bytes())
}

/// Writes rows of a name and a value, aligned.
pub fn print_table(what: &str, rows: &[[String; 2]]) -> Result<()> {
    let width = rows
        .iter()
        .map(|[name, _]| name.chars().count())
        .max()
        .unwrap_or(0);
    let lines = rows
        .iter()
        .map(|[name, value]| format!("{name:width$}  {value}\n"));
    print_bytes(what, lines.collect::<String>().as_bytes())
}

/// A number with commas: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration for people: `0 s`, `1.6 ms`, `2.5 s`, `3 min 20 s`.
pub fn duration(seconds: f64) -> String {
    let short = |value: f64, unit: &str| {
        let digits = usize::from(value < 100.0 && (value * 10.0).round() % 10.0 != 0.0);
        format!("{value:.digits$} {unit}")
    };
    match seconds {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 1.0 => short(s * 1000.0, "ms"),
        s if s < 60.0 => short(s, "s"),
        s if s < 3600.0 => format!("{} min {} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {} min", s as u64 / 3600, s as u64 / 60 % 60),
    }
}

/// Writes rows of columns: the first aligned to the left, the others to the right.
pub(crate) fn print_columns<const N: usize>(what: &str, rows: &[[String; N]]) -> Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }
    let mut lines = String::new();
    for row in rows {
        for (column, (text, width)) in row.iter().zip(widths).enumerate() {
            lines += &match column {
                0 => format!("{text:width$}"),
                _ => format!("  {text:>width$}"),
            };
        }
        lines.push('\n');
    }
    print_bytes(what, lines.as_bytes())
}

/// A name for standard output: as it is, but with control characters made harmless on a terminal.
pub(crate) fn name_bytes(name: &[u8]) -> Vec<u8> {
    if !std::io::stdout().is_terminal() {
        return name.to_vec();
    }
    name.iter()
        .map(|&byte| {
            if byte < 0x20 || byte == 0x7f {
                b'?'
            } else {
                byte
            }
        })
        .collect()
}

/// The letter that `ls -l` and `find -type` have for a file type.
pub(crate) fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
    }
}

/// A file type in words, as JSON shows it.
pub(crate) fn type_word(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "regular",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character_device",
        FileType::BlockDevice => "block_device",
    }
}

/// `drwxr-xr-x`.
pub(crate) fn mode_text(file_type: FileType, permissions: u16) -> String {
    let mut text = String::from(type_letter(file_type));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// The major and minor number in the kernel's 32-bit encoding.
pub(crate) fn device_parts(number: u32) -> (u32, u32) {
    (
        number >> 8 & 0xfff,
        (number & 0xff) | (number >> 12 & 0xfff00),
    )
}

/// Attributes as `ls`, `stat` and `find` show them in JSON.
pub(crate) fn attributes_json(attributes: &Attributes, target: Option<&[u8]>) -> Value {
    let a = attributes;
    let mut value = json!({
        "inode": a.inode.0,
        "generation": a.generation,
        "file_type": type_word(a.file_type),
        "mode": format!("{:04o}", a.permissions),
        "links": a.links,
        "uid": a.uid,
        "gid": a.gid,
        "size_bytes": a.size_bytes,
        "allocated_bytes": a.sectors.saturating_mul(512),
        "accessed": time_long(a.accessed),
        "modified": time_long(a.modified),
        "changed": time_long(a.changed),
        "created": a.created.map(time_long),
    });
    if matches!(
        a.file_type,
        FileType::CharacterDevice | FileType::BlockDevice
    ) {
        let (major, minor) = device_parts(a.device_number);
        value["device"] = json!({ "major": major, "minor": minor });
    }
    if let Some(target) = target {
        value["target"] = String::from_utf8_lossy(target).into();
    }
    value
}

/// Year, month, day, hour, minute, second in UTC.
fn civil(seconds: i64) -> (i64, i64, i64, i64, i64, i64) {
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    // Days from a 1 March of year 0, in eras of 400 years (Howard Hinnant's days_from_civil,
    // backwards).
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (
        year,
        month,
        day,
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// `2026-01-31 12:34`, in UTC.
pub(crate) fn time_short(time: Timestamp) -> String {
    let (year, month, day, hour, minute, _) = civil(time.seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// `2026-01-31T12:34:56.000000001Z`.
pub fn time_long(time: Timestamp) -> String {
    let (year, month, day, hour, minute, second) = civil(time.seconds);
    let nanoseconds = time.nanoseconds;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_civil() {
        let at = |seconds| {
            time_long(Timestamp {
                seconds,
                nanoseconds: 5,
            })
        };
        assert_eq!(at(0), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59.000000005Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.000000005Z");
        let short = time_short(Timestamp {
            seconds: 1_800_000_000,
            nanoseconds: 0,
        });
        assert_eq!(short, "2027-01-15 08:00");
        let _ = (at(i64::MIN / 2), at(i64::MAX / 2));
    }

    #[test]
    fn numbers_are_easy_to_read() {
        let counts = [0, 999, 1000, 123_456, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "123,456", "1,234,567"]);
        let times = [0.0, 0.0016, 0.25, 2.5, 30.0, 200.0, 7260.0].map(duration);
        let expected = [
            "0 s",
            "1.6 ms",
            "250 ms",
            "2.5 s",
            "30 s",
            "3 min 20 s",
            "2 h 1 min",
        ];
        assert_eq!(times, expected);
    }

    #[test]
    fn modes_are_letters() {
        assert_eq!(mode_text(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_text(FileType::Regular, 0o6644), "-rwSr-Sr--");
        assert_eq!(mode_text(FileType::Symlink, 0o777), "lrwxrwxrwx");
    }
}
