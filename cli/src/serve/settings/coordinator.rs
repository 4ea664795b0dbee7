//! What a coordinator runs with.

use super::{plaintext_allowed, required};
use crate::args::{self, CoordinatorArgs};
use crate::exit::Failure;
use crate::serve::file::{ConfigFile, CoordinatorFile, FileError};
use archon_types::lease::LeaseTiming;
use archon_types::settings::Settings;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// What a coordinator runs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CoordinatorSettings {
    /// Its number among the peers.
    pub(crate) id: u64,
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// All voters with their addresses, itself included.
    pub(crate) peers: BTreeMap<u64, String>,
    /// Where it keeps its data.
    pub(crate) data_dir: PathBuf,
    /// Settings of the cluster, should this voter be the one that creates it.
    pub(crate) cluster: Settings,
    /// Whether plaintext beyond this machine is allowed.
    pub(crate) insecure: bool,
}

/// Copies of each partition when nobody says how many and three nodes are there.
const REPLICATION: u8 = 3;

impl CoordinatorSettings {
    /// Draws together what flags, environment and file say. `insecure` is the flag or its variable.
    ///
    /// # Errors
    /// A missing or impossible setting, with where it came from and what to do.
    pub(crate) fn resolve(args: &CoordinatorArgs, insecure: bool) -> Result<Self, Failure> {
        let file = args.config.as_deref().map(ConfigFile::read).transpose()?;
        let found = match &file {
            Some(file) => FromCoordinatorFile::read(file)?,
            None => FromCoordinatorFile::default(),
        };
        let id = required(args.id.or(found.id), "id", "--id 1")?;
        let listen = required(args.listen.or(found.listen), "listen", "--listen 127.0.0.1:7101")?;
        let example = "--peers 1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103";
        let peers = voters(required(args.peers.clone().or(found.peers), "peers", example)?)?;
        if !peers.contains_key(&id) {
            return Err(Failure::usage(
                format!("coordinator {id} is not among the peers ({})", ids(&peers)),
                format!("add {id}=H:P to the peers, the same list on every coordinator, or correct --id"),
            ));
        }
        if peers.len() == 2 {
            return Err(Failure::usage(
                "two coordinators bear the loss of none: when either is away, the other cannot decide anything",
                "name 3 or 5 in --peers, or 1 to try things out",
            ));
        }
        let data_dir = required(args.data_dir.clone().or(found.data_dir), "data_dir", "--data-dir /var/lib/archon/c1")?;
        let insecure = insecure || found.insecure;
        plaintext_allowed(&listen.to_string(), insecure)?;
        for address in peers.values() {
            plaintext_allowed(address, insecure)?;
        }
        let bootstrap = &args.bootstrap;
        let default = Settings::default();
        let timing = LeaseTiming {
            heartbeat_ms: bootstrap.heartbeat_ms.or(found.heartbeat_ms).unwrap_or(default.timing.heartbeat_ms),
            lease_ms: bootstrap.lease_ms.or(found.lease_ms).unwrap_or(default.timing.lease_ms),
            failure_timeout_ms: bootstrap
                .failure_timeout_ms
                .or(found.failure_timeout_ms)
                .unwrap_or(default.timing.failure_timeout_ms),
            margin_ms: bootstrap.margin_ms.or(found.margin_ms).unwrap_or(default.timing.margin_ms),
        };
        let origin = |key: &str, said: bool| origin(key, said, &found.places);
        timing.check().map_err(|error| {
            let origins = [
                origin("heartbeat_ms", bootstrap.heartbeat_ms.is_some()),
                origin("lease_ms", bootstrap.lease_ms.is_some()),
                origin("failure_timeout_ms", bootstrap.failure_timeout_ms.is_some()),
                origin("margin_ms", bootstrap.margin_ms.is_some()),
            ];
            Failure::usage(format!("the timing is unsafe: {error}"), format!("change one: {}", origins.join("; ")))
        })?;
        // Three copies, or as many as fit into the least cluster that was asked for.
        let nodes_wanted = bootstrap.min_nodes.or(found.min_nodes);
        let fitting =
            nodes_wanted.map_or(REPLICATION, |nodes| u8::try_from(nodes).unwrap_or(REPLICATION).min(REPLICATION));
        let replication = bootstrap.replication.or(found.replication).unwrap_or(fitting);
        let nodes_min = nodes_wanted.unwrap_or(replication.into());
        if nodes_min < u32::from(replication) {
            return Err(Failure::usage(
                format!(
                    "{replication} copies of each partition need {replication} nodes, but min_nodes is {nodes_min}: \
                     partitions would be assigned before there are enough"
                ),
                format!(
                    "raise min_nodes to {replication}, or want fewer copies: {}; {}",
                    origin("min_nodes", bootstrap.min_nodes.is_some()),
                    origin("replication", bootstrap.replication.is_some())
                ),
            ));
        }
        let replace_after_ms =
            bootstrap.replace_after_ms.or(found.replace_after_ms).unwrap_or(default.replace_after_ms);
        if replace_after_ms < timing.failure_timeout_ms {
            return Err(Failure::usage(
                format!(
                    "replace_after_ms is too short: {replace_after_ms} ms < {} ms (failure_timeout_ms): copies would be made \
                     anew before a node that is started again can be back",
                    timing.failure_timeout_ms
                ),
                format!(
                    "change one: {}; {}",
                    origin("replace_after_ms", bootstrap.replace_after_ms.is_some()),
                    origin("failure_timeout_ms", bootstrap.failure_timeout_ms.is_some())
                ),
            ));
        }
        let replication_timeout_ms =
            bootstrap.replication_timeout_ms.or(found.replication_timeout_ms).unwrap_or(default.replication_timeout_ms);
        if replication_timeout_ms < timing.heartbeat_ms.saturating_mul(2) {
            return Err(Failure::usage(
                format!(
                    "replication_timeout_ms is too short: {replication_timeout_ms} ms < 2 × {} ms (heartbeat_ms) = {} ms: \
                     followers would be dropped for pauses that cost a node nothing else",
                    timing.heartbeat_ms,
                    timing.heartbeat_ms.saturating_mul(2)
                ),
                format!(
                    "change one: {}; {}",
                    origin("replication_timeout_ms", bootstrap.replication_timeout_ms.is_some()),
                    origin("heartbeat_ms", bootstrap.heartbeat_ms.is_some())
                ),
            ));
        }
        let cluster = Settings {
            timing,
            nodes_min,
            partitions: bootstrap.partitions.or(found.partitions).unwrap_or(default.partitions),
            replication,
            copies_per_node_max: bootstrap
                .copies_per_node_max
                .or(found.copies_per_node_max)
                .unwrap_or(default.copies_per_node_max),
            replace_after_ms,
            replication_timeout_ms,
        };
        Ok(Self { id, listen, peers, data_dir, cluster, insecure })
    }

