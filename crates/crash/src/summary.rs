//! The results of a campaign as a report, and making a state of it again.

use backstitch_crash_core::geography::Blocks;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::operation::{Operation, script};
use backstitch_crash_core::report::{Block, BlockState, Failure as Reported, Kind, Report};
use backstitch_crash_core::schedule::Schedule;
use backstitch_store::Optimisations;

use crate::campaign::{Campaign, CampaignError, Failure, Results};
use crate::explore::{Cut, Found, Plan};
use crate::replay::{Place, again};

/// A state that was made again.
pub struct Replayed {
    /// The image as the crash left it.
    pub state: Fork,
    /// What is wrong with it; `None` where nothing is.
    pub verdict: Option<String>,
    /// A trace of what happened from the mount up to its moment.
    pub trace: Vec<u8>,
}

impl Campaign {
    /// The results as a report. `command` repeats the exploration. `replay`, with arguments
    /// appended, makes one state again.
    pub fn report(&self, results: &Results, command: &str, replay: &str) -> Report {
        let mut report = Report::new(Kind::Fs, command.to_owned(), self.seed);
        report.states = results.states;
        report.distinct = results.distinct;
        report.exhaustive = results.sampled_moments == 0
            && results.sampled_batches == 0
            && results.cut_short == 0
            && results.is_complete;
        report.explored = self.explored(results);
        report.leaks_max = Some(results.leaks_max);
        report.coverage = results
            .coverage
            .iter()
            .map(|(kind, count)| (format!("uncommitted_{kind}"), *count))
            .collect();
        let counts = [
            ("workloads", results.workloads),
            ("runs", results.runs),
            ("moments", results.moments),
            ("moments_sampled", results.sampled_moments),
            ("moments_with_bits_one_at_a_time", results.reduced_moments),
            ("batches_sampled", results.sampled_batches),
            ("runs_cut_short", results.cut_short),
            ("moments_of_recoveries_sampled", results.second_sampled),
            ("states_judged", results.judged),
            ("states_reclaimed", results.reclaimed),
            ("states_reclaimed_like_others", results.reclaims_known),
            ("states_reclaimed_in_use", results.reclaimed_in_use),
            ("states_worked_on", results.gone_on),
            ("states_of_second_crashes", results.second),
        ];
        report
            .coverage
            .extend(counts.map(|(what, count)| (what.to_owned(), count)));
        if self.ordering.has_log() {
            let count = (
                "states_different_once_replayed".to_owned(),
                results.recovered,
            );
            report.coverage.extend([count]);
        }
        let refused: u64 = results.refused.values().sum();
        if refused > 0 {
            let count = ("operations_answered_with_an_error".to_owned(), refused);
            report.coverage.extend([count]);
        }
        if !results.rules.is_empty() {
            report.rules = Some(crate::counts::of_rules(&results.rules));
        }
        report.notes.push(
            "Contents of files are not taken in every combination: each set of the other patches is \
             tried with no more contents than it needs, with all contents, with all but each one, \
             and with each one alone."
                .to_owned(),
        );
        report.failures = results
            .failures
            .iter()
            .map(|failure| self.reported(failure, replay))
            .collect();
        report
    }

    fn explored(&self, results: &Results) -> String {
        let variants: Vec<String> = self
            .variants
            .iter()
            .map(|(optimisations, schedule)| format!("{optimisations}/{}", schedule.name()))
            .collect();
        let ended = match (results.is_complete, results.cut_short) {
            (true, 0) => String::new(),
            (true, cut) => format!(" ({cut} runs were ended early)"),
            (false, _) => " (ended early)".to_owned(),
        };
        let sets = match results.sampled_moments {
            0 => "every dependency-closed set of patches at each moment".to_owned(),
            sampled => {
                format!("the dependency-closed sets of patches, sampled at {sampled} moments")
            }
        };
        let bits = match results.reduced_moments {
            0 => String::new(),
            reduced => format!(", bits of bitmaps one at a time at {reduced} of them"),
        };
        let parts = match results.sampled_batches {
            0 => "every part of each batch of writes".to_owned(),
            sampled => format!("the parts of each batch of writes, sampled for {sampled} batches"),
        };
        let what = match &self.drive {
            None => format!("{sets}{bits}; {parts}"),
            Some(drive) => format!(
                "what the drive {} holds between batches of writes, and what its queue and its cache may leave while \
                 one is on its way; {parts} there",
                drive.name
            ),
        };
        let mut text = format!(
            "{what}: {} moments of {} runs of {} workloads{ended} under {} (optimisations/what is written back), \
             ordering {}",
            results.moments,
            results.runs,
            results.workloads,
            variants.join(", "),
            self.ordering
        );
        if self.torn {
            text.push_str(", with blocks torn at sectors");
        }
        let keeps_order = self.ordering.promises().keeps_order_in_place();
        match self.unit_bytes.filter(|_| keeps_order) {
            Some(bytes) => text.push_str(&format!(", order kept between units of {bytes} bytes.")),
            None => text.push('.'),
        }
        text
    }

