//! A participant of a table without leases owns nothing, and logs a warning. The test is a separate program, since it
//! installs the subscriber of the process.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // Other tests need more of it.
#[path = "it/service.rs"]
mod service;

use archon_client::{Admin, Participant};
use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_testkit::ScratchDirectory;
use archon_types::{ProtocolRange, Settings};
use service::{SOON, Service, wait};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The warnings of this process, one line each.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn participant_of_missing_table_logs_a_warning() {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let warned = |text: &str| warnings.0.lock().unwrap().iter().filter(|line| line.contains(text)).count();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (listen, directory) = (listener.local_addr().unwrap(), ScratchDirectory::in_memory().unwrap());
    let peers = [(1, listen.to_string())].into();
    let config = CoordinatorConfig {
        id: 1,
        listen,
        metrics_listen: None,
        transport: archon_security::Transport::default(),
        advertise: None,
        start: Some(FirstStart::Found { peers }),
        data_dir: directory.path().to_owned(),
        speaks: ProtocolRange::SPOKEN,
        timing: archon_coordinator::QuorumTiming::default(),
        settings: Settings::default(),
        settings_said: Default::default(),
    };
    let coordinator = Coordinator::start(listener, config).await.unwrap();
    let admin = Admin::new([listen.to_string()], SOON).unwrap();
    admin.create_lease_table("jobs", 2).await.unwrap();
    let builder = Participant::builder([listen.to_string()]).name("typo").address("typo.example:80");
    let participant = builder.table("jobs").table("jbos").start(Service::default()).await.unwrap();
    wait("the other table", || participant.owned().len() == 2).await;
    wait("a warning", || warned("[\"jbos\"]") == 1).await;
    // The table is created after all: no further warning is due.
    admin.create_lease_table("jbos", 1).await.unwrap();
    wait("both tables", || participant.owned().len() == 3).await;
    assert_eq!(warned("serves tables that do not exist"), 1);
    participant.stop(SOON).await;
    assert!(coordinator.shutdown().await.is_none());
}
