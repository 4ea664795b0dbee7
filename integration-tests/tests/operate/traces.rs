//! A caller's trace passes through all processes that work on its call, and appears in their logs.

use crate::EXE;
use archon_client::trace::{TraceContext, within};
use archon_client::{Admin, Client};
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Process, http};
use archon_local_cluster::node_arguments;
use archon_proto::v1::{GetTableRequest, table_client::TableClient};
use archon_testkit::{check, wait_for};
use serde_json::Value;
use std::ffi::OsString;
use std::time::Duration;
use tempfile::TempDir;
use tonic::Request;

const TIMEOUT: Duration = Duration::from_secs(60);
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// One coordinator with a console, which logs text, and one node, which logs JSON; both also log answers.
struct Pair {
    coordinator: Process,
    node: Process,
    addresses: Vec<String>,
    _directory: TempDir,
}

impl Pair {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let addresses = free_addresses(3);
        let [listen, console, node] = &addresses[..] else { unreachable!("as many as asked for") };
        let path = |name: &str| directory.path().join(name);
        let log = |format: &str| {
            [("ARCHON_LOG", "info,archon_proto=debug".to_owned()), ("ARCHON_LOG_FORMAT", format.to_owned())]
        };
        let peers = format!("1={listen}");
        let mut command: Vec<OsString> =
            [EXE, "coordinator", "--id", "1", "--listen", listen, "--peers", &peers].map(Into::into).into();
        command.extend(["--http-listen", console, "--min-nodes", "1", "--data-dir"].map(Into::into));
        command.push(path("c1").into());
        let coordinator = Process::start("c1", &command, &log("text"), directory.path()).expect("it starts");
        let mut command = vec![EXE.into()];
        command.extend(node_arguments("athens", &node.clone().into(), std::slice::from_ref(listen), &path("athens")));
        let node = Process::start("athens", &command, &log("json"), directory.path()).expect("it starts");
        Self { coordinator, node, addresses, _directory: directory }
    }

    /// Returns the coordinator's log lines for answers to this call within the trace.
    fn answered(&self, call: &str) -> Vec<String> {
        let log = self.coordinator.log();
        let of = |line: &&str| {
            line.contains("answered") && line.contains(TRACE) && line.contains(&format!("method=\"{call}\""))
        };
        log.lines().filter(of).map(ToOwned::to_owned).collect()
    }

    fn wait_answered(&self, call: &str) -> String {
        let (lines, _) = wait_for(&format!("{call} to be answered"), TIMEOUT, || {
            let lines = self.answered(call);
            check(!lines.is_empty(), || self.coordinator.log_tail(20))?;
            Ok::<_, String>(lines)
        });
        lines[0].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_appears_in_the_log_of_every_process_of_a_call() {
    let pair = Pair::start();
    let (listen, console, node) = (&pair.addresses[0], &pair.addresses[1], &pair.addresses[2]);
    let caller = TraceContext::parse(CALLER).expect("a context");
    let admin = Admin::new([listen.clone()], TIMEOUT).expect("an address");
    let client = within(caller, Client::builder([listen.clone()]).timeout(TIMEOUT).build()).await.expect("a client");

    // Through the client library: administration, routes, and a read as a plain call.
    within(caller, admin.list_nodes()).await.expect("an answer");
    let line = pair.wait_answered("ListNodes");
    assert!(line.contains("service=\"archon.v1.Admin\""), "{line}");
    assert!(!line.contains("parent_id=00f067aa0ba902b7"), "the client's own span stands between: {line}");
    pair.wait_answered("GetTable");
    client.put("key", "value").await.expect("a put");
    within(caller, client.get_stale("key")).await.expect("a stale get");

    // Through the console, which calls in turn.
    let request =
        format!("GET /api/v1/status HTTP/1.1\r\nhost: {console}\r\ntraceparent: {CALLER}\r\nconnection: close\r\n\r\n");
    let (answer, _) = wait_for("the console to answer", TIMEOUT, || http::send(console, &request));
    assert_eq!(answer.status, 200, "{answer:?}");
    pair.wait_answered("Status");

    // An untraced call has no span, and an invalid context has no effect.
    admin.list_tables().await.expect("an answer");
    assert_eq!(pair.answered("ListTables"), [""; 0]);
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{node}")).expect("an address").connect_lazy();
    let mut tables = TableClient::new(channel);
    for hostile in ["", "00", &CALLER.to_uppercase(), &CALLER.replacen("00", "ff", 1), &"0".repeat(4_000)] {
        let mut request = Request::new(GetTableRequest { table: "default".into(), ..Default::default() });
        request.metadata_mut().insert("traceparent", hostile.parse().expect("text"));
        tables.get_table(request).await.expect("it is answered all the same");
    }

    // A node's lines are JSON here, and contain the span's fields.
    let (line, _) = wait_for("the node to tell of the stale get", TIMEOUT, || {
        let lines = pair.node.log();
        let of = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut of = of.filter(|line| line["message"] == "answered" && line["span"]["method"] == "GetStale");
        of.next().ok_or_else(|| pair.node.log_tail(20))
    });
    assert_eq!(
        (&line["span"]["trace_id"], &line["span"]["service"]),
        (&TRACE.into(), &"archon.v1.Kv".into()),
        "{line}"
    );
    assert!(
        line["span"]["parent_id"] != "00f067aa0ba902b7" && line["span"]["span_id"] != line["span"]["parent_id"],
        "{line}"
    );
    let hostile = pair.node.log().lines().filter(|line| line.contains("\"GetTable\"")).count();
    assert_eq!(hostile, 0, "no span came of it");
    client.close().await;
}
