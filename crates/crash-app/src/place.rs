//! The name of a state of a trace: how the engine wrote back, the moment, and which changes were on
//! the disk.

use std::fmt;
use std::str::FromStr;

use backstitch_crash_core::frontier::Node;

use crate::variant::Variant;

/// The changes in memory that are on disk, in the shorter of two ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// These changes, and what must be there before them.
    Only(Vec<u32>),
    /// All changes but these, and but those that cannot be there without these.
    But(Vec<u32>),
}

/// A state, as a report names it: `nothing/both/12/but-3,7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) variant: Variant,
    pub(crate) moment: usize,
    pub(crate) cut: Cut,
}

impl Cut {
    /// The cut that leaves this set.
    pub(crate) fn of(nodes: &[Node], included: &[bool]) -> Cut {
        let mut needed = vec![false; nodes.len()];
        let mut first_missing = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            if included[at] {
                node.befores.iter().for_each(|b| needed[*b] = true);
            } else if node.befores.iter().all(|b| included[*b]) {
                first_missing.push(at as u32);
            }
        }
        let last: Vec<u32> = (0..nodes.len() as u32)
            .filter(|at| included[*at as usize] && !needed[*at as usize])
            .collect();
        if first_missing.len() <= last.len() {
            Cut::But(first_missing)
        } else {
            Cut::Only(last)
        }
    }

    /// The set; `None` where the moment has fewer patches than the cut names.
    pub(crate) fn included(&self, nodes: &[Node]) -> Option<Vec<bool>> {
        let (named, all) = match self {
            Cut::Only(named) => (named, false),
            Cut::But(named) => (named, true),
        };
        let mut included = vec![all; nodes.len()];
        for at in named {
            *included.get_mut(*at as usize)? = !all;
        }
        if all {
            for at in 0..nodes.len() {
                included[at] &= nodes[at].befores.iter().all(|b| included[*b]);
            }
        } else {
            for at in (0..nodes.len()).rev() {
                if included[at] {
                    nodes[at].befores.iter().for_each(|b| included[*b] = true);
                }
            }
        }
        Some(included)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.variant, self.moment)?;
        let (word, named) = match &self.cut {
            Cut::Only(named) if named.is_empty() => return f.write_str("none"),
            Cut::But(named) if named.is_empty() => return f.write_str("all"),
            Cut::Only(named) => ("only", named),
            Cut::But(named) => ("but", named),
        };
        f.write_str(word)?;
        for (at, node) in named.iter().enumerate() {
            write!(f, "{}{node}", if at == 0 { '-' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        parse(text).ok_or_else(|| {
            "SCHEDULE/OPTIMISATIONS/MOMENT/CUT expected, such as nothing/both/12/but-3,7".to_owned()
        })
    }
}

fn parse(text: &str) -> Option<Place> {
    let (rest, cut) = text.rsplit_once('/')?;
    let (variant, moment) = rest.rsplit_once('/')?;
    let cut = match cut {
        "none" => Cut::Only(Vec::new()),
        "all" => Cut::But(Vec::new()),
        other => {
            let (word, list) = other.split_once('-')?;
            let list: Option<Vec<u32>> = list.split(',').map(|n| n.parse().ok()).collect();
            match word {
                "only" => Cut::Only(list?),
                "but" => Cut::But(list?),
                _ => return None,
            }
        }
    };
    Some(Place {
        variant: variant.parse().ok()?,
        moment: moment.parse().ok()?,
        cut,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for cut in [
            Cut::Only(vec![]),
            Cut::But(vec![]),
            Cut::Only(vec![3]),
            Cut::But(vec![1, 200]),
        ] {
            for variant in Variant::always(3) {
                let cut = cut.clone();
                let place = Place {
                    variant,
                    moment: 12,
                    cut,
                };
                assert_eq!(place.to_string().parse::<Place>(), Ok(place));
            }
        }
        for bad in [
            "",
            "nothing/both/12",
            "nothing/both/x/all",
            "nothing/both/1/but-",
            "a/b/1/all",
        ] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
