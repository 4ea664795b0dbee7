//! Options of the commands that read and write keys.

use super::parse::{address, name, ttl};
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `archon kv`, and its commands.
#[derive(clap::Args, Debug)]
pub(crate) struct KvArgs {
    /// Name of the table; `export` and `import` take it as an argument instead.
    #[arg(long, global = true, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// Connect to this node only; it forwards requests for partitions led by other nodes. --coordinators is not needed
    /// then.
    #[arg(long, global = true, value_name = "H:P", value_parser = address)]
    pub(crate) via: Option<String>,
    /// Read and print keys as hexadecimal digits, two per byte: for keys that are not UTF-8. Applies to KEY, to the
    /// prefix and bounds of `scan`, and to the lines of `batch`; not to values, `export` and `import`.
    #[arg(long, global = true)]
    pub(crate) hex: bool,
    /// The command.
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
  archon kv put picture - < picture.png        the value comes from standard input, at most 1 MiB
  archon kv put session/1 alice --ttl 10m      gone after ten minutes")]
    Put {
        /// Key: 1 to 4096 bytes; text, or with --hex any bytes.
        key: String,
        /// Value; `-` reads it from standard input.
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Expire the key after this time, such as 500ms, 10s, 15m, 2h or 30d; default: never.
        #[arg(long, value_name = "TIME", value_parser = ttl)]
        ttl: Option<Duration>,
    },
    /// Print the bytes of the value of a key; exit 3 if the key does not exist.
    ///
    /// On a terminal, control characters and bytes that are not UTF-8 are escaped unless --raw is given.
    #[command(after_help = "\
Examples:
  archon kv get city/1
  archon kv get picture > picture.png
  archon kv get city/1 -o json                 with its revision, and when it expires
  archon kv get city/1 --stale                 works without a leader; may be outdated
  archon kv get --hex aced0005                 a key of these four bytes")]
    Get {
        /// Key.
        key: String,
        /// Read from any replica, leader or not: the result may be outdated by any amount of time.
        #[arg(long)]
        stale: bool,
        /// Print the bytes unescaped, even on a terminal, which interprets control characters.
        #[arg(long)]
        raw: bool,
    },
    /// Delete a key; exit 3 if it does not exist.
    #[command(visible_alias = "delete", after_help = "Examples:\n  archon kv del city/1")]
    Del {
        /// Key.
        key: String,
    },
    /// Write a key if it has the given revision; exit 4 otherwise (compare and set).
    ///
    /// Read the revision with `archon kv get KEY -o json` or `archon kv scan`. With --revision 0 the key must not
    /// exist, so that exactly one of several concurrent creators succeeds.
    #[command(after_help = "\
Examples:
  archon kv cas leader alice --revision 0      create it, unless it exists
  archon kv cas city/1 athens --revision 17    overwrite revision 17 only")]
    Cas {
        /// Key: 1 to 4096 bytes; text, or with --hex any bytes.
        key: String,
        /// New value; `-` reads it from standard input.
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Expected revision; 0 if the key must not exist.
        #[arg(long, value_name = "N")]
        revision: u64,
    },
    /// Add to a number and print the sum; a missing key counts as 0.
    ///
    /// The value is a decimal 64-bit integer. If the value is not such a number, or the sum overflows, the command
    /// refuses (exit 4) and changes nothing. A retry after a lost answer does not add twice.
    #[command(
        visible_alias = "increment",
        after_help = "\
Examples:
  archon kv incr visits
  archon kv incr visits 10
  archon kv incr stock/7 -3"
    )]
    Incr {
        /// Key.
        key: String,
        /// Number to add; may be negative.
        #[arg(value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
    },
    /// Run several operations, one per line, from a file or standard input.
    ///
    /// A batch is not a transaction: operations are independent and unordered, and some may succeed while others fail.
    /// All results are printed; the exit code is that of the first failed operation. At most 4096 operations and 4 MiB
    /// of keys and values.
    ///
    /// With --atomic it is one transaction: if every `cas` finds its revision, all lines are carried out together;
    /// otherwise none is.
    /// All keys must be in one partition; in a hashed table, keys with the same `{tag}` are. Lines are `put`, `del` and
    /// `cas` of different keys; at most 1024 of them, and 2 MiB.
    ///
    /// A value is the rest of its line; a key ends at the first space. Write either as a JSON string to include spaces,
    /// line breaks or quotes. Empty lines and lines starting with `#` are skipped.
    #[command(after_help = "\
Lines:
  put KEY VALUE            get KEY            cas KEY REVISION VALUE
  del KEY                  incr KEY [BY]

