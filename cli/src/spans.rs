//! Spans of calls that are parts of traces, exported to a collector of OpenTelemetry: with the feature `otlp`, and if
//! `OTEL_EXPORTER_OTLP_ENDPOINT` contains its address.
//!
//! No call waits for a collector. Ended spans go into a bounded queue, and spans that do not fit are dropped; a thread
//! exports them in batches; and the end of the process waits for the last ones for at most [`END_TIMEOUT`].

use crate::exit::Failure;
use archon_client::trace::{TARGET, TraceContext, Tracer, set_tracer};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tokio::runtime::Runtime;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// OpenTelemetry's variables with the collector's address: for all signals, or for traces alone.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// Maximum wait of the process's end for the export of the last spans.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Exporter of spans to the collector; its end waits briefly until everything is exported.
pub(crate) struct Spans {
    provider: SdkTracerProvider,
    /// Used only by the connection to the collector.
    runtime: Option<Runtime>,
}

impl Spans {
    /// Starts the export, unless no collector is named. `service` is the default name of this process there.
    ///
    /// # Errors
    /// An invalid address, or one that asks for TLS.
    pub(crate) fn start(service: &'static str) -> Result<Option<Self>, Failure> {
        let said = |name: &&&str| std::env::var(name).is_ok_and(|value| !value.trim().is_empty());
        let Some(endpoint) = ENDPOINTS.iter().find(said) else { return Ok(None) };
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(
                format!("{endpoint}: {error}"),
                "name a collector that accepts OTLP over gRPC: http://127.0.0.1:4317",
            )
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = archon_security::build_runtime(runtime.worker_threads(1).thread_name("otlp"));
        let runtime = runtime.map_err(|error| Failure::failed(format!("starting a runtime: {error}")))?;
        let entered = runtime.enter();
        let exporter = SpanExporter::builder().with_tonic().build().map_err(|error| wrong(&error))?;
        drop(entered);
        let mut resource = Resource::builder();
        if !said(&&SERVICE_NAME) {
            resource = resource.with_service_name(service);
        }
        let provider =
            SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
        set_tracer(OpenTelemetry);
        Ok(Some(Self { provider, runtime: Some(runtime) }))
    }

    /// Returns the layer that receives spans.
    pub(crate) fn layer<S: Subscriber + for<'span> LookupSpan<'span>>(&self) -> impl Layer<S> + use<S> {
        let layer = tracing_opentelemetry::layer().with_tracer(self.provider.tracer("archon"));
        layer
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|of| of.target() == TARGET))
    }

    /// Waits briefly until ended spans are exported.
    pub(crate) fn flush(&self) {
        // Spans not accepted in time are lost, which does not change the exit code.
        let _ = self.provider.shutdown_with_timeout(END_TIMEOUT);
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        self.flush();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// OpenTelemetry's span contexts.
struct OpenTelemetry;

impl Tracer for OpenTelemetry {
    fn current(&self) -> Option<TraceContext> {
        let context = Span::current().context();
        let span = context.span();
        let of = span.span_context();
        let (trace, number) = (of.trace_id().to_bytes(), of.span_id().to_bytes());
        TraceContext::new(u128::from_be_bytes(trace), u64::from_be_bytes(number), of.is_sampled())
    }

    fn adopt(&self, span: &Span, caller: TraceContext) {
        let (trace, number) = (caller.trace().to_be_bytes(), caller.span().to_be_bytes());
        let flags = if caller.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let remote = SpanContext::new(
            TraceId::from_bytes(trace),
            SpanId::from_bytes(number),
            flags,
            true,
            TraceState::default(),
        );
        // A span excluded by the filter has nothing to adopt.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
}
