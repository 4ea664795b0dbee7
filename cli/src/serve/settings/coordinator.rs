//! Settings of a coordinator process.

use super::{FilePlace, allowed, listening, required, transport};
use crate::args::{self, BootstrapArgs, Connection, CoordinatorArgs};
use crate::exit::Failure;
use crate::serve::file::{ConfigFile, FileError};
use crate::serve::file_keys::{any, file_keys, list, number, text, within};
use archon_client::Transport;
use archon_coordinator::{FirstStart, QuorumTiming};
use archon_types::{Failover, ProtocolRange, Setting, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use toml::Spanned;

/// Settings of a coordinator process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CoordinatorSettings {
    /// Number.
    pub(crate) id: u64,
    /// Listen address.
    pub(crate) listen: SocketAddr,
    /// Listen address of metrics and health, if any.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Listen address of the console, if any.
    pub(crate) http_listen: Option<SocketAddr>,
    /// Address for other members, if given.
    pub(crate) advertise: Option<String>,
    /// Way of becoming a member at the first start.
    pub(crate) start: Option<FirstStart>,
    /// Data directory.
    pub(crate) data_dir: PathBuf,
    /// Settings of a new cluster, in case this voter creates it.
    pub(crate) cluster: Settings,
    /// Explicit ones among them.
    pub(crate) cluster_said: BTreeSet<Setting>,
    /// Explicit profile of time-outs.
    pub(crate) failover: Option<Failover>,
    /// Supported protocols.
    pub(crate) speaks: ProtocolRange,
    /// Heartbeat and election timing.
    pub(crate) timing: QuorumTiming,
    /// Transport in both directions.
    pub(crate) transport: Transport,
}

impl CoordinatorSettings {
    /// Combines flags, environment and file. `connection` has the options of every verb.
    ///
    /// # Errors
    /// A missing or impossible setting, with its origin and a remedy.
    pub(crate) fn resolve(args: &CoordinatorArgs, connection: &Connection) -> Result<Self, Failure> {
        let file = args.config.as_deref().map(ConfigFile::read).transpose()?;
        let found = match &file {
            Some(file) => FromCoordinatorFile::read(file)?,
            None => FromCoordinatorFile::default(),
        };
        let id = required(args.id.or(found.id), "id", "--id 1")?;
        let listen = required(args.listen.or(found.listen), "listen", "--listen 127.0.0.1:7101")?;
        // A flag overrides the file also if it chooses the alternative.
        let (peers, join) = match (&args.peers, &args.join) {
            (None, None) => (found.peers, found.join),
            given => (given.0.clone(), given.1.clone()),
        };
        let start = first_start(id, peers, join, args.learner || found.learner.unwrap_or(false))?;
        let advertise = args.advertise.clone().or(found.advertise);
        let data_dir = required(args.data_dir.clone().or(found.data_dir), "data_dir", "--data-dir /var/lib/archon/c1")?;
        let tls_dir = connection.tls_dir.clone().or(found.tls_dir);
        let transport = transport(connection.insecure || found.insecure.unwrap_or(false), tls_dir.as_deref())?;
        allowed("listen", &listen.to_string(), &transport)?;
        for (flag, address) in addresses(start.as_ref()).chain(advertise.iter().map(|own| ("advertise", own.as_str())))
        {
            allowed(flag, address, &transport)?;
        }
        let metrics_listen = args.metrics_listen.or(found.metrics_listen);
        let http_listen = args.http_listen.or(found.http_listen);
        for (flag, address) in [("metrics-listen", metrics_listen), ("http-listen", http_listen)] {
            if let Some(address) = address {
                allowed(flag, &address.to_string(), &transport)?;
            }
        }
        if let Some(http) = http_listen
            && http.port() != 0
            && let Some((flag, _)) = [("--listen", Some(listen)), ("--metrics-listen", metrics_listen)]
                .iter()
                .find(|(_, other)| *other == Some(http))
        {
            let why = format!("{http} is to be both for {flag} and for --http-listen");
            return Err(Failure::usage(why, "give the console a port of its own"));
        }
        let of_file = file.as_ref().map(FromCoordinatorFile::cluster_of).transpose()?.unwrap_or_default();
        let said = ExplicitSettings { flags: &args.bootstrap, file: &of_file, failover: found.failover.as_ref() };
        let cluster = said.settings()?;
        let cluster_said = Setting::ALL.iter().copied().filter(|setting| said.of(*setting).is_some()).collect();
        Ok(Self {
            id,
            listen,
            metrics_listen,
            http_listen,
            advertise,
            start,
            data_dir,
            cluster,
            cluster_said,
            failover: args.bootstrap.failover().or(found.failover.as_ref().map(|(profile, _)| *profile)),
            speaks: args::spoken(args.protocol_max),
            timing: args.quorum_heartbeat_ms.or(found.quorum_heartbeat_ms).unwrap_or_default(),
            transport,
        })
    }

