//! What a repair takes away, for people to read before anything is written.
//!
//! The names that can be reached before and after are compared, by their paths.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::repair::Losses;

/// Paths that are listed; more are only counted.
const MAX_LISTED: usize = 100;

impl Losses {
    /// Compares the names of an image before a repair with those after it. Each walk shows the path
    /// of every name; `lost_and_found` is what begins the paths of those in that directory.
    ///
    /// # Errors
    /// Those of the walks.
    pub fn between<E>(
        before: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
        after: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
        lost_and_found: &[u8],
    ) -> Result<Losses, E> {
        let mut losses = Losses::default();
        let (mut kept, mut found) = (FxHashSet::default(), FxHashMap::default());
        after(&mut |path| {
            kept.insert(hash_of(path));
            if let Some(within) = path.strip_prefix(lost_and_found) {
                found.insert(hash_of(path), within.contains(&b'/'));
            }
        })?;
        before(&mut |path| {
            losses.names_before += 1;
            found.remove(&hash_of(path));
            if kept.contains(&hash_of(path)) {
                return;
            }
            losses.names_gone += 1;
            if losses.gone.len() < MAX_LISTED {
                losses.gone.push(path.escape_ascii().to_string());
            }
        })?;
        losses.moved_to_lost_found = found.len() as u64;
        losses.moved_with_names = found.values().filter(|is_named| **is_named).count() as u64;
        Ok(losses)
    }
}

fn hash_of(path: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(path);
    hasher.finish()
}
