//! Metrics of clients and participants in this process, while the processes they talk to serve, move, die and stand
//! still. Alone in its program, since it installs the metrics recorder of the process.

use archon_client::metrics::{CLIENT_DEFINITIONS, Definition, Kind, PARTICIPANT_DEFINITIONS};
use archon_client::{AcquireError, Callbacks, Client, Epoch, Error, Grant, Participant, PartitionId, ReleaseCause};
use archon_integration_tests::scrape::parted;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::{check, wait_for};
use futures::future::join_all;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::sleep;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const TIMEOUT: Duration = Duration::from_secs(90);

/// Current state of a series.
#[derive(Clone, Default)]
struct SeriesState {
    kind: &'static str,
    /// For durations, the sum in seconds.
    value: f64,
    /// Number of changes.
    changes: u64,
}

/// Description of a metric: kind, unit and text.
type MetricDescription = (&'static str, Option<Unit>, String);

/// Stores the metrics of this process, by series.
#[derive(Clone, Default)]
struct MetricStore {
    series: Arc<Mutex<BTreeMap<String, SeriesState>>>,
    described: Arc<Mutex<BTreeMap<String, MetricDescription>>>,
}

impl MetricStore {
    /// Returns the recorder of this process.
    fn installed() -> &'static Self {
        static KEPT: OnceLock<MetricStore> = OnceLock::new();
        KEPT.get_or_init(|| {
            let kept = Self::default();
            assert!(metrics::set_global_recorder(kept.clone()).is_ok(), "the only recorder of this process");
            kept
        })
    }

    fn series(&self) -> BTreeMap<String, SeriesState> {
        self.series.lock().expect("nobody panicked").clone()
    }

    fn value(&self, series: &str) -> f64 {
        self.series().get(series).map_or(0.0, |told| told.value)
    }

    fn changes(&self, series: &str) -> u64 {
        self.series().get(series).map_or(0, |told| told.changes)
    }

    fn one(&self, key: &Key, kind: &'static str) -> MetricSeries {
        let labels: Vec<String> = key.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let one = MetricSeries { name: format!("{}{labels}", key.name()), kept: self.clone() };
        self.series.lock().expect("nobody panicked").entry(one.name.clone()).or_default().kind = kind;
        one
    }

    fn describe(&self, kind: &'static str, key: &KeyName, unit: Option<Unit>, help: &SharedString) {
        let told = (kind, unit, help.to_string());
        self.described.lock().expect("nobody panicked").insert(key.as_str().to_owned(), told);
    }
}

impl Recorder for MetricStore {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("counter", &key, unit, &help);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("gauge", &key, unit, &help);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("histogram", &key, unit, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(self.one(key, "counter")))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.one(key, "gauge")))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.one(key, "histogram")))
    }
}

/// One series.
struct MetricSeries {
    name: String,
    kept: MetricStore,
}

impl MetricSeries {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        let mut series = self.kept.series.lock().expect("nobody panicked");
        let told = series.entry(self.name.clone()).or_default();
        change(&mut told.value);
        told.changes += 1;
    }
}

impl CounterFn for MetricSeries {
    fn increment(&self, by: u64) {
        self.change(|value| *value += by as f64);
    }

    fn absolute(&self, to: u64) {
        self.change(|value| *value = to as f64);
    }
}

