//! One instance of the service.

use super::log::OwnerLog;
use super::protocol::{read_line, write_line};
use super::service::Service;
use crate::{Result, finish, stopped};
use archon_client::{Client, Participant};
use archon_local_cluster::end_with_parent;
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Time-out of the store; users get an error and retry.
const STORE_WITHIN: Duration = Duration::from_secs(2);
/// Time-out of a planned stop to release everything.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;

/// What an instance is told.
#[derive(Clone, Debug, Parser)]
#[command(name = "counter serve", about = "One instance of a service that keeps counters")]
pub struct Serve {
    /// Coordinators of the cluster, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub coordinators: Vec<String>,
    /// Its name; no two instances have the same.
    #[arg(long)]
    pub name: String,
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: String,
    /// The lease table whose partitions it takes.
    #[arg(long, default_value = "counters")]
    pub table: String,
    /// Most partitions it takes.
    #[arg(long)]
    pub partitions_max: Option<u32>,
    /// How long a partition is its own after the last heartbeat, in milliseconds; the cluster's setting unless said.
    #[arg(long)]
    pub lease_ms: Option<u32>,
    /// Where it notes what it owns and when.
    #[arg(long)]
    pub log: Option<PathBuf>,
}

/// Runs an instance with these arguments, without the program's name and verb, until a signal ends it.
pub fn serve(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = ["counter serve".into()].into_iter().chain(arguments);
    match Serve::try_parse_from(words) {
        Ok(options) => finish(run_instance(options)),
        Err(wrong) => wrong.exit(),
    }
}

async fn run_instance(options: Serve) -> Result {
    end_with_parent()?;
    let listener = TcpListener::bind(&options.listen).await?;
    let address = listener.local_addr()?;
    let log = Arc::new(OwnerLog::open(options.log.as_deref(), &options.name)?);
    log.watch()?;
    let client = Client::builder(&options.coordinators).timeout(STORE_WITHIN).build().await?;
    let routes = client.routes(&options.table).await?;
    let service = Service::new(client, routes, log);

    let mut builder = Participant::builder(&options.coordinators).table(&options.table).name(&options.name);
    builder = builder.address(address.to_string());
    if let Some(most) = options.partitions_max {
        builder = builder.partitions_max(most);
    }
    if let Some(lease_ms) = options.lease_ms {
        let lease = Duration::from_millis(lease_ms.into());
        builder = builder.timing(lease / 5, lease, lease + lease / 4);
    }
    let participant = builder.start(service.clone()).await?;
    println!("{} serves at {address}", options.name);

    // It keeps serving its partitions during the stop.
    let serving = answer_connections(listener, service);
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        stopped = stopped() => stopped?,
        refused = participant.failed() => return Err(refused.into()),
    }
    let released = tokio::select! {
        () = &mut serving => false,
        released = participant.stop(STOP_WITHIN) => released,
    };
    if released { Ok(()) } else { Err("not everything was released in time; others wait for its lease".into()) }
}

/// Accepts and answers for as long as it is polled.
async fn answer_connections(listener: TcpListener, service: Service) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(answer(stream, service.clone()));
                }
            }
            Some(ended) = connections.join_next() => {
                if let Ok(Err(error)) = ended {
                    eprintln!("a connection ended: {error}");
                }
            }
        }
    }
}

async fn answer(stream: TcpStream, service: Service) -> Result {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_line(&mut stream).await? {
        let answer = service.answer(&request).await;
        write_line(&mut stream, &answer).await?;
    }
    Ok(())
}
