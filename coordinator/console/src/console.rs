//! Lifecycle of a console.

use crate::cluster::{Cluster, ConsoleConfig};
use crate::connections;
use crate::feed;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time for pending work when the console closes.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Maximum duration of [`Console::close`].
pub const STOP_DEADLINE: Duration = connections::END_TIMEOUT.saturating_add(CLOSE_DEADLINE);

/// An open console. Dropping it closes it; [`Console::close`] also waits for that.
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Listens, and serves on its own thread.
    ///
    /// # Errors
    /// The address is not available, or the system refuses a thread.
    pub fn open(config: ConsoleConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = archon_security::build_runtime(&mut tokio::runtime::Builder::new_current_thread())?;
        let scheme = if config.transport.tls().is_some() { "https" } else { "http" };
        let cluster = Arc::new(Cluster::new(config)?);
        let stop = CancellationToken::new();
        let thread = {
            let stop = stop.clone();
            let serve = move || {
                let recording = runtime.spawn(feed::record(Arc::clone(&cluster), stop.clone()));
                runtime.block_on(connections::serve(listener, cluster, stop));
                recording.abort();
                // Work that still runs here has no waiting caller.
                runtime.shutdown_timeout(CLOSE_DEADLINE);
            };
            std::thread::Builder::new().name("console".to_owned()).spawn(serve)?
        };
        tracing::info!(url = format!("{scheme}://{address}/"), "the console is served");
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Returns the address, with the actual port if port 0 was requested.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the console and waits for the end, a few seconds at most.
    pub async fn close(mut self) {
        self.stop.cancel();
        let Some(thread) = self.thread.take() else { return };
        if !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(()))) {
            tracing::error!("the console failed");
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
