//! Streams over real connections.

use archon_frames::{
    ConnectionProtocol, FrameError, FrameReader, FrameWriter, Keepalive, PartialBudget, StreamKind, accept, connect,
    turn_away,
};
use archon_proto::v1::OpBatch;
use archon_security::{ExpectedPeer, Transport};
use archon_types::{ErrorDetail, ErrorKind};
use bytes::Bytes;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const BYTES_MAX: usize = 1024 * 1024;

struct Side {
    reader: FrameReader,
    writer: FrameWriter,
}

impl Side {
    /// Stays alive without messages until the stream ends.
    async fn idle(mut self) -> FrameError {
        let mut keepalive = Keepalive::default();
        loop {
            let ended = tokio::select! {
                said = self.reader.next::<OpBatch>() => said.map(drop),
                () = keepalive.tick() => keepalive.mark(&mut self.reader, &mut self.writer),
            };
            if let Err(error) = ended.and(self.writer.flush().await) {
                return error;
            }
        }
    }
}

/// Returns the result of a connection to this address.
async fn opened(address: &str) -> Result<(FrameReader, FrameWriter), FrameError> {
    let (transport, timeout) = (Transport::default(), Duration::from_secs(5));
    connect(&transport, address, &ExpectedPeer::Servers, StreamKind::Exchange, BYTES_MAX, timeout).await
}

async fn pair() -> (Side, Side) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (reader, mut writer) = opened(&address).await.unwrap();
    writer.flush().await.unwrap();
    let near = Side { reader, writer };
    let (connection, _) = listener.accept().await.unwrap();
    assert_eq!(ConnectionProtocol::of(&connection).await.unwrap(), ConnectionProtocol::Frames);
    let (kind, mut reader, writer) = accept(connection.into(), |_| PartialBudget::new(4 * BYTES_MAX)).await.unwrap();
    reader.known(BYTES_MAX);
    assert_eq!(kind, StreamKind::Exchange);
    (near, Side { reader, writer })
}

fn message(version: u64, bytes: usize) -> OpBatch {
    OpBatch { table_version: version, ops: Bytes::from(vec![7; bytes]), ..Default::default() }
}

#[tokio::test]
async fn messages_of_any_length_arrive_in_order_before_the_error() {
    let (mut near, mut far) = pair().await;
    let lengths = [0, 1, 100, 16 * 1024, 700_000, 3];
    let sent = async {
        for (number, length) in lengths.into_iter().enumerate() {
            near.writer.push(&message(number as u64, length));
            near.writer.flush().await.unwrap();
        }
        near.writer.refuse(ErrorDetail::new(ErrorKind::Overloaded, "enough").with_retry_after_ms(7));
        near.writer.flush().await.unwrap();
    };
    let read = async {
        let mut seen = Vec::new();
        let end = loop {
            tokio::select! {
                biased;
                read = far.reader.next::<OpBatch>() => match read {
                    Ok(batch) => seen.push(batch),
                    Err(error) => break error,
                },
                // Reading is cancelled again and again; data received by then is not lost.
                () = tokio::task::yield_now() => {}
            }
        };
        (seen, end)
    };
    let ((), (seen, end)) = tokio::join!(sent, read);
    let expected: Vec<OpBatch> =
        lengths.into_iter().enumerate().map(|(number, length)| message(number as u64, length)).collect();
    assert!(seen == expected, "{} of {} messages, or others", seen.len(), expected.len());
    let FrameError::Refused(detail) = end else { panic!("{end:?}") };
    assert_eq!((detail.kind, detail.retry_after_ms), (ErrorKind::Overloaded, Some(7)));
}

