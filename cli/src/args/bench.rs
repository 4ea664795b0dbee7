//! Options of `archon bench`.

use super::bootstrap::failover;
use super::parse::{copy_rate, duration, engine, name, split_size};
use archon_kvstore_node::EngineKind;
use archon_load::Distribution;
use archon_load::attack::Attack;
use archon_types::Failover;
use clap::Subcommand;
use serde::Serialize;
use std::time::Duration;

/// Options of `archon bench`, and its commands.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArgs {
    /// Name of the table.
    #[arg(long, global = true, value_name = "T", default_value = "default", value_parser = name)]
    pub(crate) table: String,
    /// The measurement.
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
  archon bench put --clients 64 --rate 20000        latency at a fixed rate, including stalls")]
    Put(LoadArgs),
    /// Measure linearizable reads, each verified against the written value.
    #[command(after_help = "\
Examples:
  archon bench get
  archon bench get --clients 256 --distribution zipfian:0.99
  archon bench get --no-load                        reuse the keys of an earlier run")]
    Get(ReadArgs),
    /// Measure reads and writes together.
    #[command(after_help = "\
Examples:
  archon bench mixed --read-percent 95
  archon bench mixed --read-percent 50 --clients 64 -o json")]
    Mixed {
        /// Share of reads in percent, 0 to 100; the other operations are writes.
        #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u8).range(..=100))]
        read_percent: u8,
        /// Common options.
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Measure ordered scans, each starting at a random key.
    #[command(after_help = "\
Examples:
  archon bench scan --clients 16
  archon bench scan --limit 1000 --duration 30s")]
    Scan {
        /// Number of entries per scan, 1 to 10000.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Common options.
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Measure how long writes and reads stall while a node fails, and check that no acknowledged write is lost.
    ///
    /// With --pid the command kills that node at the right moment; with --local it kills a node of a temporary cluster.
    /// Otherwise kill a node yourself when the command asks for it. A temporary cluster can also be disturbed in other
    /// ways (--disturb). The reported gap is the longest time between two successes of one prober, over all probers.
    #[command(after_help = "\
Examples:
  archon bench failover --local
  archon bench failover --pid 4711 --duration 10s
  archon bench failover --duration 60s              then kill a node by hand
  archon bench failover --local --disturb stop --disturb outage --rounds 4")]
    Failover(FailoverArgs),
    /// Measure how long writes and reads stall during a rebalance.
    #[command(after_help = "\
Examples:
  archon bench rebalance --local
  archon bench rebalance --local --keys 1000000     with data and client load
  archon bench rebalance --local --keys 1000000 --clients 0 --beside-cp   compare with the speed of cp
  archon bench rebalance --writers 96")]
    Rebalance(MovesArgs),
    /// Measure how long writes stall while a partition is split, for keys that stay and for keys that move.
    ///
    /// Creates the range table `bench-split` and drops it at the end.
    #[command(after_help = "\
Examples:
  archon bench split --local --keys 1000000
  archon bench split --keys 100000 --value-bytes 100")]
    Split(SplitArgs),
    /// Measure a range table that starts as one partition and splits automatically while it is filled.
    ///
    /// Reports the write throughput, the longest stall, the balance of its partitions, and the speed of ordered scans,
    /// compared with a hash table. Leaderships and replicas are rebalanced during the run. Creates the tables
    /// `bench-grow` and `bench-grow-hashed` and drops them at the end.
    #[command(after_help = "\
Examples:
  archon bench grow --local
  archon bench grow --local --keys 5000000 --order spread
  archon bench grow --split-above 256MiB --scan-keys 0      no scans")]
    Grow(GrowArgs),
    /// Measure how much abusive clients slow down ordinary ones. Do not run it against a cluster that others use.
    ///
    /// `scans`: messages that hold 4,096 scans each. `slow-readers`: request large replies and never read them.
    /// `half-messages`: start messages and never finish them. `connections`: open connections as fast as they are
    /// accepted. `new-clients`: use a new client id for every write. `redis`: send half requests, wrong lengths, a million
    /// arguments and the like to the Redis listener, and read no replies. Prints the p99 latency of ordinary operations
    /// without and with each attack.
    #[command(after_help = "\
Examples:
  archon bench attack --local
  archon bench attack --attack scans --attack slow-readers --duration 20s -o json")]
    Attack(AttackArgs),
}

/// Options of `archon bench attack`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AttackArgs {
    /// Attack to run; may be repeated; default: all, one after the other.
    #[arg(long = "attack", value_name = "NAME", value_parser = attack)]
    pub(crate) attacks: Vec<Attack>,
    /// Number of ordinary clients.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) clients: u32,
    /// Duration of each measurement, without and with an attack.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Cluster options.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Options of a temporary cluster.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    /// Use a temporary cluster on this machine, of three coordinators and three nodes, and stop it afterwards.
    #[arg(long)]
    pub(crate) local: bool,
    /// Number of partitions in that cluster.
    #[arg(long, value_name = "N", requires = "local", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) partitions: u32,
    /// Number of replicas of each partition in that cluster.
    #[arg(long, value_name = "N", requires = "local", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) replication: u8,
    /// Profile of time-outs of that cluster: `standard` or `fast`.
    #[arg(long, value_name = "PROFILE", requires = "local", default_value = "standard", value_parser = failover)]
    pub(crate) failover: Failover,
    /// Storage engine of its nodes, `lsm` or `sled`; default: that of `archon node`.
    #[arg(long, value_name = "ENGINE", requires = "local", value_parser = engine)]
    pub(crate) engine: Option<EngineKind>,
    /// Rate limit for copying replicas in that cluster, in bytes per second; 0 for no limit. By default copies pause
    /// while clients use the nodes.
    #[arg(long, value_name = "BYTES", requires = "local", value_parser = copy_rate)]
    pub(crate) copy_bytes_per_second: Option<u64>,
    /// Keep its data and logs.
    #[arg(long, requires = "local")]
    pub(crate) keep: bool,
    /// Use TLS between its processes, with certificates of a temporary authority.
    #[arg(long, requires = "local")]
    pub(crate) tls: bool,
}

