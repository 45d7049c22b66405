//! Shared bytes: the contents of blocks, as caches, requests and records hold them.
//!
//! A [`Buffer`] is either memory of its own or a part of a [`Slab`]: a long stretch of aligned
//! memory that is filled at once and shared from then on. Neighbours in a slab are neighbours in
//! memory, so a long write of them goes to the disk as it is, in one piece. The price is that a
//! slab stays in memory as long as any part of it does. [`Slabs`] counts their bytes, for the bound
//! on memory.

use crate::aligned::Aligned;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slabs, and the places of their parts, are multiples of this: disks need it to read memory by
/// themselves (DMA).
pub const SECTOR_BYTES: usize = 512;

/// Bytes with several owners, none of whom changes them while there are others.
#[derive(Clone)]
pub struct Buffer(Bytes);

#[derive(Clone)]
enum Bytes {
    Own(Arc<[u8]>),
    Part {
        slab: Arc<Slab>,
        start: u32,
        len: u32,
    },
}

impl Buffer {
    /// Zeros.
    pub fn zeroed(len_bytes: usize) -> Buffer {
        std::iter::repeat_n(0, len_bytes).collect()
    }

    /// The part of a slab that is the slice `bytes`, without a copy; `None` where the slice is not
    /// in the slab, or not at whole sectors.
    pub fn part(slab: &Arc<Slab>, bytes: &[u8]) -> Option<Buffer> {
        let start = (bytes.as_ptr().addr()).checked_sub(slab.as_ptr().addr())?;
        let is_inside = start + bytes.len() <= slab.len();
        let at_sectors =
            start.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES);
        (is_inside && at_sectors && !bytes.is_empty()).then(|| {
            Buffer(Bytes::Part {
                slab: slab.clone(),
                start: start as u32,
                len: bytes.len() as u32,
            })
        })
    }

    /// Whether it is a part of a slab.
    pub fn is_part(&self) -> bool {
        matches!(self.0, Bytes::Part { .. })
    }

    /// Its bytes in a slab; 0 where it is memory of its own.
    pub fn part_bytes(&self) -> u64 {
        match self.0 {
            Bytes::Own(_) => 0,
            Bytes::Part { len, .. } => len.into(),
        }
    }

    /// Whether it is a part of a slab of which less than half is still held. Memory of its own
    /// would be cheaper then.
    pub fn is_part_of_few(&self) -> bool {
        match &self.0 {
            Bytes::Own(_) => false,
            Bytes::Part { slab, len, .. } => {
                Arc::strong_count(slab) * *len as usize * 2 <= slab.len()
            }
        }
    }

    /// Whether both are the same memory, and so have equal bytes without a comparison.
    pub fn is_same(&self, other: &Buffer) -> bool {
        std::ptr::eq(&self[..], &other[..])
    }

    /// The bytes, to be changed; `None` where there is another owner, of these bytes or of another
    /// part of their slab.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Bytes::Own(bytes) => Arc::get_mut(bytes),
            Bytes::Part { slab, start, len } => {
                let (start, len) = (*start as usize, *len as usize);
                Arc::get_mut(slab).map(|slab| &mut slab[start..start + len])
            }
        }
    }

    /// The bytes, to be changed; copied into memory of their own first where there is [another
    /// owner](Self::get_mut).
    pub fn make_unique(&mut self) -> &mut [u8] {
        if self.get_mut().is_none() {
            *self = Buffer::from(&self[..]);
        }
        self.get_mut().expect("nobody else has the copy just made")
    }

    /// Buffers one after the other, in as few slices as possible: neighbours in a slab are one.
    pub fn stretches(buffers: &[Buffer]) -> impl Iterator<Item = &[u8]> {
        let mut rest = buffers;
        std::iter::from_fn(move || {
            let (first, mut behind) = rest.split_first()?;
            let mut stretch = &first[..];
            if let Bytes::Part { slab, start, len } = &first.0 {
                let mut end = start + len;
                while let Some((next, others)) = behind.split_first()
                    && let Bytes::Part {
                        slab: s,
                        start,
                        len,
                    } = &next.0
                    && *start == end
                    && Arc::ptr_eq(s, slab)
                {
                    (end, behind) = (end + len, others);
                }
                stretch = &slab[*start as usize..end as usize];
            }
            rest = behind;
            Some(stretch)
        })
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(Bytes::Own(Arc::default()))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Part { slab, start, len } => &slab[*start as usize..(*start + *len) as usize],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::borrow::Borrow<[u8]> for Buffer {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Arc<[u8]>> for Buffer {
    fn from(bytes: Arc<[u8]>) -> Buffer {
        Buffer(Bytes::Own(bytes))
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Buffer {
        Buffer(Bytes::Own(bytes.into()))
    }
}

impl<const N: usize> From<[u8; N]> for Buffer {
    fn from(bytes: [u8; N]) -> Buffer {
        bytes[..].into()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(Bytes::Own(bytes.into()))
    }
}

impl FromIterator<u8> for Buffer {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Buffer {
        Buffer(Bytes::Own(bytes.into_iter().collect()))
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Buffer {}

impl std::hash::Hash for Buffer {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self[..].fmt(f)
    }
}

/// Aligned memory: its owner fills it, and shares its parts ([`Buffer::part`]).
pub struct Slab {
    memory: Aligned,
    of: Arc<Slabs>,
}

impl Deref for Slab {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.of.take_back(std::mem::take(&mut self.memory));
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slab of {} bytes", self.len())
    }
}

/// Makes slabs: counts their memory, and keeps the memory of some past ones for later ones.
#[derive(Default)]
pub struct Slabs {
    held_bytes: AtomicU64,
    spare: Mutex<Spare>,
    most_spare_bytes: usize,
}

#[derive(Default)]
struct Spare {
    slabs: Vec<Aligned>,
    bytes: usize,
}

impl Slabs {
    /// No slabs yet. Memory of past slabs is kept up to `most_spare_bytes`.
    pub fn new(most_spare_bytes: usize) -> Arc<Slabs> {
        Arc::new(Slabs {
            most_spare_bytes,
            ..Slabs::default()
        })
    }

    /// Bytes in slabs that are still held, wholly or in part.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// A slab of at least `len_bytes`, and at most an eighth more, with anything in it.
    ///
    /// # Panics
    /// At 4 GiB.
    pub fn take(self: &Arc<Slabs>, len_bytes: usize) -> Slab {
        assert!(u32::try_from(len_bytes).is_ok(), "a slab is short");
        // Lengths are rounded to few values, so that the memory of a past slab soon fits a new one.
        let step = (len_bytes.next_power_of_two() / 16).max(SECTOR_BYTES);
        let len = len_bytes.next_multiple_of(step);
        let mut spare = self.spare.lock();
        let found = (spare.slabs.iter()).rposition(|slab| slab.len() == len);
        let found = found.map(|at| spare.slabs.remove(at));
        spare.bytes -= found.as_ref().map_or(0, |memory| memory.len());
        drop(spare);
        let memory = found.unwrap_or_else(|| Aligned::new(len, SECTOR_BYTES));
        self.held_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Slab {
            memory,
            of: self.clone(),
        }
    }

    fn take_back(&self, memory: Aligned) {
        let bytes = memory.len();
        self.held_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        let mut spare = self.spare.lock();
        if spare.bytes + bytes <= self.most_spare_bytes {
            spare.bytes += bytes;
            spare.slabs.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab_of(slabs: &Arc<Slabs>, len: usize) -> Arc<Slab> {
        let mut slab = slabs.take(len);
        (slab.iter_mut().enumerate()).for_each(|(i, byte)| *byte = (i / SECTOR_BYTES) as u8);
        Arc::new(slab)
    }

    #[test]
    fn a_part_is_where_the_slab_is_and_only_at_whole_sectors() {
        let slab = slab_of(&Slabs::new(0), 8192);
        assert!(slab.as_ptr().addr().is_multiple_of(SECTOR_BYTES));
        let part = Buffer::part(&slab, &slab[1024..4096]).unwrap();
        assert!(part.is_part() && std::ptr::eq(&part[..], &slab[1024..4096]));
        assert_eq!((part[0], part[3071]), (2, 7));
        for (from, to) in [(1, 513), (512, 1023), (0, 0)] {
            assert!(Buffer::part(&slab, &slab[from..to]).is_none());
        }
        let other = slab_of(&Slabs::new(0), 8192);
        assert!(Buffer::part(&slab, &other[..512]).is_none());
        assert!(Buffer::part(&other, &slab[..512]).is_none());
        assert!(!Buffer::from(vec![1; 512]).is_part());
    }

    #[test]
    fn nobody_sees_what_another_holder_changes() {
        let slab = slab_of(&Slabs::new(0), 2048);
        let mut one = Buffer::part(&slab, &slab[..1024]).unwrap();
        let other = Buffer::part(&slab, &slab[1024..]).unwrap();
        drop(slab);
        assert!(
            one.get_mut().is_none(),
            "the other part is of the same slab"
        );
        let reader = one.clone();
        one.make_unique().fill(9);
        assert!(!one.is_part() && !one.is_same(&reader));
        assert_eq!((one[0], reader[0], other[0]), (9, 0, 2));
        drop((reader, one));
        // With one owner only it may be changed in place.
        let (mut alone, place) = (other.clone(), other.as_ptr());
        drop(other);
        alone.make_unique().fill(7);
        assert_eq!((alone.as_ptr(), alone[1023]), (place, 7));
    }

    #[test]
    fn neighbours_in_a_slab_are_one_stretch() {
        let slabs = Slabs::new(0);
        let (slab, second) = (slab_of(&slabs, 4096), slab_of(&slabs, 1024));
        let part =
            |slab: &Arc<Slab>, from: usize, to: usize| Buffer::part(slab, &slab[from..to]).unwrap();
        let buffers = [
            part(&slab, 0, 512),
            part(&slab, 512, 2048),
            Buffer::from([5; 3]),
            part(&slab, 2048, 2560),
            part(&slab, 3072, 4096),
            part(&second, 0, 512),
            part(&second, 0, 512),
            Buffer::default(),
        ];
        let lens: Vec<usize> = Buffer::stretches(&buffers).map(<[u8]>::len).collect();
        assert_eq!(lens, [2048, 3, 512, 1024, 512, 512, 0]);
        let stretches: Vec<&[u8]> = Buffer::stretches(&buffers).collect();
        assert!(stretches.concat() == buffers.concat());
    }

    #[test]
    fn a_slab_counts_until_its_last_part_is_gone_and_is_used_again() {
        let slabs = Slabs::new(8192);
        let first = slab_of(&slabs, 8000);
        let (place, part) = (first.as_ptr(), Buffer::part(&first, &first[..512]).unwrap());
        assert_eq!(slabs.held_bytes(), 8192);
        drop(first);
        assert_eq!(slabs.held_bytes(), 8192);
        assert!(part.is_part_of_few());
        drop(part);
        assert_eq!(slabs.held_bytes(), 0);
        // A short slab does not take this memory, most of which it would waste.
        let small = slabs.take(512);
        assert_ne!(small.as_ptr(), place);
        let again = slabs.take(8192);
        assert_eq!((again.as_ptr(), again.len()), (place, 8192));
        assert_eq!(slabs.held_bytes(), 8704);
        drop((small, again));
        assert!(
            slabs.spare.lock().bytes <= 8192,
            "no more is kept than that"
        );
    }
}
