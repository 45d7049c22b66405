//! Drives keep the order that requests state, even if another order is faster.

use std::collections::BTreeMap;

use crate::common::{Random, drive, run};
use backstitch_drives::{Drive, DriveSpec, Flag, Kind, Policy, Request, RequestId};
use proptest::prelude::*;

/// Far from the first sector, on the smallest of the drives too.
const FAR_SECTOR: u64 = 250_000;

/// The presets, with orders kept by the drive and by the host.
fn drives() -> Vec<(String, DriveSpec)> {
    let mut all = Vec::new();
    for name in DriveSpec::presets() {
        for orders in [true, false] {
            let mut spec = DriveSpec::preset(name).unwrap();
            spec.queue.orders = orders;
            all.push((format!("{name}, orders {orders}"), spec));
        }
    }
    all
}

/// Submits all requests at once. Returns the order in which they came onto the medium.
fn stable_order(spec: &DriveSpec, requests: &[Request]) -> Vec<RequestId> {
    let mut drive = Drive::new(spec);
    drive.note_stable();
    let ids: Vec<RequestId> = requests.iter().map(|r| drive.submit(r, 0)).collect();
    let mut done = 0;
    while drive.next_completion().is_some() {
        done += 1;
    }
    assert_eq!(done, ids.len(), "all are done in the end");
    drive.submit(&Request::flush(), drive.now_ns());
    assert!(drive.next_completion().is_some());
    drive.take_stable()
}

fn place(order: &[RequestId], id: RequestId) -> usize {
    order.iter().position(|other| *other == id).unwrap()
}

/// One request far away before many that lie under the heads.
fn far_then_near(flag: Option<Flag>) -> Vec<Request> {
    let mut requests = vec![Request::write(FAR_SECTOR, 8)];
    let mut flagged = Request::write(FAR_SECTOR / 5 * 4, 8);
    flagged.flag = flag;
    requests.push(flagged);
    requests.extend((0..10).map(|n| Request::write(n * 16, 8)));
    requests
}

#[test]
fn without_an_order_the_near_ones_are_first() {
    let spec = DriveSpec::preset("viking").unwrap();
    let order = stable_order(&spec, &far_then_near(None));
    // The drive begins with the first one before the others arrive.
    assert_eq!(order.len(), 12);
    assert!(place(&order, RequestId(1)) > 5, "{order:?}");
}

