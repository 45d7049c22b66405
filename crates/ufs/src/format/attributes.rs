//! Extended attributes of UFS2, one behind the other.
//!
//! Each has its length (4 bytes), a namespace, the bytes of padding behind its value and the
//! length of its name (1 byte each), the name, and the value from the next multiple of eight on.
//! FreeBSD keeps access control lists there, in its own format.

use super::ByteOrder;
use super::fault::AttributesFault;

/// The bytes before a name.
const HEADER_BYTES: usize = 7;
/// Values and attributes begin at multiples of this many bytes.
const ALIGNMENT: usize = 8;
/// Namespaces of FreeBSD, and how their names begin here. Those of the system are for root, as
/// Linux has it of `trusted`.
const NAMESPACES: [(u8, &[u8]); 2] = [(1, b"user."), (2, b"trusted.freebsd.")];

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    prefix: &'static [u8],
    name: &'a [u8],
    /// What it holds.
    pub value: &'a [u8],
}

impl Attribute<'_> {
    /// Whether this is its name.
    pub fn is(&self, name: &[u8]) -> bool {
        name.strip_prefix(self.prefix) == Some(self.name)
    }

    /// Its name, with a zero behind it.
    pub fn push_name(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.prefix);
        into.extend_from_slice(self.name);
        into.push(0);
    }
}

/// The attributes in these bytes. Those of a namespace that nobody knows are passed over.
///
/// # Errors
/// Where one leads past the end.
pub fn parse(order: ByteOrder, bytes: &[u8]) -> Result<Vec<Attribute<'_>>, AttributesFault> {
    let mut all = Vec::new();
    let mut at = 0;
    while at + HEADER_BYTES <= bytes.len() {
        let past_end = AttributesFault::PastEnd { at };
        let length = order.u32(bytes, at) as usize;
        let rest = bytes.get(at..).and_then(|rest| rest.get(..length));
        let rest = rest
            .filter(|rest| rest.len() >= HEADER_BYTES)
            .ok_or(past_end)?;
        let (padding, name_len) = (usize::from(rest[5]), usize::from(rest[6]));
        let value_at = (HEADER_BYTES + name_len).next_multiple_of(ALIGNMENT);
        let value_end = length.checked_sub(padding).ok_or(past_end)?;
        let value = rest.get(value_at..value_end).ok_or(past_end)?;
        let known = NAMESPACES.iter().find(|(code, _)| *code == rest[4]);
        all.extend(known.map(|(_, prefix)| Attribute {
            prefix,
            name: &rest[HEADER_BYTES..HEADER_BYTES + name_len],
            value,
        }));
        at += length;
    }
    Ok(all)
}

/// An attribute as [`parse`] reads it.
pub fn encode(order: ByteOrder, namespace: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let value_at = (HEADER_BYTES + name.len()).next_multiple_of(ALIGNMENT);
    let end = value_at + value.len();
    let length = end.next_multiple_of(ALIGNMENT);
    let mut bytes = order.bytes_of_u32(length as u32).to_vec();
    bytes.extend([namespace, (length - end) as u8, name.len() as u8]);
    bytes.extend_from_slice(name);
    bytes.resize(value_at, 0);
    bytes.extend_from_slice(value);
    bytes.resize(length, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_both_namespaces_are_read_in_both_orders() {
        for order in ByteOrder::ALL {
            let mut bytes = encode(order, 1, b"colour", b"blue");
            bytes.extend(encode(order, 9, b"unknown", b""));
            bytes.extend(encode(order, 2, b"posix1e.acl_access", &[7; 20]));
            let all = parse(order, &bytes).unwrap();
            assert_eq!(all.len(), 2);
            assert!(all[0].is(b"user.colour") && all[0].value == b"blue");
            assert!(all[1].is(b"trusted.freebsd.posix1e.acl_access"));
            assert_eq!(all[1].value, [7; 20]);
            let mut names = Vec::new();
            all[0].push_name(&mut names);
            assert_eq!(names, b"user.colour\0");
        }
    }

    #[test]
    fn one_that_leads_past_the_end_is_damage() {
        let order = ByteOrder::Little;
        let sound = encode(order, 1, b"colour", b"blue");
        for (at, value) in [(0, 0), (0, 6), (0, 200), (5, 200), (6, 200)] {
            let mut bytes = sound.clone();
            bytes[at] = value;
            let fault = parse(order, &bytes).err();
            assert_eq!(
                fault,
                Some(AttributesFault::PastEnd { at: 0 }),
                "{at}: {value}"
            );
        }
    }
}
