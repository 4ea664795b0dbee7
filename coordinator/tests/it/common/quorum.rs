//! A quorum of coordinators.

use super::calls::{ask, ask_as, request_id, status};
use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_documents::{
    ChangeQuorum, CoordinatorStatus, MethodCall, Quorum as QuorumView, QuorumAction, ShowQuorum, ShowStatus,
    Status as ClusterStatus,
};
use archon_proto::v1;
use archon_security::Transport;
use archon_testkit::{ScratchDirectory, wait_for_async};
use archon_types::{ErrorDetail, ErrorKind, ProtocolRange, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

pub struct Quorum {
    pub dirs: BTreeMap<u64, ScratchDirectory>,
    pub peers: BTreeMap<u64, String>,
    pub running: BTreeMap<u64, Coordinator>,
    pub settings: Settings,
}

impl Quorum {
    pub async fn start(count: u64, settings: Settings) -> Self {
        // `RUST_LOG=archon_coordinator=debug` shows the log of a test.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let mut listeners = BTreeMap::new();
        let mut quorum = Self { dirs: BTreeMap::new(), peers: BTreeMap::new(), running: BTreeMap::new(), settings };
        for id in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            quorum.peers.insert(id, listener.local_addr().unwrap().to_string());
            quorum.dirs.insert(id, ScratchDirectory::in_memory().unwrap());
            listeners.insert(id, listener);
        }
        for (id, listener) in listeners {
            let coordinator = Coordinator::start(listener, quorum.config(id)).await.unwrap();
            quorum.running.insert(id, coordinator);
        }
        quorum
    }

    pub fn config(&self, id: u64) -> CoordinatorConfig {
        CoordinatorConfig {
            id,
            listen: self.peers[&id].parse().unwrap(),
            metrics_listen: None,
            transport: Transport::default(),
            advertise: None,
            start: Some(FirstStart::Found { peers: self.peers.clone() }),
            data_dir: self.dirs[&id].path().to_path_buf(),
            speaks: ProtocolRange::SPOKEN,
            timing: archon_coordinator::QuorumTiming::default(),
            settings: self.settings.clone(),
            settings_said: BTreeSet::new(),
        }
    }

    /// Returns the listener and configuration of a newcomer that joins through these, on a port and in a directory of
    /// its own.
    pub async fn newcomer(&mut self, id: u64, through: &[u64], learner: bool) -> (TcpListener, CoordinatorConfig) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = through.iter().map(|id| self.peers[id].clone()).collect();
        self.peers.insert(id, listener.local_addr().unwrap().to_string());
        self.dirs.insert(id, ScratchDirectory::in_memory().unwrap());
        let config = CoordinatorConfig { start: Some(FirstStart::Join { through, learner }), ..self.config(id) };
        (listener, config)
    }

    /// Starts a newcomer that joins through these, and waits until its admission is complete.
    pub async fn join(&mut self, id: u64, through: &[u64], learner: bool) {
        let (listener, config) = self.newcomer(id, through, learner).await;
        self.running.insert(id, Coordinator::start(listener, config).await.unwrap());
        self.changed().await;
    }

    /// Returns the quorum in the leading coordinator's view.
    pub async fn view(&self) -> Result<QuorumView, ErrorDetail> {
        ask(&self.leader_address().await, &ShowQuorum {}).await
    }

    /// As `view`, from a leader that the others have confirmed: on a busy machine leadership may pass on meanwhile.
    pub async fn confirmed_view(&self) -> QuorumView {
        wait_for_async("a confirmed leader", Duration::from_secs(60), || async {
            let address = self.leader_address().await;
            // Answered once a majority has confirmed that it leads. Its view is its own, so it must still lead then.
            status(&address).await.map_err(|error| error.to_string())?;
            let view = ask(&address, &ShowQuorum {}).await.map_err(|error| error.to_string())?;
            let leads = view.leader_id == Some(view.id) && view.spare_voters.is_some();
            if leads { Ok(view) } else { Err(format!("{view:?}")) }
        })
        .await
    }

    /// Waits until no change of the quorum is in progress, and returns its voters and its learners.
    pub async fn changed(&self) -> (Vec<u64>, Vec<u64>) {
        wait_for_async("the change of the quorum", Duration::from_secs(60), || async {
            let view = self.view().await.map_err(|error| error.to_string())?;
            if view.leader_id != Some(view.id) || view.pending.is_some() {
                return Err(format!("{view:?}"));
            }
            let (learners, voters): (Vec<_>, Vec<_>) = view.coordinators.into_iter().partition(|member| member.learner);
            let ids = |members: Vec<CoordinatorStatus>| members.into_iter().map(|member| member.id).collect();
            Ok((ids(voters), ids(learners)))
        })
        .await
    }

    /// Asks the leading coordinator to change the quorum.
    pub async fn change(&self, action: impl Into<QuorumAction>) -> Result<bool, ErrorDetail> {
        self.change_with(action, false).await
    }

    pub async fn change_with(&self, action: impl Into<QuorumAction>, force: bool) -> Result<bool, ErrorDetail> {
        Ok(self.ask(&ChangeQuorum { action: action.into(), force }).await?.changed)
    }

    /// Asks the leading coordinator, under one id until the others have confirmed that it leads: on a busy machine they may
    /// be late.
    pub async fn ask<T: MethodCall>(&self, document: &T) -> Result<T::Answer, ErrorDetail> {
        let id = request_id();
        wait_for_async("a confirmed leader", Duration::from_secs(60), || async {
            match ask_as(&self.leader_address().await, document, &id).await {
                Err(error) if matches!(error.kind, ErrorKind::NoQuorum | ErrorKind::NotCoordinatorLeader) => Err(error),
                answer => Ok(answer),
            }
        })
        .await
    }

    /// Returns the status in the view of a confirmed leader.
    pub async fn status(&self) -> ClusterStatus {
        self.ask(&ShowStatus {}).await.unwrap()
    }

    pub async fn restart(&mut self, id: u64) {
        let config = self.config(id);
        let listener = wait_for_async("the port to be free", Duration::from_secs(60), || async {
            TcpListener::bind(config.listen).await.map_err(|error| error.to_string())
        })
        .await;
        self.running.insert(id, Coordinator::start(listener, config).await.unwrap());
    }

    /// Waits for a leader and returns it.
    pub async fn leader(&self) -> u64 {
        wait_for_async("a leader", Duration::from_secs(60), || async {
            let leads = self.running.values().find(|coordinator| coordinator.is_leading());
            leads.map(Coordinator::id).ok_or_else(|| "no leader".to_owned())
        })
        .await
    }

    pub async fn leader_address(&self) -> String {
        self.peers[&self.leader().await].clone()
    }

    /// Returns the id of the cluster.
    pub async fn cluster(&self) -> v1::ClusterRef {
        let id: Uuid = self.status().await.cluster_id.parse().unwrap();
        v1::ClusterRef { cluster_id: bytes::Bytes::copy_from_slice(id.as_bytes()) }
    }

    pub async fn stop_all(self) {
        for (_, coordinator) in self.running {
            assert!(coordinator.shutdown().await.is_none());
        }
    }
}
