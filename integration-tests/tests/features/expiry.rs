//! Values that expire, by every interface, and across the death of their leader.

use crate::EXE;
use crate::redis::{NODES, knows_listeners, ok, options, start};
use crate::redis_client::{ClusterClient, Reply};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use std::time::{SystemTime, UNIX_EPOCH};

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("a time")
}

#[test]
fn redis_commands_about_expiry_answer_as_redis_does() {
    let cluster = start(&options(NODES));
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    let mut ask = |request: &[&str]| client.ask_until_answered(request);
    let number = |reply: Reply| reply.integer();
    for command in ["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"] {
        assert_eq!(ask(&[command, "k"]), Reply::Integer(-2), "{command}");
    }
    assert_eq!(ask(&["EXPIRE", "k", "10"]), Reply::Integer(0));
    assert_eq!(ask(&["PERSIST", "k"]), Reply::Integer(0));
    assert_eq!(ask(&["GETEX", "k", "EX", "10"]), Reply::Null);
    assert_eq!(ask(&["GETDEL", "k"]), Reply::Null);
    assert_eq!(ask(&["SET", "k", "5"]), ok());
    assert_eq!(ask(&["TTL", "k"]), Reply::Integer(-1));
    assert_eq!(ask(&["EXPIRE", "k", "1000", "XX"]), Reply::Integer(0));
    assert_eq!(ask(&["EXPIRE", "k", "1000", "GT"]), Reply::Integer(0), "it would have lived longer");
    assert_eq!(ask(&["EXPIRE", "k", "1000", "NX"]), Reply::Integer(1));
    assert!((990..=1_000).contains(&number(ask(&["TTL", "k"]))));
    assert_eq!(ask(&["PEXPIRE", "k", "900000", "GT"]), Reply::Integer(0));
    assert_eq!(ask(&["PEXPIRE", "k", "900000", "LT"]), Reply::Integer(1));
    assert!((890_000..=900_000).contains(&number(ask(&["PTTL", "k"]))));
    assert_eq!(ask(&["INCR", "k"]), Reply::Integer(6));
    assert_eq!(ask(&["APPEND", "k", "7"]), Reply::Integer(2));
    assert!(number(ask(&["TTL", "k"])) > 800, "both keep it");
    assert_eq!(ask(&["SET", "k", "8", "KEEPTTL"]), ok());
    assert!(number(ask(&["TTL", "k"])) > 800);
    assert_eq!(ask(&["EXPIREAT", "k", "4102444800"]), Reply::Integer(1));
    assert_eq!(ask(&["EXPIRETIME", "k"]), Reply::Integer(4_102_444_800));
    assert_eq!(ask(&["PEXPIREAT", "k", "4102444800001"]), Reply::Integer(1));
    assert_eq!(ask(&["PEXPIRETIME", "k"]), Reply::Integer(4_102_444_800_001));
    assert_eq!(ask(&["PERSIST", "k"]), Reply::Integer(1));
    assert_eq!(ask(&["PERSIST", "k"]), Reply::Integer(0));
    assert_eq!(ask(&["GETEX", "k", "PXAT", "4102444800000"]), Reply::bulk("8"));
    assert_eq!(ask(&["PEXPIRETIME", "k"]), Reply::Integer(4_102_444_800_000));
    assert_eq!(ask(&["GETEX", "k", "PERSIST"]), Reply::bulk("8"));
    assert_eq!(ask(&["TTL", "k"]), Reply::Integer(-1));
    assert_eq!(ask(&["SETEX", "k", "100", "9"]), ok());
    assert!((90..=100).contains(&number(ask(&["TTL", "k"]))));
    assert_eq!(ask(&["SET", "k", "9", "GET"]), Reply::bulk("9"));
    assert_eq!(ask(&["TTL", "k"]), Reply::Integer(-1), "a SET without an expiry removes it");
    assert_eq!(ask(&["PSETEX", "k", "100000", "9"]), ok());
    assert_eq!(ask(&["SET", "k", "10", "EXAT", "4102444800", "XX"]), ok());
    assert_eq!(ask(&["EXPIRETIME", "k"]), Reply::Integer(4_102_444_800));
    assert_eq!(ask(&["GETDEL", "k"]), Reply::bulk("10"));
    assert_eq!(ask(&["EXISTS", "k"]), Reply::Integer(0));
    // Times that have passed delete the key.
    for request in [&["EXPIRE", "k", "-1"][..], &["PEXPIREAT", "k", "1"], &["EXPIREAT", "k", "0"]] {
        assert_eq!(ask(&["SET", "k", "v"]), ok());
        assert_eq!(ask(request), Reply::Integer(1), "{request:?}");
        assert_eq!(ask(&["GET", "k"]), Reply::Null, "{request:?}");
    }
    assert_eq!(ask(&["SET", "k", "v", "PXAT", "1"]), ok());
    assert_eq!(ask(&["GET", "k"]), Reply::Null);
    for (request, error) in [
        (&["SETEX", "k", "0", "v"][..], "ERR invalid expire time in 'setex' command"),
        (&["PSETEX", "k", "-5", "v"], "ERR invalid expire time in 'psetex' command"),
        (&["SET", "k", "v", "EX", "9223372036854775807"], "ERR invalid expire time in 'set' command"),
        (&["SET", "k", "v", "EX", "1", "PX", "1"], "ERR syntax error"),
        (&["SET", "k", "v", "PX", "x"], "ERR value is not an integer or out of range"),
        (&["GETEX", "k", "KEEPTTL"], "ERR syntax error"),
        (&["EXPIRE", "k", "9223372036854775807"], "ERR invalid expire time in 'expire' command"),
        (&["PEXPIRE", "k", "1", "NX", "XX"], "ERR NX and XX, GT or LT options at the same time are not compatible"),
        (&["EXPIREAT", "k", "1", "soon"], "ERR Unsupported option soon"),
        (&["EXPIRE", "k", "ten"], "ERR value is not an integer or out of range"),
    ] {
        assert_eq!(ask(request), Reply::Error(error.to_owned()), "{request:?}");
    }
}