    /// What can work and is probably not meant.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let voters = self.peers.len();
        if voters.is_multiple_of(2) {
            let bears = (voters - 1) / 2;
            warnings.push(format!(
                "{voters} coordinators bear the loss of {bears}, no more than {} do; use 3 or 5",
                voters - 1
            ));
        }
        if let Some(address) = self.peers.get(&self.id).filter(|address| !reaches(address, self.listen)) {
            warnings.push(format!(
                "the others call coordinator {} at {address} (--peers), and it listens on {} (--listen): unless something \
                 forwards from there to here, it will not be reached",
                self.id, self.listen
            ));
        }
        warnings
    }
}

/// Whether somebody who calls `address` may end up at `listen`, as far as can be told from the two.
fn reaches(address: &str, listen: SocketAddr) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let same_host = match host.parse::<IpAddr>() {
        Ok(ip) => listen.ip().is_unspecified() || listen.ip() == ip,
        // Names are not looked up here.
        Err(_) => host != "localhost" || listen.ip().is_unspecified() || listen.ip().is_loopback(),
    };
    same_host && port.parse() == Ok(listen.port())
}

/// A coordinator's file with every value checked.
#[derive(Default)]
pub(crate) struct FromCoordinatorFile {
    id: Option<u64>,
    listen: Option<SocketAddr>,
    peers: Option<Vec<(u64, String)>>,
    data_dir: Option<PathBuf>,
    insecure: bool,
    partitions: Option<u32>,
    replication: Option<u8>,
    min_nodes: Option<u32>,
    heartbeat_ms: Option<u64>,
    lease_ms: Option<u64>,
    failure_timeout_ms: Option<u64>,
    margin_ms: Option<u64>,
    copies_per_node_max: Option<u32>,
    replace_after_ms: Option<u64>,
    replication_timeout_ms: Option<u64>,
    /// Where in the file the numbers stand that must fit together.
    places: BTreeMap<&'static str, String>,
}

