//! What the pictures of [`svg`](crate::svg) and [`picture`](crate::picture) have in common: words
//! in the markup, and how far to the right something stands.
//!
//! The rest differs. The one draws any number of patches, as wide and as high as their words are.
//! The other draws the few of a report in boxes of one size, with arrows to whole clusters and
//! arrows that stand out, several pictures to a page.

/// How often levels are worked out anew: a chain that is longer is drawn as one of this length.
const MOST_LEVELS: usize = 200;

/// Of each of so many things: how long the longest chain of what it waits for is.
pub(crate) fn levels(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut levels = vec![0; count];
    for _ in 0..MOST_LEVELS {
        let mut has_changed = false;
        for (after, before) in edges {
            if levels[*after] <= levels[*before] {
                levels[*after] = levels[*before] + 1;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    levels.into_iter().map(|l| l.min(MOST_LEVELS)).collect()
}

/// Words as they may stand in the markup.
pub(crate) fn text(words: &str) -> String {
    let clean = words.chars().filter(|c| !c.is_control());
    let clean: String = clean.collect();
    let clean = clean.replace('&', "&amp;").replace('<', "&lt;");
    clean.replace('>', "&gt;").replace('"', "&quot;")
}

/// At most so many characters.
pub(crate) fn short(words: &str, most: usize) -> String {
    match words.chars().count() > most {
        true => words.chars().take(most - 1).chain(['…']).collect(),
        false => words.to_owned(),
    }
}
