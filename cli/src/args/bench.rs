//! Options of the verbs that measure.

use super::bootstrap::failover;
use super::copy_rate;
use super::parse::{duration, engine, name, split_size};
use archon_kvstore_node::EngineKind;
use archon_load::Distribution;
use archon_load::attack::Attack;
use archon_types::Failover;
use clap::Subcommand;
use serde::Serialize;
use std::time::Duration;

/// Options of `archon bench`, and its verbs.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArgs {
    /// The table.
    #[arg(long, global = true, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// What to measure.
    #[command(subcommand)]
    pub(crate) verb: BenchVerb,
}

/// `archon bench …`
#[derive(Subcommand, Debug)]
pub(crate) enum BenchVerb {
    /// Measure writes.
    #[command(after_help = "\
Examples:
  archon bench put
  archon bench put --clients 256 --duration 30s --value-bytes 1024
  archon bench put --clients 64 --rate 20000        latency at a fixed rate, stalls included")]
    Put(LoadArgs),
    /// Measure linearizable reads, each checked against what was written.
    #[command(after_help = "\
Examples:
  archon bench get
  archon bench get --clients 256 --distribution zipfian:0.99
  archon bench get --no-load                        the keys are there from a run before")]
    Get(ReadArgs),
    /// Measure reads and writes together.
    #[command(after_help = "\
Examples:
  archon bench mixed --read-percent 95
  archon bench mixed --read-percent 50 --clients 64 -o json")]
    Mixed {
        /// Reads among the operations, in percent; the others are writes.
        #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u8).range(..=100))]
        read_percent: u8,
        /// Everything else.
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Measure ordered scans, each from a random key.
    #[command(after_help = "\
Examples:
  archon bench scan --clients 16
  archon bench scan --limit 1000 --duration 30s")]
    Scan {
        /// Entries per scan.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Everything else.
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Measure how long writers and readers stand still while a node dies, and whether an acknowledged write is lost.
    ///
    /// With --pid the node is killed at the right moment, with --local it is one of a cluster of its own; otherwise end a
    /// node yourself when told to. To a cluster of its own other things can be done as well, with --disturb. Reported is the
    /// longest time between two successes of one prober, over all probers.
    #[command(after_help = "\
Examples:
  archon bench failover --local
  archon bench failover --pid 4711 --duration 10s
  archon bench failover --duration 60s              then end a node by hand
  archon bench failover --local --disturb stop --disturb outage --rounds 4")]
    Failover(FailoverArgs),
    /// Measure how long writers and readers stand still while a rebalance is planned and carried out.
    #[command(after_help = "\
Examples:
  archon bench rebalance --local
  archon bench rebalance --local --keys 1000000     what many keys and their clients make of it
  archon bench rebalance --local --keys 1000000 --clients 0 --beside-cp   how fast it is beside cp
  archon bench rebalance --writers 96")]
    Rebalance(MovesArgs),
    /// Measure how long writers stand still while a partition is split, those of keys that stay and those of keys that move.
    ///
    /// Makes the table `bench-split` for that, of one range of keys, and drops it at the end.
    #[command(after_help = "\
Examples:
  archon bench split --local --keys 1000000
  archon bench split --keys 100000 --value-bytes 100")]
    Split(SplitArgs),
    /// Measure a table by ranges that begins as one partition and is split by itself as it fills: how fast it takes writes, how long
    /// they wait at most, how even its partitions are, and what scans in order bring, beside a table whose keys are hashed.
    ///
    /// Leaderships and copies are moved meanwhile wherever they stand unevenly. Makes the tables `bench-grow` and
    /// `bench-grow-hashed` for that, and drops them at the end.
    #[command(after_help = "\
Examples:
  archon bench grow --local
  archon bench grow --local --keys 5000000 --order spread
  archon bench grow --split-above 256MiB --scan-keys 0      no scans")]
    Grow(GrowArgs),
    /// Measure how much abusive clients slow down ordinary ones.
    ///
    /// `scans`: messages that each hold 4,096 scans. `slow-readers`: ask for large replies and never read them.
    /// `half-messages`: begin messages and never end them. `connections`: open connections as fast as they are let in.
    /// `new-clients`: use a new client id for every write. Prints the p99 latency of ordinary operations without and with
    /// each attack. Not for a cluster that others use.
    #[command(after_help = "\
Examples:
  archon bench attack --local
  archon bench attack --attack scans --attack slow-readers --duration 20s -o json")]
    Attack(AttackArgs),
}

/// Options of `archon bench attack`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AttackArgs {
    /// Which attack, one after the other; all of them if none is named.
    #[arg(long = "attack", value_name = "NAME", value_parser = attack)]
    pub(crate) attacks: Vec<Attack>,
    /// Ordinary clients.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) clients: u32,
    /// How long to measure without an attack, and with it.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// A cluster of the measurement's own.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    /// Use a cluster of its own on this machine, of three coordinators and three nodes, and end it afterwards.
    #[arg(long)]
    pub(crate) local: bool,
    /// Partitions of that cluster.
    #[arg(long, value_name = "N", requires = "local", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) partitions: u32,
    /// Copies of each of them.
    #[arg(long, value_name = "N", requires = "local", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) replication: u8,
    /// How soon others take over from a node of it that died: `standard` or `fast`.
    #[arg(long, value_name = "PROFILE", requires = "local", default_value = "standard", value_parser = failover)]
    pub(crate) failover: Failover,
    /// The storage engine of its nodes, `sled` or `fjall`; otherwise what a node takes by itself.
    #[arg(long, value_name = "ENGINE", requires = "local", value_parser = engine)]
    pub(crate) engine: Option<EngineKind>,
    /// Rate at which its nodes pull copies, in bytes per second; 0 is no limit. Otherwise copies rest while clients use the nodes.
    #[arg(long, value_name = "BYTES", requires = "local", value_parser = copy_rate)]
    pub(crate) copy_bytes_per_second: Option<u64>,
    /// Keep its data and logs.
    #[arg(long, requires = "local")]
    pub(crate) keep: bool,
    /// Have its processes talk by TLS, with certificates of an authority that is made for it.
    #[arg(long, requires = "local")]
    pub(crate) tls: bool,
}

/// What is done to a cluster of the measurement's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disturbance {
    /// Nothing: a baseline for comparison.
    Calm,
    /// The node that leads most is killed, and started again when the others have taken over.
    Kill,
    /// The node that leads most is stopped gracefully, and started again.
    Stop,
    /// A fourth node joins and partitions are moved to it; in the next round it is drained.
    Move,
    /// The leading coordinator is killed, and started again.
    CoordinatorLeader,
    /// All coordinators are killed at once and started again.
    QuorumKill,
    /// All coordinators are stopped at once and started again.
    QuorumStop,
    /// All coordinators are down for a while.
    Outage,
}

