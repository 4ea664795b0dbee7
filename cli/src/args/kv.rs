//! Options of the verbs that read and write keys.

use super::parse::name;
use clap::Subcommand;
use std::path::PathBuf;

/// Options of `archon kv`, and its verbs.
#[derive(clap::Args, Debug)]
pub(crate) struct KvArgs {
    /// The table.
    #[arg(long, global = true, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: KvVerb,
}

/// `archon kv …`
#[derive(Subcommand, Debug)]
pub(crate) enum KvVerb {
    /// Write a key.
    #[command(after_help = "\
Examples:
  archon kv put city/1 athens
  archon kv put picture - < picture.png        the value comes from standard input, at most 1 MiB")]
    Put {
        /// The key: 1 to 4096 bytes of UTF-8.
        key: String,
        /// The value; `-` reads it from standard input.
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Print the value of a key, alone and byte for byte; exit 3 if there is none.
    #[command(after_help = "\
Examples:
  archon kv get city/1
  archon kv get picture > picture.png
  archon kv get city/1 -o json                 with its revision")]
    Get {
        /// The key.
        key: String,
    },
    /// Remove a key; exit 3 if there was none.
    #[command(visible_alias = "delete", after_help = "Examples:\n  archon kv del city/1")]
    Del {
        /// The key.
        key: String,
    },
    /// Write a key if nobody has changed it meanwhile; exit 4 if somebody has.
    ///
    /// The key must have the revision that you read before (`archon kv get KEY -o json`, `archon kv scan`). With
    /// --revision 0 it must be absent, so that of several who try to create a key exactly one succeeds.
    #[command(after_help = "\
Examples:
  archon kv cas leader alice --revision 0      create it, if nobody did before
  archon kv cas city/1 athens --revision 17    overwrite revision 17 and no other")]
    Cas {
        /// The key: 1 to 4096 bytes of UTF-8.
        key: String,
        /// The new value; `-` reads it from standard input.
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// The revision it must have; 0 if it must be absent.
        #[arg(long, value_name = "N")]
        revision: u64,
    },
    /// Add to a number and print the sum; a key that is absent counts as 0.
    ///
    /// The value is a decimal integer of 64 bits. A value that is none, or a sum that does not fit, is refused (exit 4)
    /// and nothing is changed. A retry after a lost answer does not add twice.
    #[command(
        visible_alias = "increment",
        after_help = "\
Examples:
  archon kv incr visits
  archon kv incr stock/7 --by -3"
    )]
    Incr {
        /// The key.
        key: String,
        /// What to add; may be negative.
        #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
        by: i64,
    },
    /// Run several operations in one call, one per line, from a file or standard input.
    ///
    /// This is not a transaction: each operation stands on its own, in no order, and some may succeed while others fail.
    /// All results are printed; if an operation failed, the exit code is that of the first that did. At most 4096
    /// operations and 4 MiB of keys and values.
    ///
    /// A value is the rest of its line; a key ends at the first space. Write either as a JSON string to give it spaces,
    /// line breaks or quotes. Empty lines and lines that begin with `#` are skipped.
    #[command(after_help = "\
Lines:
  put KEY VALUE            get KEY            cas KEY REVISION VALUE
  del KEY                  incr KEY [BY]

Examples:
  archon kv batch changes.txt
  printf 'put city/1 athens\\nincr visits\\nget \"a key\"\\n' | archon kv batch")]
    Batch {
        /// The file; without it, or for `-`, standard input is read.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List keys in order, with their values.
    ///
    /// The list is not a snapshot: each partition is read as of its own moment.
    #[command(after_help = "\
Examples:
  archon kv scan --prefix city/
  archon kv scan --prefix city/ --after city/17 --limit 100 -o json     the next page
  archon kv scan --prefix --flags                                       a prefix may begin with a dash")]
    Scan(ScanArgs),
    /// Measure reads and writes quickly; `archon bench` is the long way, with more to choose.
    ///
    /// Writes keys under `bench/` and leaves them there.
    #[command(after_help = "\
Examples:
  archon kv bench
  archon kv bench --seconds 30 --clients 64 --value-bytes 1024 --mix get=50,put=50")]
    Bench(KvBenchArgs),
}

/// Options of `archon kv scan`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ScanArgs {
    /// Only keys that begin with this.
    #[arg(long, value_name = "P", default_value = "", allow_hyphen_values = true)]
    pub(crate) prefix: String,
    /// Only keys after this one.
    #[arg(long, value_name = "K", default_value = "", allow_hyphen_values = true)]
    pub(crate) after: String,
    /// At most this many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

/// Options of `archon kv bench`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct KvBenchArgs {
    /// How long to measure, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(crate) seconds: u32,
    /// How many operations may be under way at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) clients: u32,
    /// How large the written values are, in bytes.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// How many different keys are used.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) keys: u32,
    /// Shares of reads and writes in percent.
    #[arg(long, value_name = "MIX", default_value = "get=80,put=20", value_parser = mix)]
    pub(crate) mix: Mix,
}

/// Shares of reads and writes; they add up to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mix {
    /// Reads, in percent.
    pub(crate) get_percent: u8,
}

/// `get=80,put=20`.
fn mix(text: &str) -> Result<Mix, String> {
    let wrong = || format!("{text:?} is no mix; write two shares that add up to 100, as in get=80,put=20");
    let (mut get, mut put) = (None, None);
    for part in text.split(',') {
        let (what, share) = part.trim().split_once('=').ok_or_else(wrong)?;
        let share: u8 = share.parse().map_err(|_| wrong())?;
        let slot = match what {
            "get" => &mut get,
            "put" => &mut put,
            _ => return Err(wrong()),
        };
        if slot.replace(share).is_some() {
            return Err(wrong());
        }
    }
    let (get, put) = (get.unwrap_or(0), put.unwrap_or(0));
    if u16::from(get) + u16::from(put) != 100 {
        return Err(wrong());
    }
    Ok(Mix { get_percent: get })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_adds_up() {
        assert_eq!(mix("get=80,put=20"), Ok(Mix { get_percent: 80 }));
        assert_eq!(mix("put=100"), Ok(Mix { get_percent: 0 }));
        for bad in ["", "get", "get=80", "get=80,put=30", "get=50,get=50", "del=100", "get=300,put=0"] {
            assert!(mix(bad).is_err(), "{bad:?}");
        }
    }
}