impl GaugeFn for MetricSeries {
    fn increment(&self, by: f64) {
        self.change(|value| *value += by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| *value -= by);
    }

    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for MetricSeries {
    fn record(&self, took: f64) {
        self.change(|value| *value += took);
    }
}

/// Asserts that every defined metric is exported, has changed, and is described, and that no undefined one is exported.
fn judge(kept: &MetricStore, definitions: &'static [Definition], others: &str) {
    let all = kept.series();
    let described = kept.described.lock().expect("nobody panicked").clone();
    for definition in definitions {
        let series = all.iter().filter(|(series, told)| parted(series).0 == definition.name && told.changes > 0);
        let kinds: Vec<&str> = series.map(|(_, told)| told.kind).collect();
        assert!(!kinds.is_empty(), "{} was not told", definition.name);
        assert!(kinds.iter().all(|kind| *kind == definition.kind.as_str()), "{}: {kinds:?}", definition.name);
        let (kind, unit, help) = described.get(definition.name).expect("it is described");
        assert_eq!((*kind, help.as_str()), (definition.kind.as_str(), definition.help));
        let seconds = definition.kind == Kind::Histogram || definition.name.ends_with("_seconds");
        assert_eq!(*unit == Some(Unit::Seconds), seconds, "{}", definition.name);
    }
    for series in all.keys().filter(|series| !series.starts_with(others)) {
        let (name, labels) = parted(series);
        let definition = definitions.iter().find(|definition| definition.name == name);
        let definition = definition.unwrap_or_else(|| panic!("{name} is not defined"));
        assert_eq!(labels.len(), definition.labels.len(), "{series}");
        for ((label, value), defined) in labels.iter().zip(definition.labels) {
            assert_eq!(*label, defined.name, "{series}");
            assert!(defined.values.contains(value), "{series} has a value that is not defined");
        }
    }
}

/// Writes until the client is closed.
async fn write(client: &Client, writer: usize) {
    for number in 0_u64.. {
        let written = client.put(format!("{writer}-{}", number % 100), "value").await;
        // Operations abandoned while a node is away are counted, which is tested here.
        if written == Err(Error::Closed) {
            return;
        }
    }
}

/// Moves leaders away while a client sleeps whose runtime has one thread, which does not run meanwhile. Its table is
/// out of date when it wakes, and its first writes find out.
fn told_who_leads_now(kept: &MetricStore, cluster: &Cluster) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let sleeper = runtime.block_on(cluster.client().build()).expect("a client");
    let mut names = ["athens", "byzantium", "cyrene"].into_iter().cycle();
    let redirects = "archon_client_redirects_total{to=\"leader\"}";
    wait_for("a client to be told who leads now", TIMEOUT, || {
        let put = async |key: u64| sleeper.put(key.to_string(), "value").await;
        runtime
            .block_on(join_all((0..100).map(put)))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        let name = names.next().expect("without end");
        for arguments in [&["node", "drain", name, "--wait", "--wait-timeout", "60s"][..], &["node", "undrain", name]] {
            let ran = cluster.archon(arguments);
            check(ran.code == 0, || format!("{arguments:?}: {ran:?}"))?;
        }
        runtime.block_on(join_all((0..100).map(put)));
        check(kept.value(redirects) > 0.0, || format!("it was not, after {name} was drained"))
    });
    runtime.block_on(sleeper.close());
}

#[test]
fn client_exports_its_operations_and_obstacles() {
    let kept = MetricStore::installed();
    let mut cluster = Cluster::start(EXE, &Options { replication: 2, tls: false, ..Options::default() });
    let runtime = Runtime::new().expect("a runtime");
    let admin = cluster.admin(Duration::from_secs(10));
    let client = runtime.block_on(cluster.client().build()).expect("a client");
    runtime.block_on(async {
        client.put("key", "value").await.expect("a put");
        client.get("key").await.expect("a get");
        client.get_stale("key").await.expect("a stale get");
        client.increment("count", 1).await.expect("an increment");
        client.delete("count").await.expect("a delete");
        let refused = client.put_if_absent("key", "other").await.expect("an answer");
        assert_eq!(refused, None);
        assert_eq!(client.increment("key", 1).await, Err(Error::NotANumber));
        client.scan("k").page().await.expect("a page");
        admin.status().await.expect("a status");
    });
    let seconds = |operation, outcome| {
        format!("archon_client_operation_seconds{{operation=\"{operation}\",outcome=\"{outcome}\"}}")
    };
    for operation in ["put", "get", "get_stale", "increment", "delete", "scan"] {
        assert!(kept.changes(&seconds(operation, "ok")) > 0, "{operation}");
        assert!(kept.value(&seconds(operation, "ok")) > 0.0, "{operation} took some time");
    }
    assert_eq!(kept.changes(&seconds("compare_and_set", "refused")), 1);
    assert_eq!(kept.changes(&seconds("increment", "refused")), 1);
    assert_eq!(kept.value("archon_client_operations"), 0.0, "none is under way");
    assert!(kept.value("archon_client_streams") >= 1.0);

    told_who_leads_now(kept, &cluster);

    for writer in 0..8 {
        let client = client.clone();
        runtime.spawn(async move { write(&client, writer).await });
    }
    // A node dies that leads some partition, and others serve it.
    let victim = cluster.leader_of("0-0");
    cluster.take_node(&victim).kill();
    let unreachable = "archon_client_retries_total{reason=\"unreachable\"}";
    wait_for("a stream to break and writes to be tried again", TIMEOUT, || {
        let (broken, retried) = (kept.value("archon_client_streams_broken_total"), kept.value(unreachable));
        check(broken > 0.0 && retried > 0.0, || format!("{broken} streams broke, {retried} times tried again"))
    });
    runtime.block_on(client.close());
    wait_for("what is closed to be gone", TIMEOUT, || {
        let open = ["archon_client_streams", "archon_client_connections"].map(|gauge| kept.value(gauge));
        check(open == [0.0, 0.0], || format!("{open:?} streams and connections"))
    });
    assert!(kept.value("archon_client_table_refreshed_timestamp_seconds") > 1.6e9, "a time of our days");
    assert_eq!(kept.value("archon_client_table_version"), client.table_version().get() as f64);
    judge(kept, CLIENT_DEFINITIONS, "archon_participant_");
}