impl Disturbance {
    /// Returns its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Move => "move",
            Self::CoordinatorLeader => "coordinator-leader",
            Self::QuorumKill => "quorum-kill",
            Self::QuorumStop => "quorum-stop",
            Self::Outage => "outage",
        }
    }
}

/// Who watches how long nothing goes on.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ProbeArgs {
    /// Writers, each with a key of its own in a closed loop, spread over the partitions.
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub(crate) writers: u16,
    /// Readers besides, likewise.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(..=4_096))]
    pub(crate) readers: u16,
    /// How long to measure the undisturbed baseline first.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) calm: Duration,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Options of `archon bench failover`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FailoverArgs {
    /// The node to kill (SIGKILL): its process id on this machine.
    #[arg(long, value_name = "PID", conflicts_with = "local")]
    pub(crate) pid: Option<u32>,
    /// What is done to a cluster of its own, one after the other; a node is killed if nothing is named.
    #[arg(long = "disturb", value_name = "WHAT", requires = "local", value_enum)]
    pub(crate) disturb: Vec<Disturbance>,
    /// How often each of these is done.
    #[arg(long, value_name = "N", requires = "local", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// How long all coordinators are down in an outage.
    #[arg(long, value_name = "TIME", requires = "local", default_value = "60s", value_parser = duration)]
    pub(crate) outage: Duration,
    /// How long to watch what each disturbance does.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Everything else.
    #[command(flatten)]
    pub(crate) probe: ProbeArgs,
}

/// Options of `archon bench rebalance`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MovesArgs {
    /// Write so many keys first, and read and write them before, while and after partitions move.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) keys: Option<u64>,
    /// How large their values are, in bytes.
    #[arg(long, value_name = "N", requires = "keys", default_value_t = 1_024)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// How many clients read them, and how many others write them; 0 to move them while nobody uses them.
    #[arg(long, value_name = "N", requires = "keys", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4_096))]
    pub(crate) clients: u32,
    /// Operations that the readers begin per second, and the writers likewise; otherwise each client goes on as soon as it has its answer.
    #[arg(long, value_name = "N", requires = "keys", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Copy a file of as many bytes as were moved with `cp --sparse=never` at the end, on the disk of the cluster's data, and tell how fast
    /// that is. Takes twice as much space.
    #[arg(long, requires = "keys", requires = "local")]
    pub(crate) beside_cp: bool,
    /// Everything else.
    #[command(flatten)]
    pub(crate) probe: ProbeArgs,
}

