//! A sample of the rules is switched off one at a time: the standard workloads and the default ones
//! of `crash fs` must find each, and find nothing while every rule is on. `backstitch crash ablate`
//! goes through all rules (`make soak`, part `ablate`).

use backstitch_crash::ablate::{Ablation, Fate, Row};
use backstitch_crash::{Campaign, ImageOptions, Observer, Results, rules, scripts, standard};
use backstitch_formats::{ExtRule, Rule};
use backstitch_journal::rules::Rule as JournalRule;

use backstitch_mechanisms::Ordering;
use backstitch_rules::Id;
use backstitch_rules::watch::{self, Form};

fn ablated(ordering: Ordering, patterns: &[&str]) -> Vec<Row> {
    ablated_on(ImageOptions::default(), ordering, patterns)
}

fn ablated_on(image: ImageOptions, ordering: Ordering, patterns: &[&str]) -> Vec<Row> {
    // Of the standard workloads only the scripts and a few others are used: to run all of them once
    // takes longer than the search.
    let all = standard::workloads(1).into_iter();
    let some = all
        .enumerate()
        .filter(|(number, workload)| number % 12 == 0 || workload.name.starts_with("scripts/"));
    let ablation = Ablation {
        ordering,
        image,
        workloads: some.map(|(_, workload)| workload).collect(),
        patterns: patterns.iter().map(|p| (*p).to_owned()).collect(),
        forms: vec![Form::Whole],
        seed: 1,
        threads: 2,
        effort: 1,
    };
    ablation.run(&|_| {}).expect("the engine gets through")
}

#[test]
fn a_sample_of_rules_is_found() {
    let samples = [
        (
            Ordering::SOFT,
            vec![
                "deep-entry-after-contents",
                "fsync-waits-for-attributes-in-place",
                "name-after-inode",
                "inode-freed-after-death",
            ],
        ),
        (
            Ordering::JOURNAL_ORDERED,
            vec!["commit-after-contents", "reuse-after-freeing"],
        ),
    ];
    for (ordering, patterns) in samples {
        let rows = ablated(ordering, &patterns);
        assert!(rows.len() >= patterns.len());
        for pattern in patterns {
            let row = rows.iter().find(|row| row.site == pattern);
            let row = row.unwrap_or_else(|| panic!("there is no rule {pattern}"));
            assert!(
                matches!(row.fate, Fate::Found { .. }),
                "{pattern} under {ordering}: {:?}",
                row.fate
            );
        }
    }
}

#[test]
fn a_sample_of_rules_that_only_ufs_comes_by_is_found() {
    let patterns = [
        "never-alive-only-if-cleared",
        "pointers-go-with-size",
        "changes-after-clean-taken",
        "changed-groups-are-counted",
        "groups-are-recounted",
    ];
    let image = ImageOptions {
        layout: "ufs2".parse().expect("a type that is registered"),
        block_bytes: 512,
        ..ImageOptions::default()
    };
    for row in ablated_on(image, Ordering::SOFT, &patterns) {
        let is_found = matches!(row.fate, Fate::Found { .. });
        assert!(is_found, "{}: {:?}", row.site, row.fate);
    }
}

/// The first states that `crash fs` explores when it is given no workload, with a rule off.
struct Without(Option<Id>);

impl Observer for Without {
    fn thread_starts(&self) {
        watch::record(self.0.is_none());
        watch::switch_off(self.0.map(|rule| (rule, Form::Whole)));
    }
}

fn explored(ordering: Ordering, name: &str, off: Option<Id>) -> Results {
    explored_up_to(20_000, ordering, name, off)
}

fn explored_up_to(
    most_states_each: u64,
    ordering: Ordering,
    name: &str,
    off: Option<Id>,
) -> Results {
    let workloads = scripts::workloads();
    let workloads = workloads.into_iter().filter(|w| w.name.contains(name));
    let campaign = Campaign {
        workloads: workloads.collect(),
        most_states_each,
        ..standard::campaign(ordering, 1, 2)
    };
    campaign
        .run(&Without(off))
        .expect("the engine gets through")
}