/// A service without work.
struct Service;

impl Callbacks for Service {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }

    async fn release(&self, _: Grant, _: ReleaseCause) {
        sleep(Duration::from_millis(5)).await;
    }

    fn lost(&self, _: PartitionId, _: Epoch) {}
}

#[test]
fn participant_exports_its_partitions_and_leases() {
    let kept = MetricStore::installed();
    let cluster =
        Cluster::start(EXE, &Options { nodes: vec!["athens"], nodes_min: 1, tls: false, ..Options::default() });
    let runtime = Runtime::new().expect("a runtime");
    let coordinators = cluster.coordinator_addresses();
    let admin = cluster.admin(Duration::from_secs(10));
    let participant = runtime.block_on(async {
        admin.create_lease_table("jobs", 8).await.expect("a lease table");
        let builder = Participant::builder(coordinators).table("jobs").name("w1").address("w1.example:80");
        builder.start(Service).await.expect("a participant")
    });
    let owned = |wanted: f64| {
        wait_for("the partitions to be owned", TIMEOUT, || {
            let owned = kept.value("archon_participant_partitions");
            check(owned == wanted, || format!("{owned} are, not {wanted}"))
        });
    };
    owned(8.0);
    let beats = "archon_participant_heartbeat_seconds{outcome=\"ok\"}";
    assert!(kept.changes(beats) > 0 && kept.value(beats) > 0.0);
    assert_eq!(kept.changes("archon_participant_callback_seconds{callback=\"acquire\",outcome=\"ok\"}"), 8);

    // Without coordinators no grant outlasts a lease: everything is lost, and comes back.
    (0..3).for_each(|index| cluster.coordinator(index).pause());
    owned(0.0);
    // Each loss is reported right after ownership ended.
    wait_for("all of them to be told as lost", TIMEOUT, || {
        let lost = kept.value("archon_participant_losses_total");
        check(lost == 8.0, || format!("{lost} were lost"))
    });
    cluster.resume_everything();
    owned(8.0);
    let lapsed = kept.value("archon_participant_leases_lapsed_total");
    let registered = kept.value("archon_participant_registrations_total");
    assert!(lapsed > 0.0 || registered > 1.0, "{lapsed} lapses, {registered} registrations");
    assert!(kept.changes("archon_participant_heartbeat_seconds{outcome=\"failed\"}") > 0);

    assert!(runtime.block_on(participant.stop(Duration::from_secs(20))));
    owned(0.0);
    let release = "archon_participant_callback_seconds{callback=\"release\",outcome=\"ok\"}";
    assert!(
        kept.changes(release) == 8 && kept.value(release) >= 0.04,
        "{} in {}",
        kept.changes(release),
        kept.value(release)
    );
    judge(kept, PARTICIPANT_DEFINITIONS, "archon_client_");
}
