//! Connections of gRPC that came through the doors, and what those hear that did not.

use crate::doors::{Doors, Entry};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long whoever is turned away may take to hear why.
pub const TURNED_AWAY_PATIENCE: Duration = Duration::from_secs(1);
/// Connections that hear why they are turned away at the same time; more are only closed.
pub const TURNED_AWAY_MAX: usize = 64;

/// A connection with its place.
#[derive(Debug)]
pub struct Guarded {
    stream: TcpStream,
    _entry: Entry,
}

impl Guarded {
    /// A connection that was let in.
    pub const fn new(stream: TcpStream, entry: Entry) -> Self {
        Self { stream, _entry: entry }
    }
}

impl Connected for Guarded {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Connections of a listener that speaks gRPC alone, as far as its doors let them in.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    doors: Arc<Doors>,
    hearing: Arc<Semaphore>,
}

impl Incoming {
    /// The connections of `listener`.
    pub fn new(listener: TcpListener, doors: Arc<Doors>) -> Self {
        Self { listener, doors, hearing: Arc::new(Semaphore::new(TURNED_AWAY_MAX)) }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Guarded>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let (stream, from) = match ready!(self.listener.poll_accept(context)) {
                Ok(accepted) => accepted,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            match self.doors.enter(from.ip()) {
                Ok(entry) => {
                    let prepared = stream.set_nodelay(true);
                    return Poll::Ready(Some(prepared.map(|()| Guarded::new(stream, entry))));
                }
                Err(refusal) => {
                    // Beyond those that are told already, closing says it.
                    if let Ok(permit) = Arc::clone(&self.hearing).try_acquire_owned() {
                        let why = refusal.to_string();
                        tokio::spawn(async move {
                            let _ = tokio::time::timeout(TURNED_AWAY_PATIENCE, turn_away(stream, &why)).await;
                            drop(permit);
                        });
                    }
                }
            }
        }
    }
}

/// Tells a connection that speaks HTTP/2 why it is turned away, and ends it.
///
/// # Errors
/// If it breaks before.
pub async fn turn_away(mut stream: TcpStream, why: &str) -> io::Result<()> {
    stream.write_all(&farewell(why)).await?;
    stream.shutdown().await?;
    // Bytes that nobody has read would make the system reset the connection, and the word be lost with it.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// What a server of HTTP/2 says that takes no request: empty SETTINGS, and GOAWAY with `ENHANCE_YOUR_CALM` and the reason.
fn farewell(why: &str) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GO_AWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let why: Vec<u8> = why.bytes().take(1_000).collect();
    // No stream was taken up, so the last one is zero.
    let payload = [&0_u32.to_be_bytes()[..], &ENHANCE_YOUR_CALM.to_be_bytes(), &why].concat();
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&SETTINGS[..], &length[1..], &[GO_AWAY, 0], &0_u32.to_be_bytes(), &payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::GetTableRequest;
    use crate::v1::table_client::TableClient;
    use tonic::codegen::tokio_stream::StreamExt;

    #[tokio::test]
    async fn whoever_finds_no_place_hears_why_and_whoever_comes_later_finds_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let doors = Doors::new(2);
        let mut incoming = Incoming::new(listener, Arc::clone(&doors));
        let first = TcpStream::connect(address).await.unwrap();
        let taken = incoming.next().await.unwrap().unwrap();
        assert_eq!(doors.count(), 1);
        let served = tokio::spawn(async move { incoming.next().await });
        let refused = async {
            let mut client = TableClient::connect(format!("http://{address}")).await?;
            client.get_table(GetTableRequest::default()).await.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
        };
        let error = refused.await.expect_err("one connection from an address is all that two leave");
        let told = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
        let told: Vec<String> = told.map(ToString::to_string).collect();
        assert!(doors.refused() > 0);
        assert!(told.iter().any(|told| told.contains("the limit for one address")), "{told:?}");
        drop((first, taken));
        let _second = TcpStream::connect(address).await.unwrap();
        assert!(served.await.unwrap().unwrap().is_ok());
    }

    #[test]
    fn a_farewell_is_what_the_standard_says() {
        let said = farewell("full");
        assert_eq!(&said[9..], &[0, 0, 12, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, b'f', b'u', b'l', b'l']);
    }
}
