//! Sorting of connections by protocol, and connections without a place.

use archon_frames::{
    FrameError, FrameReader, FrameWriter, IncomingConnections, PartialBudget, StreamKind, connect, sort,
};
use archon_proto::guarded_connection::GuardedConnection;
use archon_proto::v1::Beats;
use archon_security::connection_limit::ConnectionLimit;
use archon_security::{ExpectedPeer, Transport};
use archon_types::ErrorKind;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A plaintext listener that keeps streams until their peer leaves.
struct PlaintextListener {
    address: String,
    _of_grpc: mpsc::Receiver<io::Result<GuardedConnection>>,
    /// Streams that have begun.
    begun: mpsc::Receiver<()>,
}

async fn serve(connection_limit: &Arc<ConnectionLimit>) -> PlaintextListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (grpc, of_grpc) = mpsc::channel(4);
    let incoming = IncomingConnections::new(listener, Arc::clone(connection_limit), Transport::default());
    let (begins, begun) = mpsc::channel(64);
    let serve = move |_, _, mut reader: FrameReader, _writer: FrameWriter| {
        let begins = begins.clone();
        async move {
            begins.send(()).await.unwrap();
            let _ = reader.next::<Beats>().await;
        }
    };
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    tokio::spawn(sort(incoming, grpc, PartialBudget::new(1 << 20), tasks, stop, |_| {}, serve));
    PlaintextListener { address, _of_grpc: of_grpc, begun }
}

async fn stream(address: &str) -> (FrameReader, FrameWriter) {
    let (transport, expected) = (Transport::default(), ExpectedPeer::Servers);
    let connected = connect(&transport, address, &expected, StreamKind::Exchange, 1_024, TIMEOUT);
    let (reader, mut writer) = connected.await.unwrap();
    writer.flush().await.unwrap();
    (reader, writer)
}

async fn condition(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "{what}");
}

#[tokio::test]
async fn stream_beyond_the_limit_is_refused_as_overloaded() {
    // Four places of anonymous connections, ten of clients; one address can have eight of these.
    let connection_limit = ConnectionLimit::new(16);
    let mut served = serve(&connection_limit).await;
    let address = served.address.clone();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(stream(&address).await);
        served.begun.recv().await.unwrap();
    }
    let (mut reader, _writer) = stream(&address).await;
    let FrameError::Refused(why) = reader.next::<Beats>().await.unwrap_err() else { panic!("no answer") };
    assert!(why.kind == ErrorKind::Overloaded && why.message.contains("the limit for one address"), "{why}");
    assert!(connection_limit.refused() > 0);
    drop(held);
    condition("the places are given back", || connection_limit.count() == 0).await;
}

#[tokio::test]
async fn silent_connections_lose_their_places_to_a_caller() {
    let connection_limit = ConnectionLimit::new(4);
    let mut served = serve(&connection_limit).await;
    let address = served.address.clone();
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    condition("all but one are closed", || connection_limit.refused() == 19).await;
    let _stream = stream(&address).await;
    served.begun.recv().await.unwrap();
    assert_eq!((connection_limit.refused(), connection_limit.count()), (20, 1));
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "the oldest one is closed");
}

#[tokio::test]
async fn streams_and_grpc_share_a_port_until_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (grpc, mut of_grpc) = mpsc::channel(4);
    let (kinds, mut streams) = mpsc::channel(4);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let serve = move |_, kind, _, _| {
        let kinds = kinds.clone();
        async move { kinds.send(kind).await.unwrap() }
    };
    let incoming = IncomingConnections::new(listener, ConnectionLimit::new(8), Transport::default());
    let budget = PartialBudget::new(1 << 20);
    let sorting = tokio::spawn(sort(incoming, grpc, budget, tasks.clone(), stop.clone(), |_| {}, serve));
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0").await.unwrap();
    of_grpc.recv().await.unwrap().unwrap();
    for kind in [StreamKind::Beats, StreamKind::Exchange] {
        let (_reader, mut writer) =
            connect(&Transport::default(), &address.to_string(), &ExpectedPeer::Servers, kind, 1_024, TIMEOUT)
                .await
                .unwrap();
        writer.flush().await.unwrap();
        assert_eq!(streams.recv().await, Some(kind));
    }
    stop.cancel();
    sorting.await.unwrap();
    tasks.close();
    tasks.wait().await;
    assert!(of_grpc.recv().await.is_none(), "the silent one is nobody's");
}
