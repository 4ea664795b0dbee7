//! Channels to other processes, connected on first use and kept, with a time-out.

use archon_security::{CONNECT_TIMEOUT, ExpectedPeer, Transport};
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of kept channels; more than the members of a cluster means that addresses changed many times.
const CHANNELS_MAX: usize = 4_096;

/// One lazily connected channel per address. Each purpose has its own set, so that bulk traffic cannot delay urgent
/// calls.
#[derive(Debug)]
pub struct Links {
    transport: Transport,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Links {
    /// Creates an empty set.
    pub fn new(transport: Transport) -> Self {
        Self { transport, channels: Mutex::default() }
    }

    /// Returns the channel to the coordinator at `address`, `host:port`.
    ///
    /// # Errors
    /// The text is not an address, or plaintext is not allowed for it.
    pub fn channel(&self, address: &str) -> Result<Channel, ErrorDetail> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = endpoint(address, &self.transport)?;
        let channel = self.transport.channel(&endpoint, address, ExpectedPeer::Coordinators, CONNECT_TIMEOUT);
        if channels.len() >= CHANNELS_MAX {
            channels.clear();
        }
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Returns the endpoint of `address`.
///
/// # Errors
/// As [`Links::channel`].
fn endpoint(address: &str, transport: &Transport) -> Result<Endpoint, ErrorDetail> {
    transport.check(address)?;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| {
        ErrorDetail::new(ErrorKind::InvalidArgument, format!("{address:?} is not an address: {error}"))
    })?;
    Ok(endpoint
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// Returns a separate, connected channel to a process.
///
/// # Errors
/// As [`Links::channel`]; `Unreachable` if the process is not reachable or not expected.
pub async fn connect(transport: &Transport, address: &str, expected: ExpectedPeer) -> Result<Channel, ErrorDetail> {
    let endpoint = endpoint(address, transport)?;
    let connected = transport.connected_channel(&endpoint, address, expected, CONNECT_TIMEOUT).await;
    connected.map_err(|error| {
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        ErrorDetail::new(ErrorKind::Unreachable, format!("{address}: {}", causes.join(": ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn learned_remote_address_is_not_dialled_in_plaintext() {
        let told = "10.0.0.1:7101";
        let refused = Links::new(Transport::plaintext(false)).channel(told).unwrap_err();
        assert!(refused.kind == ErrorKind::Refused && refused.message.contains(told), "{refused}");
        Links::new(Transport::plaintext(false)).channel("127.0.0.1:7101").unwrap();
        Links::new(Transport::plaintext(true)).channel(told).unwrap();
    }
}
