//! The tests of `find` that have values.

use crate::show;
use backstitch_vfs::{FileType, Timestamp};

/// How a number is compared: `N`, `+N`, `-N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Exactly,
    More,
    Less,
}

impl Comparison {
    /// Splits the sign off.
    fn parse(text: &str) -> (Comparison, &str) {
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => (Comparison::More, rest),
            (_, Some(rest)) => (Comparison::Less, rest),
            _ => (Comparison::Exactly, text),
        }
    }

    fn fits<N: PartialOrd>(self, found: N, wanted: N) -> bool {
        match self {
            Comparison::Exactly => found == wanted,
            Comparison::More => found > wanted,
            Comparison::Less => found < wanted,
        }
    }
}

/// A number of units. The compared number is rounded up to whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    comparison: Comparison,
    number: u64,
    unit: u64,
}

impl Amount {
    /// `+10M`
    pub(super) fn parse_size(text: &str) -> Result<Amount, String> {
        let (comparison, rest) = Comparison::parse(text);
        let (digits, unit) = match rest.char_indices().last() {
            Some((at, 'c')) => (&rest[..at], 1),
            Some((at, 'w')) => (&rest[..at], 2),
            Some((at, 'b')) => (&rest[..at], 512),
            Some((at, 'k' | 'K')) => (&rest[..at], 1 << 10),
            Some((at, 'M')) => (&rest[..at], 1 << 20),
            Some((at, 'G')) => (&rest[..at], 1 << 30),
            _ => (rest, 512),
        };
        let number = digits.parse().map_err(|_| {
            format!("not a size: '{text}' (a number with c, w, b, k, M or G behind it)")
        })?;
        Ok(Amount {
            comparison,
            number,
            unit,
        })
    }

    /// `-3`
    pub(super) fn parse_count(text: &str) -> Result<Amount, String> {
        let (comparison, digits) = Comparison::parse(text);
        let number = digits.parse();
        Ok(Amount {
            comparison,
            number: number.map_err(|_| format!("not a number: '{text}'"))?,
            unit: 1,
        })
    }

    pub(super) fn fits(self, found: u64) -> bool {
        self.comparison.fits(found.div_ceil(self.unit), self.number)
    }
}

/// How long ago something was, in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    comparison: Comparison,
    number: i64,
    unit_seconds: i64,
    /// Whether a part of a unit counts as one, as for minutes in find(1).
    rounds_up: bool,
}

impl Age {
    /// `-mtime`
    pub(super) fn parse_days(text: &str) -> Result<Age, String> {
        Age::parse(text, 86400, false)
    }

    /// `-mmin`
    pub(super) fn parse_minutes(text: &str) -> Result<Age, String> {
        Age::parse(text, 60, true)
    }

    fn parse(text: &str, unit_seconds: i64, rounds_up: bool) -> Result<Age, String> {
        let (comparison, digits) = Comparison::parse(text);
        let number: u32 = digits
            .parse()
            .map_err(|_| format!("not a number: '{text}'"))?;
        Ok(Age {
            comparison,
            number: number.into(),
            unit_seconds,
            rounds_up,
        })
    }

    pub(super) fn fits(self, then: Timestamp, now: Timestamp) -> bool {
        let nanoseconds = |time: Timestamp| {
            i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
        };
        let unit = i128::from(self.unit_seconds) * 1_000_000_000;
        let age = nanoseconds(now) - nanoseconds(then);
        let whole = age.div_euclid(unit);
        let is_more = self.rounds_up && age.rem_euclid(unit) > 0;
        self.comparison
            .fits(whole + i128::from(is_more), self.number.into())
    }
}

/// File types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Types(String);

impl Types {
    /// `f,d`
    pub(super) fn parse(text: &str) -> Result<Types, String> {
        let mut letters = String::new();
        for word in text.split(',') {
            match word {
                "f" => letters.push('-'),
                "d" | "l" | "p" | "s" | "c" | "b" => letters += word,
                _ => return Err("a type is one of f, d, l, p, s, c, b".to_owned()),
            }
        }
        Ok(Types(letters))
    }

    pub(super) fn contains(&self, file_type: FileType) -> bool {
        self.0.contains(show::type_letter(file_type))
    }
}

/// Permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permissions {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl Permissions {
    /// `-4000`, `/222`, `644`
    pub(super) fn parse(text: &str) -> Result<Permissions, String> {
        let (digits, kind): (&str, fn(u16) -> Permissions) =
            match (text.strip_prefix('-'), text.strip_prefix('/')) {
                (Some(digits), _) => (digits, Permissions::All),
                (_, Some(digits)) => (digits, Permissions::Any),
                _ => (text, Permissions::Exactly),
            };
        u16::from_str_radix(digits, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .map(kind)
            .ok_or_else(|| format!("not an octal mode: '{text}'"))
    }

    pub(super) fn fits(self, found: u16) -> bool {
        match self {
            Permissions::Exactly(mode) => found == mode,
            Permissions::All(mode) => found & mode == mode,
            Permissions::Any(mode) => mode == 0 || found & mode != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_as_find_does() {
        let fits = |text: &str, bytes| Amount::parse_size(text).unwrap().fits(bytes);
        assert!(fits("1", 1) && fits("1", 512) && !fits("1", 513));
        assert!(fits("-1M", 0) && !fits("-1M", 1) && fits("+1M", (1 << 20) + 1));
        assert!(fits("5c", 5) && !fits("5c", 6) && fits("-6c", 5));
        assert!(Amount::parse_size("M").is_err() && Amount::parse_size("1x").is_err());
        assert!(Amount::parse_count("+2").unwrap().fits(3));
    }

    #[test]
    fn ages_are_whole_days_and_begun_minutes() {
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        let days = |text: &str, ago: i64| Age::parse_days(text).unwrap().fits(at(-ago), at(0));
        assert!(days("0", 86399) && days("1", 86400) && !days("1", 86399));
        assert!(days("+1", 2 * 86400) && !days("+1", 2 * 86400 - 1));
        assert!(days("-1", 86399) && days("-1", -5));
        let minutes =
            |text: &str, ago: i64| Age::parse_minutes(text).unwrap().fits(at(-ago), at(0));
        assert!(minutes("1", 60) && minutes("1", 1) && minutes("2", 61) && minutes("-2", 60));
    }

    #[test]
    fn permissions_are_exact_all_or_any() {
        let fits = |text: &str, mode| Permissions::parse(text).unwrap().fits(mode);
        assert!(fits("644", 0o644) && !fits("644", 0o4644));
        assert!(fits("-4000", 0o4755) && !fits("-4001", 0o4754));
        assert!(fits("/022", 0o620) && !fits("/022", 0o644) && fits("/0", 0));
        assert!(Permissions::parse("9").is_err());
    }

    #[test]
    fn types_may_be_several() {
        let types = Types::parse("f,l").unwrap();
        assert!(types.contains(FileType::Regular) && types.contains(FileType::Symlink));
        assert!(!types.contains(FileType::Directory) && Types::parse("fd").is_err());
    }
}
