//! Connections that are told apart, and those that find no place.
#![allow(missing_docs, clippy::unwrap_used)]

use archon_frames::{FrameError, Incoming, PartialBudget, StreamKind, connect, sort};
use archon_proto::connection_limit::ConnectionLimit;
use archon_proto::v1::table_client::TableClient;
use archon_proto::v1::{Beats, GetTableRequest};
use archon_security::{Expected, Transport};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn whoever_finds_no_place_hears_why_and_whoever_comes_later_finds_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connection_limit, tasks) = (ConnectionLimit::new(2), TaskTracker::new());
    let mut incoming = Incoming::new(listener, Arc::clone(&connection_limit), Transport::default());
    let first = TcpStream::connect(address).await.unwrap();
    let taken = incoming.next(&tasks).await.unwrap();
    assert_eq!(connection_limit.count(), 1);
    let served = tokio::spawn(async move { incoming.next(&tasks).await });
    let refused = async {
        let mut client = TableClient::connect(format!("http://{address}")).await?;
        client.get_table(GetTableRequest::default()).await.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
    };
    let error = refused.await.expect_err("one connection from an address is all that two leave");
    let told = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
    let told: Vec<String> = told.map(ToString::to_string).collect();
    assert!(told.iter().any(|told| told.contains("the limit for one address")), "{told:?}");
    let (mut reader, mut writer) =
        connect(&Transport::default(), &address.to_string(), &Expected::Servers, StreamKind::Beats, 1_024, TIMEOUT)
            .await
            .unwrap();
    writer.flush().await.unwrap();
    let FrameError::Refused(why) = reader.next::<Beats>().await.unwrap_err() else { panic!("no word") };
    assert!(why.message.contains("the limit for one address"), "{why}");
    assert!(connection_limit.refused() > 0);
    drop((first, taken));
    let _second = TcpStream::connect(address).await.unwrap();
    assert!(served.await.unwrap().is_ok());
}

#[tokio::test]
async fn streams_and_grpc_share_a_port_and_nobody_is_taken_after_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (grpc, mut of_grpc) = mpsc::channel(4);
    let (kinds, mut streams) = mpsc::channel(4);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let serve = move |_, kind, _, _| {
        let kinds = kinds.clone();
        async move { kinds.send(kind).await.unwrap() }
    };
    let incoming = Incoming::new(listener, ConnectionLimit::new(8), Transport::default());
    let budget = PartialBudget::new(1 << 20);
    let sorting = tokio::spawn(sort(incoming, grpc, budget, tasks.clone(), stop.clone(), |_| {}, serve));
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0").await.unwrap();
    of_grpc.recv().await.unwrap().unwrap();
    for kind in [StreamKind::Beats, StreamKind::Exchange] {
        let (_reader, mut writer) =
            connect(&Transport::default(), &address.to_string(), &Expected::Servers, kind, 1_024, TIMEOUT)
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
