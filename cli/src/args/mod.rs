//! The command line: its syntax and meaning. A contract: scripts rely on these names.

mod access;
mod admin;
mod backup;
mod bench;
mod bootstrap;
mod cert;
mod config;
mod doctor;
mod hints;
mod kv;
mod orders;
pub(crate) mod parse;
mod partitions;
mod quorum;
#[cfg(test)]
mod reference;
mod serve;
mod tables;
mod upgrade;

pub(crate) use access::*;
pub(crate) use admin::*;
pub(crate) use backup::{BackupVerb, CreateBackupArgs, LookAtBackupArgs, ProgressArgs, RestoreBackupArgs};
pub(crate) use bench::{
    AttackArgs, BenchArgs, BenchVerb, Disturbance, FailoverArgs, GrowArgs, LoadArgs, LocalArgs, MovesArgs, ProbeArgs,
    ReadArgs, SplitArgs, WriteOrder,
};
pub(crate) use bootstrap::{BootstrapArgs, FAILOVER, failover, flag_of, variable_of};
pub(crate) use cert::{AuthorityArgs, CertVerb, CheckCertArgs, IssueArgs, RequestArgs, ShowArgs, SignArgs, TermArgs};
pub(crate) use config::*;
pub(crate) use doctor::DoctorArgs;
pub(crate) use kv::{ExportArgs, ImportArgs, KvArgs, KvVerb, RowFormat, ScanArgs};
pub(crate) use orders::*;
pub(crate) use parse::{address, duration, engine, listen, memory, name, peer};
pub(crate) use partitions::*;
pub(crate) use quorum::*;
pub(crate) use serve::{CoordinatorArgs, DemoArgs, LogArgs, LogFormat, NodeArgs, copy_rate, spoken};
pub(crate) use tables::*;
pub(crate) use upgrade::*;

use crate::output::Format;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Archon decides which node owns which partition, moves partitions when nodes come and go, and never lets two nodes
/// act as owner at once.
///
/// A quorum of three or five coordinators keeps the partition table in a Raft log; nodes host the partitions; every
/// other verb here asks or tells the quorum something, or reads and writes keys.
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
  archon demo                                       the whole story, on this machine
  export ARCHON_COORDINATORS=127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103
  archon status                                     is it well, and if not, what is it waiting for
  archon kv put city/1 athens && archon kv get city/1

Exit codes:
  0 done              3 not found                   5 unreachable or no quorum: retry
  1 failed            4 refused as things stand     6 time-out: a write may have happened
  2 wrong usage         (stale plan, in progress)  10 plan --detailed-exitcode: there are moves;
                                                      check: look before long;
                                                      backup create: a table was left out
                                                   11 check: look now; doctor: an error")]
pub(crate) struct Cli {
    /// Whom to ask and how to answer.
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options that every verb takes.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Connection {
    /// Coordinators or nodes (one that answers is enough; the leader is found), as H:P separated by commas.
    #[arg(long, global = true, env = "ARCHON_COORDINATORS", value_name = "H:P,…", value_delimiter = ',')]
    #[arg(value_parser = address, hide_env_values = true, alias = "endpoints")]
    pub(crate) coordinators: Vec<String>,
    /// Print columns for people, or one JSON document for programs.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(help = "Print `table` (columns for people) or `json` (one document)")]
    pub(crate) output: Format,
    /// The same as `-o json`.
    #[arg(long, global = true, hide = true, conflicts_with = "output")]
    pub(crate) json: bool,
    /// How long one request may take, retries included: 500ms, 5s, 1m.
    #[arg(long, global = true, env = "ARCHON_TIMEOUT", value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = duration, hide_env_values = true)]
    pub(crate) timeout: Duration,
    /// Allow plaintext traffic beyond this machine; without it only loopback addresses are accepted.
    #[arg(long, global = true, env = "ARCHON_INSECURE", hide_env_values = true)]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure: bool,
    /// Talk by TLS, with the credentials in this directory (ca.crt, tls.crt and tls.key, as `archon cert` writes them).
    #[arg(long, global = true, env = "ARCHON_TLS_DIR", value_name = "DIR", hide_env_values = true)]
    pub(crate) tls_dir: Option<PathBuf>,
}

#[cfg(test)]
impl Connection {
    /// Creates options for these coordinators, with all other values at their defaults.
    pub(crate) fn to(coordinators: &[&str]) -> Self {
        Self {
            coordinators: coordinators.iter().map(|text| (*text).to_owned()).collect(),
            output: Format::Table,
            json: false,
            timeout: Duration::from_secs(1),
            insecure: false,
            tls_dir: None,
        }
    }
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Show the whole story on this machine: quorum, nodes, keys, a rebalance, killed processes, a service.
    ///
    /// Starts real processes on free ports in a temporary directory, tells what happens step by step and checks every
    /// step. It keeps running until Ctrl-C so that you can try commands on it; with --exit it stops after the story.
    #[command(after_help = "\
Examples:
  archon demo                 tell the story, then stay up for you to play with
  archon demo --exit          tell the story and end: with 0 if everything was as it should be
  archon demo --keys 20000    with more data")]
    Demo(DemoArgs),