/// Disturbance of a temporary cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disturbance {
    /// Nothing: a baseline for comparison.
    Calm,
    /// The node with the most leaderships is killed, and restarted after the others have taken over.
    Kill,
    /// The node with the most leaderships is stopped gracefully and restarted.
    Stop,
    /// A fourth node joins and receives partitions; in the next round it is drained.
    Move,
    /// The leading coordinator is killed and restarted.
    CoordinatorLeader,
    /// All coordinators are killed at once and restarted.
    QuorumKill,
    /// All coordinators are stopped at once and restarted.
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

/// Options of probers that measure stalls.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ProbeArgs {
    /// Number of writers, each with its own key in a closed loop, spread over the partitions.
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub(crate) writers: u16,
    /// Number of readers, each with its own key in a closed loop.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(..=4_096))]
    pub(crate) readers: u16,
    /// Duration of the undisturbed baseline before the measurement.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) calm: Duration,
    /// Cluster options.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Options of `archon bench failover`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FailoverArgs {
    /// Process id of the node to kill with SIGKILL, on this machine.
    #[arg(long, value_name = "PID", conflicts_with = "local")]
    pub(crate) pid: Option<u32>,
    /// Disturbance of the temporary cluster; may be repeated; default: a node is killed.
    #[arg(long = "disturb", value_name = "WHAT", requires = "local", value_enum)]
    pub(crate) disturb: Vec<Disturbance>,
    /// Number of rounds of each disturbance.
    #[arg(long, value_name = "N", requires = "local", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Duration of an outage of all coordinators.
    #[arg(long, value_name = "TIME", requires = "local", default_value = "60s", value_parser = duration)]
    pub(crate) outage: Duration,
    /// Duration of the observation after each disturbance.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Common options.
    #[command(flatten)]
    pub(crate) probe: ProbeArgs,
}

