//! A console, from its opening to its end.

use crate::connections;
use crate::feed::{self, Feed};
use archon_client::{Admin, Client, Error, Transport};
use archon_security::Refusals;
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long an answer of the cluster may take. Shorter than people wait before they press again.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long what is under way may take when the console closes.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// How long [`Console::close`] takes at most.
pub const STOP_DEADLINE: Duration = connections::END_TIMEOUT.saturating_add(CLOSE_DEADLINE);

/// Where a console is, and of which cluster.
#[derive(Clone, Debug)]
pub struct ConsoleConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Some of the coordinators, `host:port`, whoever is asked first in front; they name the others.
    pub coordinators: Vec<String>,
    /// How it reaches the cluster and is reached itself.
    pub transport: Transport,
    /// Where it notes whom it refuses.
    pub refusals: Arc<Refusals>,
}

/// An open console. Dropping it closes it; [`Console::close`] also waits for that.
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Listens, and answers in a thread of its own.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system gives no thread.
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
                // Whatever still runs here waits for nobody's sake.
                runtime.shutdown_timeout(CLOSE_DEADLINE);
            };
            std::thread::Builder::new().name("console".to_owned()).spawn(serve)?
        };
        tracing::info!(url = format!("{scheme}://{address}/"), "the console is served");
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it is; the real port when it was to be on port 0.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes it, and waits until that is done: for a few seconds at most.
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

/// The cluster, as whoever answers a request reaches it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) config: ConsoleConfig,
    pub(crate) admin: Admin,
    /// The same with a shorter time-out, for what is to be of now.
    pub(crate) quick: Admin,
    pub(crate) feed: Feed,
    /// Reads and writes rows; made when first asked for.
    rows: Mutex<Option<Client>>,
}

impl Cluster {
    fn new(config: ConsoleConfig) -> io::Result<Self> {
        let admin = Admin::with_transport(config.coordinators.clone(), TIMEOUT, config.transport.clone());
        let admin = admin.map_err(io::Error::other)?;
        let quick = feed::quick(&config).map_err(io::Error::other)?;
        Ok(Self { admin, quick, feed: Feed::default(), rows: Mutex::default(), config })
    }

    /// Who reads and writes the rows of a table.
    pub(crate) async fn rows(&self, table: &str) -> Result<Client, Error> {
        let held = self.rows.lock().clone();
        if let Some(client) = held {
            return client.table(table).await;
        }
        let builder = Client::builder(self.config.coordinators.clone()).transport(self.config.transport.clone());
        let client = builder.timeout(TIMEOUT).table(table).build().await?;
        // Who was faster stays, with another table perhaps.
        let held = self.rows.lock().get_or_insert(client).clone();
        held.table(table).await
    }
}
