//! Configuration of a coordinator by its operator.

use crate::quorum::timing::QuorumTiming;
use archon_coordinator_core::COORDINATORS_MAX;
use archon_security::{Role, Transport};
use archon_types::limits::check_address;
use archon_types::{ProtocolRange, Setting, Settings, SettingsError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Configuration of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// This coordinator's number, one of `peers`, at least 1.
    pub id: u64,
    /// The address to bind. Port 0 is accepted if the listener is passed in.
    pub listen: SocketAddr,
    /// Address of the HTTP server for metrics and health; without it there is none.
    pub metrics_listen: Option<SocketAddr>,
    /// Transport to and from others.
    pub transport: Transport,
    /// Address at which the others reach this one, `host:port`; by default the one in `start`, or the last known one. A
    /// member with another address than the quorum knows has it changed.
    pub advertise: Option<String>,
    /// Way to become a member if its data directory is new. Afterwards the log contains the members; peers are then
    /// hints at members that do not answer at their addresses in the log.
    pub start: Option<FirstStart>,
    /// Directory of vote, log and snapshots.
    pub data_dir: PathBuf,
    /// The protocols that it speaks: those of this version, or a part of them.
    pub speaks: ProtocolRange,
    /// Heartbeat and election timing, the same on every coordinator.
    pub timing: QuorumTiming,
    /// Settings of the cluster if this coordinator bootstraps it; ignored afterwards.
    pub settings: Settings,
    /// The settings that the operator set explicitly; the others are defaults without intent.
    pub settings_said: BTreeSet<Setting>,
}

/// Way in which a coordinator with a new data directory becomes a member of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstStart {
    /// It founds one, together with others that have the same list.
    Found {
        /// Every founder, including this one: number → `host:port` at which the others reach it.
        peers: BTreeMap<u64, String>,
    },
    /// It joins one.
    Join {
        /// Coordinators of that quorum, one of which is up.
        through: Vec<String>,
        /// True to stay a learner; otherwise it becomes a voter once it has the log.
        learner: bool,
    },
}

impl FirstStart {
    /// Returns the flag that is ignored at a later start, if it contradicts the way in which the coordinator became a
    /// member: `is_founder` is true if it founded a quorum.
    pub(crate) const fn unheeded(&self, is_founder: bool) -> Option<&'static str> {
        match self {
            Self::Join { .. } if is_founder => Some("--join"),
            _ => None,
        }
    }
}

impl CoordinatorConfig {
    /// Returns addresses to try for members that do not answer at their addresses in the log, and of this one by
    /// default.
    pub(crate) fn hints(&self) -> BTreeMap<u64, String> {
        let Some(FirstStart::Found { peers }) = &self.start else { return BTreeMap::new() };
        let mut hints = peers.clone();
        if self.advertise.is_some() {
            hints.remove(&self.id);
        }
        hints
    }

    /// Returns the address of this one for the others at the first start.
    pub(crate) fn first_address(&self) -> String {
        let founded = match &self.start {
            Some(FirstStart::Found { peers }) => peers.get(&self.id),
            _ => None,
        };
        self.advertise.as_ref().or(founded).cloned().unwrap_or_else(|| self.listen.to_string())
    }
}

/// Reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum ConfigError {
    /// Zero means "none".
    #[error("--id is 0; number the coordinators from 1")]
    IdZero,
    /// This coordinator is not in its own list.
    #[error(
        "coordinator {id} is not among --peers {peers}; to join their quorum, omit --peers and use --join {first}; to \
         found a quorum with them, add {id}=H:P to --peers, the same list on every coordinator; or correct --id"
    )]
    NotAPeer { id: u64, peers: String, first: String },
    /// Too many voters.
    #[error("--peers names {found} coordinators; use 3 or 5, at most {COORDINATORS_MAX}")]
    TooManyPeers { found: usize },
    /// Zero means "none".
    #[error("--peers numbers the coordinator at {address} 0; number them from 1")]
    PeerZero { address: String },
    /// The address cannot be dialled.
    #[error("--peers gives coordinator {id} the address {address:?}; write it as host:port")]
    Address { id: u64, address: String },
    /// No coordinator to contact.
    #[error("--join names no coordinator; give the address of one or more of the quorum")]
    NothingToJoin,
    /// Others cannot dial it.
    #[error(
        "{flag} is {address:?}, which other machines cannot reach; give the address for other members with \
             --advertise H:P"
    )]
    OwnAddress { flag: &'static str, address: String },
    /// Others would not trust it.
    #[error("{0}")]
    Certificate(String),
    /// Two coordinators cannot share an address.
    #[error("--peers gives {address} to two coordinators; every one needs its own")]
    AddressTwice { address: String },
    /// A setting of the cluster is out of its range, or conflicts with another one.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The first assignment could never happen.
    #[error(
        "--replication {replication} needs at least as many nodes, but --min-nodes is {nodes_min}; raise --min-nodes \
         to {replication}"
    )]
    NodesBelowReplication { replication: u8, nodes_min: u32 },
}

impl CoordinatorConfig {
    /// Accepts the configuration only if it can work.
    ///
    /// # Errors
    /// [`ConfigError`], with the arithmetic and a remedy.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.id == 0 {
            return Err(ConfigError::IdZero);
        }
        if let Some(address) = &self.advertise {
            check_own_address("--advertise", address)?;
        }
        match &self.start {
            Some(FirstStart::Found { peers }) => self.check_peers(peers)?,
            Some(FirstStart::Join { through, .. }) => {
                if through.is_empty() {
                    return Err(ConfigError::NothingToJoin);
                }
                if self.advertise.is_none() {
                    check_own_address("--listen", &self.listen.to_string())?;
                }
            }
            None => {}
        }
        let own = self.transport.check_own(Role::Coordinator, &self.id.to_string());
        own.map_err(|detail| ConfigError::Certificate(detail.message))?;
        if let Some(address) = &self.advertise {
            self.check_reached(address)?;
        }
        check_settings(&self.settings)
    }

    /// Rejects an address to be announced to the others that the certificate does not name.
    ///
    /// # Errors
    /// A remedy.
    pub(crate) fn check_reached(&self, address: &str) -> Result<(), ConfigError> {
        let listed = matches!(&self.start, Some(FirstStart::Found { .. })) && self.advertise.is_none();
        let other = |other: &str| match listed {
            true => format!("use {}={other} in --peers, the same list on each coordinator", self.id),
            false => format!("give --advertise {other}"),
        };
        let reached = self.transport.check_reached(address, other);
        reached.map_err(|detail| ConfigError::Certificate(detail.message))
    }

    fn check_peers(&self, peers: &BTreeMap<u64, String>) -> Result<(), ConfigError> {
        if !peers.contains_key(&self.id) {
            let first = peers.values().next().cloned().unwrap_or_else(|| "H:P".to_owned());
            let peers: Vec<String> = peers.iter().map(|(id, address)| format!("{id}={address}")).collect();
            return Err(ConfigError::NotAPeer { id: self.id, peers: peers.join(","), first });
        }
        if peers.len() > COORDINATORS_MAX {
            return Err(ConfigError::TooManyPeers { found: peers.len() });
        }
        let mut seen = BTreeSet::new();
        for (id, address) in peers {
            if *id == 0 {
                return Err(ConfigError::PeerZero { address: address.clone() });
            }
            if check_address(address).is_err() {
                return Err(ConfigError::Address { id: *id, address: address.clone() });
            }
            if !seen.insert(address) {
                return Err(ConfigError::AddressTwice { address: address.clone() });
            }
        }
        Ok(())
    }
}

/// Checks that others can dial this.
fn check_own_address(flag: &'static str, address: &str) -> Result<(), ConfigError> {
    let anywhere = ["0.0.0.0:", "[::]:"].iter().any(|host| address.starts_with(host));
    if check_address(address).is_err() || anywhere {
        return Err(ConfigError::OwnAddress { flag, address: address.to_owned() });
    }
    Ok(())
}

