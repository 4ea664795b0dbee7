//! A client of redis-rs under test, with the protocol of `integration-tests/redis-clients/driver.py`.

use anyhow::Context;
use archon_types::hex;
use futures::future::join_all;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_read_routing::RandomReplicaStrategy;
use redis::{ClientTlsConfig, Cmd, ErrorKind, RedisError, TlsCertificates, Value};
use std::time::Duration;
use tokio::sync::mpsc::channel;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Reply to a malformed request: `malformed` in hexadecimal.
const MALFORMED: &str = "!6d616c666f726d6564";
/// Most requests that have been read and not begun.
const QUEUE: usize = 64;

/// Returns a client; `replicas` if it reads from replicas.
fn client(replicas: bool) -> anyhow::Result<ClusterClient> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [addresses, _, files @ ..] = arguments.as_slice() else { anyhow::bail!("no addresses") };
    let scheme = if files.is_empty() { "redis" } else { "rediss" };
    let mut builder = ClusterClientBuilder::new(addresses.split(',').map(|address| format!("{scheme}://{address}")))
        .connection_timeout(TIMEOUT)
        .response_timeout(TIMEOUT);
    if replicas {
        builder = builder.read_routing_strategy(RandomReplicaStrategy);
    }
    if let [authority, certificate, key] = files {
        let read = |path: &String| std::fs::read(path).with_context(|| path.clone());
        let client_tls = ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? };
        builder = builder.certs(TlsCertificates { client_tls: Some(client_tls), root_cert: Some(read(authority)?) });
    }
    Ok(builder.build()?)
}

/// Returns the bytes of a word, which begins with `=`; `None` if it is malformed.
fn decoded(word: &str) -> Option<Vec<u8>> {
    hex::decode(word.get(1..).unwrap_or_default()).map(|bytes| bytes.to_vec())
}

fn encoded(reply: Result<Value, RedisError>) -> String {
    let hex = |mark: char, bytes: &[u8]| format!("{mark}{}", hex::encode(bytes));
    match reply {
        Ok(Value::Nil) => "_".to_owned(),
        Ok(Value::Int(number)) => format!(":{number}"),
        Ok(Value::Okay) => hex('=', b"OK"),
        Ok(Value::SimpleString(text)) => hex('=', text.as_bytes()),
        Ok(Value::BulkString(bytes)) => hex('=', &bytes),
        Ok(other) => hex('!', format!("a reply of another type: {other:?}").as_bytes()),
        Err(error) => {
            let refused = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
            hex(if refused { '-' } else { '!' }, error.to_string().as_bytes())
        }
    }
}

async fn call(mut connection: ClusterConnection, words: &[&str]) -> String {
    let mut command = Cmd::new();
    for word in words {
        match decoded(word) {
            Some(argument) => command.arg(argument),
            None => return MALFORMED.to_owned(),
        };
    }
    encoded(command.query_async(&mut connection).await)
}

/// Executes commands one after the other.
async fn call_in_turn(connection: ClusterConnection, commands: Vec<&[&str]>) -> Vec<String> {
    let mut replies = Vec::new();
    for command in commands {
        replies.push(call(connection.clone(), command).await);
    }
    replies
}

/// Executes the requests of a line at once, as tasks that share a connection do; neighbours about one key in their order.
async fn answer(connection: ClusterConnection, line: String) {
    let words: Vec<&str> = line.split(' ').collect();
    let [number, verb, arguments @ ..] = words.as_slice() else { return };
    let replies = match *verb {
        "own" => vec![encoded(Ok(Value::Okay))],
        _ => {
            let commands: Vec<&[&str]> = arguments.split(|word| *word == ",").collect();
            let of_one_key = commands.chunk_by(|one, other| one.get(1) == other.get(1));
            join_all(of_one_key.map(|commands| call_in_turn(connection.clone(), commands.to_vec()))).await.concat()
        }
    };
    println!("{number} {}", replies.join(" "));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let connection = client(false)?.get_async_connection().await?;
    let replicas = client(true)?.get_async_connection().await?;
    let (sender, mut lines) = channel(QUEUE);
    // It ends with standard input, or with the process.
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.blocking_send(line))
    });
    while let Some(line) = lines.recv().await {
        // It ends within the time-outs of the client.
        let at_replica = line.split(' ').nth(1) == Some("replica");
        tokio::spawn(answer(if at_replica { &replicas } else { &connection }.clone(), line));
    }
    Ok(())
}
