//! Backups in an object store, on real processes: built with the feature `object-store` only. The test runs its own
//! store.

mod s3;

use archon_integration_tests::cluster::CommandOutput;
use archon_integration_tests::{Cluster, Options, Process, ProcessExt as _};
use archon_testkit::wait_for;
use s3::{BUCKET, IgnoredConditions, KEY_ID, SECRET, Server};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const TIMEOUT: Duration = Duration::from_secs(60);
/// The lock of a dead backup is watched for 30 s, and an unreachable store is retried for as long.
const LONG: Duration = Duration::from_secs(150);
const KEYS: usize = 64;
const PARTITIONS: usize = 4;

/// A cluster with rows; some partitions take several parts of an object.
struct Scene {
    cluster: Cluster,
    runtime: Runtime,
    server: Server,
}

impl Scene {
    fn new(value_bytes: usize) -> Self {
        let options = Options {
            coordinators: 1,
            nodes: vec!["delos"],
            partitions: PARTITIONS as u32,
            nodes_min: 1,
            ..Options::default()
        };
        let cluster = Cluster::start(EXE, &options);
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(cluster.client().build()).expect("a client");
        for number in 0..KEYS {
            runtime.block_on(client.put(format!("key/{number:02}"), vec![7; value_bytes])).expect("a put");
        }
        Self { cluster, runtime, server: Server::start() }
    }

    fn environment(&self) -> BTreeMap<&'static str, String> {
        let endpoint = format!("http://{}", self.server.address());
        BTreeMap::from([
            ("AWS_ENDPOINT", endpoint.clone()),
            // No request for credentials goes to Amazon.
            ("AWS_METADATA_ENDPOINT", endpoint),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("GOOGLE_BASE_URL", format!("http://{}", self.server.address())),
            ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
            ("GOOGLE_BEARER_TOKEN", SECRET.to_owned()),
        ])
    }

    fn ran_in(&self, environment: &BTreeMap<&'static str, String>, arguments: &[&str]) -> CommandOutput {
        let mut command = self.cluster.shell("exec \"$ARCHON\" \"$@\"");
        command.arg("archon").args(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_") || name.starts_with("GOOGLE_")) {
            command.env_remove(name);
        }
        command.envs(environment);
        let ran = CommandOutput::of(command);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(SECRET), "{arguments:?} told a secret");
        ran
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> Value {
        let ran = self.ran_in(&self.environment(), &[arguments, &["-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        serde_json::from_str(&ran.stdout).expect("JSON")
    }

    #[track_caller]
    fn refused(&self, environment: &BTreeMap<&'static str, String>, arguments: &[&str], code: i32, says: &str) {
        let ran = self.ran_in(environment, arguments);
        assert!(
            ran.code == code && ran.stderr.contains(says),
            "{arguments:?}: {} {}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
    }

    /// Starts a slow backup.
    fn begin(&self, to: &str) -> Process {
        let shell = self.cluster.shell("");
        let given = shell.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?.to_owned())));
        let environment: Vec<(&str, String)> = given.chain(self.environment()).collect();
        let words = [EXE, "backup", "create", "--to", to, "--max-rate", "1MiB", "--parallel", "1", "--progress"];
        Process::start("backup", &words, &environment, self.cluster.directory()).expect("it starts")
    }

    /// Waits until a partition is backed up.
    fn wait_piece(&self, prefix: &str, backup: &Process) {
        wait_for("a piece to be done", TIMEOUT, || {
            let done = self.server.kept().names(&format!("{prefix}/journal/"));
            if done.is_empty() { Err(backup.log()) } else { Ok(()) }
        });
    }

    fn names(&self, prefix: &str) -> BTreeSet<String> {
        self.server.kept().names(prefix)
    }

    fn rows(&self, table: &str) -> BTreeMap<String, Vec<u8>> {
        let client = self.runtime.block_on(self.cluster.client().table(table).build()).expect("a client");
        let read = |number: usize| {
            let key = format!("key/{number:02}");
            let found = self.runtime.block_on(client.get(&key)).expect("a get");
            found.map(|found| (key, found.value.to_vec()))
        };
        (0..KEYS).filter_map(read).collect()
    }
}

fn at(prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}")
}

#[test]
fn s3_backup_is_verified_taken_over_and_restored() {
    taken_verified_taken_over_and_restored("s3");
}

#[test]
fn google_store_backup_is_verified_taken_over_and_restored() {
    taken_verified_taken_over_and_restored("gs");
}