#[test]
fn scripts_show_the_rules_that_they_are_about() {
    let about: [(&str, Id); 3] = [
        ("deep-leaf", Rule::DeepEntryAfterContents.into()),
        (
            "attributes-in-place",
            ExtRule::FsyncWaitsForAttributesInPlace.into(),
        ),
        (
            "attributes-shared",
            ExtRule::AttributePointerAfterReference.into(),
        ),
    ];
    for (name, rule) in about {
        let results = explored(Ordering::SOFT, name, Some(rule));
        assert!(!results.failures.is_empty(), "{name} does not show it");
    }
    let ordered = Ordering::JOURNAL_ORDERED;
    let rule = JournalRule::FreedAreRevoked.into();
    let results = explored(ordered, "log-of-reuse", Some(rule));
    assert!(
        !results.failures.is_empty(),
        "log-of-reuse does not show it"
    );
}

#[test]
fn what_was_come_by_is_counted() {
    let results = explored(Ordering::SOFT, "attributes", None);
    assert!(results.failures.is_empty());
    let of = |rule: Id| results.rules.get(&rule).copied().unwrap_or_default();
    let pointer = of(ExtRule::AttributePointerAfterContents.id());
    assert!(pointer.reached > 0 && pointer.pending > 0, "{pointer:?}");
    assert!(pointer.pending <= pointer.reached);
    // Recovery marks the image as in use, and waits for that.
    assert!(of(ExtRule::ChangesAfterMark.id()).remounted > 0);
    // The code comes to it only where blocks may be torn.
    assert_eq!(of(Rule::TailCutAfterHead.id()).reached, 0);
}

/// Where the code says that other rules imply a rule, they do, in all scripts. With every rule on,
/// no script fails.
#[test]
fn what_is_said_to_be_implied_is() {
    let orderings = [Ordering::SOFT, Ordering::SYNC, Ordering::JOURNAL_ORDERED];
    for ordering in orderings {
        let results = explored_up_to(100, ordering, "", None);
        let failed: Vec<_> = results
            .failures
            .iter()
            .map(|f| format!("{}: {:?}", f.verdict(), f.operations()))
            .collect();
        assert!(failed.is_empty(), "under {ordering}: {failed:?}");
        let names = rules::sites().map(|site| (site.id, site.name()));
        for (id, name) in names {
            let passes = results.rules.get(&id).copied().unwrap_or_default();
            assert_eq!(passes.not_implied, 0, "{name} under {ordering}");
        }
    }
}

/// For each rule with a test of its own, the file that is said to have the test names the rule.
#[test]
fn tests_of_rules_are_there() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut seen = 0;
    for site in rules::sites() {
        if let Some(test) = backstitch_crash::ablate::test_of(site.id) {
            let text = std::fs::read_to_string(format!("{root}/{test}")).expect(test);
            let name = format!("Rule::{}", site.ident);
            assert!(text.contains(&name), "{name} is not in {test}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} rules");
}

/// The table in the documentation has every rule, and no other.
#[test]
fn the_table_of_rules_is_the_registry() {
    let document = include_str!("../../../docs/GUARANTEES.md");
    let (_, table) = document
        .split_once("<!-- rules -->")
        .expect("the table's start");
    let (table, _) = table
        .split_once("<!-- end of rules -->")
        .expect("the table's end");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    for site in rules::sites() {
        let name = site.name();
        assert!(
            names.contains(&name.as_str()),
            "{name} is not in the table: make ablate"
        );
        assert!(
            table.contains(site.without.trim()),
            "{name} says something else there"
        );
    }
    for name in names {
        let whole = name.split('#').next().unwrap_or_default();
        assert!(
            rules::sites().any(|site| site.name() == whole),
            "there is no rule {name}"
        );
    }
}

/// Only the explorer and its tests switch rules off. Nothing that users run can do it.
#[test]
fn nothing_but_the_explorer_switches_rules_off() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut folders = vec![std::path::PathBuf::from(crates)];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_exempt = ["rules", "crash", "tests", "target"]
                .iter()
                .any(|name| path.ends_with(name));
            if path.is_dir() && !is_exempt {
                folders.push(path);
                continue;
            }
            if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!text.contains("switch_off"), "{}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen} files only");
}
