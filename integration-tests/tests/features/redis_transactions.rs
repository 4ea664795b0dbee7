//! Several keys at once by Redis clients: commands on several keys, transactions, and the scripts of locks.

use crate::EXE;
use crate::redis::{NODES, knows_listeners, ok, options, start};
use crate::redis_client::{ClusterClient, Connection, Reply};
use crate::redis_pipeline::{replies, words};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use std::io::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Script by which redis-py releases a lock.
const RELEASE: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    ";
const EXTEND: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

/// A cluster with one listener, which forwards to all leaders, and a connection to it.
fn forwarding() -> (Cluster, Connection) {
    let cluster = start(&options(&["athens"]));
    let address = cluster.redis_address("athens").to_owned();
    assert_eq!(ClusterClient::new(&address).ask_until_answered(&["SET", "{t}warm", "v"]), ok());
    let connection = Connection::open(&address).expect("a connection");
    (cluster, connection)
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

/// Queues these requests.
fn queue(connection: &mut Connection, requests: &[&[&str]]) -> Result<()> {
    assert_eq!(connection.ask(&["MULTI"])?, ok());
    for request in requests {
        assert_eq!(connection.ask(request)?, Reply::status("QUEUED"), "{request:?}");
    }
    Ok(())
}

/// Executes these requests as one transaction, again if that was not done.
fn execute(connection: &mut Connection, requests: &[&[&str]]) -> Reply {
    let mut reply = None;
    wait_for("a transaction", TIMEOUT, || {
        queue(connection, requests).expect("a connection");
        connection.send_bytes(b"EXEC\r\n").expect("a connection");
        match connection.reply().expect("a connection") {
            busy if busy.is_not_done() => Err(format!("{busy:?}")),
            done => {
                reply = Some(done);
                Ok(())
            }
        }
    });
    reply.expect("a reply")
}

#[test]
fn commands_on_several_keys_answer_as_redis_does() {
    let (_cluster, mut connection) = forwarding();
    let mut ask = |request: &[&str]| connection.ask(request).expect("a connection");
    let bulks = |values: &[&str]| Reply::Array(values.iter().map(Reply::bulk).collect());
    assert_eq!(ask(&["MSET", "{t}a", "1", "{t}b", "2", "{t}a", "3"]), ok());
    assert_eq!(ask(&["MGET", "{t}a", "{t}b", "{t}a"]), bulks(&["3", "2", "3"]));
    assert_eq!(ask(&["MSETNX", "{t}c", "1", "{t}a", "9"]), Reply::Integer(0));
    assert_eq!(
        ask(&["MGET", "{t}c", "{t}a"]),
        Reply::Array(vec![Reply::Null, Reply::bulk("3")]),
        "none of them was set"
    );
    assert_eq!(ask(&["MSETNX", "{t}c", "1", "{t}d", "2"]), Reply::Integer(1));
    assert_eq!(ask(&["EXISTS", "{t}a", "{t}a", "{t}none", "{t}d"]), Reply::Integer(3));
    assert_eq!(ask(&["TOUCH", "{t}a", "{t}none"]), Reply::Integer(1));
    assert_eq!(ask(&["EXPIRE", "{t}c", "1000"]), Reply::Integer(1));
    assert_eq!(ask(&["RENAME", "{t}c", "{t}d"]), ok());
    assert_eq!(ask(&["GET", "{t}d"]), Reply::bulk("1"));
    assert!(ask(&["TTL", "{t}d"]).integer() > 900, "the expiry moved with the value");
    assert_eq!(ask(&["RENAME", "{t}c", "{t}d"]), error("ERR no such key"));
    assert_eq!(ask(&["RENAME", "{t}d", "{t}d"]), ok());
    assert_eq!(ask(&["RENAMENX", "{t}d", "{t}a"]), Reply::Integer(0));
    assert_eq!(ask(&["RENAMENX", "{t}d", "{t}e"]), Reply::Integer(1));
    assert_eq!(ask(&["COPY", "{t}e", "{t}a"]), Reply::Integer(0));
    assert_eq!(ask(&["COPY", "{t}e", "{t}a", "REPLACE"]), Reply::Integer(1));
    assert_eq!(ask(&["COPY", "{t}none", "{t}f"]), Reply::Integer(0));
    assert_eq!(ask(&["COPY", "{t}a", "{t}f", "DB", "0"]), Reply::Integer(1));
    assert_eq!(ask(&["COPY", "{t}a", "{t}f", "DB", "1"]), error("ERR DB index is out of range"));
    assert_eq!(ask(&["MGET", "{t}e", "{t}a", "{t}f"]), bulks(&["1", "1", "1"]));
    assert!(ask(&["TTL", "{t}f"]).integer() > 900);
    assert_eq!(ask(&["DEL", "{t}a", "{t}a", "{t}b", "{t}none"]), Reply::Integer(2));
    assert_eq!(ask(&["UNLINK", "{t}e", "{t}f"]), Reply::Integer(2));
    assert_eq!(ask(&["EXISTS", "{t}a", "{t}b", "{t}e", "{t}f"]), Reply::Integer(0));
    for request in [&["MSET", "a", "1", "b", "2"][..], &["DEL", "a", "b"], &["RENAME", "a", "b"], &["COPY", "a", "b"]] {
        assert_eq!(ask(request), error("CROSSSLOT Keys in request don't hash to the same slot"), "{request:?}");
    }
    assert_eq!(ask(&["MSET", "a", "1", "b"]), error("ERR wrong number of arguments for 'mset' command"));
    let large = "v".repeat(1024 * 1024 - 100);
    for key in ["{t}1", "{t}2", "{t}3"] {
        assert_eq!(ask(&["SET", key, &large]), ok());
    }
    assert!(ask(&["MGET", "{t}1", "{t}2", "{t}3"]).is_error("ERR the answer has"), "it would be too large");
}

#[test]
fn transaction_executes_all_commands_or_none() {
    let (_cluster, mut connection) = forwarding();
    let replies = execute(
        &mut connection,
        &[
            &["SET", "{t}n", "5", "EX", "100"],
            &["INCRBY", "{t}n", "2"],
            &["APPEND", "{t}n", "x"],
            &["INCR", "{t}n"],
            &["GETRANGE", "{t}n", "0", "-1"],
            &["TTL", "{t}n"],
            &["MSET", "{t}a", "1", "{t}b", "2"],
            &["RENAME", "{t}a", "{t}c"],
            &["MGET", "{t}a", "{t}b", "{t}c"],
            &["DEL", "{t}b", "{t}none"],
            &["SET", "{t}n", "y", "NX"],
            &["PING"],
            &["EXPIRE", "{t}c", "50"],
        ],
    );
    let expected = [
        ok(),
        Reply::Integer(7),
        Reply::Integer(2),
        error("ERR value is not an integer or out of range"),
        Reply::bulk("7x"),
        replies.array()[5].clone(),
        ok(),
        ok(),
        Reply::Array(vec![Reply::Null, Reply::bulk("2"), Reply::bulk("1")]),
        Reply::Integer(1),
        Reply::Null,
        Reply::status("PONG"),
        Reply::Integer(1),
    ];
    assert_eq!(replies.array(), expected);
    assert!((90..=100).contains(&replies.array()[5].integer()));
    let mut ask = |request: &[&str]| connection.ask(request).expect("a connection");
    assert_eq!(ask(&["GET", "{t}n"]), Reply::bulk("7x"), "an error of one command does not stop the others");
    assert!((1..=100).contains(&ask(&["TTL", "{t}n"]).integer()));
    assert!((1..=50).contains(&ask(&["TTL", "{t}c"]).integer()));
    assert_eq!(ask(&["EXISTS", "{t}a", "{t}b"]), Reply::Integer(0));
    // Errors while commands are queued.
    assert_eq!(ask(&["EXEC"]), error("ERR EXEC without MULTI"));
    assert_eq!(ask(&["DISCARD"]), error("ERR DISCARD without MULTI"));
    let aborted = error("EXECABORT Transaction discarded because of previous errors.");
    for (request, refusal) in [
        (&["SET", "{t}n"][..], "ERR wrong number of arguments for 'set' command"),
        (&["NONSENSE"], "ERR unknown command 'NONSENSE'"),
        (&["MGET", "{t}a", "{u}b"], "CROSSSLOT Keys in request"),
        (&["CLUSTER", "INFO"], "ERR Command not allowed inside a transaction"),
    ] {
        assert_eq!(ask(&["MULTI"]), ok());
        assert_eq!(ask(&["SET", "{t}n", "changed"]), Reply::status("QUEUED"));
        assert!(ask(request).is_error(refusal), "{request:?}");
        assert_eq!(ask(&["EXEC"]), aborted, "{request:?}");
    }
    assert_eq!(ask(&["MULTI"]), ok());
    assert_eq!(ask(&["MULTI"]), error("ERR MULTI calls can not be nested"));
    assert_eq!(ask(&["WATCH", "{t}n"]), error("ERR WATCH inside MULTI is not allowed"));
    assert_eq!(ask(&["SET", "{t}n", "changed"]), Reply::status("QUEUED"));
    assert_eq!(ask(&["SET", "{u}n", "changed"]), Reply::status("QUEUED"), "slots are compared by EXEC");
    assert!(ask(&["EXEC"]).is_error("CROSSSLOT"));
    assert_eq!(ask(&["MULTI"]), ok());
    assert_eq!(ask(&["SET", "{t}n", "changed"]), Reply::status("QUEUED"));
    assert_eq!(ask(&["DISCARD"]), ok());
    assert_eq!(ask(&["MULTI"]), ok());
    assert_eq!(ask(&["SET", "{t}n", "changed"]), Reply::status("QUEUED"));
    assert_eq!(ask(&["RESET"]), Reply::status("RESET"));
    assert_eq!(ask(&["GET", "{t}n"]), Reply::bulk("7x"));
    assert_eq!(execute(&mut connection, &[]).array(), []);
}

/// Most clients send a transaction in one packet.
#[test]
fn pipelined_transactions_are_queued_and_executed_whole() {
    let (cluster, _connection) = forwarding();
    let queued = || Reply::status("QUEUED");
    let one = |key: &str| {
        let steps = [
            ("SET K 1", ok()),
            ("MULTI", ok()),
            ("INCR K", queued()),
            ("INCR K", queued()),
            ("EXEC", Reply::Array(vec![Reply::Integer(2), Reply::Integer(3)])),
            ("GET K", Reply::bulk("3")),
            ("MULTI", ok()),
            ("SET K 9", queued()),
            ("SET K 8", queued()),
            ("DISCARD", ok()),
            ("GET K", Reply::bulk("3")),
        ];
        steps.map(|(text, reply)| (text.replace('K', key), reply)).to_vec()
    };
    let several = |tag: &str| {
        let bulks = |values: &[&str]| Reply::Array(values.iter().map(Reply::bulk).collect());
        let steps = [
            ("SET {t}a 1", ok()),
            ("SET {t}b 2", ok()),
            ("WATCH {t}a {t}c", ok()),
            ("GET {t}a", Reply::bulk("1")),
            ("GET {t}b", Reply::bulk("2")),
            ("MULTI", ok()),
            ("INCR {t}a", queued()),
            ("SET {t}b x", queued()),
            ("SET {t}c 3", queued()),
            ("MGET {t}a {t}b", queued()),
            ("EXEC", Reply::Array(vec![Reply::Integer(2), ok(), ok(), bulks(&["2", "x"])])),
            ("RENAME {t}c {t}d", ok()),
            ("MGET {t}a {t}b {t}d", bulks(&["2", "x", "3"])),
            // Of the two writes, one changes a watched key.
            ("WATCH {t}a", ok()),
            ("SET {t}b y", ok()),
            ("SET {t}a 5", ok()),
            ("MULTI", ok()),
            ("SET {t}a 6", queued()),
            ("SET {t}b z", queued()),
            ("EXEC", Reply::Null),
            ("GET {t}a", Reply::bulk("5")),
            ("GET {t}b", Reply::bulk("y")),
        ];
        steps.map(|(text, reply)| (text.replace("{t}", tag), reply)).to_vec()
    };
    let mut attempt = 0;
    wait_for("all requests to be done", TIMEOUT, || {
        attempt += 1;
        let steps = [one(&format!("n{attempt}")), several(&format!("{{t{attempt}}}"))].concat();
        let requests: Vec<_> = steps.iter().map(|(text, _)| words(text)).collect();
        let found = replies(cluster.redis_address("athens"), &requests)?;
        for ((text, expected), reply) in steps.iter().zip(found) {
            assert_eq!(reply, *expected, "{text}");
        }
        Ok::<_, std::io::Error>(())
    });
}

#[test]
fn transaction_depends_on_watched_keys() {
    let (cluster, mut connection) = forwarding();
    let mut other = Connection::open(cluster.redis_address("athens")).expect("a connection");
    let set = |other: &mut Connection, key: &str, value: &str| {
        assert_eq!(other.ask(&["SET", key, value]).expect("a connection"), ok());
    };
    let watch = |connection: &mut Connection, keys: &[&str]| {
        assert_eq!(connection.ask(&[&["WATCH"][..], keys].concat()).expect("a connection"), ok());
    };
    let write: &[&[&str]] = &[&["SET", "{t}done", "yes"]];
    watch(&mut connection, &["{t}w", "{t}absent"]);
    assert_eq!(execute(&mut connection, write), Reply::Array(vec![ok()]), "nothing has changed");
    watch(&mut connection, &["{t}w", "{t}absent"]);
    set(&mut other, "{t}absent", "there");
    assert_eq!(execute(&mut connection, write), Reply::Null, "an absent key was written");
    assert_eq!(execute(&mut connection, write), Reply::Array(vec![ok()]), "keys are watched once");
    set(&mut other, "{t}w", "1");
    watch(&mut connection, &["{t}w"]);
    set(&mut other, "{t}w", "1");
    assert_eq!(execute(&mut connection, &[]), Reply::Null, "also with the value before");
    watch(&mut connection, &["{t}w"]);
    set(&mut other, "{t}w", "2");
    assert_eq!(connection.ask(&["UNWATCH"]).expect("a connection"), ok());
    assert_eq!(execute(&mut connection, write), Reply::Array(vec![ok()]));
    // A key that expires has changed.
    assert_eq!(other.ask(&["SET", "{t}w", "short", "PX", "3000"]).expect("a connection"), ok());
    watch(&mut connection, &["{t}w"]);
    let was_there = connection.ask(&["EXISTS", "{t}w"]).expect("a connection") == Reply::Integer(1);
    wait_for("the value to end", TIMEOUT, || match other.ask(&["GET", "{t}w"]) {
        Ok(Reply::Null) => Ok(()),
        found => Err(format!("{found:?}")),
    });
    // On a busy machine it may have ended before it was watched.
    let ended = execute(&mut connection, write);
    assert!(ended == Reply::Null || !was_there, "{ended:?}");
    let crossing = connection.ask(&["WATCH", "{t}w", "{u}w"]).expect("a connection");
    assert!(crossing.is_error("CROSSSLOT"), "{crossing:?}");
}

#[test]
fn queue_of_a_transaction_is_bounded() {
    let (_cluster, mut connection) = forwarding();
    let mut ask = |request: &[&str]| connection.ask(request).expect("a connection");
    assert_eq!(ask(&["MULTI"]), ok());
    for number in 0..1_024 {
        let reply = ask(&["SET", "{t}k", &number.to_string()]);
        match number < 512 {
            true => assert_eq!(reply, Reply::status("QUEUED")),
            false => assert!(reply.is_error("ERR the transaction has more than 512 commands"), "{reply:?}"),
        }
    }
    assert!(ask(&["EXEC"]).is_error("EXECABORT"));
    let large = "v".repeat(900_000);
    assert_eq!(ask(&["MULTI"]), ok());
    assert_eq!(ask(&["SET", "{t}k", &large]), Reply::status("QUEUED"));
    assert_eq!(ask(&["SET", "{t}k", &large]), Reply::status("QUEUED"));
    assert!(ask(&["SET", "{t}k", &large]).is_error("ERR the transaction has more than"));
    assert!(ask(&["EXEC"]).is_error("EXECABORT"));
    // Values that commands make are bounded as well.
    assert_eq!(ask(&["SET", "{t}large", &large]), ok());
    let copies = ["{t}0", "{t}1", "{t}2", "{t}3"].map(|to| ["COPY", "{t}large", to]);
    let refused = execute(&mut connection, &copies.each_ref().map(|copy| &copy[..]));
    assert!(refused.is_error("ERR the transaction writes more than 2097152 bytes"), "{refused:?}");
    let refused = execute(&mut connection, &[&["GET", "{t}large"][..]; 6]);
    assert!(refused.is_error("ERR the replies of this transaction have more than"), "{refused:?}");
    let exists = connection.ask(&["EXISTS", "{t}k", "{t}0", "{t}1", "{t}2", "{t}3"]).expect("a connection");
    assert_eq!(exists, Reply::Integer(0));
}

#[test]
fn scripts_of_locks_are_executed_and_others_refused() {
    let (_cluster, mut connection) = forwarding();
    let mut ask = |request: &[&str]| connection.ask(request).expect("a connection");
    assert_eq!(ask(&["SET", "lock", "mine", "NX", "PX", "30000"]), ok());
    assert_eq!(ask(&["EVAL", RELEASE, "1", "lock", "yours"]), Reply::Integer(0));
    let Reply::Bulk(extend) = ask(&["SCRIPT", "LOAD", EXTEND]) else { panic!("no digest") };
    let extend = String::from_utf8(extend).expect("hexadecimal digits");
    assert_eq!(ask(&["EVALSHA", &extend, "1", "lock", "yours", "900000"]), Reply::Integer(0));
    assert_eq!(ask(&["EVALSHA", &extend, "1", "lock", "mine", "900000"]), Reply::Integer(1));
    assert!(ask(&["PTTL", "lock"]).integer() > 800_000);
    let nothing = "0".repeat(40);
    assert_eq!(ask(&["SCRIPT", "EXISTS", &extend, &nothing]), Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)]));
    assert_eq!(ask(&["SCRIPT", "FLUSH"]), ok());
    let missing = error("NOSCRIPT No matching script. Please use EVAL.");
    assert_eq!(ask(&["EVALSHA", &extend, "1", "lock", "mine", "1"]), missing);
    assert_eq!(ask(&["EVALSHA", &nothing, "1", "lock", "mine"]), missing);
    assert_eq!(ask(&["EVAL", RELEASE, "1", "lock", "mine"]), Reply::Integer(1));
    assert_eq!(ask(&["EXISTS", "lock"]), Reply::Integer(0));
    assert_eq!(ask(&["EVAL", RELEASE, "1", "lock", "mine"]), Reply::Integer(0));
    assert!(ask(&["EVAL", "return 1", "0"]).is_error("ERR this script cannot be executed"));
    assert!(ask(&["EVAL", RELEASE, "2", "{l}a", "{l}b", "mine"]).is_error("ERR this script takes one key"));
    assert_eq!(ask(&["SET", "lock", "mine"]), ok());
    let replies = execute(&mut connection, &[&["GET", "lock"], &["EVAL", RELEASE, "1", "lock", "mine"]]);
    assert_eq!(replies.array(), [Reply::bulk("mine"), Reply::Integer(1)]);
}

