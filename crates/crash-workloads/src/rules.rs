//! The rules of all crates below: one list.

use backstitch_rules::Site;

/// Every site, in the order of the layers.
pub fn sites() -> impl Iterator<Item = &'static Site> {
    let mechanisms = backstitch_mechanisms::RULES.iter().copied();
    (backstitch_formats::RULES.iter().copied())
        .chain(mechanisms)
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_numbers_are_unique() {
        let all: Vec<&Site> = sites().collect();
        let names: BTreeSet<String> = all.iter().map(|site| site.name()).collect();
        let numbers: BTreeSet<u16> = all.iter().map(|site| site.id.0).collect();
        assert_eq!((names.len(), numbers.len()), (all.len(), all.len()));
        assert!(all.len() > 200, "{}", all.len());
        assert!(all.iter().all(|site| site.without.trim().ends_with('.')));
    }
}
