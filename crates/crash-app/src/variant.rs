//! The ways in which the engine may write back what the program does not ask it to write.

use std::fmt;
use std::str::FromStr;

use backstitch_crash_core::schedule::Schedule;
use backstitch_store::Optimisations;

/// How the engine writes back what the program does not ask it to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) schedule: Schedule,
    pub(crate) optimisations: Optimisations,
    /// The seed of the choices under [`Schedule::Partial`].
    pub(crate) seed: u64,
}

impl Variant {
    /// The variants that are explored.
    pub(crate) fn all(seed: u64) -> Vec<Variant> {
        let schedules = [Schedule::Nothing, Schedule::Partial, Schedule::Everything];
        let with = |optimisations| {
            schedules.map(|schedule| Variant {
                schedule,
                optimisations,
                seed: if schedule == Schedule::Partial {
                    seed
                } else {
                    0
                },
            })
        };
        [with(Optimisations::BOTH), with(Optimisations::NONE)].concat()
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.schedule {
            Schedule::Nothing => f.write_str("nothing")?,
            Schedule::Everything => f.write_str("everything")?,
            Schedule::Partial => write!(f, "partial{}", self.seed)?,
        }
        let optimised = self.optimisations == Optimisations::BOTH;
        f.write_str(if optimised { "/both" } else { "/none" })
    }
}

impl FromStr for Variant {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Variant, ()> {
        let (schedule, optimisations) = text.split_once('/').ok_or(())?;
        let (schedule, seed) = match schedule {
            "nothing" => (Schedule::Nothing, 0),
            "everything" => (Schedule::Everything, 0),
            other => {
                let seed = other.strip_prefix("partial").ok_or(())?;
                (Schedule::Partial, seed.parse().map_err(drop)?)
            }
        };
        let optimisations = match optimisations {
            "both" => Optimisations::BOTH,
            "none" => Optimisations::NONE,
            _ => return Err(()),
        };
        Ok(Variant {
            schedule,
            optimisations,
            seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_read_as_it_is_written() {
        for variant in Variant::all(17) {
            assert_eq!(variant.to_string().parse(), Ok(variant));
        }
        for bad in ["", "nothing", "partial/both", "nothing/some"] {
            assert!(bad.parse::<Variant>().is_err(), "{bad}");
        }
    }
}
