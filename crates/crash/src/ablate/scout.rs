//! A first run of all workloads, to see which rules they come by.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstitch_rules::watch::{Counts, Form, Passes};
use backstitch_rules::{Class, Id, Site};

use super::worlds::{VARIANTS, World};
use super::{Ablation, Cut, ROUNDS};
use crate::campaign::CampaignError;
use crate::scout::{self, Trouble};
use backstitch_crash_workloads::Workload;

/// A workload in a world, under a variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) world: usize,
    pub(super) workload: usize,
    pub(super) variant: usize,
    /// Moments at which a crash is tried.
    moments: usize,
}

impl Run {
    /// Identifies the run among all others.
    pub(super) fn key(&self) -> (usize, usize, usize) {
        (self.world, self.workload, self.variant)
    }
}

/// What is known of all runs.
pub(super) struct Scouted {
    /// For each site the runs that come by it, and how, the shortest first.
    by_site: BTreeMap<Id, Vec<(Run, Passes)>>,
    /// All runs.
    pub(super) all: Vec<Run>,
}

/// Runs every workload, with every rule.
pub(super) fn scout(ablation: &Ablation, worlds: &[World]) -> Result<Scouted, CampaignError> {
    let pairs: Vec<(usize, usize)> = (0..worlds.len())
        .flat_map(|world| (0..ablation.workloads.len()).map(move |workload| (world, workload)))
        .filter(|(world, workload)| worlds[*world].takes(&ablation.workloads[*workload]))
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..ablation.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((world, workload)) = pairs.get(number).copied() else {
                        return;
                    };
                    for variant in 0..VARIANTS.len() {
                        let seen = look(ablation, worlds, world, workload, variant);
                        if let Ok(mut found) = found.lock() {
                            found.push((number, variant, seen));
                        }
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(number, variant, _)| (*number, *variant));
    let mut by_site: BTreeMap<Id, Vec<(Run, Passes)>> = BTreeMap::new();
    let mut all = Vec::new();
    for (_, _, seen) in found {
        let (run, counts) = seen?;
        all.push(run);
        for (id, passes) in counts {
            by_site.entry(id).or_default().push((run, passes));
        }
    }
    for runs in by_site.values_mut() {
        runs.sort_by_key(|(run, _)| (run.world, run.moments, run.workload, run.variant));
    }
    Ok(Scouted { by_site, all })
}

fn look(
    ablation: &Ablation,
    worlds: &[World],
    world: usize,
    workload: usize,
    variant: usize,
) -> Result<(Run, Counts), CampaignError> {
    let Workload {
        name,
        operations,
        setup,
    } = &ablation.workloads[workload];
    let plan = worlds[world].plan(variant, ablation.seed, &ROUNDS[0]);
    worlds[world].enter();
    let seen = scout::look(worlds[world].image(), operations, *setup, &plan);
    World::leave();
    match seen.trouble {
        None => {}
        Some(Trouble::Error(error)) => {
            let workload = name.clone();
            return Err(CampaignError::Engine { workload, error });
        }
        Some(Trouble::Panic(what)) => panic!("workload {name}: {what}"),
    }
    let run = Run {
        world,
        workload,
        variant,
        moments: seen.moments,
    };
    Ok((run, seen.counts))
}

impl Scouted {
    /// Whether switching off the rule in this form can make a difference that earlier forms do not
    /// make. With two patches, leaving out the first is waiting for the last only, and the other
    /// way round.
    pub(super) fn is_worth(&self, site: &'static Site, form: Form) -> bool {
        let runs = self.by_site.get(&site.id).map_or(&[][..], Vec::as_slice);
        let is_of_three = matches!(form, Form::OnlyFirst | Form::OnlyLast);
        let is_enough = |passes: &Passes| !is_of_three || passes.most > 2;
        runs.iter()
            .any(|(_, passes)| is_enough(passes) && is_worth(&Cut { site, form }, passes))
    }

    /// Whether only recovery, and what is done after it, comes by a site.
    pub(super) fn is_of_recovery(&self, site: &Site) -> bool {
        let runs = self.by_site.get(&site.id).map_or(&[][..], Vec::as_slice);
        runs.iter()
            .all(|(_, passes)| passes.reached == passes.remounted)
    }

    /// How often a rule was implied by others, if it always was: because the code says so, or
    /// because all that it waits for comes before something else that is waited for.
    ///
    /// For a rule that is half off, this is about the patches that are not waited for then.
    pub(super) fn times_implied(&self, cut: &Cut) -> Option<u64> {
        let mut all = Passes::default();
        for (_, passes) in self.by_site.get(&cut.site.id)? {
            all.add(passes);
        }
        if let Some(form) = Form::HALF.iter().position(|form| *form == cut.form) {
            let (covered, essential) = (all.half_covered[form], all.half_essential[form]);
            return (covered > 0 && essential == 0).then_some(covered);
        }
        let said = (all.implied > 0 && all.not_implied == 0).then_some(all.implied);
        said.or((all.covered > 0 && all.essential == 0).then_some(all.covered))
    }

    /// The runs in which switching off the rule can make a difference, the shortest first.
    pub(super) fn runs_by(&self, cut: &Cut) -> Vec<Run> {
        let runs = self.by_site.get(&cut.site.id);
        let runs = runs.map_or(&[][..], Vec::as_slice).iter();
        runs.filter(|(_, passes)| is_worth(cut, passes))
            .map(|(run, _)| *run)
            .collect()
    }
}

/// Whether switching off a rule can make a difference, judged by how runs came by it.
pub(super) fn is_worth(cut: &Cut, passes: &Passes) -> bool {
    let waits = matches!(cut.site.class, Class::Dependency | Class::Fsync) && passes.is_of_patches;
    match cut.form {
        Form::Whole => passes.pending > 0 || !waits && passes.reached > 0,
        Form::First | Form::Last | Form::OnlyFirst | Form::OnlyLast => {
            passes.most > 1 && leaves_out(cut.form, passes)
        }
        Form::Merged => passes.merged > 0,
    }
}

/// Whether, with the rule half off in this form, a pending patch was not waited for. Patches that
/// are handed out one by one are no list, so a part of them cannot be left out.
fn leaves_out(form: Form, passes: &Passes) -> bool {
    let number = Form::HALF.iter().position(|half| *half == form);
    number.is_some_and(|at| passes.half_covered[at] + passes.half_essential[at] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_ordering::rules::Rule;

    #[test]
    fn only_a_list_can_be_half_off() {
        let cut = |form| Cut {
            site: &Rule::SITES[0],
            form,
        };
        // Two patches, handed out one by one.
        let mut passes = Passes {
            pending: 2,
            most: 2,
            is_of_patches: true,
            ..Passes::default()
        };
        assert!(is_worth(&cut(Form::Whole), &passes));
        assert!(!is_worth(&cut(Form::First), &passes));
        // A list of patches, of which the first is left out.
        passes.half_covered[0] = 1;
        assert!(is_worth(&cut(Form::First), &passes));
        assert!(!is_worth(&cut(Form::Last), &passes));
        assert!(!is_worth(&cut(Form::OnlyFirst), &passes));
    }
}
