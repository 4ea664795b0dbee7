//! What an operator tells a coordinator.

use archon_security::{Role, Transport};
use archon_types::limits::check_address;
use archon_types::{Settings, SettingsError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Most coordinators of one quorum.
pub const COORDINATORS_MAX: usize = 9;

/// How a coordinator is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// This coordinator's number, one of `peers`, at least 1.
    pub id: u64,
    /// The address to bind. Port 0 is accepted where the listener is handed in.
    pub listen: SocketAddr,
    /// Where to tell metrics and health by HTTP; nothing is told without it.
    pub metrics_listen: Option<SocketAddr>,
    /// How it reaches others and is reached.
    pub transport: Transport,
    /// Every coordinator of the quorum, this one included: number → `host:port` at which the others reach it. Fixed
    /// when the quorum is made.
    pub peers: BTreeMap<u64, String>,
    /// Where vote, log and snapshots live.
    pub data_dir: PathBuf,
    /// What the cluster gets if this coordinator is the one that bootstraps it; ignored ever after.
    pub settings: Settings,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum ConfigError {
    /// Zero means "nobody".
    #[error("--id is 0; number the coordinators from 1")]
    IdZero,
    /// This coordinator is not in its own list.
    #[error("--id {id} is not among --peers {peers}; give every coordinator the same list, itself included")]
    NotAPeer { id: u64, peers: String },
    /// More voters than make sense.
    #[error("--peers names {found} coordinators; use 3 or 5, at most {COORDINATORS_MAX}")]
    TooManyPeers { found: usize },
    /// Zero means "nobody".
    #[error("--peers numbers the coordinator at {address} 0; number them from 1")]
    PeerZero { address: String },
    /// An address that nobody could dial.
    #[error("--peers gives coordinator {id} the address {address:?}; write it as host:port")]
    Address { id: u64, address: String },
    /// Others would not believe it.
    #[error("{0}")]
    Certificate(String),
    /// Two coordinators cannot share an address.
    #[error("--peers gives {address} to two coordinators; every one needs its own")]
    AddressTwice { address: String },
    /// A setting of the cluster is out of its range, or does not fit another one.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The first assignment could never happen.
    #[error(
        "--replication {replication} needs at least as many nodes, but --min-nodes is {nodes_min}; raise --min-nodes to {replication}"
    )]
    NodesBelowReplication { replication: u8, nodes_min: u32 },
}

impl CoordinatorConfig {
    /// Accepts the configuration only if it can work.
    ///
    /// # Errors
    /// [`ConfigError`], with the arithmetic and what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.id == 0 {
            return Err(ConfigError::IdZero);
        }
        if !self.peers.contains_key(&self.id) {
            let peers: Vec<String> = self.peers.iter().map(|(id, address)| format!("{id}={address}")).collect();
            return Err(ConfigError::NotAPeer { id: self.id, peers: peers.join(",") });
        }
        if self.peers.len() > COORDINATORS_MAX {
            return Err(ConfigError::TooManyPeers { found: self.peers.len() });
        }
        let mut seen = BTreeSet::new();
        for (id, address) in &self.peers {
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
        let own = self.transport.check_own(Role::Coordinator, &self.id.to_string());
        own.map_err(|detail| ConfigError::Certificate(detail.message))?;
        check_settings(&self.settings)
    }
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

    fn config() -> CoordinatorConfig {
        CoordinatorConfig {
            id: 1,
            listen: ([127, 0, 0, 1], 7001).into(),
            metrics_listen: None,
            transport: Transport::default(),
            peers: [(1, "127.0.0.1:7001".to_owned()), (2, "127.0.0.1:7002".to_owned())].into(),
            data_dir: "data".into(),
            settings: Settings::default(),
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_remedy() {
        assert_eq!(config().check(), Ok(()));
        assert!(CoordinatorConfig { id: 3, ..config() }.check().unwrap_err().to_string().contains("not among --peers"));
        for bad in ["nowhere", "host:", ":7", "host:0", "host:99999", "http://a:1"] {
            let config = CoordinatorConfig { peers: [(1, bad.to_owned())].into(), ..config() };
            assert!(matches!(config.check(), Err(ConfigError::Address { .. })), "{bad} was accepted");
        }
        let nobody = [(0, "host:1".to_owned()), (1, "host:2".to_owned())].into();
        let nobody = CoordinatorConfig { peers: nobody, ..config() }.check().unwrap_err();
        assert!(nobody.to_string().contains("number them from 1"), "{nobody}");
        let timing = LeaseTiming { lease_ms: 600, ..LeaseTiming::default() };
        let late = CoordinatorConfig { settings: Settings { timing, ..Settings::default() }, ..config() };
        assert!(late.check().unwrap_err().to_string().contains("3 × 200 ms = 600 ms"));
        let few = Settings { replication: 3, nodes_min: 2, ..Settings::default() };
        let few = CoordinatorConfig { settings: few, ..config() }.check().unwrap_err();
        assert!(few.to_string().contains("raise --min-nodes to 3"), "{few}");
    }
}
