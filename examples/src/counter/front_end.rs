//! Where users' requests come in: it finds the instance that owns a counter, and asks until it is answered.

use super::protocol::{Answer, Request, read_line, write_line};
use crate::Result;
use archon_client::Routes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// How long an instance may take to answer before the owner is looked for anew. An instance that is stopped never answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long a change of owners is waited for before the same one is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Asks one request at a time. One that was sent may be counted although no answer came, so it is sent again under the same
/// number, wherever the counter is by then.
pub struct FrontEnd {
    routes: Routes,
    /// By address of an instance.
    connections: BTreeMap<String, BufReader<TcpStream>>,
    timeout: Duration,
    attempts: u64,
}

impl FrontEnd {
    /// Asks the owners of these partitions, each request for as long as `timeout`.
    pub fn new(routes: Routes, timeout: Duration) -> Self {
        Self { routes, connections: BTreeMap::new(), timeout, attempts: 0 }
    }

    /// Counts a request of a user and says the value of the counter.
    ///
    /// # Errors
    /// When it was not answered in time: then it may have been counted or not.
    pub async fn count(&mut self, counter: &str, user: u64, request: u64) -> Result<u64> {
        self.ask(&Request::Count { counter: counter.to_owned(), user, request }).await
    }

    /// Says the value of a counter.
    ///
    /// # Errors
    /// When nobody answered in time.
    pub async fn read(&mut self, counter: &str) -> Result<u64> {
        self.ask(&Request::Read { counter: counter.to_owned() }).await
    }

    /// How often it has asked an instance.
    pub const fn attempts(&self) -> u64 {
        self.attempts
    }

    async fn ask(&mut self, request: &Request) -> Result<u64> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let partition = self.routes.partition_of(request.counter());
            let why = match self.routes.owner(partition) {
                None => "nobody owns it".to_owned(),
                Some(owner) => {
                    self.attempts += 1;
                    match tokio::time::timeout(ANSWER_WITHIN, self.send(&owner.address, request)).await {
                        Ok(Ok(Answer::Count(count))) => return Ok(count),
                        Ok(Ok(Answer::NotOwner)) => format!("{} does not own it", owner.name),
                        Ok(Ok(Answer::Failed(why))) => format!("{}: {why}", owner.name),
                        Ok(Err(error)) => format!("{}: {error}", owner.name),
                        Err(_) => format!("{} does not answer", owner.name),
                    }
                }
            };
            if Instant::now() >= deadline {
                return Err(format!("{request:?} was not answered within {:?}: {why}", self.timeout).into());
            }
            // Fetched in the background; whether it is there already does not matter.
            self.routes.wrong(partition, None);
            if let Ok(Err(error)) = tokio::time::timeout(PAUSE, self.routes.changed()).await {
                return Err(error.into());
            }
        }
    }

    async fn send(&mut self, address: &str, request: &Request) -> Result<Answer> {
        // Put back once it has answered: an answer that comes late is not taken for that to the next request.
        let mut connection = match self.connections.remove(address) {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        write_line(&mut connection, request).await?;
        let answer = read_line(&mut connection).await?.ok_or("it hung up")?;
        self.connections.insert(address.to_owned(), connection);
        Ok(answer)
    }
}