/// Options of `archon bench rebalance`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MovesArgs {
    /// Number of keys to write first; they are read and written before, during and after the moves.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) keys: Option<u64>,
    /// Size of the values in bytes.
    #[arg(long, value_name = "N", requires = "keys", default_value_t = 1_024)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// Number of reading clients, and of writing clients; 0 to move the data without load.
    #[arg(long, value_name = "N", requires = "keys", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4_096))]
    pub(crate) clients: u32,
    /// Operations started per second by the readers, and by the writers; by default each client continues as soon as it
    /// has its answer.
    #[arg(long, value_name = "N", requires = "keys", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// After the run, copy a file with as many bytes as were moved by `cp --sparse=never` on the same disk, and report
    /// its speed. Needs twice the space.
    #[arg(long, requires = "keys", requires = "local")]
    pub(crate) beside_cp: bool,
    /// Common options.
    #[command(flatten)]
    pub(crate) probe: ProbeArgs,
}

/// Options of `archon bench split`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SplitArgs {
    /// Number of keys to write first; the upper half of them moves.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) keys: u64,
    /// Size of the values in bytes.
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// Number of clients that read all keys during the split, and number of clients that write them.
    #[arg(long, value_name = "N", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) clients: u32,
    /// Number of writers in each half, each with its own key in a closed loop; their stalls are reported.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub(crate) writers: u16,
    /// Duration of the measurement before and after.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    pub(crate) calm: Duration,
    /// Merge the two partitions again at the end and measure that as well. A merge is limited in size, so use few keys.
    #[arg(long)]
    pub(crate) merge: bool,
    /// Cluster options.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Order in which keys are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WriteOrder {
    /// Ascending, such as times or counters: all writes go to the last partition.
    Ascending,
    /// Spread, such as hashes or random numbers: writes go to all partitions evenly.
    Spread,
}

/// Options of `archon bench grow`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct GrowArgs {
    /// Number of keys to write, each once.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) keys: u64,
    /// Size of the values in bytes; keys have 16 bytes.
    #[arg(long, value_name = "N", default_value_t = 184)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// Order of the keys.
    #[arg(long, value_enum, default_value = "ascending")]
    pub(crate) order: WriteOrder,
    /// Number of concurrent writes, each by a client that waits for its answer.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) clients: u32,
    /// Size of keys and values above which a partition is split, at least 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = split_size)]
    pub(crate) split_above: u64,
    /// Interval of progress messages.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) every: Duration,
    /// Number of keys to scan in order at the end; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) scan_keys: u64,
    /// Cluster options.
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Load options.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Number of concurrent operations, each by a client that waits for its answer.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) clients: u32,
    /// Number of client library instances, shared by the clients; each has one connection per node.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) connections: u32,
    /// Number of threads that drive the clients; at most one per client library instance.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Number of different keys.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) keys: u64,
    /// Size of the values in bytes.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub(crate) value_bytes: u32,
    /// Distribution of keys: `uniform`, or `zipfian` with its skew theta, such as zipfian:0.99.
    #[arg(long, value_name = "D", default_value = "uniform", value_parser = distribution)]
    pub(crate) distribution: Distribution,
    /// Duration of the measurement, after the warm-up.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Number of operations to measure, instead of a duration.
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Duration of the warm-up, which is not measured; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration_or_none)]
    pub(crate) warmup: Duration,
    /// Operations started per second by all clients together; latency is measured from each scheduled start. By default
    /// each client continues as soon as it has its answer.
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
}

/// Options of measurements that read existing keys.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ReadArgs {
    /// Load options.
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Do not write the keys first; they exist from an earlier run.
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
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of operations per second"))?;
    if rate.is_finite() && rate >= 0.1 { Ok(rate) } else { Err("a rate is at least 0.1 per second".to_owned()) }
}

/// Parses `uniform`, `zipfian`, `zipfian:0.99`.
fn distribution(text: &str) -> Result<Distribution, String> {
    let (name, theta) = text.split_once(':').map_or((text, None), |(name, theta)| (name, Some(theta)));
    let theta: f64 = match theta {
        None => 0.99,
        Some(theta) => theta.parse().map_err(|_| format!("{theta:?} is not a theta; write zipfian:0.99"))?,
    };
    match name {
        "uniform" if !text.contains(':') => Ok(Distribution::Uniform),
        "zipfian" if theta > 0.0 && theta < 1.0 => Ok(Distribution::Zipfian { theta }),
        "zipfian" => Err(format!("theta is {theta}; it must be between 0 and 1, as in zipfian:0.99")),
        _ => Err(format!("{text:?} is not a distribution; write uniform or zipfian:0.99")),
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