#[test]
fn chains_are_kept() {
    for (name, spec) in drives() {
        let requests: Vec<Request> = (0..20)
            .map(|n| {
                let before: Vec<RequestId> = (0..n).rev().take(1).map(RequestId).collect();
                Request::write((n * 7919 * 8) % FAR_SECTOR, 8).after(&before)
            })
            .collect();
        let order = stable_order(&spec, &requests);
        assert_eq!(order, (0..20).map(RequestId).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn flags_are_kept() {
    for (name, spec) in drives() {
        for flag in [Flag::Part, Flag::Back, Flag::Full] {
            let order = stable_order(&spec, &far_then_near(Some(flag)));
            let (first, flagged) = (place(&order, order_id(&order, 0)), order_id(&order, 1));
            let flagged = place(&order, flagged);
            let behind = order.len() - 10;
            assert!(flagged < behind, "{name}, {flag:?}: {order:?}");
            if flag != Flag::Part {
                assert!(first < behind, "{name}, {flag:?}: {order:?}");
            }
            if flag == Flag::Full {
                assert!(first < flagged, "{name}: {order:?}");
            }
        }
    }
}

/// The n-th request: fences have numbers of their own.
fn order_id(order: &[RequestId], n: usize) -> RequestId {
    let mut ids = order.to_vec();
    ids.sort_unstable();
    ids[n]
}

#[test]
fn every_elevator_comes_to_an_end_and_sorts() {
    let mut times = BTreeMap::new();
    for (name, elevator) in [
        ("fifo", Policy::Fifo),
        ("c-look", Policy::CLook),
        ("fscan", Policy::Fscan),
        ("sptf", Policy::Sptf),
    ] {
        let mut spec = DriveSpec::preset("st2383").unwrap();
        spec.queue.elevator = elevator;
        let mut drive = Drive::new(&spec);
        let (mut random, blocks) = (Random(3), drive.capacity_sectors() / 8);
        let next = || Request::read(random.below(blocks) * 8, 8);
        let done = run(&mut drive, 64, 2_000, next);
        assert_eq!(done.len(), 2_000);
        times.insert(name, drive.now_ns());
    }
    assert!(
        times["sptf"] < times["c-look"] && times["c-look"] < times["fifo"],
        "{times:?}"
    );
    assert!(times["fscan"] < times["fifo"], "{times:?}");
}

#[test]
fn a_cached_write_is_done_before_it_is_stable() {
    for name in ["st3320620as", "sata-ssd"] {
        let mut drive = drive(name);
        let id = drive.submit(&Request::write(1_000_000, 8), 0);
        let done = drive.next_completion().unwrap();
        assert!(
            done.completed_ns < 1_000_000 && !drive.is_stable(id),
            "{name}"
        );
        assert_eq!(drive.undecided(), [(id, vec![])], "{name}");
        drive.submit(&Request::flush(), drive.now_ns());
        let flushed = drive.next_completion().unwrap();
        assert!(flushed.completed_ns > done.completed_ns + 500_000, "{name}");
        assert!(
            drive.is_stable(id) && drive.undecided().is_empty(),
            "{name}"
        );

        let through = Request::new(Kind::WriteThrough, 2_000_000, 8);
        let id = drive.submit(&through, drive.now_ns());
        drive.next_completion().unwrap();
        assert!(drive.is_stable(id), "{name}");
    }
}

#[test]
fn undecided_writes_name_what_must_be_there_first() {
    let mut drive = drive("viking");
    let first = drive.submit(&Request::write(FAR_SECTOR / 5 * 4, 8), 0);
    let second = drive.submit(&Request::write(0, 8).after(&[first]), 0);
    let third = drive.submit(&Request::write(8, 8), 0);
    let open = drive.undecided();
    assert_eq!(
        open,
        [(first, vec![]), (second, vec![first]), (third, vec![])]
    );
}

#[test]
fn traces_are_json_and_account_for_all_the_time() {
    let mut drive = drive("cheetah9");
    drive.start_trace();
    let mut random = Random(5);
    run(&mut drive, 4, 200, || {
        Request::read(random.below(1_000_000) * 8, 8)
    });
    let mut text = Vec::new();
    let trace = drive.take_trace();
    backstitch_drives::write_json_lines(&trace, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count(), 200);
    for (line, completion) in text.lines().zip(&trace) {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let of = |key: &str| row[key].as_u64().unwrap();
        let all = of("queue") + of("seek") + of("rotation") + of("transfer");
        assert_eq!(of("time") + all, completion.completed_ns, "{line}");
        assert_eq!((of("block"), of("length")), (completion.sector, 8));
        assert!(
            of("rotation") < 6_000_000 && of("seek") < 11_000_000,
            "{line}"
        );
    }
}

#[test]
fn descriptions_are_checked() {
    let fails = |text: &str| DriveSpec::parse(text).unwrap_err().to_string();
    assert!(
        DriveSpec::preset("floppy")
            .unwrap_err()
            .to_string()
            .contains("viking, cheetah9")
    );
    assert!(fails("name = 'x'\n[queue]\ntags = 1\ntagz = 2").contains("tagz"));
    assert!(fails("name = 'x'\n[queue]\ntags = 0").contains("tags"));
    let disk = include_str!("../src/presets/viking.toml");
    assert!(fails(&disk.replace("[2048, 8.2]", "[2048, 0.2]")).contains("seek"));
    assert!(fails(&disk.replace("heads = 8", "heads = 0")).contains("zones"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// With any drive, order and arrival: no write is on the medium before one that it has to
    /// follow, all are done, and a second run gives the same results.
    #[test]
    fn any_order_is_kept(
        which in 0..2 * DriveSpec::presets().count(),
        writes in prop::collection::vec((0..FAR_SECTOR / 8, prop::collection::vec(1..12u64, 0..3), 0..300_000u64, 0..4u8), 1..60),
    ) {
        let (name, spec) = &drives()[which];
        let play = || {
            let mut drive = Drive::new(spec);
            drive.note_stable();
            let (mut now_ns, mut ids, mut rules) = (0, Vec::<RequestId>::new(), Vec::new());
            for (block, before, pause_ns, kind) in &writes {
                now_ns += pause_ns;
                let before: Vec<RequestId> = (before.iter())
                    .filter_map(|back| ids.len().checked_sub(*back as usize).map(|n| ids[n]))
                    .collect();
                let mut request = Request::write(block * 8, 8).after(&before);
                if *kind == 3 {
                    request.kind = Kind::WriteThrough;
                }
                let id = drive.submit(&request, now_ns);
                rules.extend(before.iter().map(|before| (*before, id)));
                ids.push(id);
            }
            let mut done = Vec::new();
            while let Some(completion) = drive.next_completion() {
                done.push(completion);
            }
            drive.submit(&Request::flush(), drive.now_ns());
            drive.next_completion();
            (done, rules, drive.take_stable(), ids.len())
        };
        let (done, rules, stable, count) = play();
        prop_assert_eq!(done.len(), count, "{}", name);
        prop_assert_eq!(stable.len(), count, "{}", name);
        for (before, after) in rules {
            let at = |id| stable.iter().position(|other| *other == id);
            prop_assert!(at(before) < at(after), "{}: {:?} before {:?}", name, after, before);
        }
        prop_assert_eq!(play().0, done);
    }
}
