//! Settings of a serving process, combined: default < file < environment < flag.
//!
//! An option of the command declares a setting: its names, parser, default and help. A key of the file has the name of an
//! option, and its value becomes the default of that option (ADR 0119).

pub(crate) mod coordinator;
pub(crate) mod node;

pub(crate) use coordinator::CoordinatorSettings;
pub(crate) use node::node_config;

use super::file::{ConfigFile, FileError, FileValues};
use crate::args::{Cli, Connection, CoordinatorArgs, NodeArgs};
use crate::exit::Failure;
use archon_client::{Tls, Transport};
use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Kind of a member with a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemberKind {
    /// `archon coordinator`.
    Coordinator,
    /// `archon node`.
    Node,
}

impl MemberKind {
    /// Own options without a key: the file itself, the log, which starts before the file is read, and a passing limit
    /// for the time of an upgrade.
    const WITHOUT_KEY: [&str; 4] = ["config", "filter", "format", "protocol_max"];

    const fn verb(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Node => "node",
        }
    }

    /// Options of every command that have a key in its file.
    const fn global_keys(self) -> &'static [&'static str] {
        match self {
            Self::Coordinator => &["insecure", "tls_dir"],
            Self::Node => &["coordinators", "insecure", "tls_dir"],
        }
    }

    /// Returns the options that have a key in its file.
    pub(crate) fn options(self, command: &Command) -> Vec<&Arg> {
        let own = command.find_subcommand(self.verb()).into_iter().flat_map(Command::get_arguments);
        let own = own.filter(|option| !Self::WITHOUT_KEY.contains(&option.get_id().as_str()));
        let global = command.get_arguments().filter(|option| self.global_keys().contains(&option.get_id().as_str()));
        own.chain(global).collect()
    }

    /// Returns the keys of its file.
    pub(crate) fn keys(self) -> Vec<String> {
        self.options(&Cli::command()).into_iter().map(|option| option.get_id().to_string()).collect()
    }

    /// Returns the values of a file.
    ///
    /// # Errors
    /// The fault of the file and its position.
    pub(crate) fn values(self, file: &ConfigFile) -> Result<FileValues, FileError> {
        file.values(&self.options(&Cli::command()))
    }

    /// Applies a change to the options of every command, and to those of this member.
    fn mut_options(self, command: Command, change: impl Fn(Arg) -> Arg) -> Command {
        command.mut_args(&change).mut_subcommand(self.verb(), |own| own.mut_args(&change))
    }
}

/// Command line of a member, completed by its configuration file.
#[derive(Debug)]
pub(crate) struct MemberLine<T> {
    /// Options of every command.
    pub(crate) connection: Connection,
    /// Options of the member.
    pub(crate) args: T,
    /// Values of the file that the command line does not override by an alternative.
    pub(crate) values: FileValues,
}

impl<T: FromArgMatches> MemberLine<T> {
    /// Reads a command line and the file that it names, if any.
    ///
    /// # Errors
    /// The fault of the command line, or of the file with its position.
    pub(crate) fn read(kind: MemberKind, words: &[OsString]) -> Result<Self, Failure> {
        let given = Cli::command().try_get_matches_from(words).map_err(refused)?;
        let own = given.subcommand_matches(kind.verb());
        let mut values = match own.and_then(|own| own.get_one::<PathBuf>("config")) {
            Some(path) => kind.values(&ConfigFile::read(path)?)?,
            None => FileValues::new(),
        };
        if let (Some(own), Some(command)) = (own, Cli::command().find_subcommand(kind.verb())) {
            drop_alternatives(command, own, &mut values);
        }
        Self::complete(kind, Cli::command(), words, values)
    }

    /// Reads a file alone, without variables.
    ///
    /// # Errors
    /// The fault of the file and its position.
    pub(crate) fn read_file(kind: MemberKind, file: &ConfigFile) -> Result<Self, Failure> {
        let command = kind.mut_options(Cli::command(), |option| option.env(Resettable::Reset));
        Self::complete(kind, command, &["archon".into(), kind.verb().into()], kind.values(file)?)
    }

    /// Reads a command line with the values of a file as defaults.
    fn complete(kind: MemberKind, command: Command, words: &[OsString], values: FileValues) -> Result<Self, Failure> {
        let command = kind.mut_options(command, |option| match values.get(option.get_id().as_str()) {
            Some(value) => option.default_values(&value.words),
            None => option,
        });
        let matches = command.try_get_matches_from(words).map_err(refused)?;
        let Some(own) = matches.subcommand_matches(kind.verb()) else {
            return Err(Failure::usage(format!("this is no command line of a {}", kind.verb()), "see --help"));
        };
        let connection = Connection::from_arg_matches(&matches).map_err(refused)?;
        Ok(Self { connection, args: T::from_arg_matches(own).map_err(refused)?, values })
    }
}