fn taken_verified_taken_over_and_restored(scheme: &str) {
    let scene = Scene::new(768 * 1024);
    let [monday, tuesday] = ["monday", "tuesday"].map(|day| format!("{scheme}://{BUCKET}/archon/{day}"));
    let client = scene.runtime.block_on(scene.cluster.client().build()).expect("a client");
    let (acknowledged, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writing = scene.runtime.spawn({
        let (client, acknowledged, over) = (client.clone(), acknowledged.clone(), over.clone());
        async move {
            for number in 1.. {
                client.put("written", format!("{number}")).await.expect("a put");
                acknowledged.store(number, Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
        }
    });
    let (before, _) = wait_for("a write", TIMEOUT, || match acknowledged.load(Ordering::SeqCst) {
        0 => Err("none yet"),
        number => Ok(number),
    });
    let taken = scene.done(&["backup", "create", "--to", &monday]);
    assert_eq!((&taken["files_total"], &taken["entries_total"]), (&PARTITIONS.into(), &(KEYS + 1).into()), "{taken}");
    over.store(true, Ordering::SeqCst);
    scene.runtime.block_on(writing).expect("it wrote");
    let verified = scene.done(&["backup", "verify", &monday]);
    assert_eq!(verified["entries_total"], KEYS + 1, "{verified}");
    let names = scene.names("archon/monday/");
    assert_eq!(names.iter().filter(|name| name.contains("/data/")).count(), PARTITIONS, "{names:?}");
    assert_eq!(names.len(), PARTITIONS + 1, "nothing is left but the manifest: {names:?}");
    {
        let kept = scene.server.kept();
        assert!(kept.of_parts > 0 && kept.uploads.is_empty(), "{} objects of parts", kept.of_parts);
    }

    let restore = ["backup", "restore", &monday, "--table", "default", "--as", "under_load", "--timeout", "20s"];
    scene.done(&restore);
    let restored = scene.runtime.block_on(client.table("under_load")).expect("a client");
    let found = scene.runtime.block_on(restored.get("written")).expect("a get").expect("what was acknowledged before");
    let found: u64 = String::from_utf8_lossy(&found.value).parse().expect("a number");
    assert!((before..=acknowledged.load(Ordering::SeqCst)).contains(&found), "{before} {found}");
    scene.cluster.done(&["table", "drop", "under_load", "--yes"]);

    // One partition is written to; the others are copied by the store itself.
    scene.runtime.block_on(client.put("key/07", "newer")).expect("a put");
    scene.runtime.block_on(client.delete("written")).expect("a delete");
    let before_copies = scene.server.kept().copied;
    let second = scene.done(&["backup", "create", "--to", &tuesday, "--since", &monday]);
    let taken_over = second["files_taken_over"].as_u64().expect("a number") as usize;
    assert!((PARTITIONS - 3..PARTITIONS).contains(&taken_over), "{second}");
    assert_eq!(scene.server.kept().copied - before_copies, taken_over);

    // It is self-contained, and so is one in a directory that takes over from it.
    scene.server.kept().objects.retain(|name, _| !name.starts_with("archon/monday/"));
    let verified = scene.done(&["backup", "verify", &tuesday]);
    assert_eq!(verified["entries_total"], KEYS, "{verified}");
    let kept = tempfile::tempdir().expect("a directory");
    let directory = kept.path().join("wednesday").display().to_string();
    let third = scene.done(&["backup", "create", "--to", &directory, "--since", &tuesday]);
    assert_eq!(third["files_taken_over"], PARTITIONS, "{third}");
    for (number, from) in [&tuesday, &directory].into_iter().enumerate() {
        let restored = format!("restored_{number}");
        scene.done(&["backup", "restore", from, "--table", "default", "--as", &restored, "--timeout", "20s"]);
        let rows = scene.rows(&restored);
        assert_eq!(rows.len(), KEYS);
        assert!(rows == scene.rows("default"), "{from}");
    }
}

#[test]
fn killed_object_backup_resumes_and_running_one_is_kept() {
    let scene = Scene::new(256 * 1024);
    let to = at("monday");
    let create = ["backup", "create", "--to", &to];
    let mut killed = scene.begin(&to);
    scene.wait_piece("monday", &killed);
    scene.refused(&scene.environment(), &create, 4, &format!("process {} on", killed.pid()));
    killed.kill();
    let unfinished = scene.ran_in(&scene.environment(), &["backup", "verify", &to]);
    assert!(unfinished.code == 3 && unfinished.stderr.contains("is not done"), "{unfinished:?}");
    assert!(scene.names("monday/").contains("monday/LOCK"), "nobody has let go of it");
    let versions = || -> BTreeMap<String, u64> {
        let kept = scene.server.kept();
        let data = kept.objects.iter().filter(|(name, _)| name.starts_with("monday/data/"));
        data.map(|(name, (_, version))| (name.clone(), *version)).collect()
    };
    let before = versions();
    assert!((1..PARTITIONS).contains(&before.len()), "{before:?}");

    // It is watched first, and the output says so.
    let mut again = scene.begin(&to);
    wait_for("it to say for what it waits", TIMEOUT, || match again.log().contains("is it still running?") {
        true => Ok(()),
        false => Err(again.log()),
    });
    let ended = again.wait_exit(LONG);
    assert!(ended.success(), "{ended}: {}", again.log());
    let after = versions();
    assert!(before.iter().all(|(name, version)| after.get(name) == Some(version)), "{before:?} {after:?}");
    assert_eq!(scene.done(&["backup", "verify", &to])["entries_total"], KEYS);
    assert!(!scene.names("monday/").contains("monday/LOCK"));
    scene.refused(&scene.environment(), &create, 4, "a finished backup is there");
}

#[test]
fn lost_store_ends_backup_with_how_to_resume() {
    let mut scene = Scene::new(256 * 1024);
    let to = at("monday");
    let mut cut_off = scene.begin(&to);
    scene.wait_piece("monday", &cut_off);
    let (address, kept) = (scene.server.address(), scene.server.share());
    // Its replacement starts before this one has stopped.
    scene.server = Server::start();
    let ended = cut_off.wait_exit(LONG);
    let log = cut_off.log();
    assert!(ended.code() == Some(5) && log.contains("repeat the command to resume the backup"), "{ended}: {log}");
    assert!(log.contains(&to) && !log.contains(SECRET), "{log}");
    scene.server = Server::again(address, kept);
    let taken = scene.done(&["backup", "create", "--to", &to]);
    assert_eq!(taken["entries_total"], KEYS, "{taken}");
    assert_eq!(scene.done(&["backup", "verify", &to])["entries_total"], KEYS);
}

#[test]
fn object_store_errors_name_their_causes() {
    let scene = Scene::new(1024);
    let to = at("monday");
    let create = ["backup", "create", "--to", &to];
    let with = |name, value: Option<&str>| {
        let mut environment = scene.environment();
        match value {
            Some(value) => environment.insert(name, value.to_owned()),
            None => environment.remove(name),
        };
        environment
    };
    let whole = scene.environment();
    let mut without = with("AWS_ACCESS_KEY_ID", None);
    scene.refused(&without, &create, 2, "AWS_ACCESS_KEY_ID");
    without.remove("AWS_SECRET_ACCESS_KEY");
    scene.refused(&without, &create, 2, "set credentials in the environment");
    scene.refused(&with("AWS_ACCESS_KEY_ID", Some("somebody")), &create, 2, "InvalidAccessKeyId");
    scene.refused(&with("AWS_ALLOW_HTTP", None), &create, 2, "AWS_ALLOW_HTTP=true");
    scene.refused(&with("AWS_ALLOW_HTTP", Some("perhaps")), &create, 2, "AWS_");
    scene.refused(&whole, &["backup", "create", "--to", "s3://nobodys/monday"], 3, "NoSuchBucket");
    scene.refused(&whole, &["backup", "verify", "s3://nobodys/monday"], 3, "NoSuchBucket");
    scene.refused(&whole, &["backup", "verify", &to], 3, "holds no finished backup");
    scene.refused(&whole, &["backup", "create", "--to", "azure://bucket/monday"], 2, "gs://bucket/prefix");
    scene.refused(
        &whole,
        &["backup", "create", "--to", &format!("s3://{KEY_ID}:{SECRET}@bucket/x")],
        2,
        "small letters",
    );

    let of_google = ["backup", "create", "--to", "gs://bucket/monday"];
    let mut elsewhere = with("GOOGLE_APPLICATION_CREDENTIALS", Some("/nowhere"));
    elsewhere.remove("GOOGLE_BEARER_TOKEN");
    scene.refused(&elsewhere, &of_google, 2, "GOOGLE_");
    scene.refused(&with("GOOGLE_BEARER_TOKEN", Some("somebodys")), &of_google, 2, "InvalidAccessKeyId");

    for ignores in [IgnoredConditions::EveryCondition, IgnoredConditions::Versions] {
        scene.server.kept().ignores = ignores;
        scene.refused(&whole, &create, 4, "cannot keep two writers apart");
        assert_eq!(scene.names(""), BTreeSet::new(), "nothing was left there");
    }
    scene.server.kept().ignores = IgnoredConditions::Nothing;
    scene.refused(&with("AWS_CONDITIONAL_PUT", Some("disabled")), &create, 4, "cannot keep two writers apart");

    scene.done(&create);
    let names: Vec<String> = scene.names("monday/").into_iter().collect();
    scene.refused(&whole, &["backup", "create", "--to", &at("")], 4, "something else is there");
    for name in names {
        let (content, _) = scene.server.kept().objects[&name].clone();
        let mut damaged = content.to_vec();
        damaged[content.len() / 2] ^= 4;
        let file = name.rsplit('/').next().expect("a name");
        for content in [damaged, content[..content.len() - 1].to_vec(), Vec::new()] {
            scene.server.kept().objects.insert(name.clone(), (content.into(), 0));
            scene.refused(&whole, &["backup", "verify", &to], 1, file);
            let create = ["backup", "create", "--to", &at("tuesday"), "--since", &to];
            scene.refused(&whole, &create, 4, file);
        }
        scene.server.kept().objects.insert(name.clone(), (content, 0));
        scene.server.kept().objects.retain(|name, _| !name.starts_with("tuesday/"));
    }
    scene.done(&["backup", "verify", &to]);

    // Nothing listens there.
    let nobody = with("AWS_ENDPOINT", Some("http://127.0.0.1:1"));
    scene.refused(&nobody, &["backup", "verify", &to], 5, "this machine can reach the store");
    let kept = tempfile::tempdir().expect("a directory");
    let directory = kept.path().join("wednesday").display().to_string();
    let create = ["backup", "create", "--to", &directory, "--since", &to];
    scene.refused(&nobody, &create, 5, "this machine can reach the store");
}
