//! Storage engines alone: what a power failure leaves of them, and what hours of overwriting cost.
//!
//! ```text
//! engines power sled --rounds 50 --seed 1     as root: writes, cuts the power, opens, compares with what was synced
//! engines soak fjall --seconds 300            overwrites and reads; latency, space and memory as it goes
//! ```
//!
//! Built with `--features sled-own-syncs` it leaves sled the syncs it makes itself, to see what they are worth.

mod power;
mod soak;
mod workload;

use archon_kvstore_node::EngineKind;
use archon_kvstore_node::engine::{Engine, EngineConfig, EngineError, open_or_quarantine};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Parser)]
#[command(about = "Storage engines alone: power failures and long overwriting")]
enum Command {
    /// Cuts the power in the middle of writes, opens again, and compares with what was synced.
    Power {
        /// sled or fjall.
        engine: EngineKind,
        /// How often the power fails.
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// Decides what is written and when the power fails.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Writes until it is killed, and says what is synced: what `power` starts.
    #[command(hide = true)]
    Write {
        /// sled or fjall.
        engine: EngineKind,
        /// The engine's directory.
        directory: PathBuf,
        /// Decides what is written.
        seed: u64,
        /// The first batch to write.
        from: u64,
    },
    /// Overwrites keys at random for a long time, reads beside it, and tells what it costs.
    Soak {
        /// sled or fjall.
        engine: EngineKind,
        /// How long.
        #[arg(long, default_value_t = 300)]
        seconds: u64,
        /// Distinct keys.
        #[arg(long, default_value_t = 200_000)]
        keys: u64,
        /// Bytes of each value.
        #[arg(long, default_value_t = 1_024)]
        value_bytes: usize,
        /// Most rows written each second; 0 writes as fast as it goes.
        #[arg(long, default_value_t = 0)]
        rate: u64,
        /// Where to put the engine; by default a temporary directory.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
}

/// Opens the engine, and takes one that was set aside for an error.
fn open(kind: EngineKind, directory: &Path) -> Result<Arc<dyn Engine>, EngineError> {
    let config = EngineConfig { kind: Some(kind), ..EngineConfig::default() };
    match open_or_quarantine(directory, &config)? {
        (engine, None) => Ok(engine),
        (_, Some(aside)) => {
            Err(EngineError::Damaged { directory: aside, what: "it did not open and was set aside".into() })
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    match Command::parse() {
        Command::Power { engine, rounds, seed } => power::run(engine, rounds, seed),
        Command::Write { engine, directory, seed, from } => power::write(engine, &directory, seed, from),
        Command::Soak { engine, seconds, keys, value_bytes, rate, directory } => {
            soak::run(engine, &soak::Plan { seconds, keys, value_bytes, rate }, directory)
        }
    }
}
