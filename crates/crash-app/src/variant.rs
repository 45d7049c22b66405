//! The ways in which the engine may write back what the program does not ask it to write.

use std::fmt;
use std::str::FromStr;

use backstitch_crash_core::operation::Operation;
use backstitch_crash_core::schedule::Schedule;
use backstitch_store::Optimisations;
use fastrand::Rng as Random;

use crate::player::changes;
use crate::trace::Trace;

/// The most [`WriteBack::Once`] that are explored of a trace.
const MOST_ONCE: usize = 64;
/// The most operations that are repeated for them, if these are more than [`FEW_ONCE`]: each of
/// them repeats the whole trace.
const MOST_REPEATED: usize = 20_000;
/// So many [`WriteBack::Once`] are explored of the longest trace.
const FEW_ONCE: usize = 4;

/// What is written between the operations of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteBack {
    /// What the schedule says. The seed is that of the choices under [`Schedule::Partial`].
    Always(Schedule, u64),
    /// Everything, once, after the operation with this number, counted from 1; nothing before it
    /// and nothing since, as when the program pauses there for long. What is on the disk then is a
    /// file as it was at that time, for instance a new one without contents: later changes of its
    /// names need not wait for later contents. Only moments after it are counted.
    Once(usize),
}

/// How the engine writes back what the program does not ask it to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) write_back: WriteBack,
    pub(crate) optimisations: Optimisations,
}

/// The variants of a trace that are explored.
#[derive(Debug)]
pub(crate) struct Variants {
    /// Those of [`WriteBack::Always`] first.
    pub(crate) all: Vec<Variant>,
    /// How many these are.
    pub(crate) always: usize,
    /// How many [`WriteBack::Once`] there could be.
    pub(crate) once_of: usize,
}

impl Variants {
    /// Chooses them. The seed is for what is random in a schedule, and for the operations after
    /// which everything is written back once, if not all are taken.
    pub(crate) fn new(trace: &Trace, seed: u64) -> Variants {
        let mut all = Variant::always(seed);
        let always = all.len();
        let places = once(trace);
        let most = MOST_ONCE.min(FEW_ONCE.max(MOST_REPEATED / trace.operations.len().max(1)));
        let mut random = Random::with_seed(seed ^ 0x0ce0_0ce0);
        let chosen = parts(places.len(), most, &mut random);
        // Merged changes have the fewest states, but these are what the engine does by itself.
        all.extend(chosen.map(|at| Variant {
            write_back: WriteBack::Once(places[at]),
            optimisations: Optimisations::BOTH,
        }));
        Variants {
            all,
            always,
            once_of: places.len(),
        }
    }

    /// How many [`WriteBack::Once`] there are.
    pub(crate) fn once(&self) -> usize {
        self.all.len() - self.always
    }
}

/// The numbers of the operations after which there is something to write back, and that are
/// followed by a change of which a crash may then leave a part.
fn once(trace: &Trace) -> Vec<usize> {
    let program = trace.operations.iter().enumerate().skip(trace.setup);
    let mut places: Vec<usize> = program
        .filter(|(_, operation)| changes(operation))
        .map(|(at, _)| at + 1)
        .collect();
    places.pop();
    // After a sync nothing is left to be written.
    places.retain(|number| !matches!(trace.operations[number - 1], Operation::Sync));
    places
}

/// `wanted` of the numbers below `count`, each from another part of them, in their order; all if
/// there are no more.
pub(crate) fn parts(
    count: usize,
    wanted: usize,
    random: &mut Random,
) -> impl Iterator<Item = usize> {
    let wanted = wanted.min(count);
    (0..wanted).map(move |part| {
        let (start, end) = (part * count / wanted, (part + 1) * count / wanted);
        start + random.usize(..end - start)
    })
}

impl Variant {
    /// The six that every trace has.
    pub(crate) fn always(seed: u64) -> Vec<Variant> {
        let schedules = [
            WriteBack::Always(Schedule::Nothing, 0),
            WriteBack::Always(Schedule::Partial, seed),
            WriteBack::Always(Schedule::Everything, 0),
        ];
        let with = |optimisations| {
            schedules.map(|write_back| Variant {
                write_back,
                optimisations,
            })
        };
        [with(Optimisations::BOTH), with(Optimisations::NONE)].concat()
    }

    /// What is written after the operation with this number, counted from 1.
    pub(crate) fn schedule_after(&self, operation: usize) -> Schedule {
        match self.write_back {
            WriteBack::Always(schedule, _) => schedule,
            WriteBack::Once(number) if number == operation => Schedule::Everything,
            WriteBack::Once(_) => Schedule::Nothing,
        }
    }

    /// The seed of the choices under [`Schedule::Partial`].
    pub(crate) fn seed(&self) -> u64 {
        match self.write_back {
            WriteBack::Always(_, seed) => seed,
            WriteBack::Once(_) => 0,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.write_back {
            WriteBack::Always(schedule @ Schedule::Partial, seed) => {
                write!(f, "{}{seed}", schedule.name())?;
            }
            WriteBack::Always(schedule, _) => f.write_str(schedule.name())?,
            WriteBack::Once(number) => write!(f, "once{number}")?,
        }
        let optimised = self.optimisations == Optimisations::BOTH;
        f.write_str(if optimised { "/both" } else { "/none" })
    }
}

impl FromStr for Variant {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Variant, ()> {
        let (write_back, optimisations) = text.split_once('/').ok_or(())?;
        let numbered = |name: &str| Some(write_back.strip_prefix(name)?.parse::<u64>());
        let write_back = match write_back {
            "nothing" => WriteBack::Always(Schedule::Nothing, 0),
            "everything" => WriteBack::Always(Schedule::Everything, 0),
            _ => match (numbered("partial"), numbered("once")) {
                (Some(Ok(seed)), _) => WriteBack::Always(Schedule::Partial, seed),
                (_, Some(Ok(number))) => WriteBack::Once(number.try_into().map_err(drop)?),
                _ => return Err(()),
            },
        };
        let optimisations = match optimisations {
            "both" => Optimisations::BOTH,
            "none" => Optimisations::NONE,
            _ => return Err(()),
        };
        Ok(Variant {
            write_back,
            optimisations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_read_as_it_is_written() {
        let mut all = Variant::always(17);
        all.push(Variant {
            write_back: WriteBack::Once(12),
            optimisations: Optimisations::BOTH,
        });
        for variant in all {
            assert_eq!(variant.to_string().parse(), Ok(variant));
        }
        for bad in ["", "nothing", "partial/both", "once/both", "nothing/some"] {
            assert!(bad.parse::<Variant>().is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_are_spread() {
        let mut random = Random::with_seed(1);
        let few: Vec<usize> = parts(3, 5, &mut random).collect();
        assert_eq!(few, [0, 1, 2]);
        let chosen: Vec<usize> = parts(1000, 10, &mut random).collect();
        let tenths: Vec<usize> = chosen.iter().map(|at| at / 100).collect();
        assert_eq!(tenths, Vec::from_iter(0..10));
    }
}