/// Options of `archon bench split`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SplitArgs {
    /// Write so many keys first; the upper half of them moves.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) keys: u64,
    /// How large their values are, in bytes.
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// How many clients read all of them meanwhile, and how many others write them.
    #[arg(long, value_name = "N", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) clients: u32,
    /// Writers in each half, each with a key of its own in a closed loop, of whom the gaps are told.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub(crate) writers: u16,
    /// How long to measure before and after.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) calm: Duration,
    /// Merge the two again at the end, and tell what that costs, too. What goes from one log to the other is limited, so
    /// that the upper half is not to be large.
    #[arg(long)]
    pub(crate) merge: bool,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// In which order keys are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WriteOrder {
    /// One after the other, as times or numbers that count up: all writes go to the last partition.
    Ascending,
    /// All over the keys, as hashes or random numbers: writes go to all partitions alike.
    Spread,
}

/// Options of `archon bench grow`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct GrowArgs {
    /// How many keys are written, each once.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) keys: u64,
    /// How large their values are, in bytes; keys have 16.
    #[arg(long, value_name = "N", default_value_t = 184)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// In which order.
    #[arg(long, value_enum, default_value = "ascending")]
    pub(crate) order: WriteOrder,
    /// Writes under way at once, each issued by a client that waits for its answer.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) clients: u32,
    /// The size of keys and values above which a partition is split, 1MiB at least.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = split_size)]
    pub(crate) split_above: u64,
    /// How often it is told how far it is.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) every: Duration,
    /// How many keys are scanned in order at the end; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) scan_keys: u64,
    /// Which cluster.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// How much load, and for how long.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Operations under way at once, each issued by a client that waits for its answer.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) clients: u32,
    /// Client libraries, each with a connection per node, that the clients share.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) connections: u32,
    /// Threads that drive the clients; at most one per client library.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// How many different keys are used.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) keys: u64,
    /// How large the values are, in bytes.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// How often which key: `uniform`, or `zipfian` with its skew theta, as zipfian:0.99.
    #[arg(long, value_name = "D", default_value = "uniform", value_parser = distribution)]
    pub(crate) distribution: Distribution,
    /// How long to measure, after the warm-up.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Measure so many operations instead.
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// What is done before anything is counted; 0 for nothing.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration_or_none)]
    pub(crate) warmup: Duration,
    /// Begin so many operations per second, all clients together, and count latency from when each was to begin.
    /// Without it every client goes on as soon as it has its answer.
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
}

/// Options of what reads keys, which must be there.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ReadArgs {
    /// How much.
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// The keys are there already: do not write them first.
    #[arg(long)]
    pub(crate) no_load: bool,
}

/// Parses a duration, or 0.
fn duration_or_none(text: &str) -> Result<Duration, String> {
    if matches!(text.trim(), "0" | "0s" | "0ms") { Ok(Duration::ZERO) } else { duration(text) }
}

/// Parses the name of an attack.
fn attack(text: &str) -> Result<Attack, String> {
    text.parse()
}

/// Parses operations per second.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is no number of operations per second"))?;
    if rate.is_finite() && rate >= 0.1 { Ok(rate) } else { Err("a rate is at least 0.1 per second".to_owned()) }
}

/// Parses `uniform`, `zipfian`, `zipfian:0.99`.
fn distribution(text: &str) -> Result<Distribution, String> {
    let (name, theta) = text.split_once(':').map_or((text, None), |(name, theta)| (name, Some(theta)));
    let theta: f64 = match theta {
        None => 0.99,
        Some(theta) => theta.parse().map_err(|_| format!("{theta:?} is no theta; write zipfian:0.99"))?,
    };
    match name {
        "uniform" if !text.contains(':') => Ok(Distribution::Uniform),
        "zipfian" if theta > 0.0 && theta < 1.0 => Ok(Distribution::Zipfian { theta }),
        "zipfian" => Err(format!("theta is {theta}; it must be between 0 and 1, as in zipfian:0.99")),
        _ => Err(format!("{text:?} is no distribution; write uniform or zipfian:0.99")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_distributions_and_rates_show_a_valid_one() {
        assert_eq!(distribution("uniform"), Ok(Distribution::Uniform));
        assert_eq!(distribution("zipfian"), Ok(Distribution::Zipfian { theta: 0.99 }));
        assert_eq!(distribution("zipfian:0.5"), Ok(Distribution::Zipfian { theta: 0.5 }));
        for bad in ["", "normal", "zipfian:1", "zipfian:0", "zipfian:x", "uniform:1", "zipfian:NaN"] {
            assert!(distribution(bad).is_err(), "{bad:?}");
        }
        assert_eq!(rate("2.5"), Ok(2.5));
        assert!(["0", "-1", "inf", "NaN", "many"].iter().all(|bad| rate(bad).is_err()));
        assert_eq!(duration_or_none("0"), Ok(Duration::ZERO));
        assert!(duration_or_none("3").is_err());
    }
}
