//! A map from numbers of which a copy is cheap: copies share what neither has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers that share a page: so many are copied when one of them is changed.
const PAGE: u64 = 64;

/// The map. Numbers near each other are in one page.
#[derive(Clone, Debug)]
pub(crate) struct Paged<V> {
    pages: BTreeMap<u64, Arc<BTreeMap<u64, V>>>,
    len: usize,
}

impl<V: Clone> Paged<V> {
    pub(crate) fn new() -> Paged<V> {
        Paged {
            pages: BTreeMap::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.pages.get(&(key / PAGE))?.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let page = self.pages.get_mut(&(key / PAGE))?;
        match page.contains_key(&key) {
            true => Arc::make_mut(page).get_mut(&key),
            false => None,
        }
    }

    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        let page = self.pages.entry(key / PAGE).or_default();
        let old = Arc::make_mut(page).insert(key, value);
        self.len += usize::from(old.is_none());
        old
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let page = self.pages.get_mut(&(key / PAGE))?;
        let old = Arc::make_mut(page).remove(&key)?;
        if page.is_empty() {
            self.pages.remove(&(key / PAGE));
        }
        self.len -= 1;
        Some(old)
    }

    /// Forgets pages of the smallest numbers, until there are at most so many entries.
    pub(crate) fn leave_last(&mut self, most: usize) {
        while self.len > most
            && let Some((_, page)) = self.pages.pop_first()
        {
            self.len -= page.len();
        }
    }

    /// All of it, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let pages = self.pages.values();
        pages.flat_map(|page| page.iter().map(|(key, value)| (*key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_had() {
        let mut map = Paged::new();
        for key in [0, 1, 63, 64, 1000] {
            assert_eq!(map.insert(key, key), None);
        }
        let copy = map.clone();
        assert_eq!(map.insert(63, 7), Some(63));
        assert_eq!((map.remove(64), map.remove(64)), (Some(64), None));
        *map.get_mut(1000).unwrap() += 1;
        assert_eq!(map.get_mut(999), None);
        let all = |map: &Paged<u64>| {
            map.iter()
                .map(|(key, value)| (key, *value))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(&map), [(0, 0), (1, 1), (63, 7), (1000, 1001)]);
        assert_eq!(
            all(&copy),
            [(0, 0), (1, 1), (63, 63), (64, 64), (1000, 1000)]
        );
        assert_eq!((map.len(), copy.len()), (4, 5));
        map.leave_last(3);
        assert_eq!((all(&map), map.len()), (vec![(1000, 1001)], 1));
    }
}
