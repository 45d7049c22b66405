//! The JSON document.

use serde_json::{Map, Value, json};

use crate::series::{Series, median};

/// The document for some series, with the keys `backstitch`, `host`, `seed` and `runs`. A series of
/// several runs is one entry with `median`, `min` and `max` of each figure. Without `host` if all
/// runs are on simulated disks, since the host makes no difference then.
pub fn document(series: &[Series], seed: u64) -> Value {
    let runs: Vec<Value> = series.iter().map(run_value).collect();
    let mut document = json!({
        "backstitch": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "runs": runs,
    });
    let mut all = series.iter().flat_map(|series| &series.runs);
    if !all.all(|run| run.host_speed.is_some()) {
        document["host"] = host();
    }
    document
}

fn run_value(series: &Series) -> Value {
    let runs: Vec<Value> = series
        .runs
        .iter()
        .map(|run| serde_json::to_value(run).unwrap_or_default())
        .collect();
    match <[Value; 1]>::try_from(runs) {
        Ok([single]) => single,
        Err(many) => merged(&many),
    }
}

/// Joins several values of one shape: numbers become `median`, `min` and `max`; words and the
/// papers' figures stay.
fn merged(values: &[Value]) -> Value {
    match &values[0] {
        Value::Number(_) => {
            let mut numbers: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
            numbers.sort_by(f64::total_cmp);
            let whole = values.iter().all(Value::is_u64);
            let [median, min, max] = [median(&numbers), numbers[0], numbers[numbers.len() - 1]];
            json!({
                "median": number(median, whole),
                "min": number(min, whole),
                "max": number(max, whole),
            })
        }
        Value::Object(first) => {
            let members = first.iter().map(|(key, value)| {
                let all: Vec<Value> = values.iter().map(|v| v[key].clone()).collect();
                let together = if key == "paper" {
                    value.clone()
                } else {
                    merged(&all)
                };
                (key.clone(), together)
            });
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(first) => {
            let items = (0..first.len()).map(|i| {
                let all: Vec<Value> = values.iter().map(|v| v[i].clone()).collect();
                merged(&all)
            });
            Value::Array(items.collect())
        }
        other => other.clone(),
    }
}

fn number(value: f64, whole: bool) -> Value {
    if whole && value.fract() == 0.0 {
        json!(value as u64)
    } else {
        json!(value)
    }
}

/// The host of the measurement.
fn host() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
    let memory = read("/proc/meminfo");
    let memory_kib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    json!({
        "system": std::env::consts::OS,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "architecture": std::env::consts::ARCH,
        "cpu": model,
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": memory_kib.map(|kib| kib * 1024),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_runs_are_summed_up() {
        let run = |seconds: f64, n: u64| {
            json!({
                "workload": "zero", "elapsed_seconds": seconds, "flushes": n,
                "phases": [{"name": "sync", "operations": n}],
                "paper": {"value": 1.0},
            })
        };
        let merged = merged(&[run(3.0, 1), run(1.0, 1), run(2.0, 4)]);
        assert_eq!(merged["workload"], "zero");
        assert_eq!(
            merged["elapsed_seconds"],
            json!({"median": 2.0, "min": 1.0, "max": 3.0})
        );
        assert_eq!(merged["flushes"], json!({"median": 1, "min": 1, "max": 4}));
        assert_eq!(merged["phases"][0]["name"], "sync");
        assert_eq!(merged["phases"][0]["operations"]["max"], 4);
        assert_eq!(merged["paper"], json!({"value": 1.0}));
    }
}