    fn reported(&self, failure: &Failure, replay: &str) -> Reported {
        let Failure {
            workload,
            plan,
            found,
            minimised,
            graph,
        } = failure;
        let operations = &workload.operations[..found.begun.min(workload.operations.len())];
        let place = Place {
            moment: found.moment,
            cut: found.cut.clone(),
        };
        Reported {
            verdict: found.verdict.to_string(),
            operations: operations.iter().map(Operation::to_string).collect(),
            cut: cut_in_words(found, operations),
            blocks: blocks(found),
            replay: format!(
                "{replay} --script '{}' --replay {}",
                script(operations),
                Address {
                    plan,
                    place: &place
                }
            ),
            minimised: *minimised,
            graph: graph.clone(),
        }
    }

    /// Makes a state again that a report names.
    ///
    /// # Errors
    /// If the name is malformed or the run has no such state, in words; the engine's errors.
    pub fn replay(&self, operations: &[Operation], address: &str) -> Result<Replayed, ReplayError> {
        let (plan, place) = self
            .parse_address(address)
            .map_err(ReplayError::BadAddress)?;
        let image = self.start()?;
        let seen =
            again(&image, operations, &plan, &place).map_err(|error| CampaignError::Engine {
                workload: "the script".to_owned(),
                error,
            })?;
        let seen = seen.ok_or(ReplayError::NoState)?;
        Ok(Replayed {
            state: seen.state,
            verdict: seen.verdict.map(|verdict| verdict.to_string()),
            trace: seen.trace,
        })
    }

    fn parse_address(&self, address: &str) -> Result<(Plan, Place), String> {
        let mut parts = address.splitn(4, '/');
        let mut part = |what: &str| {
            parts
                .next()
                .ok_or_else(|| format!("'{address}' is no state: {what} is missing"))
        };
        let optimisations: Optimisations = part("the optimisations")?
            .parse()
            .map_err(|error| format!("{error}"))?;
        let name = part("the write-back")?;
        let schedule = Schedule::ALL.into_iter().find(|s| s.name() == name);
        let schedule = schedule.ok_or_else(|| format!("there is no write-back '{name}'"))?;
        let seed = part("the seed")?;
        let seed = seed.parse().map_err(|_| format!("'{seed}' is no seed"))?;
        let place = part("the moment")?.parse()?;
        let plan = Plan {
            optimisations,
            schedule,
            seed,
            ..self.plan(0)
        };
        Ok((plan, place))
    }
}

/// Why a state could not be made again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The name of the state is malformed.
    #[error("{0}")]
    BadAddress(String),
    /// The run has no such moment, or other patches at it.
    #[error(
        "the run has no such state: was it made by this version, with the same options and script?"
    )]
    NoState,
    /// The run failed.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
}

/// The name of a state of a run, as the command line takes it.
struct Address<'a> {
    plan: &'a Plan,
    place: &'a Place,
}

impl std::fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan {
            optimisations,
            schedule,
            seed,
            ..
        } = self.plan;
        let place = self.place;
        write!(f, "{optimisations}/{}/{seed}/{place}", schedule.name())
    }
}

fn cut_in_words(found: &Found, operations: &[Operation]) -> String {
    let last = operations
        .last()
        .map_or_else(String::new, Operation::to_string);
    let what = match &found.cut {
        Cut::Patches(included) => {
            let there = included.iter().filter(|is| **is).count();
            format!("{there} of {} changes in memory on disk", included.len())
        }
        Cut::Batch(arrived) => format!(
            "{} of {} blocks on their way arrived",
            arrived.len(),
            found.blocks.len()
        ),
    };
    format!(
        "during or after operation {} ({last}), moment {}: {what}",
        operations.len(),
        found.moment
    )
}

fn blocks(found: &Found) -> Vec<Block> {
    let geography = Blocks::of(&[&found.state]);
    found
        .blocks
        .iter()
        .map(|(block, changes, on_disk)| {
            let what = geography.describe(*block);
            Block {
                block: *block,
                what: match (changes, on_disk) {
                    (1, _) => what,
                    _ => format!("{what}: {on_disk} of {changes} changes on disk"),
                },
                state: match (&found.cut, on_disk) {
                    (_, 0) => BlockState::Missing,
                    (Cut::Batch(arrived), _) if is_torn(arrived, *block, &found.state) => {
                        BlockState::Torn
                    }
                    _ => BlockState::OnDisk,
                },
            }
        })
        .collect()
}

fn is_torn(arrived: &[(u64, u64)], block: u64, state: &Fork) -> bool {
    arrived
        .iter()
        .any(|(at, sectors)| *at == block && *sectors != state.all_sectors())
}
