//! Measuring tools. They print figures and judge nothing: machines differ, so compare ratios within one run.
//!
//! Each tool starts its own cluster of real processes. The processes are the tool itself in another role: given a verb
//! of the command line as its first argument, it becomes `archon`.

mod tool;
pub mod traffic;

pub use tool::{TableArgs, ToolArgs};
pub use traffic::{Keys, Traffic};

use std::process::ExitCode;
use std::time::Duration;

/// Becomes `archon` if the first argument is one of its verbs; call this first in `main`.
pub fn become_archon() -> Option<ExitCode> {
    let verbs = ["coordinator", "node", "status", "table", "partition", "rebalance", "kv"];
    let first = std::env::args().nth(1)?;
    verbs.contains(&first.as_str()).then(|| archon_cli::main_with(std::env::args_os()))
}

/// The path of this program, for starting it in another role.
///
/// # Errors
/// If the system does not tell.
pub fn own_path() -> anyhow::Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// Minimum, median and maximum as one line of milliseconds.
pub fn spread(mut samples: Vec<Duration>) -> String {
    samples.sort_unstable();
    let (Some(min), Some(max)) = (samples.first(), samples.last()) else { return "no samples".into() };
    let median = samples[samples.len() / 2];
    format!("min {} ms, median {} ms, max {} ms", min.as_millis(), median.as_millis(), max.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_three() {
        let samples = [30, 10, 20].map(Duration::from_millis).to_vec();
        assert_eq!(spread(samples), "min 10 ms, median 20 ms, max 30 ms");
    }
}
