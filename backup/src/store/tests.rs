//! Tests of all kinds of places.

use super::*;
#[cfg(feature = "object-store")]
use object_store::{ObjectStore, memory::InMemory};
#[cfg(feature = "object-store")]
use std::sync::Arc;
use tempfile::TempDir;

/// Longer than one part and one read.
const LONG: usize = 20 * 1024 * 1024;

fn directory() -> (Store, Option<TempDir>) {
    let directory = tempfile::tempdir().unwrap();
    (Store::at(directory.path().to_str().unwrap()).unwrap(), Some(directory))
}

#[cfg(feature = "object-store")]
fn objects(client: &Arc<InMemory>, bucket: &str, prefix: &str) -> Store {
    Store(Kind::Objects(Objects::of(client.clone() as Arc<dyn ObjectStore>, format!("s3://{bucket}"), prefix)))
}

fn places() -> Vec<(Store, Option<TempDir>)> {
    #[cfg(not(feature = "object-store"))]
    let places = vec![directory()];
    #[cfg(feature = "object-store")]
    let places = {
        let client = Arc::new(InMemory::new());
        vec![directory(), (objects(&client, "b", "archon/monday"), None), (objects(&Arc::default(), "b", ""), None)]
    };
    places
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

async fn written(store: &Store, name: &str, content: &[u8]) {
    let mut sink = store.create(name).await.unwrap();
    for part in content.chunks(300_000) {
        sink.write(part).await.unwrap();
    }
    sink.finish().await.unwrap();
}

#[tokio::test]
async fn file_appears_completely_or_not_at_all() {
    for (store, _directory) in places() {
        assert!(store.is_empty().await.unwrap());
        store.make(&["data/"]).await.unwrap();
        let content = bytes(LONG);
        let mut sink = store.create("data/a").await.unwrap();
        sink.write(&content).await.unwrap();
        assert!(store.open("data/a").await.unwrap().is_none());
        sink.write(b"end").await.unwrap();
        sink.finish().await.unwrap();
        let mut source = store.open("data/a").await.unwrap().unwrap();
        assert_eq!(source.take(7).await.unwrap(), content[..7]);
        assert!(source.take(LONG - 7).await.unwrap() == content[7..]);
        assert_eq!(source.take(9).await.unwrap(), "end");
        assert_eq!(source.take(9).await.unwrap(), "");
        for begun in [&b"x"[..], &content] {
            let mut sink = store.create("data/b").await.unwrap();
            sink.write(begun).await.unwrap();
            sink.abandon().await;
            assert_eq!(store.list("data/").await.unwrap(), ["data/a"], "{}", store.place());
        }
        assert!(!store.is_empty().await.unwrap());
    }
}

#[tokio::test]
async fn files_are_listed_read_replaced_and_deleted() {
    for (store, _directory) in places() {
        assert_eq!(store.list("data/").await.unwrap(), Vec::<String>::new());
        assert_eq!((store.read("m").await.unwrap(), store.length("m").await.unwrap()), (None, None));
        assert!(store.open("m").await.unwrap().is_none());
        store.make(&["data/", "journal/"]).await.unwrap();
        for name in ["data/b", "data/a", "journal/a", "m"] {
            store.write(name, Bytes::from(name.to_owned())).await.unwrap();
        }
        store.write("m", Bytes::from_static(b"new")).await.unwrap();
        assert_eq!((store.read("m").await.unwrap(), store.length("m").await.unwrap()), (Some("new".into()), Some(3)));
        assert_eq!(store.list("data/").await.unwrap(), ["data/a", "data/b"]);
        assert_eq!(store.list("").await.unwrap(), ["data", "journal", "m"]);
        written(&store, "empty", b"").await;
        assert_eq!(store.read("empty").await.unwrap(), Some(Bytes::new()));
        assert_eq!(store.open("empty").await.unwrap().unwrap().take(1).await.unwrap(), "");
        for name in ["journal/a", "journal/a", "empty", "m", "data/a", "data/b"] {
            store.delete(name).await.unwrap();
        }
        store.delete_folder("journal/").await;
        store.delete_folder("data/").await;
        assert!(store.is_empty().await.unwrap(), "{}", store.place());
    }
}

#[tokio::test]
async fn root_of_a_new_file_system_is_empty() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::at(root.path().to_str().unwrap()).unwrap();
    std::fs::create_dir(root.path().join("lost+found")).unwrap();
    assert!(store.is_empty().await.unwrap());
    std::fs::write(root.path().join("other"), "").unwrap();
    assert!(!store.is_empty().await.unwrap());
}

#[tokio::test]
async fn place_is_locked_by_one_process() {
    for (store, _directory) in places() {
        let held = store.hold(&Progress::default()).await.unwrap();
        assert!(store.is_empty().await.unwrap(), "a lock is nothing");
        #[cfg(feature = "object-store")]
        if matches!(store.0, Kind::Objects(_)) {
            continue;
        }
        assert!(matches!(store.hold(&Progress::default()).await, Err(BackupError::Occupied { .. })));
        held.release().await;
        store.hold(&Progress::default()).await.unwrap();
    }
}

