//! An agent beyond loopback: TLS with client certificates, which decide what a caller may do.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, Process, ProcessExt as _, http};
use archon_local_cluster::Issuer;
use archon_testkit::{check, skipped, wait_for};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Makes a request to 127.0.0.1 with the authority and the credentials of two directories, of which the latter may be
/// absent, and prints the status, or the error.
const REQUEST: &str = r#"
import http.client, ssl, sys
port, authority, credentials, path, session = sys.argv[1:]
context = ssl.create_default_context(cafile=authority + "/ca.crt")
if credentials:
    context.load_cert_chain(credentials + "/tls.crt", credentials + "/tls.key")
try:
    connection = http.client.HTTPSConnection("127.0.0.1", int(port), timeout=20, context=context)
    connection.request("GET", path, headers={"archon-session": session} if session else {})
    print(connection.getresponse().status)
except ssl.SSLError as error:
    print("SSLError", error)
except OSError as error:
    print("OSError", error)
"#;

/// Watches the owners at 127.0.0.1 until the agent closes the connection. Prints the status.
const WATCH: &str = r#"
import http.client, ssl, sys
port, credentials = sys.argv[1:]
context = ssl.create_default_context(cafile=credentials + "/ca.crt")
context.load_cert_chain(credentials + "/tls.crt", credentials + "/tls.key")
connection = http.client.HTTPSConnection("127.0.0.1", int(port), timeout=60, context=context)
connection.request("GET", "/v1/owners/watch")
answer = connection.getresponse()
print(answer.status, flush=True)
try:
    while answer.readline():
        pass
except (http.client.HTTPException, ConnectionError, ssl.SSLError) as error:
    print("closed", error)
"#;

/// Opens watches by the credentials of one directory until one is refused, and then one by those of another directory.
/// Prints the number of the first ones, the refusal, and the status of the last one.
const FILL: &str = r#"
import http.client, ssl, sys
port, greedy, other = sys.argv[1:]
def watch(credentials):
    context = ssl.create_default_context(cafile=credentials + "/ca.crt")
    context.load_cert_chain(credentials + "/tls.crt", credentials + "/tls.key")
    connection = http.client.HTTPSConnection("127.0.0.1", int(port), timeout=20, context=context)
    connection.request("GET", "/v1/owners/watch")
    return connection.getresponse()
answers = [watch(greedy)]
while answers[-1].status == 200:
    answers.append(watch(greedy))
print(len(answers) - 1, answers[-1].status, answers[-1].read().decode())
print("other", watch(other).status)
"#;

/// Owns both partitions of `jobs` by the package for Python.
const OWN_BOTH: &str = r#"
import sys, time
sys.path.insert(0, "clients/python/src")
from archon_participant import Participant
with Participant("jobs", "127.0.0.1:" + sys.argv[1], tls_dir=sys.argv[2]) as participant:
    limit = time.monotonic() + 60.0
    while len(participant.owned()) < 2 and time.monotonic() < limit:
        time.sleep(0.02)
    print(len(participant.owned()), participant.grant(0).check() > 0, participant.where("a").owner.participant)
"#;

