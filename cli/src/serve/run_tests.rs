//! Tests of starting processes: exits of failures, and waits for failures that may pass.

use super::*;

/// A service manager does not restart a process that ended as refused.
#[test]
fn disk_failure_of_a_node_is_not_reported_as_refused() {
    let io = || NodeIdentityError::Io {
        directory: "/data".into(),
        what: "write the identity",
        source: std::io::ErrorKind::StorageFull.into(),
    };
    let missing = || NodeIdentityError::Missing { directory: "/data".into() };
    let stored = |why| NodeError::from(Box::new(SessionError::NotStored { name: "athens".to_owned(), why }));
    assert_eq!(node_failure(io().into()).exit, Exit::Failed);
    assert_eq!(node_failure(stored(io())).exit, Exit::Failed);
    assert_eq!(node_failure(missing().into()).exit, Exit::Refused);
    assert_eq!(node_failure(stored(missing())).exit, Exit::Refused);
    let io =
        IdentityError::Io { action: "write", path: "/data".into(), source: std::io::ErrorKind::StorageFull.into() };
    assert_eq!(coordinator_failure(io.into()).exit, Exit::Failed);
}

/// A service manager would otherwise restart the node every few seconds.
#[test]
fn engine_directory_that_no_restart_opens_is_reported_as_refused() {
    let directory = || std::path::PathBuf::from("/data/engine");
    let refused = [
        EngineError::OlderFormat { directory: directory(), found: 2, known: 3 },
        EngineError::NewerFormat { directory: directory(), found: 4, known: 3 },
        EngineError::OtherEngine { directory: directory(), found: "sled", wanted: "lsm" },
        EngineError::UnknownEngine { directory: directory(), found: "fjall".to_owned() },
        EngineError::NotDurable { directory: directory(), what: "evidence" },
    ];
    for error in refused {
        let failure = node_failure(NodeError::Engine(error));
        assert_eq!(failure.exit, Exit::Refused, "{}", failure.message);
    }
    let source = std::io::ErrorKind::StorageFull.into();
    let io = EngineError::Io { directory: directory(), what: "write", source };
    assert_eq!(node_failure(NodeError::Engine(io)).exit, Exit::Failed);
    let older = EngineError::OlderFormat { directory: directory(), found: 2, known: 3 }.to_string();
    assert!(older.contains("archon backup create") && !older.contains("node drain"), "{older}");
}

#[tokio::test(start_paused = true)]
async fn start_waits_for_a_failure_that_may_pass() {
    let (tries, stop) = (std::cell::Cell::new(0), CancellationToken::new());
    let resolve = || {
        tries.set(tries.get() + 1);
        match tries.get() {
            1..=2 => Err(Failure::usage("no key yet", "").that_may_pass()),
            3 => Ok("settings"),
            _ => Err(Failure::usage("wrong for good", "")),
        }
    };
    let service_manager = ServiceManager::of_this_process();
    let settled = settle(resolve, &stop, &service_manager).await;
    assert_eq!((settled, tries.get()), (Ok(Some("settings")), 3));
    let ended = settle(resolve, &stop, &service_manager).await;
    assert_eq!(ended.map_err(|failure| failure.exit), Err(Exit::Usage));
    stop.cancel();
    let waits = || Err::<(), _>(Failure::usage("no key yet", "").that_may_pass());
    assert_eq!(settle(waits, &stop, &service_manager).await, Ok(None), "a stop ends the wait");
}

#[test]
fn root_of_a_new_file_system_is_a_new_directory() {
    let root = tempfile::tempdir().expect("a directory");
    assert!(is_new(&root.path().join("absent")) && is_new(root.path()));
    std::fs::create_dir(root.path().join("lost+found")).expect("made");
    assert!(is_new(root.path()));
    std::fs::write(root.path().join("raft"), "").expect("written");
    assert!(!is_new(root.path()));
}

/// `timeout 6 archon node …` signals its child and then the child's group.
#[test]
fn two_signals_within_microseconds_stop_gracefully() {
    let first = Instant::now();
    let mut signals = StopSignals::default();
    let mut take = |after| signals.take(first + after);
    assert_eq!(take(Duration::ZERO), StopSignal::Stop);
    assert_eq!(take(Duration::from_micros(3)), StopSignal::Again);
    assert_eq!(take(Duration::from_millis(999)), StopSignal::Again);
    assert_eq!(take(Duration::from_secs(1)), StopSignal::End);
}
