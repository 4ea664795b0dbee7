//! Syntax of the command line: global help and the commands.

use super::access::AccessVerb;
use super::admin::{EventsArgs, RebalanceVerb, TopArgs, WatchArgs};
use super::backup::BackupVerb;
use super::bench::BenchArgs;
use super::cert::CertVerb;
use super::config::ConfigVerb;
use super::connection::Connection;
use super::doctor::DoctorArgs;
use super::kv::KvArgs;
use super::lock::LockArgs;
use super::orders::CheckArgs;
use super::participant::ParticipantArgs;
use super::partitions::PartitionVerb;
use super::quorum::QuorumVerb;
use super::serve::{CoordinatorArgs, DemoArgs, NodeArgs};
use super::tables::TableVerb;
use super::upgrade::UpgradeVerb;
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

/// Archon assigns partitions to nodes, moves them when nodes join, leave or fail, and guarantees that a partition never
/// has two owners.
///
/// A quorum of three or five coordinators keeps the partition table in a Raft log. Nodes host the partitions. All other
/// commands are clients: they query or change the cluster, or read and write keys.
#[derive(Parser, Debug)]
#[command(
    name = "archon",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  archon demo                                       a guided tour on this machine
  export ARCHON_COORDINATORS=127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103
  archon status                                     health of the cluster, and what blocks it
  archon kv put city/1 athens && archon kv get city/1

Exit codes:
   0  success
   1  failure
   2  wrong usage
   3  not found
   4  refused in the present state (stale plan, operation in progress)
   5  unreachable, or no quorum: retry
   6  time-out: a write may have taken effect
  10  plan --detailed-exitcode: there are moves; check: needs attention soon;
      backup create: a table was skipped
  11  check: needs attention now; doctor: found an error
 122  lock: another holder has the lock
 123  lock: the lock was lost, and the command was ended")]
pub(crate) struct Cli {
    /// Connection and output options.
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The command.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The command.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Run a guided tour on this machine: quorum, nodes, keys, a rebalance, killed processes, a service with leases.
    ///
    /// Starts real processes on free ports in a temporary directory, explains each step and verifies its result. Keeps
    /// the cluster running until Ctrl-C, so that you can try commands on it; --exit stops it at the end of the tour.
    #[command(after_help = "\
Examples:
  archon demo                 run the tour, then keep the cluster running
  archon demo --exit          run the tour and stop; exit 0 if every step succeeded
  archon demo --keys 20000    use more data")]
    Demo(DemoArgs),

    /// Run a coordinator: a voter of the quorum that keeps the partition table.
    ///
    /// Settings come from defaults, a TOML file (--config), environment variables (ARCHON_…) and flags; later sources
    /// override earlier ones. Keys of the file are the long flags with `_` for `-`; lists are arrays. The file has no
    /// keys for logging options and global options, except `insecure` and `tls_dir`.
    ///
    /// SIGTERM and Ctrl-C transfer leadership and shut down gracefully. A second signal, at least a second later, stops
    /// at once.
    #[command(after_help = "\
Examples:
  archon coordinator --id 1 --listen 127.0.0.1:7101 --data-dir /var/lib/archon/c1 \\
      --peers 1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103 --partitions 9 --min-nodes 3
  archon coordinator --config /etc/archon/coordinator.toml

Example of a file:
  id = 1
  listen = \"127.0.0.1:7101\"
  peers = [\"1=127.0.0.1:7101\", \"2=127.0.0.1:7102\", \"3=127.0.0.1:7103\"]
  data_dir = \"/var/lib/archon/c1\"")]
    Coordinator(CoordinatorArgs),

    /// Run a node that hosts partitions; with a subcommand, show or manage the nodes of a cluster.
    ///
    /// Settings come from defaults, a TOML file (--config), environment variables (ARCHON_…) and flags; later sources
    /// override earlier ones. Keys of the file are the long flags with `_` for `-`; lists are arrays. The file has no
    /// keys for logging options and global options, except `coordinators`, `insecure` and `tls_dir`.
    ///
    /// SIGTERM and Ctrl-C hand the node's leaderships over and shut down gracefully. A second signal, at least a second
    /// later, stops at once.
    #[command(after_help = "\
Examples:
  archon node --name athens --listen 127.0.0.1:7201 --data-dir /var/lib/archon/athens \\
      --coordinators 127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103
  archon node --config /etc/archon/node.toml
  archon node list
  archon node describe athens
  archon node drain athens --wait

Example of a file:
  name = \"athens\"
  listen = \"127.0.0.1:7201\"
  coordinators = [\"127.0.0.1:7101\", \"127.0.0.1:7102\", \"127.0.0.1:7103\"]
  data_dir = \"/var/lib/archon/athens\"")]
    Node(NodeArgs),

    /// Run an agent beside a service in any language: it owns partitions of lease tables for the service.
    ///
    /// The agent is a participant of the cluster: it holds session, heartbeats and leases, and informs the service
    /// over HTTP which partitions to acquire, to release, or to give up for lost
    /// (docs/reference/agent.md). It joins the cluster when the service connects, and leaves it when the service is
    /// gone.
    ///
    /// SIGTERM and Ctrl-C let the service release its partitions, and then end the agent. A second signal, at least a
    /// second later, stops at once.
    #[command(after_help = "\