/// Opens a connection to the node that leads the partition of a key.
fn leader_of(addresses: &[String], key: &str) -> Option<Connection> {
    let mut address = addresses.iter().find(|address| Connection::open(address).is_ok())?.clone();
    for _ in 0..3 {
        let mut connection = Connection::open(&address).ok()?;
        connection.send_bytes(format!("GET {key}\r\n").as_bytes()).ok()?;
        match connection.reply().ok()? {
            Reply::Error(text) => text.strip_prefix("MOVED ")?.split(' ').nth(1)?.clone_into(&mut address),
            _ => return Some(connection),
        }
    }
    None
}

/// Moves money between two accounts as clients do: it reads both, and writes both if neither has changed. Returns whether
/// that was done, as far as known.
fn transfer(connection: &mut Connection) -> Result<bool> {
    if connection.ask(&["WATCH", "{bank}a", "{bank}b"])? != ok() {
        return Ok(false);
    }
    let mut balance = |key| -> Result<Option<i64>> {
        Ok(match connection.ask(&["GET", key])? {
            Reply::Bulk(text) => String::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        })
    };
    let (Some(one), Some(other)) = (balance("{bank}a")?, balance("{bank}b")?) else { return Ok(false) };
    connection.ask(&["MULTI"])?;
    connection.ask(&["SET", "{bank}a", &(one - 1).to_string()])?;
    connection.ask(&["SET", "{bank}b", &(other + 1).to_string()])?;
    connection.send_bytes(b"EXEC\r\n")?;
    Ok(matches!(connection.reply()?, Reply::Array(_)))
}

