//! Detects regressions in the work of an operation's pure parts: instructions counted by valgrind where it is
//! installed, and CPU time in units of a loop that is timed in the same run. Fails if one exceeds its limit.
//!
//! ```text
//! cargo run --release -p archon-regress             compare with tools/bench/regress/baseline.json
//! cargo run --release -p archon-regress -- --record  after an improvement: replace it
//! cargo run --release -p archon-regress -- --slow evaluate-put   must fail
//! archon-regress --against PROGRAM                  compare with an older build of it, on this machine, with this compiler
//! ```
//!
//! Times of different runs are never compared. Instructions depend on the compiler, so a new one needs `--record`.

use anyhow::Context;
use archon_regress::{ALL, HotPath};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Allowed increase of instructions: branches of hash maps differ a little between runs.
const INSTRUCTIONS_MORE: f64 = 0.05;
/// Allowed increase of time: caches and other processes.
const TIME_MORE: f64 = 0.50;
/// Operations per sample; the minimum of the samples counts.
const OPERATIONS: u64 = 64_000;
const SAMPLES: usize = 15;

/// Compares the work of hot paths with a baseline.
#[derive(Parser, Debug)]
struct Args {
    /// The baseline.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json"))]
    baseline: PathBuf,
    /// Write the baseline instead of comparing with it.
    #[arg(long)]
    record: bool,
    /// Compare instructions with those of another build of this program instead of the baseline: with the same compiler on the same
    /// machine they are exact. Needs valgrind.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "record")]
    against: Option<PathBuf>,
    /// Go this path twice per operation, to see the comparison fail.
    #[arg(long, value_name = "PATH")]
    slow: Option<String>,
    /// Go a path so many times and end: what valgrind is given.
    #[arg(long, hide = true, num_args = 2, value_names = ["PATH", "N"])]
    only: Vec<String>,
}

