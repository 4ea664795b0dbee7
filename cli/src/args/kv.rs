//! Options of the verbs that read and write keys.

use super::parse::{address, name};
use clap::Subcommand;
use std::path::{Path, PathBuf};

/// Options of `archon kv`, and its verbs.
#[derive(clap::Args, Debug)]
pub(crate) struct KvArgs {
    /// The table.
    #[arg(long, global = true, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// Go to this node alone: it passes on what other nodes lead. No coordinator need be named then.
    #[arg(long, global = true, value_name = "H:P", value_parser = address)]
    pub(crate) via: Option<String>,
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
    ///
    /// On a terminal, control characters and bytes that are not UTF-8 are escaped unless --raw is given.
    #[command(after_help = "\
Examples:
  archon kv get city/1
  archon kv get picture > picture.png
  archon kv get city/1 -o json                 with its revision
  archon kv get city/1 --stale                 also while nobody leads; perhaps not the newest")]
    Get {
        /// The key.
        key: String,
        /// Read at any copy, leader or not: what was committed as of some revision, which may be long ago.
        #[arg(long)]
        stale: bool,
        /// Print the bytes as they are, also on a terminal, which obeys what they command.
        #[arg(long)]
        raw: bool,
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
  archon kv incr visits 10
  archon kv incr stock/7 -3"
    )]
    Incr {
        /// The key.
        key: String,
        /// What to add; may be negative.
        #[arg(value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
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
  archon kv scan city/
  archon kv scan city/ --after city/17 --limit 100 -o json     the next page
  archon kv scan --prefix --flags                              a prefix may begin with a dash")]
    Scan(ScanArgs),
    /// Write every key of a table with its value to standard output or a file, in lines of JSON or as CSV.
    ///
    /// A line of JSON is {"key":"…","value":"…"}; a value that is not UTF-8 stands as "value_hex", two hexadecimal digits for each byte, as
    /// in `kv scan -o json`. CSV has the columns key, value and value_hex, of which the last is empty for a value that is text. Keys
    /// are UTF-8 always. Revisions are not exported: they belong to the table, and an import makes new ones.
    ///
    /// Rows come in order of the keys, a page at a time, so that a table of any size needs little memory. It is no snapshot: each
    /// partition is read as of its own moment. A file stands under its name only once it is whole.
    #[command(after_help = "\
Examples:
  archon kv export orders > orders.jsonl
  archon kv export orders --to orders.csv                      CSV, by the name of the file
  archon kv export orders | archon kv import copy-of-orders")]
    Export(ExportArgs),
    /// Write the rows of a file or of standard input into a table, from lines of JSON or from CSV, as `kv export` writes them.
    ///
    /// A key that is there already is written over. Of two lines with one key the later one counts. The first line that is wrong ends it, and
    /// is told by number: what stands before it is written, and nothing after it. To go on, mend the line and import the whole again.
    ///
    /// JSON: an object on each line, with `key`, and `value` or `value_hex`; `revision` may stand there and is not looked at. What
    /// `kv scan -o json` prints is one list of such objects: `| jq -c '.[]'` puts each on its line. CSV: a header with `key`, and `value` or `value_hex` or both, in any order; the
    /// last line must end, too, so that a file that was cut off is told from a whole one.
    #[command(after_help = "\
Examples:
  archon kv import orders orders.jsonl
  archon kv import orders orders.csv --dry-run                 checks every line, and asks no cluster
  zcat orders.csv.gz | archon kv import orders --format csv
  archon kv scan paid/ --limit 1000 -o json | jq -c '.[]' | archon kv import paid-orders")]
    Import(ImportArgs),
}

/// How rows are written in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum RowFormat {
    /// An object of JSON on each line.
    Jsonl,
    /// CSV with a header.
    Csv,
}

/// How rows are written, where that is said.
#[derive(clap::Args, Clone, Default, Debug)]
pub(crate) struct FormatArgs {
    /// `jsonl` (an object of JSON on each line) or `csv`; otherwise by the file's name (.csv), or jsonl.
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<RowFormat>,
}

impl FormatArgs {
    /// Returns the given format, or the one of the file's name.
    pub(crate) fn of(&self, file: Option<&Path>) -> RowFormat {
        let is_csv = file.and_then(Path::extension).is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        self.format.unwrap_or(if is_csv { RowFormat::Csv } else { RowFormat::Jsonl })
    }
}

/// Options of `archon kv export`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExportArgs {
    /// The table.
    #[arg(value_name = "T", value_parser = name)]
    pub(crate) of: String,
    /// The file; without it rows go to standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// How rows are written.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Options of `archon kv import`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    /// The table.
    #[arg(value_name = "T", value_parser = name)]
    pub(crate) into: String,
    /// The file; without it, or for `-`, standard input is read.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How rows are written.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Check every line, and write nothing; no cluster is asked.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `archon kv scan`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ScanArgs {
    /// Only keys that begin with this.
    #[arg(value_name = "PREFIX", conflicts_with = "dashed")]
    prefix: Option<String>,
    /// The same, also for one that begins with a dash.
    #[arg(long = "prefix", id = "dashed", value_name = "PREFIX", allow_hyphen_values = true)]
    dashed: Option<String>,
    /// Only this key and greater ones: the lower end, whatever the order.
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// Only keys that are less than this one.
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
    /// The greatest key first. --from stays the lower end.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Only keys beyond this one, in the order listed: to go on where a listing ended.
    #[arg(long, value_name = "K", default_value = "", allow_hyphen_values = true)]
    pub(crate) after: String,
    /// At most this many; 100000 at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

impl ScanArgs {
    /// Returns the prefix of the keys; empty for all keys.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_deref().or(self.dashed.as_deref()).unwrap_or_default()
    }
}