/// Ends the threads of a test when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writers and a reader go on while the leader is killed between transactions. Both keys always have the same sum.
#[test]
fn transactions_stay_whole_when_their_leader_is_killed() {
    const TRANSFERS: usize = 150;
    // Of the reader, which would take the machine from the writers.
    const PAUSE: Duration = Duration::from_millis(2);
    let three = Options { partitions: 3, replication: 3, ..options(NODES) };
    let mut cluster = Cluster::start_whole(EXE, &three);
    knows_listeners(&cluster, NODES);
    let addresses: Vec<String> = NODES.iter().map(|node| cluster.redis_address(node).to_owned()).collect();
    let mut client = ClusterClient::new(&addresses[0]);
    assert_eq!(client.ask_until_answered(&["MSET", "{bank}a", "500", "{bank}b", "500"]), ok());
    let victim = cluster.leader_of("{bank}a");
    let (is_over, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let write = || {
        let mut done = 0;
        let mut connection = None;
        while !is_over.load(Ordering::Acquire) {
            let moved = match &mut connection {
                Some(connection) => transfer(connection),
                None => {
                    wait_for("a leader", TIMEOUT, || {
                        connection = leader_of(&addresses, "{bank}a");
                        if connection.is_some() { Ok(()) } else { Err("none".to_owned()) }
                    });
                    continue;
                }
            };
            match moved {
                Ok(true) => {
                    done += 1;
                    has_begun.store(done > TRANSFERS / 10, Ordering::Release);
                }
                // Another writer was first, or the connection is one to a former leader.
                Ok(false) | Err(_) => connection = None,
            }
            if done >= TRANSFERS {
                break;
            }
        }
        done
    };
    let sum = |reply: &Reply| -> i64 {
        let number = |value: &Reply| match value {
            Reply::Bulk(text) => String::from_utf8_lossy(text).parse::<i64>().expect("a number"),
            other => panic!("{other:?}"),
        };
        reply.array().iter().map(number).sum()
    };
    let done: usize = thread::scope(|scope| {
        // Also if something fails here: the scope waits for all threads.
        let end = End(&is_over);
        let writers: Vec<_> = (0..2).map(|_| scope.spawn(write)).collect();
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Ordering::Acquire) {
                let Some(mut connection) = leader_of(&addresses, "{bank}a") else { continue };
                while let Ok(Reply::Array(found)) = connection.ask(&["MGET", "{bank}a", "{bank}b"]) {
                    assert_eq!(sum(&Reply::Array(found)), 1_000, "a part of a transaction was seen");
                    reads += 1;
                    if is_over.load(Ordering::Acquire) {
                        break;
                    }
                    thread::sleep(PAUSE);
                }
            }
            reads
        });
        wait_for("some transfers", TIMEOUT, || {
            if has_begun.load(Ordering::Acquire) { Ok(()) } else { Err("too few".to_owned()) }
        });
        cluster.take_node(&victim).kill();
        let done = writers.into_iter().map(|writer| writer.join().expect("a writer")).sum();
        drop(end);
        assert!(reader.join().expect("a reader") > 0);
        done
    });
    let other = NODES.iter().find(|node| **node != victim).expect("two others");
    let mut client = ClusterClient::new(cluster.redis_address(other));
    let found = client.ask_until_answered(&["MGET", "{bank}a", "{bank}b"]);
    assert_eq!(sum(&found), 1_000);
    let Reply::Bulk(rest) = &found.array()[0] else { panic!("{found:?}") };
    let rest: i64 = String::from_utf8_lossy(rest).parse().expect("a number");
    // Those with an unknown outcome may have been carried out besides.
    assert!(500 - rest >= i64::try_from(done).expect("few"), "{done} transfers were acknowledged, and {rest} is left");
}

