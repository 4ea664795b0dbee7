//! Metrics of a client.

use super::series::{GaugeGuard, Series, describe};
use super::{OperationKind, OutcomeKind, Redirect};
use crate::admin::call::Effect;
use crate::error::Error;
use crate::metrics::{
    ADMIN_CALL_SECONDS, CLIENT_DEFINITIONS, CONNECTIONS, OPERATION_SECONDS, OPERATIONS, REDIRECTS, RETRIES,
    STREAM_OPEN_SECONDS, STREAMS, STREAMS_BROKEN, TABLE_FETCH_SECONDS, TABLE_REFRESHED, TABLE_VERSION,
};
use ::metrics::{Counter, Gauge, Histogram};
use archon_types::{Answer, ErrorKind, Version};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Newest table version of all clients in this process.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Metrics of a client.
#[derive(Debug)]
pub(crate) struct ClientMeasures {
    operation_seconds: Series<Histogram>,
    operations: Series<Gauge>,
    retries: Series<Counter>,
    redirects: Series<Counter>,
    connections: Series<Gauge>,
    streams: Series<Gauge>,
    stream_open_seconds: Series<Histogram>,
    streams_broken: Series<Counter>,
    table_fetch_seconds: Series<Histogram>,
    table_version: Series<Gauge>,
    table_refreshed: Series<Gauge>,
}

impl Default for ClientMeasures {
    fn default() -> Self {
        describe(CLIENT_DEFINITIONS);
        Self {
            operation_seconds: Series::of(&OPERATION_SECONDS),
            operations: Series::of(&OPERATIONS),
            retries: Series::of(&RETRIES),
            redirects: Series::of(&REDIRECTS),
            connections: Series::of(&CONNECTIONS),
            streams: Series::of(&STREAMS),
            stream_open_seconds: Series::of(&STREAM_OPEN_SECONDS),
            streams_broken: Series::of(&STREAMS_BROKEN),
            table_fetch_seconds: Series::of(&TABLE_FETCH_SECONDS),
            table_version: Series::of(&TABLE_VERSION),
            table_refreshed: Series::of(&TABLE_REFRESHED),
        }
    }
}

impl ClientMeasures {
    /// Starts an operation. It counts as pending until the returned value is dropped; its duration is recorded if it
    /// ended.
    pub(crate) fn operation(&self, kind: impl Into<OperationKind>) -> Operation<'_> {
        self.operations.with(&[], |gauge| gauge.increment(1.0));
        Operation { measures: self, kind: kind.into(), began: Instant::now() }
    }

    /// Counts a retry after a pause.
    pub(crate) fn retried(&self, reason: ErrorKind) {
        if let Some(place) = ErrorKind::ALL.iter().position(|kind| *kind == reason) {
            self.retries.with(&[place], |counter| counter.increment(1));
        }
    }

    /// Counts an attempt with an outdated table.
    pub(crate) fn redirected(&self, to: Redirect) {
        self.redirects.with(&[to as usize], |counter| counter.increment(1));
    }

    /// Counts a connection until the returned value is dropped.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::of(&self.connections.only())
    }

    /// Counts an open stream until the returned value is dropped.
    pub(crate) fn stream(&self) -> GaugeGuard {
        GaugeGuard::of(&self.streams.only())
    }

    /// Counts a broken stream.
    pub(crate) fn stream_broke(&self) {
        self.streams_broken.with(&[], |counter| counter.increment(1));
    }

    /// Records the duration of opening a stream.
    pub(crate) async fn opening<T, E>(&self, opens: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        timed(&self.stream_open_seconds, opens).await
    }

    /// Records the duration of fetching a table.
    pub(crate) async fn fetching<T, E>(&self, fetches: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        timed(&self.table_fetch_seconds, fetches).await
    }

    /// Records the table version held after a refresh.
    pub(crate) fn refreshed(&self, version: Version) {
        NEWEST.fetch_max(version.get(), Ordering::Relaxed);
        self.table_version.with(&[], |gauge| {
            let mut told = None;
            // Another thread may have found and published a newer version.
            while told != Some(NEWEST.load(Ordering::Relaxed)) {
                let newest = NEWEST.load(Ordering::Relaxed);
                gauge.set(newest as f64);
                told = Some(newest);
            }
        });
        if let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            self.table_refreshed.with(&[], |gauge| gauge.set(now.as_secs_f64()));
        }
    }
}

/// Records the duration of an operation, by success.
pub(super) async fn timed<T, E>(series: &Series<Histogram>, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let began = Instant::now();
    let result = work.await;
    series.with(&[usize::from(result.is_err())], |histogram| histogram.record(began.elapsed()));
    result
}

/// A pending operation.
pub(crate) struct Operation<'a> {
    measures: &'a ClientMeasures,
    kind: OperationKind,
    began: Instant,
}

impl Operation<'_> {
    /// Records the end of the operation: a node answered, or it was abandoned.
    pub(crate) fn answered(self, result: &Result<Answer, Error>) {
        self.ended(OutcomeKind::of_answer(result));
    }

    /// Records the end of the operation.
    pub(crate) fn ended(self, outcome: OutcomeKind) {
        let took = self.began.elapsed();
        let values = [self.kind.place(), outcome as usize];
        self.measures.operation_seconds.with(&values, |histogram| histogram.record(took));
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.measures.operations.with(&[], |gauge| gauge.decrement(1.0));
    }
}

/// Metrics of the administration.
#[derive(Debug)]
pub(crate) struct AdminMeasures {
    call_seconds: Series<Histogram>,
}

impl Default for AdminMeasures {
    fn default() -> Self {
        describe(CLIENT_DEFINITIONS);
        Self { call_seconds: Series::of(&ADMIN_CALL_SECONDS) }
    }
}

impl AdminMeasures {
    /// Records the duration of a call.
    pub(crate) async fn calling<T>(
        &self,
        effect: Effect,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let result = call.await;
        let values = [usize::from(effect == Effect::Writes), OutcomeKind::of(&result) as usize];
        self.call_seconds.with(&values, |histogram| histogram.record(began.elapsed()));
        result
    }
}