    /// Run a coordinator: one voter of the quorum that keeps the partition table.
    ///
    /// Settings come from, in rising order of precedence: the defaults, a TOML file (--config), the environment
    /// (ARCHON_…), the flags. Keys of the file are the long flags with `_` for `-`, without those of logging and of every
    /// verb but `insecure` and `tls_dir`; what is a list separated by commas there is an array here. SIGTERM and Ctrl-C
    /// hand the leadership over and stop in order; another signal, a second or more later, stops at once.
    #[command(after_help = "\
Examples:
  archon coordinator --id 1 --listen 127.0.0.1:7101 --data-dir /var/lib/archon/c1 \\
      --peers 1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103 --partitions 9 --min-nodes 3
  archon coordinator --config /etc/archon/coordinator.toml

A file may say:
  id = 1
  listen = \"127.0.0.1:7101\"
  peers = [\"1=127.0.0.1:7101\", \"2=127.0.0.1:7102\", \"3=127.0.0.1:7103\"]
  data_dir = \"/var/lib/archon/c1\"")]
    Coordinator(CoordinatorArgs),

    /// Run a node that hosts partitions; or, with a verb, look at the nodes of a cluster, empty or remove one.
    ///
    /// Settings come from, in rising order of precedence: the defaults, a TOML file (--config), the environment
    /// (ARCHON_…), the flags. Keys of the file are the long flags with `_` for `-`, without those of logging and of every
    /// verb but `coordinators`, `insecure` and `tls_dir`; what is a list separated by commas there is an array here.
    /// SIGTERM and Ctrl-C hand the node's leaderships over and stop in order; another signal, a second or more later, stops at once.
    #[command(after_help = "\
Examples:
  archon node --name athens --listen 127.0.0.1:7201 --data-dir /var/lib/archon/athens \\
      --coordinators 127.0.0.1:7101,127.0.0.1:7102,127.0.0.1:7103
  archon node --config /etc/archon/node.toml
  archon node list
  archon node describe athens
  archon node drain athens --wait

A file may say:
  name = \"athens\"
  listen = \"127.0.0.1:7201\"
  coordinators = [\"127.0.0.1:7101\", \"127.0.0.1:7102\", \"127.0.0.1:7103\"]
  data_dir = \"/var/lib/archon/athens\"")]
    Node(NodeArgs),

    /// Say on one screen how the cluster is: leader, quorum, nodes, skew, moves, and what it waits for.
    #[command(after_help = "\
Examples:
  archon status
  archon status --watch
  archon status -o json | jq .nodes_alive")]
    Status(WatchArgs),

    /// Look the cluster over for what somebody should do something about; for scripts and monitoring.
    ///
    /// Ends with 0 if there is nothing new to look at, 10 if the cluster needs attention soon (a node failed, a coordinator does not
    /// answer, an order may have been forgotten), and 11 if it needs attention now (a partition is not served, there is too little
    /// room, no majority of coordinators answers).
    #[command(after_help = "\
Examples:
  archon check
  archon check --min-members 66 --of jobs      alert if fewer participants than that take partitions of `jobs`
  archon check -o json | jq -r '.alerts[].message'")]
    Check(CheckArgs),

    /// Say what is wrong with this machine or the cluster, and what to do about it.
    ///
    /// Looks at the machine: its clock, open files, the data directory (rights, file system, space, how long small writes take until they are
    /// durable, who uses it), addresses, credentials. What is to be looked at is said by flags, or by the file that a coordinator or node is
    /// started with; run it as the user that these run as. Then it looks at the cluster, if coordinators are named: its quorum, alerts, and
    /// what each member says of its version, clock, files and disk. Nothing is changed.
    ///
    /// Ends with 0 if there is no error, warnings or not, and with 11 if there is one.
    #[command(after_help = "\
