//! Cuts the power of a whole cluster in the middle of writes, repeatedly, and checks that acknowledged writes survive.
//!
//! `power-loss [ROUNDS] [SEED] [COPIES] [ENGINE] [ranges]`, as root; with `ranges` the power fails as soon as a
//! partition is split. The seed decides when the power fails and how much was written back by then, as far as real
//! processes are repeatable. Exits with 1 if an acknowledged write is missing or a read contradicted it.

use archon_integration_tests::image::DiskImage;
use archon_integration_tests::power::PowerLoss;
use std::process::ExitCode;

fn argument<T: std::str::FromStr>(at: usize, otherwise: T) -> T {
    std::env::args().nth(at).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("{text:?} will not do; usage: power-loss [ROUNDS] [SEED] [COPIES] [ENGINE] [ranges]");
            std::process::exit(2);
        })
    })
}

fn main() -> ExitCode {
    let engine = match argument(4, String::new()).as_str() {
        "" => None,
        "sled" => Some("sled"),
        "lsm" => Some("lsm"),
        other => {
            eprintln!("{other:?} is not an engine; use lsm or sled");
            return ExitCode::from(2);
        }
    };
    let ranges = match argument(5, String::new()).as_str() {
        "" => false,
        "ranges" => true,
        other => {
            eprintln!("{other:?} will not do; the fifth argument is `ranges`, or left out");
            return ExitCode::from(2);
        }
    };
    let run = PowerLoss { rounds: argument(1, 20), seed: argument(2, 1), replication: argument(3, 3), engine, ranges };
    if let Err(why) = DiskImage::check_allowed() {
        eprintln!("this machine does not let a program mount disks: {why}");
        return ExitCode::from(2);
    }
    let Some(exe) = std::env::current_exe().ok().map(|exe| exe.with_file_name("archon-under-test")) else {
        eprintln!("cannot find the program under test beside this one");
        return ExitCode::from(2);
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start a runtime: {error}");
            return ExitCode::from(2);
        }
    };
    println!("{run:?}");
    let (report, missing) = run.run(&exe.display().to_string(), &runtime);
    println!("{} operations, {} keys read back", report.operations, report.acknowledged.len());
    for line in report.failures.iter().chain(&missing).take(50) {
        println!("{line}");
    }
    if report.failures.is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