Examples:
  archon table create jobs --partitions 64 --lease
  archon participant --table jobs --name w1 --address 10.0.0.7:8080
  archon participant --table jobs --name w1 --address 10.0.0.7:8080 --listen unix:/run/w1/agent.sock
  curl 127.0.0.1:7700/v1/where/customer-17
  archon participant --table jobs --name w1 --address 10.0.0.7:8080 --exec ./worker --port 8080")]
    Participant(ParticipantArgs),

    /// Run a command while it owns a named lock.
    ///
    /// The lock is a row of a table, which is renewed while the command runs and removed at its end. The command is sent
    /// SIGTERM, and then SIGKILL, before the lease of the lock ends without a renewal. Its environment holds
    /// ARCHON_LOCK_EPOCH (a fencing token: storage should refuse lower ones than it has seen), ARCHON_LOCK_NAME,
    /// ARCHON_LOCK_TABLE and ARCHON_LOCK_REMAINING_MS (rest of the lease when the command starts).
    ///
    /// Exits with the code of the command, or with 128 and the number of the signal that ended it; with 122 if another
    /// holder has the lock, with 123 if the lock was lost and the command was ended, with 126 or 127 if the command
    /// cannot be run or does not exist, and with the usual codes if the cluster refuses. SIGHUP, SIGINT, SIGQUIT,
    /// SIGTERM, SIGUSR1 and SIGUSR2 are forwarded, unless they are ignored at the start. The command has a process group
    /// of its own, which is killed at its end, and reads no terminal. If `archon lock` itself is killed, the kernel kills
    /// the command, unless it runs as another user, but not the processes that it has started. Survivors may still
    /// write: only storage that checks the token is protected from them.
    #[command(after_help = "\
Examples:
  archon table create locks --partitions 8
  archon lock nightly -- ./backup.sh
  archon lock nightly --no-wait -- ./backup.sh        skips the run while another machine runs it
  archon lock deploy --wait 30s --lease 20s -- sh -c 'exec deploy --token $ARCHON_LOCK_EPOCH'
  archon kv get nightly --table locks                 who holds it")]
    Lock(LockArgs),

    /// Show the state of the cluster: leader, quorum, nodes, skew, moves, and what blocks it.
    #[command(after_help = "\
Examples:
  archon status
  archon status --watch
  archon status -o json | jq .nodes_alive")]
    Status(WatchArgs),

    /// Report conditions that need an operator's attention; for scripts and monitoring.
    ///
    /// Exits with 0 if nothing needs attention. Exits with 10 if something needs attention soon: a node failed, a
    /// coordinator does not answer, an exclusion, offline partition, cordon, drain or maintenance has lasted for a day.
    /// Exits with 11 if something needs attention now: a partition is unavailable, disk space is low, no majority of
    /// coordinators answers.
    #[command(after_help = "\
Examples:
  archon check
  archon check --min-members 66 --of jobs      alert if fewer participants take partitions of `jobs`
  archon check -o json | jq -r '.alerts[].message'")]
    Check(CheckArgs),

    /// Diagnose this machine and the cluster, and suggest remedies. Changes nothing.
    ///
    /// Checks the machine: clock, open files, data directory (permissions, file system, free space, latency of small
    /// durable writes, owning process), addresses, credentials. Name what to check with flags, or with the file that a
    /// coordinator or node is started with; run the command as the same user. Then checks the cluster, if coordinators
    /// are named: quorum, alerts, and the version, clock, files and disk that each member reports.
    ///
    /// Exits with 0 if no check found an error, even if there are warnings; with 11 if one did.
    #[command(after_help = "\
