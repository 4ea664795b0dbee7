//! `archon-fuzz`: long runs, replays, and writing the corpus.

use archon_fuzz::driver::{self, RunLength};
use archon_fuzz::target::Target;
use archon_fuzz::{corpus, targets};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Feed damaged bytes to the decoders of wire and disk, for as long as you like.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the targets.
    List,
    /// Run all targets in turn, or those whose name contains TARGET. A finding is written to the corpus.
    Run {
        /// Part of a target's name; all when left out.
        target: Option<String>,
        /// Minutes for each target.
        #[arg(long, default_value_t = 1)]
        minutes: u64,
        /// The seed of the first; the others follow from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run one file through one target and print what it says.
    Replay {
        /// The target's name.
        target: String,
        /// The file.
        file: PathBuf,
    },
    /// Write real encodings to the corpus. Do it after a change of a format.
    Corpus,
}

fn main() -> ExitCode {
    match go(Arguments::parse().verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn go(verb: Verb) -> Result<bool, String> {
    match verb {
        Verb::List => {
            targets::all().iter().for_each(|target| println!("{}", target.name));
            Ok(true)
        }
        Verb::Run { target, minutes, seed } => {
            let wanted = target.unwrap_or_default();
            let chosen: Vec<Target> = targets::all().into_iter().filter(|t| t.name.contains(&wanted)).collect();
            if chosen.is_empty() {
                return Err(format!("no target's name contains {wanted:?}; `list` shows them"));
            }
            let mut clean = true;
            for (number, target) in chosen.iter().enumerate() {
                clean &= long(target, seed.wrapping_add(number as u64), minutes)?;
            }
            Ok(clean)
        }
        Verb::Replay { target, file } => {
            let found = targets::all().into_iter().find(|t| t.name == target);
            let target = found.ok_or_else(|| format!("no target is called {target:?}; `list` shows them"))?;
            let input = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            match driver::try_one(&target, &input) {
                Ok(verdict) => println!("{verdict:?}"),
                Err(finding) => println!("{finding}"),
            }
            Ok(true)
        }
        Verb::Corpus => {
            for target in targets::all() {
                let written = corpus::write(&target, "real", &(target.seeds)()).map_err(|error| error.to_string())?;
                println!("{}: {written}", target.name);
            }
            Ok(true)
        }
    }
}

fn long(target: &Target, seed: u64, minutes: u64) -> Result<bool, String> {
    match driver::run(target, seed, RunLength::Time(Duration::from_secs(60 * minutes))) {
        Ok(summary) => {
            println!(
                "{}: {} inputs, {} accepted, {} different answers",
                target.name, summary.inputs, summary.accepted, summary.answers
            );
            Ok(true)
        }
        Err(finding) => {
            let name = format!("found-{seed}");
            corpus::write(target, &name, std::slice::from_ref(&finding.input)).map_err(|error| error.to_string())?;
            println!("{finding}\nkept as {}/{name}-0", corpus::folder(target).display());
            Ok(false)
        }
    }
}
