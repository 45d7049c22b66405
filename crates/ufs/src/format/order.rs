//! Byte orders, and raw structures that can be had in either.

/// The order of the bytes of a number on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

impl ByteOrder {
    /// Both orders, the usual one first.
    pub const ALL: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    /// Its name, as `makefs -B` has it.
    pub const fn name(self) -> &'static str {
        match self {
            ByteOrder::Little => "le",
            ByteOrder::Big => "be",
        }
    }

    /// The number in the two bytes from `at` on; 0 where the bytes end before.
    #[inline]
    pub fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = field(bytes, at);
        match self {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        }
    }

    /// The number in the four bytes from `at` on; 0 where the bytes end before.
    #[inline]
    pub fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = field(bytes, at);
        match self {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        }
    }

    /// The number in the eight bytes from `at` on; 0 where the bytes end before.
    #[inline]
    pub fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let field = field(bytes, at);
        match self {
            ByteOrder::Little => u64::from_le_bytes(field),
            ByteOrder::Big => u64::from_be_bytes(field),
        }
    }

    /// The bytes of a number of two bytes.
    #[inline]
    pub const fn bytes_of_u16(self, value: u16) -> [u8; 2] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a number of four bytes.
    #[inline]
    pub const fn bytes_of_u32(self, value: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a number of eight bytes.
    #[inline]
    pub const fn bytes_of_u64(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    field.copied().unwrap_or([0; N])
}

/// What is on the disk as a fixed number of bytes.
pub trait OnDisk: Sized {
    /// How many.
    const SIZE: usize;

    /// Reads it from the start of `bytes`; what lies behind their end is zero.
    fn decode(order: ByteOrder, bytes: &[u8]) -> Self;

    /// Writes it to the start of `bytes`.
    ///
    /// # Panics
    /// If `bytes` are fewer than [`SIZE`](Self::SIZE).
    fn encode(&self, order: ByteOrder, bytes: &mut [u8]);

    /// Its bytes.
    fn to_bytes(&self, order: ByteOrder) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        self.encode(order, &mut bytes);
        bytes
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl OnDisk for $number {
            const SIZE: usize = size_of::<$number>();

            #[inline]
            fn decode(order: ByteOrder, bytes: &[u8]) -> $number {
                match order {
                    ByteOrder::Little => <$number>::from_le_bytes(field(bytes, 0)),
                    ByteOrder::Big => <$number>::from_be_bytes(field(bytes, 0)),
                }
            }

            #[inline]
            fn encode(&self, order: ByteOrder, bytes: &mut [u8]) {
                let field = match order {
                    ByteOrder::Little => self.to_le_bytes(),
                    ByteOrder::Big => self.to_be_bytes(),
                };
                bytes[..Self::SIZE].copy_from_slice(&field);
            }
        })*
    };
}

numbers! { u8 i8 u16 i16 u32 i32 u64 i64 }

impl<T: OnDisk, const N: usize> OnDisk for [T; N] {
    const SIZE: usize = T::SIZE * N;

    #[inline]
    fn decode(order: ByteOrder, bytes: &[u8]) -> [T; N] {
        std::array::from_fn(|index| T::decode(order, bytes.get(index * T::SIZE..).unwrap_or(&[])))
    }

    #[inline]
    fn encode(&self, order: ByteOrder, bytes: &mut [u8]) {
        for (item, to) in self.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            item.encode(order, to);
        }
    }
}

/// Declares a raw structure: its fields one behind the other, without padding, which is asserted.
macro_rules! on_disk {
    ($(#[$meta:meta])* $visible:vis struct $name:ident, $bytes:literal { $(pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[repr(C)]
        #[allow(missing_docs)]
        $visible struct $name { $(pub $field: $type,)* }

        const _: () = assert!(
            size_of::<$name>() == $bytes && <$name as $crate::format::OnDisk>::SIZE == $bytes
        );

        impl $crate::format::OnDisk for $name {
            const SIZE: usize = 0 $(+ <$type as $crate::format::OnDisk>::SIZE)*;

            #[inline]
            fn decode(order: $crate::format::ByteOrder, bytes: &[u8]) -> $name {
                $name {
                    $($field: <$type as $crate::format::OnDisk>::decode(
                        order,
                        bytes.get(core::mem::offset_of!($name, $field)..).unwrap_or(&[]),
                    ),)*
                }
            }

            #[inline]
            fn encode(&self, order: $crate::format::ByteOrder, bytes: &mut [u8]) {
                $(<$type as $crate::format::OnDisk>::encode(
                    &self.$field,
                    order,
                    &mut bytes[core::mem::offset_of!($name, $field)..],
                );)*
            }
        }

        impl Default for $name {
            /// All zero.
            fn default() -> $name {
                <$name as $crate::format::OnDisk>::decode($crate::format::ByteOrder::Little, &[])
            }
        }
    };
}
pub(crate) use on_disk;

#[cfg(test)]
mod tests {
    use super::*;

    on_disk! {
        /// For tests.
        struct Raw, 16 {
            pub a: u16,
            pub b: [u8; 2],
            pub c: i32,
            pub d: u64,
        }
    }

    #[test]
    fn structures_are_read_as_written_in_both_orders() {
        let raw = Raw {
            a: 0x0102,
            b: [3, 4],
            c: -2,
            d: 0x1122_3344_5566_7788,
        };
        let little = raw.to_bytes(ByteOrder::Little);
        assert_eq!(
            little,
            [
                2, 1, 3, 4, 0xfe, 0xff, 0xff, 0xff, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11
            ]
        );
        let big = raw.to_bytes(ByteOrder::Big);
        assert_eq!(
            big,
            [
                1, 2, 3, 4, 0xff, 0xff, 0xff, 0xfe, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88
            ]
        );
        for order in ByteOrder::ALL {
            let bytes = raw.to_bytes(order);
            assert_eq!(Raw::decode(order, &bytes), raw);
            assert_eq!(order.u16(&bytes, 0), raw.a);
            assert_eq!(order.u32(&bytes, 4), raw.c as u32);
            assert_eq!(order.u64(&bytes, 8), raw.d);
            assert_eq!(order.bytes_of_u64(raw.d), bytes[8..]);
        }
    }

    #[test]
    fn what_is_behind_the_end_is_zero() {
        let cut = [1, 0, 5, 6, 9];
        assert_eq!(
            Raw::decode(ByteOrder::Little, &cut),
            Raw {
                a: 1,
                b: [5, 6],
                ..Raw::default()
            }
        );
        assert_eq!(ByteOrder::Big.u32(&cut, usize::MAX), 0);
    }
}