    /// Returns warnings about settings that are possible but probably mistaken.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(FirstStart::Found { peers }) = &self.start else { return warnings };
        let voters = peers.len();
        if voters.is_multiple_of(2) {
            let bears = (voters - 1) / 2;
            warnings.push(format!(
                "{voters} coordinators tolerate the failure of {bears}, no more than {} do; use 3 or 5",
                voters - 1
            ));
        }
        if let Some(address) = peers.get(&self.id).filter(|address| !reaches(address, self.listen)) {
            warnings.push(format!(
                "other coordinators connect to coordinator {} at {address} (--peers), but it listens on {} (--listen): \
                 it is unreachable unless traffic is forwarded",
                self.id, self.listen
            ));
        }
        warnings
    }
}

/// Returns the way in which a coordinator becomes a member, if given.
fn first_start(
    id: u64,
    peers: Option<Vec<(u64, String)>>,
    join: Option<Vec<String>>,
    learner: bool,
) -> Result<Option<FirstStart>, Failure> {
    let start = match (peers, join) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage(
                "peers and join are both given: a coordinator founds a quorum or joins one",
                "leave out peers to join a quorum that is there, or join to found one",
            ));
        }
        (Some(peers), None) => FirstStart::Found { peers: founders(id, peers)? },
        (None, Some(through)) => FirstStart::Join { through, learner },
        (None, None) => return Ok(None),
    };
    Ok(Some(start))
}

/// Returns the addresses in a first start, with their flag.
fn addresses(start: Option<&FirstStart>) -> impl Iterator<Item = (&'static str, &str)> {
    let (peers, through) = match start {
        Some(FirstStart::Found { peers }) => (Some(peers), None),
        Some(FirstStart::Join { through, .. }) => (None, Some(through)),
        None => (None, None),
    };
    let peers = peers.into_iter().flat_map(|peers| peers.values()).map(|address| ("peers", address.as_str()));
    peers.chain(through.into_iter().flatten().map(|address| ("join", address.as_str())))
}

fn founders(id: u64, peers: Vec<(u64, String)>) -> Result<BTreeMap<u64, String>, Failure> {
    let peers = voters(peers)?;
    if !peers.contains_key(&id) {
        return Err(Failure::usage(
            format!("coordinator {id} is not among the peers ({})", ids(&peers)),
            format!(
                "to join their quorum, omit --peers and use --join {}; to found a quorum with them, add {id}=H:P to \
                 the peers, the same list on every coordinator; or correct --id",
                peers.values().next().map_or("H:P", String::as_str)
            ),
        ));
    }
    if peers.len() == 2 {
        return Err(Failure::usage(
            "two coordinators bear the loss of none: when either is away, the other cannot decide anything",
            "name 3 or 5 in --peers, or 1 to try things out",
        ));
    }
    Ok(peers)
}

/// Returns true if a caller of `address` may reach `listen`, judging by the two addresses only.
fn reaches(address: &str, listen: SocketAddr) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let same_host = match host.parse::<IpAddr>() {
        Ok(ip) => listen.ip().is_unspecified() || listen.ip() == ip,
        // Names are not resolved here.
        Err(_) => host != "localhost" || listen.ip().is_unspecified() || listen.ip().is_loopback(),
    };
    same_host && port.parse() == Ok(listen.port())
}

file_keys! {
    /// Checked values of a coordinator's file, except the cluster settings ([`ConfigFile::cluster`]).
    FromCoordinatorFile {
        id: Spanned<u64> => u64 = within(1..=u64::MAX),
        listen: Spanned<String> => SocketAddr = text(args::listen),
        metrics_listen: Spanned<String> => SocketAddr = text(args::listen),
        http_listen: Spanned<String> => SocketAddr = text(args::listen),
        advertise: Spanned<String> => String = text(args::address),
        peers: Vec<Spanned<String>> => Vec<(u64, String)> = list(args::peer),
        join: Vec<Spanned<String>> => Vec<String> = list(args::address),
        learner: bool => bool = any,
        data_dir: PathBuf => PathBuf = any,
        insecure: bool => bool = any,
        tls_dir: PathBuf => PathBuf = any,
        failover: Spanned<String> => (Failover, String) = placed_profile,
        quorum_heartbeat_ms: Spanned<u64> => QuorumTiming = number(args::quorum_heartbeat),
    }
}

/// Parses a profile of time-outs, and notes its position.
fn placed_profile(file: &ConfigFile, key: &str, text: Spanned<String>) -> Result<(Failover, String), FileError> {
    Ok((file.parse(key, &text, args::failover)?, file.place(text.span().start)))
}

