//! Polls the cluster once a second, for all open pages.

use super::load::LoadSample;
use super::map::TableMap;
use super::members::Members;
use super::quorum::quorum_of;
use crate::api::MOVES_MAX;
use crate::cluster::{Cluster, QUICK_TIMEOUT};
use crate::feed::latest_state::Feed;
use archon_client::{Client, Error, NodeStatus, NodeSummary, Routes, TableSummary};
use futures::future::join_all;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// Interval of polls.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of load measurements while no page is open.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of published events.
const EVENTS_MAX: u32 = 200;
/// Number of nodes above which they are published in every second round only.
const NODES_OFTEN: usize = 100;
/// Maximum number of nodes queried for their counters.
const NODES_ASKED_MAX: usize = 16;
/// Maximum number of tables with published partitions.
const TABLES_MAX: usize = 64;

/// Polls until no page is open.
pub(crate) async fn poll(cluster: Arc<Cluster>, stop: CancellationToken) {
    let _abandoned = RestartGuard(&cluster.feed);
    let mut poller = Poller { tables: BTreeMap::new(), meter: Meter::default(), round: 0 };
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if cluster.feed.end() {
            return;
        }
        if stop.run_until_cancelled(poller.round(&cluster)).await.is_none() {
            return;
        }
    }
}

/// Measures the load while no page is open, so that a new page shows the last minutes. Failed measurements are skipped.
pub(crate) async fn record(cluster: Arc<Cluster>, stop: CancellationToken) {
    let mut meter = Meter::default();
    let mut ticks = tokio::time::interval(IDLE_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if cluster.feed.is_polled() {
            meter = Meter::default();
            continue;
        }
        let look = async {
            if let Ok(nodes) = cluster.quick.list_nodes().await {
                meter.measure(&cluster, &nodes).await;
            }
        };
        if stop.run_until_cancelled(look).await.is_none() {
            return;
        }
    }
}

/// Lets the next subscriber restart polling if this task panics.
struct RestartGuard<'a>(&'a Feed);

impl Drop for RestartGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

struct Poller {
    /// Tables with known partitions, by number.
    tables: BTreeMap<u64, TableRoutes>,
    meter: Meter,
    round: u64,
}

/// The last reading of the nodes' counters.
#[derive(Default)]
struct Meter {
    reading: Option<(Instant, LoadSample)>,
}

impl Meter {
    /// Reads counters of nodes; of a sample if there are many.
    async fn measure(&mut self, cluster: &Cluster, nodes: &[NodeSummary]) {
        let serving: Vec<_> =
            nodes.iter().filter(|node| node.status == NodeStatus::Alive && !node.is_participant()).collect();
        let step = serving.len().div_ceil(NODES_ASKED_MAX).max(1);
        let asked = serving.iter().step_by(step);
        let stats = join_all(asked.map(|node| cluster.quick.node_stats(&node.address))).await;
        let (now, reading) = (Instant::now(), LoadSample::of(stats.into_iter().flatten()));
        if let Some((before, old)) = &self.reading {
            let seconds = now.duration_since(*before).as_secs_f64();
            let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
            if let Some(load) = reading.since(old, seconds, at_ms, serving.len()) {
                cluster.feed.add_load(&load);
            }
        }
        self.reading = Some((now, reading));
    }
}

/// A table with known partitions.
struct TableRoutes {
    routes: Routes,
    version: Option<u64>,
}

impl Poller {
    async fn round(&mut self, cluster: &Cluster) {
        self.round += 1;
        let feed = &cluster.feed;
        let (looked, quorum) = futures::join!(self.look(cluster), quorum_of(cluster));
        feed.set("quorum", &quorum);
        // The old state stays visible, together with the error.
        let trouble = looked.err().map(|error| error.to_string());
        feed.set("trouble", &json!({ "message": trouble }));
    }

    async fn look(&mut self, cluster: &Cluster) -> Result<(), Error> {
        let (feed, admin) = (&cluster.feed, &cluster.quick);
        let (status, nodes, tables, rebalance, events) = tokio::try_join!(
            admin.status(),
            admin.list_nodes(),
            admin.list_tables(),
            admin.rebalance_progress(MOVES_MAX),
            admin.events(EVENTS_MAX),
        )?;
        feed.set("status", &status);
        if nodes.len() <= NODES_OFTEN || self.round.is_multiple_of(2) {
            feed.set_members(Members::new(nodes.clone()));
        }
        feed.set("tables", &tables);
        feed.set("rebalance", &rebalance);
        feed.set("events", &events);
        self.meter.measure(cluster, &nodes).await;
        self.show(cluster, &tables).await;
        Ok(())
    }

    /// Publishes the owners of partitions.
    async fn show(&mut self, cluster: &Cluster, tables: &[TableSummary]) {
        let gone = self.tables.extract_if(.., |id, _| !tables.iter().any(|table| table.id == *id));
        gone.for_each(|(id, _)| cluster.feed.remove_map(id));
        for table in tables.iter().take(TABLES_MAX) {
            if !self.tables.contains_key(&table.id)
                && let Ok(routes) = self.open(cluster, &table.name).await
            {
                self.tables.insert(table.id, TableRoutes { routes, version: None });
            }
            let Some(shown) = self.tables.get_mut(&table.id) else { continue };
            let held = shown.routes.table();
            // The name may belong to another table by now.
            if shown.version != Some(held.version().get()) && held.table().id.get() == table.id {
                shown.version = Some(held.version().get());
                cluster.feed.set_map(TableMap::of(&held));
            }
        }
    }

    async fn open(&self, cluster: &Cluster, table: &str) -> Result<Routes, Error> {
        let builder = Client::builder(cluster.config.coordinators.clone()).transport(cluster.config.transport.clone());
        builder.timeout(QUICK_TIMEOUT).routes(table).await
    }
}
