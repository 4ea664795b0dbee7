//! Settings of a coordinator process.

use super::{MemberKind, MemberLine, allowed, required, transport};
use crate::args::{self, BootstrapArgs, CoordinatorArgs, FAILOVER};
use crate::exit::Failure;
use crate::serve::file::FileValues;
use archon_client::Transport;
use archon_coordinator::{FirstStart, QuorumTiming};
use archon_types::{Failover, ProtocolRange, Setting, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

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
    /// Combines the command line of a coordinator with its file.
    ///
    /// # Errors
    /// A missing or impossible setting, with its origin and a remedy.
    pub(crate) fn resolve(words: &[OsString]) -> Result<Self, Failure> {
        let line = MemberLine::<CoordinatorArgs>::read(MemberKind::Coordinator, words)?;
        let MemberLine { connection, args, values } = line;
        let id = required(args.id, "id", "--id 1")?;
        let listen = required(args.listen, "listen", "--listen 127.0.0.1:7101")?;
        let start = first_start(args.peers, args.join, args.learner)?;
        let advertise = args.advertise;
        let data_dir = required(args.data_dir, "data_dir", "--data-dir /var/lib/archon/c1")?;
        let transport = transport(connection.insecure, connection.tls_dir.as_deref())?;
        allowed("listen", &listen.to_string(), &transport)?;
        for (flag, address) in addresses(start.as_ref()).chain(advertise.iter().map(|own| ("advertise", own.as_str())))
        {
            allowed(flag, address, &transport)?;
        }
        let (metrics_listen, http_listen) = (args.metrics_listen, args.http_listen);
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
        let said = ExplicitSettings { given: &args.bootstrap, file: &values };
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
            failover: args.bootstrap.failover(),
            speaks: args::spoken(args.protocol_max),
            timing: args.quorum_heartbeat_ms,
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
        (Some(peers), None) => FirstStart::Found { peers: founders(peers)? },
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

fn founders(peers: Vec<(u64, String)>) -> Result<BTreeMap<u64, String>, Failure> {
    let peers = voters(peers)?;
    if peers.len() == 2 {
        return Err(Failure::usage(
            "two coordinators tolerate no failure: when either is away, the other cannot decide anything",
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

/// Explicit settings of a new cluster: a flag overrides the file, and a single setting overrides the profile.
struct ExplicitSettings<'a> {
    given: &'a BootstrapArgs,
    file: &'a FileValues,
}

impl ExplicitSettings<'_> {
    /// Returns the explicit value of a setting, with its origin.
    fn found(&self, setting: Setting) -> Option<(u64, String)> {
        let (key, own) = (setting.as_str(), self.given.get(setting));
        let by_profile = self.given.failover().and_then(|profile| Some((profile, profile.value(setting)?)));
        let place = |key: &str| self.file.get(key).map(|value| value.place.clone());
        let by_flag = || {
            let value = own.filter(|_| self.given.is_explicit(key))?;
            Some((value, format!("--{} or {}", args::flag_of(setting), args::variable_of(setting))))
        };
        let by_profile_flag = || {
            let (profile, value) = by_profile.filter(|_| self.given.is_explicit(FAILOVER))?;
            Some((value, format!("--{FAILOVER} {}", profile.as_str())))
        };
        let by_file = || Some((own?, place(key)?));
        let by_profile_of_file = || Some((by_profile?.1, place(FAILOVER)?));
        by_flag().or_else(by_profile_flag).or_else(by_file).or_else(by_profile_of_file)
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
        if peers.insert(id, address).is_some() {
            return Err(Failure::usage(
                format!("voter {id} is named twice in the peers"),
                "name each coordinator once in --peers, with an id of its own",
            ));
        }
    }
    Ok(peers)
}