#[tokio::test]
async fn file_is_taken_over_from_any_place() {
    #[cfg(not(feature = "object-store"))]
    let stores = [directory(), directory()];
    #[cfg(feature = "object-store")]
    let stores = {
        let (one, other) = (Arc::new(InMemory::new()), Arc::new(InMemory::new()));
        let [a, b, c] = [(&one, "a", "monday"), (&one, "a", "tuesday"), (&other, "b", "monday")]
            .map(|(client, bucket, prefix)| (objects(client, bucket, prefix), None));
        [directory(), directory(), a, b, c]
    };
    let content = bytes(LONG);
    for (from, _) in &stores {
        written(from, "taken", &content).await;
        for (number, (into, _)) in stores.iter().enumerate() {
            let name = format!("over-{number}");
            into.take_over(from, "taken", &name).await.unwrap();
            let mut source = into.open(&name).await.unwrap().unwrap();
            assert!(source.take(LONG + 1).await.unwrap() == content, "{} from {}", into.place(), from.place());
            into.delete(&name).await.unwrap();
        }
        from.delete("taken").await.unwrap();
        assert!(stores[0].0.take_over(from, "taken", "nothing").await.is_err());
    }
}

#[cfg(feature = "object-store")]
mod locks {
    use super::*;
    use std::future::pending;
    use std::time::Duration;
    use tokio::time::{Instant, sleep, timeout};

    fn place() -> Store {
        objects(&Arc::default(), "b", "monday")
    }

    async fn refused(store: &Store) -> String {
        match store.hold(&Progress::default()).await {
            Err(error @ BackupError::Occupied { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn renewed_lock_is_not_taken_over() {
        let store = place();
        let mut held = store.hold(&Progress::default()).await.unwrap();
        let watched = async {
            for _ in 0..5 {
                let began = Instant::now();
                assert!(refused(&store).await.contains(&format!("process {} on", std::process::id())));
                assert!(began.elapsed() < Duration::from_secs(10), "one that is renewed is seen at once");
                sleep(Duration::from_secs(60)).await;
            }
            Ok(())
        };
        held.keep(watched).await.unwrap();
        held.release().await;
        assert_eq!(store.list("").await.unwrap(), Vec::<String>::new());
        store.hold(&Progress::default()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stale_lock_is_taken_over_and_paused_holder_stops() {
        let store = place();
        // Neither renewed nor released, as if the process were killed or stopped.
        let mut stopped = store.hold(&Progress::default()).await.unwrap();
        let (began, progress) = (Instant::now(), Progress::default());
        let mut hold = std::pin::pin!(store.hold(&progress));
        assert!(timeout(Duration::from_secs(25), &mut hold).await.is_err(), "it may still be there");
        assert!(progress.waiting_for().unwrap().contains("is it still running"));
        let mut held = hold.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(40) && progress.waiting_for().is_none());
        let ended = stopped.keep(pending::<Result<(), BackupError>>()).await.unwrap_err();
        assert!(matches!(&ended, BackupError::Occupied { why, .. } if why.contains("taken it over")), "{ended}");
        stopped.release().await;
        held.keep(async {
            refused(&store).await;
            Ok(())
        })
        .await
        .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_lock_ends_work_of_first_holder() {
        let store = place();
        let mut first = store.hold(&Progress::default()).await.unwrap();
        store.delete(LOCK).await.unwrap();
        let second = store.hold(&Progress::default()).await.unwrap();
        let ended = first.keep(pending::<Result<(), BackupError>>()).await.unwrap_err();
        assert!(matches!(ended, BackupError::Occupied { .. }), "{ended}");
        first.release().await;
        assert_eq!(store.list("").await.unwrap(), [LOCK], "it is the other one's");
        second.release().await;
        assert_eq!(store.list("").await.unwrap(), Vec::<String>::new());
    }

    #[test]
    fn debug_output_of_store_has_no_credentials() {
        let store = objects(&Arc::default(), "b", "monday");
        assert_eq!(format!("{store:?}"), "Store(Objects(Objects(\"s3://b/monday\")))");
    }
}

#[test]
fn file_at_the_bound_is_read_and_one_above_is_not_written() {
    for bytes in [WHOLE_BYTES_MAX - 1, WHOLE_BYTES_MAX, WHOLE_BYTES_MAX + 1] {
        let fits = bytes <= WHOLE_BYTES_MAX;
        assert_eq!(check_length("manifest.json", bytes).is_ok(), fits, "{bytes} bytes are read");
        assert_eq!(check_writable("manifest.json", bytes).is_ok(), fits, "{bytes} bytes are written");
    }
    let refused = check_writable("manifest.json", u64::MAX).unwrap_err().to_string();
    assert!(refused.contains("back up fewer tables"), "{refused}");
}
