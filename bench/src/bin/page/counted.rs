//! Counts what travels between a browser and the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Passes connections on, and counts what comes from the console.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Where the browser is to go.
    pub(crate) address: String,
    bytes: Arc<AtomicU64>,
}

impl Counted {
    /// Passes on to `console`.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) async fn before(console: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, bytes) = (listener.local_addr()?.to_string(), Arc::<AtomicU64>::default());
        let (console, counted) = (console.to_owned(), Arc::clone(&bytes));
        tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&console).await else { continue };
                let _ = (browser.set_nodelay(true), server.set_nodelay(true));
                let (from_browser, to_browser) = tokio::io::split(browser);
                let (from_server, to_server) = tokio::io::split(server);
                tokio::spawn(pass(from_browser, to_server, Arc::default()));
                tokio::spawn(pass(from_server, to_browser, Arc::clone(&counted)));
            }
        });
        Ok(Self { address, bytes })
    }

    /// Bytes that the console has sent so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

async fn pass(mut from: ReadHalf<TcpStream>, mut to: WriteHalf<TcpStream>, counted: Arc<AtomicU64>) {
    let mut part = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        counted.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