Examples:
  archon doctor --config /etc/archon/node.toml              before or while the node runs
  archon doctor --data-dir /var/lib/archon --listen 10.0.0.7:7201
  archon doctor -o json | jq '.findings[] | select(.verdict != \"ok\")'")]
    Doctor(DoctorArgs),

    /// Look at tables (named keyspaces), create or drop one.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon table list
  archon table create orders --partitions 64 --replication 1"
    )]
    Table(TableVerb),

    /// Look at partitions: where they are, which one a key belongs to, how one is; or force a leader, as the last resort.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon partition list
  archon partition locate city/1
  archon partition describe 3"
    )]
    Partition(PartitionVerb),

    /// Plan how partitions should be spread, apply a plan, watch it, or stop it.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon rebalance plan --out plan.json      look first
  archon rebalance apply plan.json --wait    then do exactly that
  archon rebalance status
  archon rebalance cancel"
    )]
    Rebalance(RebalanceVerb),

    /// Look at the settings of the cluster, or change them while it runs.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon config show
  archon config set replace_after_ms=60000"
    )]
    Config(ConfigVerb),

    /// Say what clients may do to the rows of tables, and whose certificates count no more, where a cluster talks by TLS.
    ///
    /// A certificate says who a client is. What it may do is granted here, table by table, and kept by the coordinators; what was
    /// not granted it may not. Admins may read and write every table; who owns which lease, everybody may ask.
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

    /// Say who the coordinators are, and change that while the cluster runs.
    ///
    /// A newcomer is started with `archon coordinator --join`; it copies the log, and then becomes a voter. Changes are carried out one at
    /// a time and by the coordinators themselves, so that it does not matter what fails on the way.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon quorum list
  archon quorum replace 3 4 --wait     4 was started with --join H:P --learner
  archon quorum transfer-leader 2"
    )]
    Quorum(QuorumVerb),

    /// Say which protocol the cluster speaks, and whether it rises, while members are replaced by a newer version.
    ///
    /// Each version speaks the protocol of the one before as well, so members are replaced one by one while the cluster runs. Once all
    /// speak the next protocol it rises by itself, and older versions cannot take part any more; until then every member can go back.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon upgrade status
  archon upgrade hold          before the upgrade, to try the new version first
  archon upgrade finalize      once it is to stay"
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

    /// Take a backup of tables from a running cluster, verify one, restore one into new tables.
    #[command(
        subcommand,
        after_help = "\
Examples:
  archon backup create --to /backups/monday
  archon backup verify /backups/monday
  archon backup restore /backups/monday --table orders --as orders_monday"
    )]
    Backup(BackupVerb),

    /// Measure how fast a cluster is (writes, reads, both, scans), or how long a dying node or moving data holds it up.
    ///
    /// The keys are `bench/0000000000` and so on, or `gaps/…` of failover and rebalance; they stay there. Each `bench/` key
    /// always has the same value, and every read is checked. Latencies are those that the clients see.
    #[command(after_help = "\
Examples:
  archon bench put --clients 256
  archon bench get --clients 256 --distribution zipfian:0.99
  archon bench mixed --read-percent 95 --rate 20000")]
    Bench(BenchArgs),

    /// List what happened in the cluster, newest last.
    #[command(after_help = "\
Examples:
  archon events
  archon events --limit 500 -o json
  archon events --follow")]
    Events(EventsArgs),

    /// Show the cluster live on the terminal: nodes, load, moves, events.
    ///
    /// The picture is drawn anew without flicker. While no coordinator answers the last one stays, and says so. It takes four
    /// requests for each look, however many nodes there are. Keys: `s` sorts the nodes by something else, the arrows, PageUp,
    /// PageDown, Home and End move through them, `?` explains what is shown, `q`, Esc or Ctrl-C quits. Off a terminal see
    /// `archon status --watch`.
    #[command(after_help = "\
Examples:
  archon top
  archon top --every 5s
  NO_COLOR=1 archon top      without colour; what is wrong is said in words either way")]
    Top(TopArgs),

    /// Make certificates: an authority of the cluster's own, and one for each process and person.
    ///
    /// A certificate says who somebody is (coordinator/1, node/athens, client/shop, admin/alice), and with that what he may
    /// do. Whoever is started with a directory of credentials, ca.crt, tls.crt and tls.key, shows the certificate and
    /// believes those whom the authority vouches for. These verbs read and write files only, and ask no member.
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

    /// Print which version of archon this is.
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
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// The fault of the command line; `--help` and `--version` also arrive here.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = Cli::command().try_get_matches_from(&args).map_err(|error| hints::added(error, &args))?;
    refuse_idle_flags(&matches)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if cli.connection.json {
        cli.connection.output = Format::Json;
    }
    Ok(cli)
}

/// Refuses run options together with a verb of `archon node`, which also runs a node: they would be ignored silently.
/// Variables are exempt: the environment is set once, for all calls.
fn refuse_idle_flags(matches: &ArgMatches) -> Result<(), clap::Error> {
    refuse_second_table(matches)?;
    let Some(("node", given)) = matches.subcommand() else { return Ok(()) };
    let Some((verb, _)) = given.subcommand() else { return Ok(()) };
    let mut command = Cli::command();
    let idle = command.find_subcommand("node").into_iter().flat_map(clap::Command::get_arguments).find_map(|flag| {
        let said = given.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
        flag.get_long().filter(|_| said && !flag.is_global_set()).map(str::to_owned)
    });
    match idle {
        Some(flag) => {
            let message = format!("--{flag} says how a node is run; it means nothing to `archon node {verb}`");
            Err(command.error(ErrorKind::ArgumentConflict, message))
        }
        None => Ok(()),
    }
}

/// Refuses `--table` beside the table argument of `archon kv export T` and `import T`: it would be ignored silently.
fn refuse_second_table(matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some(("kv", given)) = matches.subcommand() else { return Ok(()) };
    match given.subcommand() {
        Some((verb @ ("export" | "import"), of)) if of.value_source("table") == Some(ValueSource::CommandLine) => {
            let message =
                format!("the table stands behind `archon kv {verb}`, and --table names another one; say one of them");
            let mut command = Cli::command();
            command.build();
            let own = command.find_subcommand_mut("kv").and_then(|kv| kv.find_subcommand_mut(verb));
            Err(match own {
                Some(own) => own.error(ErrorKind::ArgumentConflict, message),
                None => clap::Error::raw(ErrorKind::ArgumentConflict, message),
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
