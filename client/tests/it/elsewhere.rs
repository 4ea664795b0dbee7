//! Addresses of other services than the client expects: it fails immediately, with an understandable error.

use archon_client::{Admin, Client, Error, ErrorDetail, ErrorKind};
use archon_proto::guarded_connection::turn_away;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::{TcpListener, TcpStream};

/// Long enough to tell an immediate answer from one after a wait.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Frame type of HTTP/2 that starts a request.
const HEADERS: u8 = 1;

/// Listens, runs `answer` for each connection, and returns the address.
async fn listening<F>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer(connection));
        }
    });
    address
}

/// Returns the errors of a client and an administrator at an address.
async fn heard(address: &str) -> [Error; 2] {
    let began = Instant::now();
    let admin = Admin::new([address], TIMEOUT).unwrap().status().await.unwrap_err();
    let client = Client::builder([address]).timeout(TIMEOUT).build().await.unwrap_err();
    assert!(began.elapsed() < TIMEOUT / 2, "after {:?}: {admin}; {client}", began.elapsed());
    [admin, client]
}

/// Reads up to the header of the first request.
async fn request(connection: &mut TcpStream) -> std::io::Result<()> {
    let mut skipped = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len() as u64;
    loop {
        copy(&mut (&mut *connection).take(skipped), &mut sink()).await?;
        let mut head = [0; 9];
        connection.read_exact(&mut head).await?;
        if head[3] == HEADERS {
            return Ok(());
        }
        skipped = u32::from_be_bytes([0, head[0], head[1], head[2]]).into();
    }
}

#[tokio::test]
async fn plaintext_client_at_tls_port_fails_at_once() {
    let why = "this member requires TLS, but the connection is plaintext: give a directory of credentials with \
               --tls-dir";
    let address = listening(move |connection| async move {
        let _ = turn_away(connection.into(), &ErrorDetail::new(ErrorKind::Refused, why)).await;
    })
    .await;
    for error in heard(&address).await {
        assert_eq!(error.to_string(), format!("Refused: {address}: {why}"));
    }
}

#[tokio::test]
async fn console_port_is_reported_as_no_grpc_port() {
    let address = listening(|mut connection| async move {
        if request(&mut connection).await.is_err() {
            return;
        }
        let body = b"{\"error\":{}}";
        // Settings; `:status: 403` on the first stream; the body, which ends it.
        let said = [
            &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
            &[0, 0, 5, HEADERS, 4, 0, 0, 0, 1, 0x08, 3],
            b"403",
            &[0, 0, body.len() as u8, 0, 1, 0, 0, 0, 1],
            body,
        ];
        let _ = connection.write_all(&said.concat()).await;
        let _ = copy(&mut connection, &mut sink()).await;
    })
    .await;
    is_no_grpc(&address).await;
}

#[tokio::test]
async fn port_without_http_2_fails_at_once() {
    let address = listening(|mut connection| async move {
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        let _ = copy(&mut connection, &mut sink()).await;
    })
    .await;
    is_no_grpc(&address).await;
}

async fn is_no_grpc(address: &str) {
    for error in heard(address).await {
        assert_eq!(error.kind(), ErrorKind::ProtocolMismatch, "{error}");
        let said = error.to_string();
        assert!(said.contains(address) && said.contains("not a gRPC port of Archon"), "{said}");
        assert!(said.contains("--http-listen") && !said.contains("compression"), "{said}");
    }
}