#[test]
fn atomic_batch_writes_all_lines_or_none() {
    let cluster = start(&options(&["athens"]));
    let batch = |text: &str| {
        let file = std::env::temp_dir().join(format!("archon-batch-{}", std::process::id()));
        std::fs::write(&file, text).expect("a file");
        let path = file.display().to_string();
        let ran = cluster.archon(&["kv", "batch", "--atomic", &path, "-o", "json"]);
        std::fs::remove_file(&file).expect("it was written");
        ran
    };
    cluster.done(&["kv", "put", "{t}old", "1"]);
    let revision =
        cluster.json(&["kv", "get", "{t}old"]).expect("it is there")["revision"].as_u64().expect("a revision");
    let ran = batch(&format!("cas {{t}}old {revision} 2\nput {{t}}new 3\n"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let again = batch(&format!("put {{t}}third 4\ncas {{t}}old {revision} 5\ndel {{t}}new\n"));
    assert_eq!(again.code, 4, "{again:?}");
    for (key, value) in [("{t}old", "2"), ("{t}new", "3")] {
        assert_eq!(cluster.json(&["kv", "get", key]).expect("it is there")["value"], value);
    }
    assert_eq!(cluster.archon(&["kv", "get", "{t}third"]).code, 3);
    let divided = batch("put {t}a 1\nput {u}b 2\nput {v}c 3\nput {w}d 4\n");
    assert_ne!(divided.code, 0, "{divided:?}");
}