/// The same by the package for Node.
const OWN_BOTH_IN_NODE: &str = r#"
import { Participant } from "./clients/typescript/src/index.js";
const participant = new Participant("jobs", { agent: "127.0.0.1:" + process.argv[1], tlsDir: process.argv[2] });
await participant.start();
const limit = Date.now() + 60000;
while (participant.owned().length < 2 && Date.now() < limit) await new Promise((resolve) => setTimeout(resolve, 20));
console.log(participant.owned().length, (await participant.where("a")).owner.participant);
await participant.stop();
"#;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A child process, which is killed when the test ends.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ran = Command::new(program).args(arguments).current_dir(root).env("PYTHONDONTWRITEBYTECODE", "1").output();
    match ran {
        Ok(output) => Some(output),
        Err(error) => {
            skipped(format!("{program} does not start: {error}"));
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Starts a cluster with a lease table of two partitions that `w1` may own, and returns the credentials of `w1` as well.
fn cluster_of_w1() -> (Cluster, PathBuf) {
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, tls: true, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_protocol(2);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    cluster.done(&["access", "grant", "own", "--participant", "w1", "--table", "jobs"]);
    let own = cluster.issuer().credentials(Role::Participant, "w1", ["127.0.0.1:1"]).expect("a certificate");
    (cluster, own)
}

/// Starts the agent of `w1` on all addresses with a log of this name, and returns it with its port.
fn agent(cluster: &Cluster, log: &str, credentials: &Path) -> (Process, String) {
    let (directory, coordinators) = (credentials.display().to_string(), cluster.coordinator_list());
    let arguments = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let more = ["--listen", "0.0.0.0:0", "--tls-dir", &directory, "--coordinators", &coordinators];
    let arguments: Vec<String> = [&arguments[..], &more].concat().into_iter().map(str::to_owned).collect();
    let agent = cluster.spawn(log, &arguments);
    let (port, _) = wait_for("the address of the agent", TIMEOUT, || {
        let log = agent.log();
        let port = log.split("0.0.0.0:").nth(1).map(|rest| rest.chars().take_while(char::is_ascii_digit).collect());
        port.filter(|port: &String| !port.is_empty()).ok_or(log)
    });
    (agent, port)
}

#[test]
fn agent_beyond_loopback_serves_by_certificate() {
    let (cluster, own) = cluster_of_w1();
    let (agent, port) = agent(&cluster, "w1", &own);
    let foreign = tempfile::tempdir().expect("a directory");
    let foreign = Issuer::new(foreign.path()).and_then(|issuer| issuer.credentials(Role::Participant, "w1", []));
    let foreign = foreign.expect("a certificate of another authority");
    let [other, client, operator] = [(Role::Participant, "w2"), (Role::Client, "shop"), (Role::Operator, "o")]
        .map(|(role, name)| cluster.credentials(role, name));
    let (authority, none) = (own.display().to_string(), PathBuf::new());
    let expected = [
        (&own, "/v1/status", "", "200"),
        (&own, "/v1/owned/0", "none", "410"),
        (&other, "/v1/events", "new", "403"),
        (&client, "/v1/events", "new", "403"),
        (&client, "/v1/owned/0", "none", "403"),
        (&client, "/metrics", "", "403"),
        (&client, "/v1/owners", "", "200"),
        (&client, "/livez", "", "200"),
        (&operator, "/metrics", "", "200"),
        // The agent refuses these by an alert.
        (&foreign, "/v1/status", "", "alert"),
        (&none, "/v1/status", "", "alert"),
    ];
    for (credentials, path, session, answer) in expected {
        let directory = credentials.display().to_string();
        let Some(output) = run("python3", &["-c", REQUEST, &port, &authority, &directory, path, session]) else {
            return;
        };
        assert!(text(&output).contains(answer), "{directory} {path}: {}\n{}", text(&output), agent.log());
    }
    let (greedy, other) = (client.display().to_string(), operator.display().to_string());
    let filled = run("python3", &["-c", FILL, &port, &greedy, &other]).expect("it starts");
    let filled = text(&filled);
    assert!(filled.starts_with("8 429 ") && filled.contains("client/shop has 8 open watches of owners"), "{filled}");
    assert!(filled.contains("other 200"), "{filled}");
    let foreign_authority = foreign.display().to_string();
    let unverified = run("python3", &["-c", REQUEST, &port, &foreign_authority, &authority, "/v1/status", ""]);
    assert!(unverified.is_some_and(|output| text(&output).contains("CERTIFICATE_VERIFY_FAILED")));
    let plaintext = http::get(&format!("127.0.0.1:{port}"), "/v1/status").expect("an answer");
    assert!(plaintext.status == 400 && plaintext.body.contains("this agent requires TLS"), "{plaintext:?}");

    let directory = own.display().to_string();
    let Some(output) = run("python3", &["-c", OWN_BOTH, &port, &directory]) else { return };
    assert!(text(&output).contains("2 True w1"), "{}\n{}", text(&output), agent.log());
    if let Some(output) = run("node", &["--input-type=module", "-e", OWN_BOTH_IN_NODE, &port, &directory]) {
        assert!(text(&output).contains("2 w1"), "{}\n{}", text(&output), agent.log());
    }
    assert!(agent.terminate(TIMEOUT).success());
}

#[test]
fn agent_refuses_revoked_certificates_at_once() {
    // The thief has an earlier certificate of the same name.
    let (cluster, own) = cluster_of_w1();
    let stolen = cluster.directory().join("stolen");
    cluster.issuer().renew_with_left(Role::Participant, "w1", ["127.0.0.1:1"], DAY).expect("an older certificate");
    std::fs::create_dir(&stolen).expect("a directory");
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        std::fs::copy(own.join(file), stolen.join(file)).expect("a copy");
    }
    cluster.issuer().renew(Role::Participant, "w1", ["127.0.0.1:1"]).expect("a newer certificate");
    let shop = cluster.credentials(Role::Client, "shop").display().to_string();
    let (agent, port) = agent(&cluster, "w1", &own);
    let (own, stolen) = (own.display().to_string(), stolen.display().to_string());
    let status = |port: &str, credentials: &str| {
        let ran = run("python3", &["-c", REQUEST, port, &own, credentials, "/v1/status", ""]);
        ran.map_or_else(String::new, |output| text(&output))
    };
    if run("python3", &["-V"]).is_none() {
        return;
    }
    assert_eq!(status(&port, &stolen).trim(), "200", "{}", agent.log());
    let mut watch = Command::new("python3");
    watch.args(["-c", WATCH, &port, &shop]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = ChildGuard(watch.spawn().expect("it starts"));
    let mut opened = [0; 4];
    watch.0.stdout.as_mut().expect("an output").read_exact(&mut opened).expect("a status");
    assert_eq!(&opened, b"200\n", "{}", agent.log());

    cluster.done(&["access", "withdraw", "participant/w1", "--keep", &own]);
    cluster.done(&["access", "withdraw", "client/shop"]);
    let refused = |port: &str, credentials: &str| {
        wait_for("the agent to refuse the certificate", TIMEOUT, || {
            let answer = status(port, credentials);
            check(answer.contains("alert"), || answer)
        })
    };
    for credentials in [&stolen, &shop] {
        refused(&port, credentials);
    }
    assert_eq!(status(&port, &own).trim(), "200", "{}", agent.log());
    wait_for("the agent to close the watch", TIMEOUT, || {
        let ended = watch.0.try_wait().expect("a state");
        check(ended.is_some(), || agent.log())
    });
    // The service itself is not affected.
    let output = run("python3", &["-c", OWN_BOTH, &port, &own]).expect("it starts");
    assert!(text(&output).contains("2 True w1"), "{}\n{}", text(&output), agent.log());
    assert!(agent.terminate(TIMEOUT).success());
    // An agent that starts later learns of them as well.
    let (agent, port) = self::agent(&cluster, "w1-later", Path::new(&own));
    refused(&port, &stolen);
    assert!(agent.terminate(TIMEOUT).success());
}

#[test]
fn agent_without_server_certificate_stays_on_loopback() {
    let directory = tempfile::tempdir().expect("a directory");
    let issuer = Issuer::new(directory.path()).expect("an authority");
    let no_host = issuer.credentials(Role::Participant, "w1", []).expect("a certificate").display().to_string();
    let agent = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let agent = [&agent[..], &["--coordinators", "127.0.0.1:1", "--listen", "0.0.0.0:0"]].concat();
    for (credentials, why) in [
        (&["--tls-dir", &no_host][..], "names no host, so services cannot verify it"),
        (&[], "without TLS the agent listens on loopback only, not on 0.0.0.0:0"),
        (&["--insecure"], "without TLS the agent listens on loopback only, not on 0.0.0.0:0"),
    ] {
        let ran = Command::new(EXE).args(&agent).args(credentials).env_remove("ARCHON_TLS_DIR").output();
        let ran = ran.expect("it starts");
        assert!(ran.status.code() == Some(2) && text(&ran).contains(why), "{credentials:?}: {}", text(&ran));
    }
}