fn check_settings(settings: &Settings) -> Result<(), ConfigError> {
    settings.check()?;
    if settings.nodes_min < u32::from(settings.replication) {
        let (replication, nodes_min) = (settings.replication, settings.nodes_min);
        return Err(ConfigError::NodesBelowReplication { replication, nodes_min });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::LeaseTiming;

    fn found<const N: usize>(peers: [(u64, &str); N]) -> Option<FirstStart> {
        Some(FirstStart::Found { peers: peers.map(|(id, address)| (id, address.to_owned())).into() })
    }

    fn config() -> CoordinatorConfig {
        CoordinatorConfig {
            id: 1,
            listen: ([127, 0, 0, 1], 7001).into(),
            metrics_listen: None,
            transport: Transport::default(),
            advertise: None,
            start: found([(1, "127.0.0.1:7001"), (2, "127.0.0.1:7002")]),
            data_dir: "data".into(),
            speaks: ProtocolRange::SPOKEN,
            timing: QuorumTiming::default(),
            settings: Settings::default(),
            settings_said: BTreeSet::new(),
        }
    }

    #[test]
    fn ignored_start_option_is_named() {
        let join = FirstStart::Join { through: vec!["a:1".to_owned()], learner: false };
        // The flag that its unit passes at every start.
        assert_eq!(found([(1, "a:1")]).unwrap().unheeded(true), None);
        assert_eq!(join.unheeded(false), None);
        assert_eq!(join.unheeded(true), Some("--join"));
    }

    #[test]
    fn hints_come_from_peers_except_for_advertised_self() {
        let advertise = Some("127.0.0.1:9".to_owned());
        assert_eq!(config().hints().len(), 2);
        assert_eq!(CoordinatorConfig { advertise, ..config() }.hints(), [(2, "127.0.0.1:7002".to_owned())].into());
        assert!(CoordinatorConfig { start: None, ..config() }.hints().is_empty());
    }

    #[test]
    fn impossible_configuration_is_refused_with_remedy() {
        assert_eq!(config().check(), Ok(()));
        let absent = CoordinatorConfig { id: 3, ..config() }.check().unwrap_err().to_string();
        assert!(absent.contains("not among --peers") && absent.contains("--join 127.0.0.1:7001"), "{absent}");
        let twice = CoordinatorConfig { start: found([(1, "a:1"), (2, "a:1")]), ..config() };
        assert_eq!(twice.check(), Err(ConfigError::AddressTwice { address: "a:1".to_owned() }));
        for bad in ["nowhere", "host:", ":7", "host:0", "host:99999", "http://a:1"] {
            let config = CoordinatorConfig { start: found([(1, bad)]), ..config() };
            assert!(matches!(config.check(), Err(ConfigError::Address { .. })), "{bad} was accepted");
        }
        let nobody = found([(0, "host:1"), (1, "host:2")]);
        let nobody = CoordinatorConfig { start: nobody, ..config() }.check().unwrap_err();
        assert!(nobody.to_string().contains("number them from 1"), "{nobody}");
        let join = |through: &[&str]| {
            let through = through.iter().map(|address| (*address).to_owned()).collect();
            Some(FirstStart::Join { through, learner: false })
        };
        let lost = CoordinatorConfig { start: join(&[]), ..config() }.check().unwrap_err();
        assert_eq!(lost, ConfigError::NothingToJoin);
        let everywhere = CoordinatorConfig { listen: ([0, 0, 0, 0], 7001).into(), start: join(&["a:1"]), ..config() };
        assert!(everywhere.check().unwrap_err().to_string().contains("--advertise H:P"));
        assert_eq!(CoordinatorConfig { advertise: Some("me:1".into()), ..everywhere }.check(), Ok(()));
        let timing = LeaseTiming { lease_ms: 600, ..LeaseTiming::default() };
        let late = CoordinatorConfig { settings: Settings { timing, ..Settings::default() }, ..config() };
        assert!(late.check().unwrap_err().to_string().contains("3 × 200 ms = 600 ms"));
        let few = Settings { replication: 3, nodes_min: 2, ..Settings::default() };
        let few = CoordinatorConfig { settings: few, ..config() }.check().unwrap_err();
        assert!(few.to_string().contains("raise --min-nodes to 3"), "{few}");
    }
}
