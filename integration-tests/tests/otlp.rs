//! Spans as an OpenTelemetry collector gets them: built with the feature `otlp` only.

use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Process, ProcessExt as _};
use archon_local_cluster::node_arguments;
use archon_testkit::wait_for;
use std::convert::Infallible;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time-out of an export to the collector: a process that waited for a silent collector would exceed [`TIMEOUT`].
const EXPORT_TIMEOUT: (&str, &str) = ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000");

/// The tested subset of OTLP, with its field numbers.
mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Export {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<OfResource>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ReceivedSpans {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct OfResource {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<OfScope>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<Attribute>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Attribute {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Value>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Value {
        #[prost(string, tag = "1")]
        pub(super) text: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct OfScope {
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) number: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
    }
}

/// Received spans, each with its service.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, wire::Span)>>>);

impl Collector {
    fn spans(&self) -> Vec<(String, wire::Span)> {
        self.0.lock().expect("nobody panicked").clone()
    }

    fn find(&self, service: &str, name: &str) -> Option<wire::Span> {
        self.spans().into_iter().find(|(of, span)| of == service && span.name == name).map(|(_, span)| span)
    }
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl UnaryService<wire::Export> for Collector {
    type Response = wire::ReceivedSpans;
    type Future = std::future::Ready<Result<Response<wire::ReceivedSpans>, Status>>;

    fn call(&mut self, request: Request<wire::Export>) -> Self::Future {
        let mut all = self.0.lock().expect("nobody panicked");
        for of in request.into_inner().resources {
            let attributes = of.resource.unwrap_or_default().attributes;
            let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
            let name = name.and_then(|attribute| attribute.value).unwrap_or_default().text;
            all.extend(of.scopes.into_iter().flat_map(|scope| scope.spans).map(|span| (name.clone(), span)));
        }
        std::future::ready(Ok(Response::new(wire::ReceivedSpans {})))
    }
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(own, request).await) })
    }
}

/// Starts one coordinator and one node that export spans to `collector`.
fn members(directory: &Path, addresses: &[String], collector: &str) -> [Process; 2] {
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}")),
        ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
        (EXPORT_TIMEOUT.0, EXPORT_TIMEOUT.1.to_owned()),
    ];
    let [listen, node, ..] = addresses else { unreachable!("as many as asked for") };
    let peers = format!("1={listen}");
    let mut command: Vec<OsString> =
        [EXE, "coordinator", "--id", "1", "--listen", listen, "--peers", &peers].map(Into::into).into();
    command.extend(["--min-nodes", "1", "--data-dir"].map(Into::into));
    command.push(directory.join("c1").into());
    let coordinator = Process::start("c1", &command, &environment, directory).expect("it starts");
    let mut command = vec![EXE.into()];
    command.extend(node_arguments(
        "athens",
        &node.clone().into(),
        std::slice::from_ref(listen),
        &directory.join("athens"),
    ));
    let mut environment = environment.to_vec();
    environment.push(("OTEL_SERVICE_NAME", "city".to_owned()));
    [coordinator, Process::start("athens", &command, &environment, directory).expect("it starts")]
}

/// Runs a verb that exports spans to `collector`; returns its output on success.
fn archon(listen: &str, collector: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = std::process::Command::new(EXE);
    command
        .args(arguments)
        .args(["--coordinators", listen])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"))
        .env(EXPORT_TIMEOUT.0, EXPORT_TIMEOUT.1);
    let ran = command.output().expect("it runs");
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    if ran.status.success() { Ok(said) } else { Err(said) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_one_trace_across_all_processes() {
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(collector.clone()).serve_with_incoming(incoming));
    let directory = tempfile::tempdir().expect("a directory");
    let addresses = free_addresses(2);
    let [coordinator, node] = members(directory.path(), &addresses, &address);

    let listen = addresses[0].clone();
    let verb = |arguments: &[&str]| {
        wait_for(&format!("{arguments:?} to be done"), TIMEOUT, || archon(&listen, &address, arguments));
    };
    tokio::task::block_in_place(|| {
        verb(&["kv", "put", "key", "value"]);
        verb(&["kv", "get", "--stale", "key"]);
        verb(&["node", "list"]);
    });
    let service = |service: &str, name: &str| {
        let what = format!("{name} of {service} to be told");
        tokio::task::block_in_place(|| {
            wait_for(&what, TIMEOUT, || {
                let found = collector.find(service, name);
                let told: Vec<_> = collector.spans().into_iter().map(|(service, span)| (service, span.name)).collect();
                found.ok_or_else(|| format!("{told:?}"))
            })
        })
        .0
    };
    // A service's span is a child of its caller's, in the trace that the command began.
    for (asked, name) in [("archon-coordinator", "archon.v1.Admin/ListNodes"), ("city", "archon.v1.Kv/GetStale")] {
        let (request, call) = (service(asked, name), service("archon", name));
        assert_eq!((&request.trace, &request.parent), (&call.trace, &call.number), "{name}");
        let spans = collector.spans();
        let (of, command) = spans.iter().find(|(_, span)| span.number == call.parent).expect("the command's span");
        assert!(of == "archon" && command.trace == call.trace && command.parent.is_empty(), "{of}: {command:?}");
    }
    let told: Vec<_> = collector.spans().into_iter().map(|(_, span)| span.name).collect();
    assert!(told.iter().all(|name| !name.contains("key")), "{told:?}");
    drop((coordinator, node));
}

#[test]
fn stalled_collector_delays_no_operation() {
    // It accepts, and never reads.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let nobody = free_addresses(1)[0].clone();
    let directory = tempfile::tempdir().expect("a directory");
    let addresses = free_addresses(2);
    let [coordinator, node] = members(directory.path(), &addresses, &address);
    for collector in [&nobody, &address] {
        let began = Instant::now();
        let (_, waited) =
            wait_for("a verb to be done", TIMEOUT, || archon(&addresses[0], collector, &["kv", "put", "key", "value"]));
        let began_last = Instant::now();
        archon(&addresses[0], collector, &["node", "list"]).expect("it is done");
        let took = began_last.elapsed();
        println!("up after {waited:?} of {:?}; with {collector} a verb takes {took:?}", began.elapsed());
        assert!(took < TIMEOUT, "{took:?}");
    }
    for member in [node, coordinator] {
        let began = Instant::now();
        let status = member.terminate(TIMEOUT);
        println!("ended after {:?}", began.elapsed());
        assert!(status.success(), "{status}");
    }
    let refused = archon(&addresses[0], "127.0.0.1:1/\u{7f}", &["node", "list"]).unwrap_err();
    assert!(refused.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{refused}");
}
