//! Metrics of clients and participants for the embedding program, with the feature `metrics`.
//!
//! They use the [`metrics`](https://docs.rs/metrics) facade, so the program chooses the recorder. It must be
//! installed **before** the first client or participant is built, because each creates its metrics once. With
//! `metrics-exporter-prometheus` for a Prometheus server:
//!
//! ```ignore
//! // Cargo.toml: archonkv-client = { …, features = ["metrics"] } and metrics-exporter-prometheus = "0.18"
//! use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
//!
//! // Without buckets, durations are reported as quantiles of this process, which do not add up over several.
//! let buckets = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
//! PrometheusBuilder::new()
//!     .with_http_listener(([127, 0, 0, 1], 9301))
//!     .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &buckets)?
//!     .install()?;
//! let client = archon_client::Client::builder(["127.0.0.1:7001"]).build().await?;
//! ```
//!
//! Without a recorder the values are dropped, and without the feature no code is built. `docs/reference/metrics.md` and
//! [`DEFINITIONS`] list the metrics. Several clients of a process are counted together.

pub use archon_types::{Definition, Kind, Label};
use archon_types::{ErrorKind, OpKind};

/// Names of [`ErrorKind::ALL`].
const REASONS: [&str; ErrorKind::ALL.len()] = {
    let mut words = [""; ErrorKind::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = ErrorKind::ALL[at].as_str();
        at += 1;
    }
    words
};

/// Names of operations, followed by the read at any copy.
const OPERATION_WORDS: [&str; OpKind::ALL.len() + 1] = {
    let mut words = ["get_stale"; OpKind::ALL.len() + 1];
    let mut at = 0;
    while at < OpKind::ALL.len() {
        words[at] = OpKind::WORDS[at];
        at += 1;
    }
    words
};

const OUTCOME: Label = Label { name: "outcome", values: &["ok", "refused", "failed", "deadline_exceeded", "unknown"] };
const DONE: Label = Label { name: "outcome", values: &["ok", "failed"] };

pub(crate) const OPERATION_SECONDS: Definition = Definition::histogram(
    "archon_client_operation_seconds",
    "duration of an operation, retries included, by outcome: ok; refused, so that a retry is useless; \
             failed, without effect; deadline exceeded, without effect; unknown, as it may have taken effect",
)
.by(&[Label { name: "operation", values: &OPERATION_WORDS }, OUTCOME]);
pub(crate) const OPERATIONS: Definition = Definition::gauge("archon_client_operations", "operations in progress");
pub(crate) const RETRIES: Definition = Definition::counter(
    "archon_client_retries_total",
    "attempts that were followed by another one after a pause, by reason",
)
.by(&[Label { name: "reason", values: &REASONS }]);
pub(crate) const REDIRECTS: Definition = Definition::counter(
    "archon_client_redirects_total",
    "attempts that used an old partition table: another node leads, or another partition has the key",
)
.by(&[Label { name: "to", values: &["leader", "partition"] }]);
pub(crate) const CONNECTIONS: Definition =
    Definition::gauge("archon_client_connections", "nodes and other addresses with streams");
pub(crate) const STREAMS: Definition = Definition::gauge("archon_client_streams", "open streams of operations");
pub(crate) const STREAM_OPEN_SECONDS: Definition =
    Definition::histogram("archon_client_stream_open_seconds", "time to open a stream of operations").by(&[DONE]);
pub(crate) const STREAMS_BROKEN: Definition =
    Definition::counter("archon_client_streams_broken_total", "open streams of operations that broke");
pub(crate) const TABLE_FETCH_SECONDS: Definition = Definition::histogram(
    "archon_client_table_fetch_seconds",
    "time to fetch a partition table, or its changes, at once; long polls are not counted",
)
.by(&[DONE]);
pub(crate) const TABLE_VERSION: Definition = Definition::gauge(
    "archon_client_table_version",
    "newest known version of a partition table; versions are of the whole cluster",
);
pub(crate) const TABLE_REFRESHED: Definition = Definition::gauge(
    "archon_client_table_refreshed_timestamp_seconds",
    "time at which a server last sent the changes of a partition table, or that there are none, in \
             seconds since 1970",
);
pub(crate) const ADMIN_CALL_SECONDS: Definition = Definition::histogram(
    "archon_client_admin_call_seconds",
    "duration of a call to the leading coordinator, retries included, by outcome",
)
.by(&[Label { name: "effect", values: &["reads", "writes"] }, OUTCOME]);

pub(crate) const PARTITIONS: Definition =
    Definition::gauge("archon_participant_partitions", "owned partitions, for which new work may be accepted");
pub(crate) const REGISTRATIONS: Definition = Definition::counter(
    "archon_participant_registrations_total",
    "registrations; a second one means that an incarnation was ended, or that the cluster forgot it",
);
pub(crate) const HEARTBEAT_SECONDS: Definition = Definition::histogram(
    "archon_participant_heartbeat_seconds",
    "duration of a heartbeat that renews the session and its lease, or of a round of unanswered ones",
)
.by(&[DONE]);
pub(crate) const LEASES_LAPSED: Definition = Definition::counter(
    "archon_participant_leases_lapsed_total",
    "leases that had expired when the next grant arrived",
);
pub(crate) const CALLBACK_SECONDS: Definition = Definition::histogram(
    "archon_participant_callback_seconds",
    "time that the service takes to acquire a partition, or to release it for its next owner; aborted if \
             the partition was lost meanwhile",
)
.by(&[
    Label { name: "callback", values: &["acquire", "release"] },
    Label { name: "outcome", values: &["ok", "failed", "aborted"] },
]);
pub(crate) const LOSSES: Definition =
    Definition::counter("archon_participant_losses_total", "partitions that were lost without a release");

/// Every metric of a client ([`CLIENT_DEFINITIONS`]) and of a participant ([`PARTICIPANT_DEFINITIONS`]).
pub const DEFINITIONS: &[&[Definition]] = &[CLIENT_DEFINITIONS, PARTICIPANT_DEFINITIONS];

/// Metrics of clients and administration.
pub const CLIENT_DEFINITIONS: &[Definition] = &[
    OPERATION_SECONDS,
    OPERATIONS,
    RETRIES,
    REDIRECTS,
    CONNECTIONS,
    STREAMS,
    STREAM_OPEN_SECONDS,
    STREAMS_BROKEN,
    TABLE_FETCH_SECONDS,
    TABLE_VERSION,
    TABLE_REFRESHED,
    ADMIN_CALL_SECONDS,
];

/// Metrics of participants.
pub const PARTICIPANT_DEFINITIONS: &[Definition] =
    &[PARTITIONS, REGISTRATIONS, HEARTBEAT_SECONDS, LEASES_LAPSED, CALLBACK_SECONDS, LOSSES];
