//! Permissions as chmod(1) takes them: `644`, `u+rwX,go-w`.

const SET_IDS: u16 = 0o6000;

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// These bits; a directory keeps its set-ID bits unless more than four digits were given.
    Octal { bits: u16, sets_all: bool },
    /// One after the other.
    Clauses(Vec<Clause>),
}

/// Part of a symbolic mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// Whose bits change. 0 where no class is named: all bits, except those of the umask.
    who: u16,
    operator: u8,
    /// The letters after the operator: of `rwxXst`, or one of `ugo`.
    letters: Vec<u8>,
}

impl ModeChange {
    /// Reads an octal or a symbolic mode.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<ModeChange, String> {
        let bad = || format!("not a mode: '{text}' (octal digits, or as u+rwX,go-w)");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).map_err(|_| bad())?;
            return match bits <= 0o7777 {
                true => Ok(ModeChange::Octal {
                    bits,
                    sets_all: text.len() > 4,
                }),
                false => Err(bad()),
            };
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            clauses.extend(parse_part(part.as_bytes()).ok_or_else(bad)?);
        }
        Ok(ModeChange::Clauses(clauses))
    }

    /// The new permissions of a file that has `current` ones.
    pub(crate) fn apply(&self, current: u16, is_directory: bool, umask: u16) -> u16 {
        match self {
            ModeChange::Octal { bits, sets_all } if is_directory && !sets_all => {
                bits | current & SET_IDS
            }
            ModeChange::Octal { bits, .. } => *bits,
            ModeChange::Clauses(clauses) => clauses.iter().fold(current, |mode, clause| {
                clause.apply(mode, is_directory, umask)
            }),
        }
    }
}

/// Parses `u+rw-x`: classes, then operators with their letters.
fn parse_part(part: &[u8]) -> Option<Vec<Clause>> {
    let is_operator = |byte: &u8| b"+-=".contains(byte);
    let first = part.iter().position(is_operator)?;
    let mut who = 0;
    for letter in &part[..first] {
        who |= match letter {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            b'a' => 0o7777,
            _ => return None,
        };
    }
    let mut clauses = Vec::new();
    let mut rest = &part[first..];
    while let Some((operator, behind)) = rest.split_first() {
        let end = behind.iter().position(is_operator).unwrap_or(behind.len());
        let letters = &behind[..end];
        let is_copy = matches!(letters, [b'u' | b'g' | b'o']);
        if !is_copy && !letters.iter().all(|letter| b"rwxXst".contains(letter)) {
            return None;
        }
        clauses.push(Clause {
            who,
            operator: *operator,
            letters: letters.to_vec(),
        });
        rest = &behind[end..];
    }
    Some(clauses)
}

impl Clause {
    fn apply(&self, current: u16, is_directory: bool, umask: u16) -> u16 {
        let mut bits = 0;
        for letter in &self.letters {
            bits |= match letter {
                b'r' => 0o444,
                b'w' => 0o222,
                b'x' => 0o111,
                b'X' if is_directory || current & 0o111 != 0 => 0o111,
                b's' => SET_IDS,
                b't' => 0o1000,
                b'u' => (current >> 6 & 7) * 0o111,
                b'g' => (current >> 3 & 7) * 0o111,
                b'o' => (current & 7) * 0o111,
                _ => 0,
            };
        }
        bits &= if self.who == 0 { !umask } else { self.who };
        // A directory keeps its set-ID bits unless they are named.
        let kept = match is_directory && !self.letters.contains(&b's') {
            true => SET_IDS,
            false => 0,
        };
        match self.operator {
            b'+' => current | bits,
            b'-' => current & !bits,
            _ => {
                let affected = if self.who == 0 { 0o7777 } else { self.who };
                current & (!affected | kept) & 0o7777 | bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, current: u16, is_directory: bool) -> u16 {
        let change = ModeChange::parse(text).unwrap();
        change.apply(current, is_directory, 0o022)
    }

    #[test]
    fn modes_are_those_of_chmod() {
        let file = |text: &str, current| changed(text, current, false);
        assert_eq!(file("644", 0o4755), 0o644);
        assert_eq!(file("u+x", 0o644), 0o744);
        assert_eq!(file("go-rwx,u=rw", 0o777), 0o600);
        assert_eq!(file("a+X", 0o644), 0o644);
        assert_eq!(file("a+X", 0o744), 0o755);
        assert_eq!(file("+w", 0o444), 0o644);
        assert_eq!(file("=r", 0o4777), 0o444);
        assert_eq!(file("g=u", 0o640), 0o660);
        assert_eq!(file("u+s,+t", 0o755), 0o5755);
        assert_eq!(file("u=rwx,g=u-w,o=", 0o000), 0o750);
    }

    #[test]
    fn directories_keep_set_ids() {
        let dir = |text: &str, current| changed(text, current, true);
        assert_eq!(dir("755", 0o2700), 0o2755);
        assert_eq!(dir("00755", 0o2700), 0o755);
        assert_eq!(dir("a=rx", 0o2700), 0o2555);
        assert_eq!(dir("g-s", 0o2755), 0o755);
        assert_eq!(dir("a+X", 0o644), 0o755);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "8", "77777", "u", "u+q", "x+r", "u+rw,", "g=ur"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