Examples:
  archon doctor --config /etc/archon/node.toml              before or while the node runs
  archon doctor --data-dir /var/lib/archon --listen 10.0.0.7:7201
  archon doctor -o json | jq '.findings[] | select(.verdict != \"ok\")'")]
    Doctor(DoctorArgs),

    /// Show, create, change or drop tables (named keyspaces).
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon table list
  archon table create orders --partitions 64 --replication 1"
    )]
    Table(TableVerb),

    /// Show partitions and locate keys; split, merge, restart or exclude partitions; force a leader as a last resort.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon partition list
  archon partition locate city/1
  archon partition describe 3"
    )]
    Partition(PartitionVerb),

    /// Plan the distribution of partitions over nodes; apply, watch or cancel a plan.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon rebalance plan --out plan.json      review the plan
  archon rebalance apply plan.json --wait    carry out exactly this plan
  archon rebalance status
  archon rebalance cancel"
    )]
    Rebalance(RebalanceVerb),

    /// Show the settings of the cluster, or change them while it runs.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon config show
  archon config set replace_after_ms=60000"
    )]
    Config(ConfigVerb),

    /// Manage the rights of clients on tables, and revoke certificates; for clusters that use TLS.
    ///
    /// A certificate identifies a client. Its rights are granted here per table and stored by the coordinators;
    /// anything not granted is refused. Admins may read and write every table. Every client may query the owner of a
    /// lease.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon access grant write --client shop --table orders
  archon access revoke write --client shop --table orders
  archon access withdraw admin/alice
  archon access list"
    )]
    Access(AccessVerb),

    /// Show the coordinators, or change them while the cluster runs.
    ///
    /// Start a new coordinator with `archon coordinator --join`: it copies the log and then becomes a voter. The
    /// coordinators carry out one change at a time by themselves, so a change survives failures on the way.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon quorum list
  archon quorum replace 3 4 --wait     after starting 4 with --join H:P --learner
  archon quorum transfer-leader 2"
    )]
    Quorum(QuorumVerb),

    /// Show and control the protocol version during a rolling upgrade.
    ///
    /// Each version of archon also supports the protocol of the previous version, so members are replaced one by one
    /// while the cluster runs. Once all members support the next protocol, the cluster switches to it automatically,
    /// and older versions can no longer take part. Until then every member can be rolled back.
    /// Builds with engine formats 1 to 3 are an exception: the upgrade runbook describes how to move their data.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon upgrade status
  archon upgrade hold          before the upgrade: keep the way back open
  archon upgrade finalize      after the upgrade: switch to the new protocol"
    )]
    Upgrade(UpgradeVerb),

    /// Read and write keys.
    #[command(after_help = "\
Examples:
  archon kv put city/1 athens
  archon kv get city/1
  archon kv scan city/
  archon kv export orders --to orders.csv")]
    Kv(KvArgs),

    /// Create a backup of tables from a running cluster, verify it, or restore it into new tables.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon backup create --to /backups/monday
  archon backup verify /backups/monday
  archon backup restore /backups/monday --table orders --as orders_monday"
    )]
    Backup(BackupVerb),

    /// Measure the throughput and latency of a cluster, or pauses while a node fails or data moves.
    ///
    /// Writes the keys `bench/0000000000` and so on, or `gaps/…` for failover and rebalance, and leaves them in the
    /// table. Each `bench/` key always has the same value, and every read is verified. Latencies are measured at the
    /// clients.
    #[command(after_help = "\
Examples:
  archon bench put --clients 256
  archon bench get --clients 256 --distribution zipfian:0.99
  archon bench mixed --read-percent 95 --rate 20000")]
    Bench(BenchArgs),

    /// List events of the cluster, newest last.
    #[command(after_help = "\
Examples:
  archon events
  archon events --limit 500 -o json
  archon events --follow")]
    Events(EventsArgs),

    /// Show a live view of the cluster on the terminal: nodes, load, moves, events.
    ///
    /// Each refresh takes four requests for any number of nodes. While no coordinator answers, the last state stays on
    /// the screen, marked as outdated. Keys: `s` changes the sort order of the nodes; the arrows, PageUp, PageDown,
    /// Home and End scroll; `?` shows help; `q`, Esc or Ctrl-C quits. Without a terminal, use `archon status --watch`.
    #[command(after_help = "\
Examples:
  archon top
  archon top --every 5s
  NO_COLOR=1 archon top      without colour; faults are also marked by words")]
    Top(TopArgs),

    /// Create certificates: an authority for the cluster, and a certificate for each process and person.
    ///
    /// A certificate names an identity (coordinator/1, node/athens, client/shop, admin/alice); the role determines its
    /// permissions. A process started with a directory of credentials (ca.crt, tls.crt and tls.key) presents the
    /// certificate and trusts identities signed by the authority. These commands only read and write files and contact
    /// no member, except `members`.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon cert ca --cluster shop
  archon cert coordinator 1 --host c1.example.org --host 10.0.0.1
  archon cert node athens --host athens.example.org
  archon cert admin alice
  archon cert show athens
  archon cert check athens"
    )]
    Cert(CertVerb),

    /// Print the version of archon, its commit, and the protocols that it supports.
    #[command(after_help = "Examples:\n  archon version\n  archon version -o json")]
    Version,

    /// Print the completion script for a shell.
    #[command(after_help = "\
Examples:
  archon completion bash > /etc/bash_completion.d/archon
  archon completion zsh > ~/.zfunc/_archon")]
    Completion {
        /// The shell: bash, zsh, fish, elvish or powershell.
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Write a manual page for each command into a directory.
    #[command(after_help = "\
Examples:
  archon manual ~/.local/share/man/man1 && man archon-kv-put")]
    Manual {
        /// Directory, which is created if it is missing. Pages of the same name are replaced.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}