/// Returns whether a key is there by the command line.
fn is_there(cluster: &Cluster, key: &str, flags: &[&str]) -> Result<bool, String> {
    let ran = cluster.archon(&[&["kv", "get", key][..], flags].concat());
    match ran.code {
        0 => Ok(true),
        3 => Ok(false),
        _ => Err(format!("{ran:?}")),
    }
}

/// The leader is killed just before the value is due, so that another one has to end it.
#[test]
fn value_ends_for_all_interfaces_although_its_leader_is_killed() {
    const TTL_MS: u64 = 3_000;
    let three = Options { partitions: 3, replication: 3, ..options(NODES) };
    let mut cluster = Cluster::start_whole(EXE, &three);
    knows_listeners(&cluster, NODES);
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    assert_eq!(client.ask_until_answered(&["SET", "kept", "v"]), ok());
    let victim = cluster.leader_of("session");
    let other = (*NODES.iter().find(|node| **node != victim).expect("two others")).to_owned();
    let begun = now_ms();
    cluster.done(&["kv", "put", "session", "alice", "--ttl", "3s"]);
    let document = cluster.json(&["kv", "get", "session"]).expect("it is there");
    let expires = document["expires_at_ms"].as_u64().expect("it expires");
    assert!((begun + TTL_MS..=now_ms() + TTL_MS).contains(&expires), "{document}");
    wait_for("the expiry to come near", TIMEOUT, || {
        if now_ms() + 300 >= expires { Ok(()) } else { Err("not yet".to_owned()) }
    });
    cluster.take_node(&victim).kill();
    let mut client = ClusterClient::new(cluster.redis_address(&other));
    wait_for("the value to end", TIMEOUT, || match client.ask(&["GET", "session"]) {
        Ok(Reply::Null) => Ok(()),
        found => Err(format!("{found:?}")),
    });
    assert!(now_ms() >= expires, "it ended {} ms early", expires - now_ms());
    // One read has found it absent: from now on every one does.
    for _ in 0..20 {
        assert_eq!(client.ask_until_answered(&["GET", "session"]), Reply::Null);
    }
    assert_eq!(client.ask_until_answered(&["EXISTS", "session"]), Reply::Integer(0));
    assert_eq!(client.ask_until_answered(&["TTL", "session"]), Reply::Integer(-2));
    assert_eq!(is_there(&cluster, "session", &[]), Ok(false));
    assert_eq!(is_there(&cluster, "session", &["--stale"]), Ok(false));
    assert_eq!(is_there(&cluster, "kept", &[]), Ok(true));
    let listed = cluster.json(&["kv", "scan", "s"]).expect("a list");
    assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
    assert_eq!(client.ask_until_answered(&["SET", "session", "bob", "NX", "EX", "1000"]), ok());
    cluster.start_node(&victim);
    cluster.wait_node(&victim, "alive");
    let mut returned = ClusterClient::new(cluster.redis_address(&victim));
    assert_eq!(returned.ask_until_answered(&["GET", "session"]), Reply::bulk("bob"));
}

#[test]
fn backup_and_restore_keep_the_time_of_expiry() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    cluster.done(&["kv", "put", "soon", "v", "--ttl", "4s"]);
    cluster.done(&["kv", "put", "later", "v", "--ttl", "1000s"]);
    cluster.done(&["kv", "put", "kept", "v"]);
    let expires = |table: &str, key: &str| {
        let document = cluster.json(&["kv", "get", key, "--table", table]).expect("it is there");
        document["expires_at_ms"].as_u64()
    };
    let (soon, later) = (expires("default", "soon").expect("a time"), expires("default", "later"));
    let backup = cluster.directory().join("backup");
    let backup = backup.to_str().expect("a path");
    cluster.done(&["backup", "create", "--to", backup]);
    cluster.done(&["backup", "verify", backup]);
    let exported = cluster.done(&["kv", "export", "default"]);
    assert!(exported.contains(&format!("\"expires_at_ms\":{}", later.expect("a time"))), "{exported}");
    wait_for(
        "the first value to expire",
        TIMEOUT,
        || if now_ms() >= soon { Ok(()) } else { Err("not yet".to_owned()) },
    );
    cluster.done(&["backup", "restore", backup, "--table", "default", "--as", "copy"]);
    assert_eq!((expires("copy", "later"), expires("copy", "kept")), (later, None));
    assert_eq!(is_there(&cluster, "soon", &["--table", "copy"]), Ok(false));
    assert_eq!(is_there(&cluster, "soon", &[]), Ok(false));
}
