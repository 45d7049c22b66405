//! The words behind the question mark.

/// All of them, as they are in the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'q>(pub(crate) &'q str);

impl Query<'_> {
    /// What a word is, decoded; nothing where it is empty.
    pub(crate) fn get(self, key: &str) -> Option<String> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(name, value)| *name == key && !value.is_empty());
        found.next().map(|(_, value)| decoded(value))
    }

    pub(crate) fn number(self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Numbers with commas between them.
    pub(crate) fn numbers(self, key: &str) -> Vec<u64> {
        let list = self.get(key).unwrap_or_default();
        list.split(',')
            .filter_map(|text| text.parse().ok())
            .collect()
    }
}

/// Undoes percent encoding.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let code = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded_whatever_they_are() {
        let query = Query("a=%2Fx%20y&b=&c=1,2,z,3&d=%&e=%zz&f=%C3%A9");
        assert_eq!(query.get("a").as_deref(), Some("/x y"));
        assert_eq!((query.get("b"), query.get("g")), (None, None));
        assert_eq!(query.numbers("c"), [1, 2, 3]);
        assert_eq!(query.get("d").as_deref(), Some("%"));
        assert_eq!(query.get("e").as_deref(), Some("%zz"));
        assert_eq!(query.get("f").as_deref(), Some("é"));
        assert_eq!(query.number("a"), None);
    }
}