/// Drops the values of options that conflict with a given one: a flag overrides the file also if it chooses the
/// alternative.
fn drop_alternatives(command: &Command, matches: &ArgMatches, values: &mut FileValues) {
    let is_given = |option: &&Arg| {
        let source = matches.value_source(option.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let excludes = |option: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(option).iter().any(|excluded| excluded.get_id() == other.get_id())
    };
    for given in command.get_arguments().filter(is_given) {
        for other in command.get_arguments().filter(|other| excludes(given, other) || excludes(other, given)) {
            values.remove(other.get_id().as_str());
        }
    }
}

fn refused(error: clap::Error) -> Failure {
    Failure::usage(crate::exit::plain(&error.render().to_string()), "see --help")
}

/// Place of a coordinator or node on the machine and in the network, from its file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FilePlace {
    /// Identity, as `node/athens`, if the file has it.
    pub(crate) member: Option<String>,
    /// Listen addresses, with their flags.
    pub(crate) listen: Vec<(&'static str, SocketAddr)>,
    /// Data directory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Addresses of some coordinators.
    pub(crate) coordinators: Vec<String>,
    /// Allows plaintext beyond the machine.
    pub(crate) insecure: bool,
    /// Directory of its credentials.
    pub(crate) tls_dir: Option<PathBuf>,
}

impl FilePlace {
    /// Reads a file with the same checks as the member that is started with it.
    ///
    /// # Errors
    /// The fault of the file and its position.
    pub(crate) fn read(file: &ConfigFile) -> Result<Self, Failure> {
        let (of_coordinators, of_nodes) = (MemberKind::Coordinator.keys(), MemberKind::Node.keys());
        let is_in = |keys: &[String], key: &str| keys.iter().any(|known| known == key);
        if file.has_key(|key| is_in(&of_coordinators, key) && !is_in(&of_nodes, key)) {
            Ok(Self::of_coordinator(MemberLine::read_file(MemberKind::Coordinator, file)?))
        } else {
            Ok(Self::of_node(MemberLine::read_file(MemberKind::Node, file)?))
        }
    }

    fn of_coordinator(MemberLine { connection, args, .. }: MemberLine<CoordinatorArgs>) -> Self {
        let founders = args.peers.unwrap_or_default().into_iter().map(|(_, address)| address);
        let addresses =
            [("listen", args.listen), ("metrics-listen", args.metrics_listen), ("http-listen", args.http_listen)];
        Self {
            member: args.id.map(|id| format!("coordinator/{id}")),
            listen: listening(addresses),
            data_dir: args.data_dir,
            coordinators: founders.chain(args.join.unwrap_or_default()).collect(),
            insecure: connection.insecure,
            tls_dir: connection.tls_dir,
        }
    }

    fn of_node(MemberLine { connection, args, .. }: MemberLine<NodeArgs>) -> Self {
        let addresses =
            [("listen", args.listen), ("metrics-listen", args.metrics_listen), ("redis-listen", args.redis_listen)];
        Self {
            member: args.name.map(|name| format!("node/{name}")),
            listen: listening(addresses),
            data_dir: args.data_dir,
            coordinators: connection.coordinators,
            insecure: connection.insecure,
            tls_dir: connection.tls_dir,
        }
    }
}

/// Returns the given addresses, each with its flag.
fn listening<const N: usize>(said: [(&'static str, Option<SocketAddr>); N]) -> Vec<(&'static str, SocketAddr)> {
    said.into_iter().filter_map(|(flag, address)| Some((flag, address?))).collect()
}

/// Returns the transport of this process, from its options.
///
/// # Errors
/// Both options were given; unusable credentials, with the file.
pub(crate) fn transport(insecure: bool, tls_dir: Option<&Path>) -> Result<Transport, Failure> {
    match tls_dir {
        None => Ok(Transport::plaintext(insecure)),
        Some(_) if insecure => Err(Failure::usage(
            "--insecure allows plaintext, and --tls-dir allows nothing but TLS",
            "use only one of them; unset ARCHON_INSECURE or ARCHON_TLS_DIR if it comes from the environment",
        )),
        Some(directory) => Tls::open(directory).map(Transport::Tls).map_err(|error| {
            Failure::usage(
                error.to_string(),
                "correct --tls-dir (ARCHON_TLS_DIR); `archon cert` makes and shows credentials",
            )
            // These may pass: the clock is set, a mount appears, the other half of a renewed pair is written.
            .that_may_pass()
        }),
    }
}

/// Refuses an address, of this flag, that plaintext must not reach.
///
/// # Errors
/// The flag, the address, and the option that allows it.
pub(crate) fn allowed(flag: &str, address: &str, transport: &Transport) -> Result<(), Failure> {
    transport.check(address).map_err(|_| {
        Failure::usage(
            format!(
                "--{flag} {address} is not a loopback address, and plaintext traffic can be read and changed on the \
                 network"
            ),
            "give credentials with --tls-dir (create them with `archon cert`), use --insecure (ARCHON_INSECURE=true) \
             on a trusted network, or use a loopback address, such as 127.0.0.1",
        )
    })
}

fn required<T>(value: Option<T>, key: &str, example: &str) -> Result<T, Failure> {
    value.ok_or_else(|| {
        let flag = key.replace('_', "-");
        let variable = key.to_uppercase();
        Failure::usage(
            format!("--{flag} is missing"),
            format!("give {example}, set ARCHON_{variable}, or put `{key}` into the file of --config"),
        )
    })
}
