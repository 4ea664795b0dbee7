//! Front end for users' requests: finds the instance that owns a counter, and retries until it is answered.

use super::protocol::{Answer, Request, read_line, write_line};
use crate::Result;
use archon_client::Routes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Time-out of an instance's answer before the owner is looked up again. A stopped instance never answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Time to wait for a change of owners before the same one is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends one request at a time. A request without an answer may have been counted, so it is sent again under the same
/// number, to the current owner of the counter.
pub struct FrontEnd {
    routes: Routes,
    /// By address of an instance.
    connections: BTreeMap<String, BufReader<TcpStream>>,
    timeout: Duration,
    attempts: u64,
}

impl FrontEnd {
    /// Creates a front end for the owners of these partitions, with a time-out per request.
    pub fn new(routes: Routes, timeout: Duration) -> Self {
        Self { routes, connections: BTreeMap::new(), timeout, attempts: 0 }
    }

    /// Counts a request of a user and returns the value of the counter.
    ///
    /// # Errors
    /// If it was not answered in time: then it may have been counted or not.
    pub async fn count(&mut self, counter: &str, user: u64, request: u64) -> Result<u64> {
        self.ask(&Request::Count { counter: counter.to_owned(), user, request }).await
    }

    /// Returns the value of a counter.
    ///
    /// # Errors
    /// If no instance answered in time.
    pub async fn read(&mut self, counter: &str) -> Result<u64> {
        self.ask(&Request::Read { counter: counter.to_owned() }).await
    }

    /// Returns the number of attempts so far.
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
            // Fetched in the background; whether it has arrived already does not matter.
            self.routes.wrong(partition, None);
            if let Ok(Err(error)) = tokio::time::timeout(PAUSE, self.routes.changed()).await {
                return Err(error.into());
            }
        }
    }

    async fn send(&mut self, address: &str, request: &Request) -> Result<Answer> {
        // Put back once it has answered: a late answer is not mistaken for that to the next request.
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