impl FromCoordinatorFile {
    /// Returns the place of its coordinator.
    pub(crate) fn place(self) -> FilePlace {
        let founders = self.peers.unwrap_or_default().into_iter().map(|(_, address)| address);
        FilePlace {
            member: self.id.map(|id| format!("coordinator/{id}")),
            listen: listening([
                ("listen", self.listen),
                ("metrics-listen", self.metrics_listen),
                ("http-listen", self.http_listen),
            ]),
            data_dir: self.data_dir,
            coordinators: founders.chain(self.join.unwrap_or_default()).collect(),
            insecure: self.insecure.unwrap_or(false),
            tls_dir: self.tls_dir,
        }
    }

    /// Returns all keys of a coordinator's file, cluster settings included.
    pub(crate) fn keys() -> Vec<&'static str> {
        Self::KEYS.iter().copied().chain(Setting::ALL.iter().map(|setting| setting.as_str())).collect()
    }

    /// Reads the cluster settings of a file, each with its position.
    fn cluster_of(file: &ConfigFile) -> Result<BTreeMap<Setting, (u64, String)>, FileError> {
        file.cluster(&Self::keys())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The fault of the file and its position.
    pub(crate) fn read(file: &ConfigFile) -> Result<Self, FileError> {
        let found = Self::read_known(file, &Self::keys())?;
        Self::cluster_of(file)?;
        Ok(found)
    }
}

/// Explicit settings of a new cluster: a flag overrides the file, and a single setting overrides the profile.
struct ExplicitSettings<'a> {
    flags: &'a BootstrapArgs,
    file: &'a BTreeMap<Setting, (u64, String)>,
    failover: Option<&'a (Failover, String)>,
}

impl ExplicitSettings<'_> {
    /// Returns the explicit value of a setting, with its origin.
    fn found(&self, setting: Setting) -> Option<(u64, String)> {
        let by_flag = || {
            let origin = format!("--{} or {}", args::flag_of(setting), args::variable_of(setting));
            Some((self.flags.get(setting)?, origin))
        };
        let by_profile = || {
            let profile = self.flags.failover()?;
            Some((profile.value(setting)?, format!("--failover {}", profile.as_str())))
        };
        let by_profile_of_file = || {
            let (profile, place) = self.failover?;
            Some((profile.value(setting)?, place.clone()))
        };
        by_flag().or_else(by_profile).or_else(|| self.file.get(&setting).cloned()).or_else(by_profile_of_file)
    }

    fn of(&self, setting: Setting) -> Option<u64> {
        self.found(setting).map(|(value, _)| value)
    }

    /// Returns the origin of a setting that conflicts with another one.
    fn origin(&self, setting: Setting) -> String {
        match self.found(setting) {
            Some((_, from)) => format!("{} is from {from}", setting.as_str()),
            None => format!("{} is the default", setting.as_str()),
        }
    }

    /// Returns the settings of a new cluster.
    fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        for (setting, value) in Setting::ALL.iter().filter_map(|setting| Some((*setting, self.of(*setting)?))) {
            setting.put(&mut settings, value);
        }
        // Three copies, or as many as fit into the requested minimum cluster.
        let nodes_wanted = self.of(Setting::MinNodes);
        if self.of(Setting::Replication).is_none() {
            let three = Setting::Replication.default_value();
            let fitting = nodes_wanted.map_or(three, |nodes| nodes.min(three));
            Setting::Replication.put(&mut settings, fitting);
        }
        if nodes_wanted.is_none() {
            settings.nodes_min = settings.replication.into();
        }
        if settings.nodes_min < u32::from(settings.replication) {
            let (replication, nodes_min) = (settings.replication, settings.nodes_min);
            return Err(Failure::usage(
                format!(
                    "{replication} replicas of each partition need {replication} nodes, but min_nodes is {nodes_min}: \
                     partitions would be assigned before there are enough"
                ),
                format!(
                    "raise min_nodes to {replication}, or lower the replication: {}; {}",
                    self.origin(Setting::MinNodes),
                    self.origin(Setting::Replication)
                ),
            ));
        }
        settings.check().map_err(|error| {
            let origins: Vec<String> = error.settings().into_iter().map(|setting| self.origin(setting)).collect();
            Failure::usage(error.to_string(), format!("change one: {}", origins.join("; ")))
        })?;
        Ok(settings)
    }
}

fn voters(list: Vec<(u64, String)>) -> Result<BTreeMap<u64, String>, Failure> {
    let mut peers = BTreeMap::new();
    for (id, address) in list {
        if peers.values().any(|other| *other == address) {
            return Err(Failure::usage(
                format!("two voters have the address {address}"),
                "give each coordinator an address of its own in --peers",
            ));
        }
        if peers.insert(id, address).is_some() {
            return Err(Failure::usage(
                format!("voter {id} is named twice in the peers"),
                "name each coordinator once in --peers, with an id of its own",
            ));
        }
    }
    Ok(peers)
}

fn ids(peers: &BTreeMap<u64, String>) -> String {
    peers.keys().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
