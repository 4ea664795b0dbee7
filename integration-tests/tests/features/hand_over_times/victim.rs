//! A participant in processes of its own, with a report of their states if a wait for it fails.

use crate::agents::program;
use archon_integration_tests::Cluster;
use archon_local_cluster::Process;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Kind of a child process, and the coordinators of the library or the socket of the agent.
pub(super) const CHILD: &str = "ARCHON_TEST_HAND_OVER_CHILD";
pub(super) const OF: &str = "ARCHON_TEST_HAND_OVER_OF";
/// Time limit of each part of a report.
const REPORT_WITHIN: Duration = Duration::from_secs(5);
/// Lines of logs in a report.
const LINES: usize = 30;

/// A service in Python that stops at a line of its standard input. SIGUSR1 prints the stacks of its threads.
const SERVICE: &str = r#"
import faulthandler, signal, sys
sys.path.insert(0, "clients/python/src")
from archon_participant import Participant
faulthandler.register(signal.SIGUSR1)
participant = Participant("jobs", sys.argv[1], acquire=lambda grant: None, release=lambda grant, reason: None)
participant.start()
sys.stdin.readline()
participant.stop()
"#;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Library,
    /// The package for Python beside an agent.
    Python,
    /// A minimal service over HTTP beside an agent.
    Http,
    /// A minimal service as the program of an agent.
    Lines,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    /// SIGKILL of the service.
    Kill,
    /// SIGKILL of the service and its agent, as if their machine had failed; of the library as `Kill`.
    KillAll,
    Stop,
}

/// A participant in other processes, which die with this object. If the test fails meanwhile, it prints their states.
pub(super) struct Victim {
    kind: Kind,
    service: Option<Child>,
    agent: Option<Process>,
    /// Socket of the agent.
    socket: PathBuf,
    /// Errors of the service, and stacks of its threads.
    errors: PathBuf,
}

impl Victim {
    /// Starts the processes of a participant with the name `victim`. `number` is unique in the cluster.
    pub(super) fn start(kind: Kind, cluster: &Cluster, number: usize) -> Self {
        let coordinators = cluster.coordinator_list();
        let place = cluster.directory().join(format!("victim-{number}"));
        let (socket, errors) = (place.with_extension("sock"), place.with_extension("errors"));
        let exe = std::env::current_exe().expect("a path").display().to_string();
        let child = ["--exact", "--ignored", "--nocapture", "hand_over_times::child"];
        let listen = format!("unix:{}", socket.display());
        let command = match kind {
            Kind::Library => Some(Self::child(&exe, child, kind, &coordinators)),
            Kind::Http => Some(Self::child(&exe, child, kind, &socket.display().to_string())),
            Kind::Python => {
                let mut command = program("python3");
                command.args(["-c", SERVICE, &listen]);
                Some(command)
            }
            Kind::Lines => None,
        };
        let agent = (kind != Kind::Library).then(|| {
            let mut arguments = vec!["participant", "--table", "jobs", "--name", "victim", "--weight", "10000"];
            arguments.extend(["--address", "127.0.0.1:8080", "--coordinators", &coordinators]);
            let named = format!("{CHILD}={kind:?}");
            match command {
                Some(_) => arguments.extend(["--listen", &listen]),
                None => arguments.extend(["--exec", "env", &named, &exe].into_iter().chain(child)),
            }
            let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
            cluster.spawn(&format!("victim-{number}"), &arguments)
        });
        let service = command.map(|mut command| {
            let errors = File::create(&errors).expect("a file");
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).spawn().expect("the service starts")
        });
        Self { kind, service, agent, socket, errors }
    }

    fn child(exe: &str, arguments: [&str; 4], kind: Kind, of: &str) -> Command {
        let mut command = Command::new(exe);
        command.args(arguments).env(CHILD, format!("{kind:?}")).env(OF, of);
        command
    }

    /// Ends the participant, without waiting for the effect.
    pub(super) fn end(&mut self, end: End) {
        match (end, &mut self.service, &mut self.agent) {
            (End::Stop, Some(service), _) => {
                service.stdin.as_mut().expect("a pipe").write_all(b"stop\n").expect("it runs");
            }
            (End::Stop, None, agent) => agent.as_ref().expect("an agent").ask_to_end(),
            (End::Kill | End::KillAll, service, agent) => {
                if let Some(mut agent) = agent.take_if(|_| end == End::KillAll) {
                    agent.kill();
                }
                service.as_mut().expect("a service").kill().expect("it runs");
            }
        }
    }

    /// Describes the processes: threads of the service, its errors, state and log of the agent.
    fn report(&mut self) -> String {
        let mut report = format!("--- the participant ({:?})\n", self.kind);
        if let Some(service) = &mut self.service {
            match service.try_wait() {
                Ok(Some(status)) => report += &format!("the service has ended: {status}\n"),
                _ => report += &threads(service.id()),
            }
            if self.kind == Kind::Python {
                self.print_stacks();
            }
            report += &format!("errors of the service:\n{}\n", fs::read_to_string(&self.errors).unwrap_or_default());
        }
        if let Some(agent) = &self.agent {
            if self.service.is_some() {
                let status = self.agent_status().unwrap_or_else(|error| format!("no answer: {error}"));
                report += &format!("GET /v1/status of its agent: {status}\n");
            }
            report += &format!("end of the log of its agent:\n{}", agent.log_tail(LINES));
        }
        report
    }

    /// Has a service in Python write the stacks of its threads to its errors.
    fn print_stacks(&self) {
        let Some(service) = &self.service else { return };
        let _ = Command::new("kill").args(["-USR1", &service.id().to_string()]).status();
        let begun = Instant::now();
        // The main thread is the last one.
        while begun.elapsed() < REPORT_WITHIN
            && !fs::read_to_string(&self.errors).unwrap_or_default().contains("Current thread")
        {
            sleep(Duration::from_millis(10));
        }
    }

    fn agent_status(&self) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(REPORT_WITHIN))?;
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().last().unwrap_or_default().to_owned())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
        }
        if let Some(service) = &mut self.service {
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

/// Describes the threads of a process: name, state, and the system call in which each waits.
fn threads(pid: u32) -> String {
    let mut text = format!("threads of the service {pid}:\n");
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return text };
    for task in tasks.flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (stat, wait) = (read("stat"), read("wchan"));
        let (name, rest) = stat.rsplit_once(')').unwrap_or_default();
        let name = name.split_once('(').unwrap_or_default().1;
        let state = rest.trim_start().chars().next().unwrap_or('?');
        let _ = writeln!(text, "  {name}: {state} in {wait}");
    }
    text
}