#[tokio::test]
async fn oversized_message_ends_the_stream() {
    let (mut near, mut far) = pair().await;
    near.writer.push(&message(1, BYTES_MAX));
    let sending = tokio::spawn(async move {
        let _ = near.writer.flush().await;
        near
    });
    let error = far.reader.next::<OpBatch>().await.unwrap_err();
    assert!(error.to_string().contains("the limit is 1048576"), "{error}");
    drop(far);
    drop(sending.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_given_up_and_idle_peer_is_not() {
    let (near, far) = pair().await;
    let (near, far) = (tokio::spawn(near.idle()), tokio::spawn(far.idle()));
    tokio::time::sleep(10 * Keepalive::TIMEOUT).await;
    assert!(!near.is_finished() && !far.is_finished(), "both say that they are there");
    far.abort();
    assert!(matches!(near.await.unwrap(), FrameError::Closed | FrameError::Io(_)));

    let (near, far) = pair().await;
    let began = Instant::now();
    let error = near.idle().await;
    assert!(matches!(error, FrameError::Silent(Keepalive::TIMEOUT)), "{error}");
    assert!(began.elapsed() >= Keepalive::TIMEOUT, "after {:?}", began.elapsed());
    drop(far);
}

#[tokio::test]
async fn http_is_distinguished_and_nonsense_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for (said, stream) in [(&b"PRI * HTTP/2.0\r\n\r\n"[..], false), (b"ARCHIMEDES", true), (b"GET / HTTP/1.1", false)] {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(said).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(ConnectionProtocol::of(&accepted).await.unwrap() == ConnectionProtocol::Frames, stream);
        if stream {
            let error = accept(accepted.into(), |_| PartialBudget::new(BYTES_MAX)).await.unwrap_err();
            assert!(error.to_string().contains("does not begin with a handshake"), "{error}");
        }
    }
    drop(TcpStream::connect(address).await.unwrap());
    assert!(ConnectionProtocol::of(&listener.accept().await.unwrap().0).await.is_err());
}

#[tokio::test]
async fn failed_connection_has_sent_nothing() {
    // The port has no listener any longer.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let error = opened(&address).await.unwrap_err();
    assert!(matches!(&error, FrameError::Connect { address: named, .. } if *named == address), "{error}");
    assert_eq!(error.into_detail().kind, ErrorKind::Unreachable);
}

/// Returns a stream with a connecting side that writes single bytes, and its reader on the other side.
async fn raw() -> (TcpStream, FrameReader, FrameWriter) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    near.write_all(&StreamKind::Exchange.handshake()).await.unwrap();
    let (connection, _) = listener.accept().await.unwrap();
    let (_, reader, writer) = accept(connection.into(), |_| PartialBudget::new(4 * BYTES_MAX)).await.unwrap();
    (near, reader, writer)
}

/// Returns the head of a frame with a message of this length.
fn head(length: u32) -> Vec<u8> {
    [&[1][..], &length.to_le_bytes()].concat()
}

#[tokio::test]
async fn unidentified_sender_is_limited_to_small_frames() {
    let (mut near, mut reader, _writer) = raw().await;
    near.write_all(&head(16 * 1024 * 1024)).await.unwrap();
    let error = reader.next::<OpBatch>().await.unwrap_err();
    assert!(error.to_string().contains("the limit is 65536"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn single_bytes_do_not_keep_a_partial_message_alive() {
    let (mut near, mut reader, _writer) = raw().await;
    reader.known(BYTES_MAX);
    near.write_all(&head(BYTES_MAX as u32)).await.unwrap();
    near.write_all(&vec![0; BYTES_MAX / 2]).await.unwrap();
    let trickle = tokio::spawn(async move {
        while near.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
    let error = reader.next::<OpBatch>().await.unwrap_err();
    assert!(matches!(error, FrameError::Incomplete(_)), "{error}");
    drop(reader);
    trickle.abort();
}

#[tokio::test(start_paused = true)]
async fn long_message_that_arrives_steadily_is_accepted() {
    let (mut near, mut reader, _writer) = raw().await;
    reader.known(BYTES_MAX);
    let message = message(1, BYTES_MAX - 100);
    let encoded = prost::Message::encode_to_vec(&message);
    let sent = tokio::spawn(async move {
        near.write_all(&head(encoded.len() as u32)).await.unwrap();
        for part in encoded.chunks(64 * 1024) {
            near.write_all(part).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        near
    });
    assert!(reader.next::<OpBatch>().await.unwrap() == message);
    drop(sent.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn peer_that_accepts_no_pending_data_is_given_up() {
    let (near, _reader, mut writer) = raw().await;
    let timeout = Duration::from_secs(3);
    let error = loop {
        writer.push(&message(1, BYTES_MAX / 2));
        match writer.flush_within(timeout, 10 * timeout).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FrameError::Stalled(waited) if waited == timeout), "{error}");
    drop(near);
}

#[tokio::test]
async fn refused_peer_receives_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (mut reader, mut writer) = opened(&address).await.unwrap();
    writer.push(&message(1, 1_000));
    writer.flush().await.unwrap();
    let (connection, _) = listener.accept().await.unwrap();
    let turned =
        tokio::spawn(turn_away(connection.into(), ErrorDetail::new(ErrorKind::Overloaded, "too many connections")));
    let FrameError::Refused(detail) = reader.next::<OpBatch>().await.unwrap_err() else { panic!("no word") };
    assert!(detail.message.contains("too many connections"), "{detail}");
    drop((reader, writer));
    turned.await.unwrap().unwrap();
}
