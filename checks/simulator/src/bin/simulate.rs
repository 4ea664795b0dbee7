//! Runs many seeds, for minutes or all night, and prints their coverage; a failing seed is printed with the command
//! that repeats it.

use archon_simulator::{Coverage, Outcome, first_seed, run};
use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs the simulator over many seeds, or one again with its trace.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Runs this seed alone and prints the end of its trace.
    #[arg(long, conflicts_with_all = ["from", "draw", "count", "minutes", "jobs"])]
    seed: Option<u64>,
    /// How many lines of the trace are printed.
    #[arg(long, default_value_t = 200)]
    lines: usize,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Draws the first seed from a text, a commit or a date, so that another one runs seeds that nobody has seen.
    #[arg(long, conflicts_with = "from")]
    draw: Option<String>,
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// Ends after so many minutes, however many seeds are left.
    #[arg(long)]
    minutes: Option<u64>,
    /// Runs so many seeds at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Goes on after a failing seed.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => one(seed, arguments.lines),
        None => many(&arguments),
    }
}

fn one(seed: u64, lines: usize) -> ExitCode {
    let outcome = run(seed, None, lines.max(1));
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("seed {seed}: {} events, trace hash {:016x}", outcome.coverage.events, outcome.trace_hash);
    match outcome.violation {
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let from = arguments.draw.as_deref().map_or(arguments.from, first_seed);
    if let Some(text) = &arguments.draw {
        println!("seeds from {from} on, drawn from {text:?}");
    }
    let end = from.saturating_add(arguments.count);
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    let (next, stop) = (AtomicU64::new(from), AtomicBool::new(false));
    let (sender, outcomes) = mpsc::channel::<Outcome>();
    let mut total = Coverage::default();
    let (mut seeds, mut failed) = (0_u64, Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let over = limit.is_some_and(|limit| began.elapsed() >= limit);
                    if seed >= end || over || stop.load(Ordering::Relaxed) || sender.send(run(seed, None, 0)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut told = Instant::now();
        for outcome in outcomes {
            seeds += 1;
            total.add(&outcome.coverage);
            if let Some(violation) = outcome.violation {
                println!("seed {}: {violation}", outcome.seed);
                println!("  repeat: cargo run --release -p archon-simulator --bin simulate -- --seed {}", outcome.seed);
                failed.push(outcome.seed);
                if !arguments.keep_going {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            if told.elapsed() >= Duration::from_secs(60) {
                told = Instant::now();
                println!("{seeds} seeds in {} s, {} failed", began.elapsed().as_secs(), failed.len());
            }
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    println!("{seeds} seeds in {seconds:.1} s ({:.0} events/s), failed: {failed:?}", total.events as f64 / seconds);
    for (name, count) in total.counters() {
        println!("  {name:<24} {count}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
