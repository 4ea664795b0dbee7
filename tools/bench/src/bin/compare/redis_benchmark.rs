//! Redis driven by its own benchmark program, beside the loop that drives everything else here: shows whether that loop
//! holds Redis back.

use crate::system::{RunOutcome, System};
use anyhow::Context;
use archon_integration_tests::Process;
use archon_load::{End, Mix, Workload, children_cpu};
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

const SLOTS: u64 = 16_384;
/// Requests per client in the first run, which estimates the number needed to fill the time.
const FIRST_EACH: u64 = 200;
/// Number of writes per key before the measurement; keys are random, so that some have none.
const LOADED_TIMES: u64 = 3;

/// The program and its target cluster.
pub(crate) struct RedisBenchmark {
    pub(crate) program: PathBuf,
    /// Any master.
    pub(crate) address: String,
    pub(crate) servers: Rc<Vec<Process>>,
    pub(crate) name: &'static str,
}

/// A line of the program's report.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    per_second: f64,
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl RedisBenchmark {
    fn ask(&self, workload: &Workload, requests: u64) -> anyhow::Result<Line> {
        let (host, port) = self.address.rsplit_once(':').context("an address")?;
        let test = if workload.mix == Mix::Get { "get" } else { "set" };
        // Each request goes to a random slot, which is part of its key: this many numbers per slot.
        let numbers = workload.keys.div_ceil(SLOTS);
        let arguments = [
            ("-h", host.to_owned()),
            ("-p", port.to_owned()),
            ("-t", test.to_owned()),
            ("-c", workload.clients.to_string()),
            ("-n", requests.to_string()),
            ("-r", numbers.to_string()),
            ("-d", workload.value_bytes.to_string()),
        ];
        let mut command = Command::new(&self.program);
        command.args(["--cluster", "--csv", "--precision", "3"]);
        command.args(arguments.iter().flat_map(|(flag, value)| [*flag, value.as_str()]));
        let output = command.output().context("running redis-benchmark")?;
        let said = String::from_utf8_lossy(&output.stdout);
        anyhow::ensure!(output.status.success(), "redis-benchmark: {said}{}", String::from_utf8_lossy(&output.stderr));
        line(&said).with_context(|| format!("redis-benchmark said {said:?}"))
    }
}

impl System for RedisBenchmark {
    fn name(&self) -> &str {
        self.name
    }

    fn shape(&self) -> String {
        "driven by its own redis-benchmark in cluster mode: as with own connections, but each client stays at one master, \
         in three threads, and no answer is checked"
            .into()
    }

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Process::pid).collect()
    }

    fn connections(&self, _clients: usize) -> usize {
        1
    }

    fn run(&self, workload: &Workload) -> anyhow::Result<RunOutcome> {
        let before = children_cpu();
        let first = match workload.mix {
            Mix::Load => LOADED_TIMES * workload.keys,
            _ => FIRST_EACH * workload.clients as u64,
        };
        // The first run is the warm-up.
        let mut seen = self.ask(workload, first)?;
        let mut requests = first;
        if let (End::After(length), false) = (workload.end, workload.mix == Mix::Load) {
            // By Little's law: its own rate includes its start-up, which dominates such a short run.
            let rate = workload.clients as f64 * 1e3 / seen.mean_ms.max(0.001);
            let more = ((rate * length.as_secs_f64()) as u64).max(first);
            seen = self.ask(workload, more)?;
            requests += more;
        }
        let cpu: Duration = children_cpu().saturating_sub(before);
        Ok(RunOutcome {
            ops_per_second: seen.per_second,
            p50_us: (seen.p50_ms * 1e3) as u64,
            p99_us: (seen.p99_ms * 1e3) as u64,
            bytes_read_per_second: 0.0,
            ops_with_warm_up: requests,
            client_cpu_us: cpu.as_secs_f64() * 1e6 / requests as f64,
        })
    }
}

/// Parses `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",…` and the line after it.
fn line(said: &str) -> Option<Line> {
    let fields = |line: &str| line.split(',').map(|field| field.trim_matches('"').to_owned()).collect::<Vec<_>>();
    let mut lines = said.lines().skip_while(|line| !line.starts_with("\"test\""));
    let (names, values) = (fields(lines.next()?), fields(lines.next()?));
    let value = |name: &str| values.get(names.iter().position(|known| known == name)?)?.parse::<f64>().ok();
    let mean_ms = value("avg_latency_ms")?;
    Some(Line {
        per_second: value("rps")?,
        mean_ms,
        p50_ms: value("p50_latency_ms")?,
        p99_ms: value("p99_latency_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_columns_are_read_by_name() {
        let said = "WARNING: something\n\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"1652.89\",\"2.400\",\"0.064\",\"0.111\",\"11.135\",\"23.759\",\"34.079\"\n";
        assert_eq!(line(said), Some(Line { per_second: 1_652.89, mean_ms: 2.4, p50_ms: 0.111, p99_ms: 23.759 }));
        assert_eq!(line("\"test\",\"rps\"\n\"SET\",\"1\"\n"), None);
        assert_eq!(line(""), None);
    }
}
