//! Tests of pushes with shards that process their part late, after the incarnation has ended.

use super::*;
use crate::copies::copy::{CopyHandles, CopyRunner};
use crate::flusher::{Flusher, FlusherConfig};
use crate::forward::Forwards;
use crate::node::clock::WallClock;
use crate::node::config::NodeConfig;
use crate::node::grants::Grants;
use crate::node::membership::CurrentRegistration;
use crate::node::memory::MemoryParts;
use crate::peers::peer::Peers;
use crate::ranges::split_search::SplitSearches;
use crate::shard::{Context, ShardRuntime};
use archon_kv::{DedupLimits, MemoryEngine, MemtableBudget};
use archon_proto::convert::members::session::Member;
use archon_session::BootClock;
use archon_types::{
    ClusterId, Duty, Epoch, GenerationKey, KeyRange, NodeId, Partition, PartitionId, PartitionStatus, Placement,
    ReplicaState, Settings, TableId, Version,
};
use archon_wal::{Wal, WalConfig};
use std::ops::Bound;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

const CLUSTER: ClusterId = ClusterId::new(Uuid::from_u128(7));
const NODE: NodeId = NodeId::new(1);
const COPY: PlacementId = PlacementId::new(3);
const PARTITION: PartitionId = PartitionId::new(TableId::new(1), 0);

/// A node without session and server, with a shard that runs only on request.
struct Rig {
    _directory: TempDir,
    control: ControlService,
    context: Arc<Context>,
    shards: Shards,
    flusher: Flusher,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = NodeConfig::new("athens", "127.0.0.1:0", vec!["127.0.0.1:1".into()], directory.path().into());
        let shared = Arc::new(NodeState::new(config, MemoryParts::of(0), Arc::new(BootClock), Arc::new(WallClock)));
        let engine = Arc::new(MemoryEngine::new());
        let flusher = Flusher::start(engine.clone(), FlusherConfig::default(), |_| {}, || {}).unwrap();
        let shards = Shards::new(1);
        let runtime = tokio::runtime::Handle::current();
        let holdings = Arc::new(Holdings::default());
        let context = Arc::new(Context {
            shared: Arc::clone(&shared),
            wal: Wal::open(&directory.path().join("wal"), WalConfig::default()).unwrap().0,
            engine,
            flusher: flusher.handle(),
            holdings: Arc::clone(&holdings),
            peers: Arc::new(Peers::new(
                Arc::clone(&shared.membership),
                Arc::clone(&shared.tables),
                Arc::clone(&shared.metrics),
                shared.config.transport.clone(),
                vec![runtime.clone()],
            )),
            forwards: Arc::new(Forwards::new(Arc::clone(&shared), vec![runtime.clone()])),
            copies: Arc::new(CopyRunner::new(CopyHandles::of(&shared), runtime, shards.clone(), flusher.handle())),
            split_searches: SplitSearches::new().0,
            shards: shards.clone(),
            budget: MemtableBudget::default(),
            row_cache_bytes: 1024 * 1024,
            disk_bytes: u64::MAX,
            dedup: DedupLimits::default(),
        });
        let control = ControlService::new(shared, holdings, shards.clone());
        Self { _directory: directory, control, context, shards, flusher }
    }

    fn begin_life(&self, incarnation: u64) {
        let member = Member { cluster: CLUSTER, node: NODE, incarnation: Incarnation::new(incarnation) };
        let (key, settings) = (GenerationKey::NIL, Settings::default());
        self.context.shared.membership.begin_life(CurrentRegistration::new(
            member,
            key,
            &settings,
            Arc::new(Grants::new()),
        ));
    }

    /// Pushes a duty to host a new copy, to one incarnation.
    fn push(&self, incarnation: u64) -> tokio::task::JoinHandle<Result<PushAnswer, ErrorDetail>> {
        let row = Partition {
            id: PARTITION,
            epoch: Epoch::new(1),
            version: Version::new(1),
            leader: Some(COPY),
            placements: vec![Placement { id: COPY, node: NODE, state: ReplicaState::Live }],
            status: PartitionStatus::Assigned,
            min_in_sync: 1,
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        };
        let push = Push {
            tables: None,
            access: None,
            cluster: CLUSTER,
            coordinator: 1,
            term: 1,
            node: NODE,
            incarnation: Incarnation::new(incarnation),
            version: Version::new(incarnation),
            duties: Some(vec![Duty::Host { partition: row, placement: COPY }]),
            deltas: Vec::new(),
            nodes: None,
            complete: None,
            coordinators: Vec::new(),
            key: self.context.shared.push_key,
            newest: Version::new(incarnation),
        };
        let inner = Arc::clone(&self.control.0);
        tokio::spawn(async move { inner.apply(push).await })
    }

    async fn until_queued(&self) {
        let waited = tokio::time::timeout(Duration::from_secs(60), async {
            while self.shards.of(PARTITION).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        waited.await.expect("the duties reach the shard");
    }

    fn run_shard(&self) -> Vec<std::thread::JoinHandle<()>> {
        let runtimes = vec![ShardRuntime::new().unwrap()];
        crate::shard::start(&self.shards, &self.context, &[Arc::default()], BTreeMap::new(), runtimes).unwrap()
    }

    async fn is_open(&self) -> bool {
        let (answer, wait) = oneshot::channel();
        self.shards.of(PARTITION).complete(ShardMessage::Gathered { placement: COPY, from: Bound::Unbounded, answer });
        wait.await.unwrap().is_some()
    }

    fn end(self, threads: Vec<std::thread::JoinHandle<()>>) {
        let Self { shards, flusher, context, .. } = self;
        shards.send_all(|| ShardMessage::Stop);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        flusher.shutdown(Duration::from_secs(5)).unwrap();
        context.wal.clone().close(Duration::from_secs(5)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duties_of_ended_incarnation_are_not_applied() {
    let rig = Rig::new();
    rig.begin_life(5);
    let push = rig.push(5);
    rig.until_queued().await;
    rig.context.shared.membership.end_life();
    rig.begin_life(6);
    let threads = rig.run_shard();
    assert_eq!(push.await.unwrap().unwrap_err().kind, ErrorKind::StaleIncarnation);
    assert!(!rig.is_open().await);
    assert!(rig.context.holdings.all().is_empty(), "nothing is held that was not opened");
    // Duties of the next incarnation are applied.
    assert_eq!(rig.push(6).await.unwrap().unwrap().version, Version::new(6));
    assert!(rig.is_open().await);
    rig.end(threads);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duty_between_incarnations_is_not_recorded_as_done() {
    let rig = Rig::new();
    rig.begin_life(5);
    let push = rig.push(5);
    rig.until_queued().await;
    rig.context.shared.membership.end_life();
    let threads = rig.run_shard();
    assert_eq!(push.await.unwrap().unwrap_err().kind, ErrorKind::StaleIncarnation);
    assert!(rig.context.holdings.all().is_empty(), "nothing is held that was not opened");
    rig.begin_life(6);
    rig.push(6).await.unwrap().unwrap();
    assert!(rig.is_open().await, "the copy is there in the next life");
    rig.end(threads);
}