Examples:
  archon kv batch changes.txt
  printf 'put city/1 athens\\nincr visits\\nget \"a key\"\\n' | archon kv batch
  printf 'cas {bank}a 17 90\\nput {bank}b 110\\n' | archon kv batch --atomic")]
    Batch {
        /// Carry out all operations, or none.
        #[arg(long)]
        atomic: bool,
        /// Input file; default, or with `-`: standard input.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List keys in order, with their values.
    ///
    /// The list is not a snapshot: each partition is read at its own time.
    #[command(after_help = "\
Examples:
  archon kv scan city/
  archon kv scan city/ --after city/17 --limit 100 -o json     the next page
  archon kv scan --prefix --flags                              a prefix that starts with a dash
  archon kv scan --hex aced                                    binary keys with this prefix")]
    Scan(ScanArgs),
    /// Export all keys and values of a table to standard output or a file, as JSON lines or CSV.
    ///
    /// A JSON line is {"key":"…","value":"…"}; a value that is not UTF-8 is stored in "value_hex", with two hexadecimal
    /// digits per byte, and such a key as {"key":{"hex":"…"}}, as in `kv scan -o json`. CSV has the columns key, key_hex,
    /// value and value_hex; key_hex and value_hex are empty for UTF-8. Revisions are not exported: an import assigns new
    /// ones. A value that expires has "expires_at_ms" in JSON lines, which an import keeps; CSV has no column for it.
    ///
    /// Rows are read page by page in key order, so memory use does not depend on the size of the table. The export is
    /// not a snapshot: each partition is read at its own time. An output file appears under its name only when it is
    /// complete.
    #[command(after_help = "\
Examples:
  archon kv export orders > orders.jsonl
  archon kv export orders --to orders.csv                      CSV, because of the file name
  archon kv export orders | archon kv import copy-of-orders")]
    Export(ExportArgs),
    /// Import rows from a file or standard input into a table, as JSON lines or CSV in the format of `kv export`.
    ///
    /// Existing keys are overwritten. If a key occurs on several lines, the last one is stored. The first invalid line
    /// stops the import; the error gives its number. Rows before it are written, rows after it are not. To continue,
    /// correct the line and import the whole file again.
    ///
    /// JSON: one object per line with `key`, and `value` or `value_hex`; `revision` is allowed and ignored. `kv scan -o
    /// json` prints one list of such objects: convert it with `| jq -c '.[]'`. CSV: a header with `key` or `key_hex`, and
    /// `value` or `value_hex`, or both of them, in any order; the last line must end with a line break, so that a
    /// truncated file is detected.
    #[command(after_help = "\
Examples:
  archon kv import orders orders.jsonl
  archon kv import orders orders.csv --dry-run                 check every line without a cluster
  zcat orders.csv.gz | archon kv import orders --format csv
  archon kv scan paid/ --limit 1000 -o json | jq -c '.[]' | archon kv import paid-orders")]
    Import(ImportArgs),
}

/// Format of rows in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum RowFormat {
    /// One JSON object per line.
    Jsonl,
    /// CSV with a header.
    Csv,
}

/// Format option.
#[derive(clap::Args, Clone, Default, Debug)]
pub(crate) struct FormatArgs {
    /// Format: `jsonl` (one JSON object per line) or `csv`; default: `csv` for a file name that ends with .csv, `jsonl`
    /// otherwise.
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
    /// Name of the table.
    #[arg(value_name = "TABLE", value_parser = name)]
    pub(crate) of: String,
    /// Output file; default: standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Format option.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Options of `archon kv import`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    /// Name of the table.
    #[arg(value_name = "TABLE", value_parser = name)]
    pub(crate) into: String,
    /// Input file; default, or with `-`: standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Format option.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Check every line without writing; needs no cluster.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `archon kv scan`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ScanArgs {
    /// Only keys with this prefix.
    #[arg(value_name = "PREFIX", conflicts_with = "dashed")]
    prefix: Option<String>,
    /// Same as PREFIX, also for a prefix that starts with a dash.
    #[arg(long = "prefix", id = "dashed", value_name = "PREFIX", allow_hyphen_values = true)]
    dashed: Option<String>,
    /// Lower bound: only this key and greater ones, also with --reverse.
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// Upper bound: only keys less than this one.
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
    /// List in descending order; --from stays the lower bound.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Only keys after this one in the listed order: continues an earlier listing.
    #[arg(long, value_name = "K", default_value = "", allow_hyphen_values = true)]
    pub(crate) after: String,
    /// Maximum number of keys, 1 to 100000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

impl ScanArgs {
    /// Returns the prefix of the keys; empty for all keys.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_deref().or(self.dashed.as_deref()).unwrap_or_default()
    }
}
