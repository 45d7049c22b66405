use backstitch_crash::*;
use backstitch_store::Optimisations;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string("/work/shared/data/ace/seq1.jlang").unwrap();
    let ace = ace::parse(&text).unwrap();
    eprintln!(
        "{} workloads, {} skipped",
        ace.workloads.len(),
        ace.skipped.len()
    );
    let first: usize = a[4].parse().unwrap();
    let n: usize = a[5].parse().unwrap();
    let all = match a.get(9).map(String::as_str) {
        Some("seq1") => generate::sequences(1),
        Some("seq2") => {
            let mut w = generate::sequences(2);
            generate::shuffle(&mut w, 1);
            w
        }
        Some("ace1") => generate::ace(1),
        Some("ace2") => {
            let mut w = generate::ace(2);
            generate::shuffle(&mut w, 1);
            w
        }
        Some("random") => generate::random(first + n, 1),
        _ => ace.workloads,
    };
    let workloads: Vec<_> = all.into_iter().skip(first).take(n).collect();
    let opt: Optimisations = a[2].parse().unwrap();
    let schedule = match a[3].as_str() {
        "n" => Schedule::Nothing,
        "e" => Schedule::Everything,
        _ => Schedule::Partial,
    };
    let c = Campaign {
        ordering: a[1].parse().unwrap(),
        workloads,
        variants: vec![(opt, schedule)],
        image: ImageOptions {
            block_bytes: a[6].parse().unwrap(),
            ..Default::default()
        },
        seed: 1,
        torn: false,
        exhaustive: a[7].parse().unwrap(),
        samples: 200,
        whole_every: a[8].parse().unwrap(),
        most_states: 100_000_000,
        most_failures: 3,
        threads: 2,
    };
    let t = std::time::Instant::now();
    let r = c.run(&NoObserver).unwrap();
    let s = t.elapsed().as_secs_f64();
    println!(
        "workloads {} states {} distinct {} ({:.0}/s) moments {} sampled {} leaks {} reclaimed {} second {} in {s:.2}s",
        r.workloads,
        r.states,
        r.distinct,
        r.distinct as f64 / s,
        r.moments,
        r.sampled_moments,
        r.leaks_max,
        r.reclaimed,
        r.second
    );
    println!("{:?}\n{:?}", r.coverage, r.refused);
    for f in r.failures.iter().take(1) {
        let f = &c.minimise(f).unwrap();
        println!("FAIL {}", f.verdict());
        println!("{}", f.describe());
    }
}
