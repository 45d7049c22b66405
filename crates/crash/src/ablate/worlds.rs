//! Worlds: what else rules depend on beside the mechanism. Whether blocks are torn, how large the
//! steps of operations are, when inodes are forgotten, which features the journal has.

use backstitch_crash_core::formatted::ImageOptions;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::schedule::Schedule;
use backstitch_layout::steps::{self, Steps};
use backstitch_layout::tools::JournalFeatures;
use backstitch_mechanisms::{Ordering, usual_for};
use backstitch_store::Optimisations;

use super::{Ablation, ROUNDS, Round};
use crate::campaign::{CampaignError, after};
use crate::explore::Plan;
use backstitch_crash_workloads::Workload;
use backstitch_crash_workloads::scripts;

/// A combination of these, and the image that its runs start from.
pub(super) struct World {
    name: &'static str,
    ordering: Ordering,
    image: Fork,
    is_torn: bool,
    steps: Steps,
    has_crossing_names: bool,
}

/// The prefix of the names of workloads that start on an image with names that cross sectors.
const CROSSING: &str = "crossing names: ";

/// The optimisations and the write-back of a run.
pub(super) const VARIANTS: [(Optimisations, Schedule); 6] = [
    (Optimisations::BOTH, Schedule::Nothing),
    (Optimisations::BOTH, Schedule::Partial),
    (Optimisations::BOTH, Schedule::Everything),
    (Optimisations::NONE, Schedule::Nothing),
    (Optimisations::NONE, Schedule::Partial),
    (Optimisations::NONE, Schedule::Everything),
];

/// The world in which the file system is in a file of another one.
const STACK: &str = "in a file";

impl World {
    /// The worlds in which the rules that a mechanism keeps can be seen.
    ///
    /// Workloads that are explored in only one of them are added to the ablation's.
    pub(super) fn all(ablation: &mut Ablation) -> Result<Vec<World>, CampaignError> {
        let (ordering, image) = (ablation.ordering, ablation.image);
        let is_usual = image.layout == ImageOptions::default().layout;
        let one_flush = ordering.one_flush_features();
        let made = |features: JournalFeatures| {
            let options = ImageOptions {
                journal_features: features,
                ..image
            };
            options.make_for(ordering)
        };
        let world = |name, image: &Fork, is_torn, steps| World {
            name,
            ordering,
            image: image.clone(),
            is_torn,
            steps,
            has_crossing_names: false,
        };
        let plain = made(JournalFeatures::default())?;
        let mut worlds = vec![
            world("", &plain, false, Steps::Usual),
            world("torn", &plain, true, Steps::Usual),
            world("forgetful", &plain, false, Steps::Forgetful),
        ];
        if ablation.ordering == usual_for(false) && is_usual {
            let stacked = Fork::stacked().map_err(|error| CampaignError::Engine {
                workload: STACK.to_owned(),
                error,
            })?;
            worlds.push(world(STACK, &stacked, false, Steps::Usual));
        }
        if ordering.has_log() {
            worlds.push(world("small steps", &plain, false, Steps::Small));
            if !one_flush.is_empty() {
                let at_once = made(one_flush)?;
                worlds.push(world("async commit", &at_once, false, Steps::Usual));
                worlds.push(world("torn, async commit", &at_once, true, Steps::Usual));
            }
        } else if let Some((made, on_them)) = scripts::on_crossing_names()
            && is_usual
        {
            worlds.push(World {
                has_crossing_names: true,
                ..world("torn", &worlds[0].after(&made)?, true, Steps::Usual)
            });
            ablation
                .workloads
                .extend(on_them.into_iter().map(|w| Workload {
                    name: format!("{CROSSING}{}", w.name),
                    ..w
                }));
        }
        Ok(worlds)
    }

    /// Whether a workload is explored in this world. Short ones are explored in the first world
    /// only.
    pub(super) fn takes(&self, workload: &Workload) -> bool {
        let name = &workload.name;
        if self.name == STACK {
            // Each state consists of two file systems, so it takes longer.
            return name.starts_with("scripts/stack");
        }
        if self.has_crossing_names || name.starts_with(CROSSING) {
            return self.has_crossing_names && name.starts_with(CROSSING);
        }
        self.name.is_empty() || !name.starts_with("ace:") && !name.starts_with("seq:")
    }

    /// The image that a workload leaves, if blocks are written wholly or not at all.
    fn after(&self, workload: &Workload) -> Result<Fork, CampaignError> {
        let engine = Plan {
            unit_bytes: None,
            ..self.plan(0, 0, &ROUNDS[0])
        }
        .engine();
        after(self.image.clone(), engine, workload)
    }

    /// The name of the workload's script, if it is one.
    pub(super) fn script_of(workload: &Workload) -> Option<&str> {
        let name = &workload.name;
        let name = name.strip_prefix(CROSSING).unwrap_or(name);
        name.strip_prefix("scripts/")
    }

    pub(super) fn image(&self) -> &Fork {
        &self.image
    }

    /// Puts this thread into the world.
    pub(super) fn enter(&self) {
        steps::set(self.steps);
    }

    pub(super) fn leave() {
        steps::set(Steps::Usual);
    }

    /// The workload's name in this world.
    pub(super) fn name_of(&self, workload: &Workload) -> String {
        match self.name {
            "" => workload.name.clone(),
            world => format!("{} ({world})", workload.name),
        }
    }

    pub(super) fn plan(&self, variant: usize, seed: u64, round: &Round) -> Plan {
        let (optimisations, schedule) = VARIANTS[variant];
        Plan {
            ordering: self.ordering,
            optimisations,
            schedule,
            seed: seed.wrapping_add(variant as u64),
            torn: self.is_torn,
            drive: None,
            unit_bytes: self.is_torn.then_some(512),
            exhaustive: round.exhaustive,
            samples: round.samples,
            whole_every: round.whole_every,
            in_use_every: 4,
            most_states: round.states_each,
            most_new: u64::MAX,
        }
    }
}
