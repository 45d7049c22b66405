//! Shell patterns for names.

/// Whether a word may be a pattern.
pub(crate) fn is_pattern(word: &[u8]) -> bool {
    word.iter().any(|byte| b"*?[\\".contains(byte))
}

/// Whether a pattern matches a whole name: `*`, `?`, `[a-z]`, `[!a-z]`; `\` makes the character
/// after it an ordinary one.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where to continue if the characters after a star do not match: the star then takes one more.
    let mut retry: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, n));
            continue;
        }
        match (one(&pattern[p..], name[n]), retry.as_mut()) {
            (Some(len), _) => (p, n) = (p + len, n + 1),
            (None, Some((star, from))) => {
                *from += 1;
                (p, n) = (*star, *from);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The length of the pattern's first element, if it matches a character.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match Class::parse(rest) {
            Some(class) => class.contains(byte).then_some(class.len + 1),
            None => (byte == b'[').then_some(1),
        },
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// The characters between brackets.
struct Class<'a> {
    members: &'a [u8],
    negated: bool,
    /// The length, with the closing bracket.
    len: usize,
}

impl Class<'_> {
    /// The class behind an opening bracket; `None` where it is not closed.
    fn parse(rest: &[u8]) -> Option<Class<'_>> {
        let negated = matches!(rest.first(), Some(b'!' | b'^'));
        let start = usize::from(negated);
        // A bracket right at the start is a member.
        let close = rest.iter().skip(start + 1).position(|&byte| byte == b']')? + start + 1;
        Some(Class {
            members: &rest[start..close],
            negated,
            len: close + 1,
        })
    }

    fn contains(&self, byte: u8) -> bool {
        let mut left = self.members;
        let mut inside = false;
        while let [low, tail @ ..] = left {
            if let [b'-', high, after @ ..] = tail {
                inside |= (*low..=*high).contains(&byte);
                left = after;
            } else {
                inside |= *low == byte;
                left = tail;
            }
        }
        inside != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let fits = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(fits("*.conf", "a.conf") && !fits("*.conf", "a.confx"));
        assert!(fits("*", "") && fits("**", "x") && !fits("?", ""));
        assert!(fits("a?c", "abc") && !fits("a?c", "ac"));
        assert!(fits("[a-c]x", "bx") && !fits("[a-c]x", "dx"));
        assert!(fits("[!a-c]x", "dx") && !fits("[^a-c]x", "ax"));
        assert!(fits("[]]", "]") && fits("[", "[") && fits("[ab", "[ab"));
        assert!(fits("\\*", "*") && !fits("\\*", "x"));
        assert!(fits("*a*b*c", "xxaybzc") && !fits("*a*b*c", "xxaybz"));
        assert!(fits("a*", "a") && !fits("a", "ab") && !fits("ab", "a"));
    }

    #[test]
    fn stars_do_not_explode() {
        let pattern = "a*".repeat(40) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(200).as_bytes()));
    }
}