/// The work of one operation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Work {
    /// Instructions; `None` without valgrind.
    instructions: Option<f64>,
    /// CPU time in rounds of the reference loop.
    reference_rounds: f64,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let [name, count] = &args.only[..] {
        let path = ALL.iter().find(|path| path.name == name.as_str()).context("no such path")?;
        black_box((path.run)(count.parse()?));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(slow) = &args.slow {
        let known = ALL.map(|path| path.name);
        anyhow::ensure!(known.contains(&slow.as_str()), "{slow} is no path; there are {}", known.join(", "));
    }
    let valgrind = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !valgrind {
        eprintln!("valgrind is not installed: instructions are not counted, times alone are compared");
    }
    let times = |path: &HotPath| if args.slow.as_deref() == Some(path.name) { 2 } else { 1 };
    let own = std::env::current_exe()?;
    if let Some(before) = &args.against {
        anyhow::ensure!(valgrind, "--against counts instructions: install valgrind");
        return against(before, &own, times);
    }
    let mut found = BTreeMap::new();
    for path in &ALL {
        let times = times(path);
        let instructions = if valgrind { Some(instructions(&own, path, times)?) } else { None };
        found.insert(path.name.to_owned(), Work { instructions, reference_rounds: rounds(path, times) });
    }
    if args.record {
        std::fs::write(&args.baseline, serde_json::to_string_pretty(&found)? + "\n")?;
        println!("wrote {}", args.baseline.display());
        return Ok(ExitCode::SUCCESS);
    }
    let text = std::fs::read_to_string(&args.baseline)
        .with_context(|| format!("reading {}; --record writes it", args.baseline.display()))?;
    let baseline: BTreeMap<String, Work> = serde_json::from_str(&text)?;
    let mut regressed = false;
    for (name, now) in &found {
        let before = baseline.get(name).with_context(|| format!("the baseline lacks {name}; --record writes it"))?;
        regressed |= compare(name, before, now);
    }
    Ok(if regressed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Compares with another build.
fn against(before: &Path, own: &Path, times: impl Fn(&HotPath) -> u64) -> anyhow::Result<ExitCode> {
    let mut regressed = false;
    for path in &ALL {
        let knows =
            Command::new(before).args(["--only", path.name, "0"]).output().context("starting the other build")?;
        if !knows.status.success() {
            println!("{:<18} new", path.name);
            continue;
        }
        let (was, is) = (instructions(before, path, 1)?, instructions(own, path, times(path))?);
        let more = more(was, is);
        let worse = more > INSTRUCTIONS_MORE;
        let word = if worse { "  REGRESSED" } else { "" };
        println!("{:<18} instructions {was:>8.0} before, {is:>8.0} now ({:+.1} %){word}", path.name, more * 100.0);
        regressed |= worse;
    }
    Ok(if regressed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the relative increase.
fn more(before: f64, now: f64) -> f64 {
    now / before - 1.0
}

/// Prints a line and returns true for a regression.
fn compare(name: &str, before: &Work, now: &Work) -> bool {
    let counted = before.instructions.zip(now.instructions);
    let time = more(before.reference_rounds, now.reference_rounds);
    // Counts are exact; where they exist, times are only printed.
    let regressed = match counted {
        Some((before, now)) => more(before, now) > INSTRUCTIONS_MORE,
        None => time > TIME_MORE,
    };
    let instructions = counted.map_or_else(
        || "not counted".to_owned(),
        |(before, now)| format!("{now:>8.0} ({:+.1} %)", more(before, now) * 100.0),
    );
    println!(
        "{name:<18} instructions {instructions}, time {:.1} rounds ({:+.0} %){}",
        now.reference_rounds,
        time * 100.0,
        if regressed { "  REGRESSED" } else { "" }
    );
    regressed
}

/// Returns instructions per operation: the difference of a long and a short run, without start-up.
fn instructions(program: &Path, path: &HotPath, times: u64) -> anyhow::Result<f64> {
    const FEW: u64 = 640;
    const MANY: u64 = 6_400;
    let collected = |count: u64| -> anyhow::Result<u64> {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["--only", path.name, &(count * times).to_string()])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "valgrind: {said}");
        let line = said.lines().find_map(|line| line.split_once("Collected : "));
        let (_, number) = line.with_context(|| format!("valgrind counted nothing: {said}"))?;
        Ok(number.trim().parse()?)
    };
    Ok((collected(MANY)? - collected(FEW)?) as f64 / (MANY - FEW) as f64)
}

/// Returns CPU time per operation in rounds of the reference loop, both timed alternately.
fn rounds(path: &HotPath, times: u64) -> f64 {
    let (mut operation, mut round) = (f64::MAX, f64::MAX);
    for _ in 0..SAMPLES {
        let before = cpu_nanos();
        black_box((path.run)(black_box(OPERATIONS * times)));
        operation = operation.min((cpu_nanos() - before) / OPERATIONS as f64);
        let before = cpu_nanos();
        black_box(reference(black_box(OPERATIONS)));
        round = round.min((cpu_nanos() - before) / OPERATIONS as f64);
    }
    operation / round
}

/// Reference work: an allocation, a copy of 100 bytes, and a walk over them.
fn reference(count: u64) -> u64 {
    let source = [0x5au8; 100];
    (0..count).fold(0, |sum, number| {
        let copy = black_box(source.to_vec());
        copy.iter().fold(sum ^ number, |sum, byte| sum.rotate_left(5).wrapping_add(u64::from(*byte)))
    })
}

fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_instructions_are_a_regression() {
        let work = |instructions, reference_rounds| Work { instructions, reference_rounds };
        assert!(!compare("a", &work(Some(1_000.0), 10.0), &work(Some(1_040.0), 30.0)));
        assert!(compare("a", &work(Some(1_000.0), 10.0), &work(Some(1_060.0), 10.0)));
        assert!(!compare("a", &work(Some(1_000.0), 10.0), &work(None, 14.0)));
        assert!(compare("a", &work(Some(1_000.0), 10.0), &work(None, 16.0)));
    }
}
