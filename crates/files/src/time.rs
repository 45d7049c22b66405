//! Times as text on a command line.

use crate::image::now;
use backstitch_vfs::Timestamp;

/// Reads `2026-01-31`, `2026-01-31 12:34`, `2026-01-31T12:34:56.5+02:00`, `@SECONDS` or `now`; UTC
/// where no zone is named.
///
/// # Errors
/// Says what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    let moment = match text.strip_prefix('@') {
        Some(seconds) => parse_seconds(seconds),
        None if text == "now" => Some(now()),
        None => parse_date(text),
    };
    moment.ok_or_else(|| {
        format!("not a moment: '{text}' (as 2026-01-31, 2026-01-31 12:34:56 or @SECONDS)")
    })
}

/// Reads `[[CC]YY]MMDDhhmm[.ss]`, as touch(1) has it, in UTC.
///
/// # Errors
/// Says what is wrong with the text.
pub(crate) fn parse_stamp(text: &str) -> Result<Timestamp, String> {
    stamp(text).ok_or_else(|| format!("not a stamp [[CC]YY]MMDDhhmm[.ss]: '{text}'"))
}

fn stamp(text: &str) -> Option<Timestamp> {
    let (digits, seconds) = match text.split_once('.') {
        Some((digits, seconds)) => (digits, number(seconds, 2)?),
        None => (text, 0),
    };
    let (year, rest) = match digits.len() {
        8 => (this_year(), digits),
        10 => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year, 2)?;
            // As POSIX has it.
            (if year < 69 { 2000 + year } else { 1900 + year }, rest)
        }
        12 => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year, 4)?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| number(rest.get(at..at + 2)?, 2);
    let days = days(year, part(0)?, part(2)?)?;
    let time = (part(4)?, part(6)?, seconds);
    Some(Timestamp {
        seconds: days * 86400 + second_of_day(time)?,
        nanoseconds: 0,
    })
}

/// The present year, in UTC.
fn this_year() -> i64 {
    let long = crate::show::time_long(now());
    long.split('-')
        .next()
        .and_then(|year| year.parse().ok())
        .unwrap_or(1970)
}

/// `-1.5`
fn parse_seconds(text: &str) -> Option<Timestamp> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let seconds = sign * whole.parse::<u32>().map(i64::from).ok()?;
    let nanoseconds = nanoseconds(fraction)?;
    Some(match (sign, nanoseconds) {
        (-1, 1..) => Timestamp {
            seconds: seconds - 1,
            nanoseconds: 1_000_000_000 - nanoseconds,
        },
        _ => Timestamp {
            seconds,
            nanoseconds,
        },
    })
}

/// A fraction's digits as nanoseconds.
fn nanoseconds(digits: &str) -> Option<u32> {
    if digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

fn parse_date(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let mut part = |len| number(parts.next()?, len);
    let days = days(part(4)?, part(2)?, part(2)?)?;
    if parts.next().is_some() {
        return None;
    }
    let Some(time) = time else {
        return Some(Timestamp {
            seconds: days * 86400,
            nanoseconds: 0,
        });
    };
    let (time, offset_seconds) = split_zone(time.trim_end())?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = whole.split(':');
    let hour = number(parts.next()?, 2)?;
    let minute = number(parts.next()?, 2)?;
    let second = parts.next().map_or(Some(0), |text| number(text, 2))?;
    if parts.next().is_some() {
        return None;
    }
    Some(Timestamp {
        seconds: days * 86400 + second_of_day((hour, minute, second))? - offset_seconds,
        nanoseconds: nanoseconds(fraction)?,
    })
}

/// Splits `Z`, `UTC`, `+02:00` or `-0530` off a time; returns the rest, and how far that zone is
/// ahead of UTC.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    for name in ["Z", "UTC"] {
        if let Some(time) = time.strip_suffix(name) {
            return Some((time.trim_end(), 0));
        }
    }
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0));
    };
    let (time, zone) = time.split_at(at);
    let digits = zone[1..].replace(':', "");
    let (hours, minutes) = match digits.len() {
        2 => (number(&digits, 2)?, 0),
        4 => (number(&digits[..2], 2)?, number(&digits[2..], 2)?),
        _ => return None,
    };
    let offset = hours * 3600 + minutes * 60;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    Some((time.trim_end(), sign * offset))
}

/// A number of exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let is_right = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_right.then(|| text.parse().ok())?
}

fn second_of_day((hour, minute, second): (i64, i64, i64)) -> Option<i64> {
    // A leap second counts as the next second.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// Days since 1970-01-01 (Howard Hinnant's days_from_civil).
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::time_long;

    #[test]
    fn moments_are_read() {
        let read = |text: &str| parse(text).map(time_long).unwrap_or_default();
        assert_eq!(read("2026-01-31"), "2026-01-31T00:00:00.000000000Z");
        assert_eq!(read("2026-01-31 12:34"), "2026-01-31T12:34:00.000000000Z");
        assert_eq!(
            read("2000-02-29T23:59:59.25Z"),
            "2000-02-29T23:59:59.250000000Z"
        );
        assert_eq!(
            read("2026-01-01 00:30:00 +02:00"),
            "2025-12-31T22:30:00.000000000Z"
        );
        assert_eq!(
            read("2026-01-01T00:00-0530"),
            "2026-01-01T05:30:00.000000000Z"
        );
        assert_eq!(
            read("1965-03-04 05:06:07 UTC"),
            "1965-03-04T05:06:07.000000000Z"
        );
        assert_eq!(read("@0"), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(read("@-1.25"), "1969-12-31T23:59:58.750000000Z");
        for bad in [
            "",
            "x",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-01-01 24:00",
            "2026-01-01 1:2",
            "@",
            "@x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stamps_are_those_of_touch() {
        let read = |text: &str| parse_stamp(text).map(time_long).unwrap_or_default();
        assert_eq!(read("202601311234.56"), "2026-01-31T12:34:56.000000000Z");
        assert_eq!(read("7001010000"), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(read("6812312359"), "2068-12-31T23:59:00.000000000Z");
        assert!(read("01010000").ends_with("-01-01T00:00:00.000000000Z"));
        assert!(parse_stamp("0101").is_err() && parse_stamp("202613011234").is_err());
    }
}