impl FromCoordinatorFile {
    pub(crate) fn read(file: &ConfigFile) -> Result<Self, FileError> {
        let raw: CoordinatorFile = file.settings(CoordinatorFile::KEYS)?;
        let hour_ms = 1..=3_600_000;
        let millis = |key: &str, value: &Option<toml::Spanned<u64>>| {
            value.as_ref().map(|value| file.within::<u64>(key, value, hour_ms.clone())).transpose()
        };
        let numbers = [
            ("replication", &raw.replication),
            ("min_nodes", &raw.min_nodes),
            ("heartbeat_ms", &raw.heartbeat_ms),
            ("lease_ms", &raw.lease_ms),
            ("failure_timeout_ms", &raw.failure_timeout_ms),
            ("margin_ms", &raw.margin_ms),
            ("replace_after_ms", &raw.replace_after_ms),
            ("replication_timeout_ms", &raw.replication_timeout_ms),
        ];
        let places = numbers
            .into_iter()
            .filter_map(|(key, value)| Some((key, file.place(value.as_ref()?.span().start))))
            .collect();
        let peers = match &raw.peers {
            Some(list) => {
                Some(list.iter().map(|text| file.parse("peers", text, args::peer)).collect::<Result<Vec<_>, _>>()?)
            }
            None => None,
        };
        Ok(Self {
            id: raw.id.as_ref().map(|value| file.within("id", value, 1..=u64::MAX)).transpose()?,
            listen: raw.listen.as_ref().map(|text| file.parse("listen", text, args::listen)).transpose()?,
            peers,
            data_dir: raw.data_dir.clone(),
            insecure: raw.insecure.unwrap_or(false),
            partitions: raw.partitions.as_ref().map(|v| file.within("partitions", v, 1..=16_384)).transpose()?,
            replication: raw.replication.as_ref().map(|v| file.within("replication", v, 1..=7)).transpose()?,
            min_nodes: raw.min_nodes.as_ref().map(|v| file.within("min_nodes", v, 1..=10_000)).transpose()?,
            heartbeat_ms: millis("heartbeat_ms", &raw.heartbeat_ms)?,
            lease_ms: millis("lease_ms", &raw.lease_ms)?,
            failure_timeout_ms: millis("failure_timeout_ms", &raw.failure_timeout_ms)?,
            margin_ms: millis("margin_ms", &raw.margin_ms)?,
            copies_per_node_max: raw
                .copies_per_node_max
                .as_ref()
                .map(|v| file.within("copies_per_node_max", v, 1..=1_000))
                .transpose()?,
            replace_after_ms: raw
                .replace_after_ms
                .as_ref()
                .map(|v| file.within("replace_after_ms", v, 1..=args::REPLACE_AFTER_MS_MAX))
                .transpose()?,
            replication_timeout_ms: millis("replication_timeout_ms", &raw.replication_timeout_ms)?,
            places,
        })
    }
}

/// Where a setting that does not fit another came from; `said` if a flag or its variable said it.
fn origin(key: &str, said: bool, places: &BTreeMap<&'static str, String>) -> String {
    match places.get(key) {
        _ if said => format!("{key} is from --{} or ARCHON_{}", key.replace('_', "-"), key.to_uppercase()),
        Some(place) => format!("{key} is from {place}"),
        None => format!("{key} is the default"),
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
