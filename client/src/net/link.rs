//! Channels to addresses, opened on first use.

use crate::error::Error;
use archon_proto::convert::ids::check_address;
use archon_proto::trace::TracedChannel;
use archon_security::{ExpectedPeer, Transport};
use archon_types::is_loopback;
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;
use tonic::Status;
use tonic::transport::Endpoint;

/// Maximum number of cached channels, far above the addresses of a cluster; beyond it the cache is cleared, which
/// only costs new connections.
const CHANNELS_MAX: usize = 4_096;
/// Flow-control window of a stream, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Flow-control window of a connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Interval of keepalives, and time-out of their answers: detects paused processes and broken links. Shorter than the
/// deadline of ordinary calls, so that they can use another server.
const KEEP_ALIVE: Duration = Duration::from_millis(1_500);

/// Channels to addresses in use. A channel reconnects by itself on the next use.
#[derive(Debug)]
pub(crate) struct Links {
    connect_timeout: Duration,
    transport: Transport,
    channels: Mutex<HashMap<(String, ExpectedPeer), TracedChannel>>,
}

impl Links {
    /// Creates an empty set.
    pub(crate) fn new(connect_timeout: Duration, transport: Transport) -> Self {
        Self { connect_timeout, transport, channels: Mutex::new(HashMap::new()) }
    }

    /// Returns the time-out of connection attempts.
    pub(crate) const fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns the transport.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the channel to `address` (`host:port`) of the server `expected`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an invalid address; as [`Transport::check`].
    pub(crate) fn channel(&self, address: &str, expected: ExpectedPeer) -> Result<TracedChannel, ErrorDetail> {
        let to = (address.to_owned(), expected);
        if let Some(channel) = self.channels.lock().get(&to) {
            return Ok(channel.clone());
        }
        check_address(address, "address")?;
        self.transport.check(address)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| {
            ErrorDetail::new(ErrorKind::InvalidArgument, format!("{address:?} is not an address: {error}"))
        })?;
        let endpoint = endpoint
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let channel = self.transport.channel(&endpoint, address, to.1.clone(), self.connect_timeout).into();
        let mut channels = self.channels.lock();
        if channels.len() >= CHANNELS_MAX {
            channels.clear();
        }
        Ok(channels.entry(to).or_insert(channel).clone())
    }
}

/// Returns whether the request was never sent because the connection failed.
pub(crate) fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Checks the configured endpoints: at least one, each `host:port`.
///
/// # Errors
/// [`Error::InvalidArgument`], quoting the endpoint.
pub(crate) fn check_endpoints(endpoints: &[String]) -> Result<(), Error> {
    if endpoints.is_empty() {
        return Err(Error::invalid("no endpoints; give the address of at least one coordinator or node"));
    }
    for endpoint in endpoints {
        check_address(endpoint, "endpoint").map_err(|error| Error::invalid(error.problem))?;
    }
    Ok(())
}

/// Returns whether an endpoint is on another machine; configuring one allows plaintext connections to it.
pub(crate) fn beyond(endpoints: &[String]) -> bool {
    endpoints.iter().any(|endpoint| !is_loopback(endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[test]
    fn endpoints_are_checked_before_anything_is_sent() {
        assert!(check_endpoints(&[]).unwrap_err().to_string().contains("at least one"));
        let error = check_endpoints(&["127.0.0.1:1".into(), "nonsense".into()]).unwrap_err();
        assert!(error.to_string().contains("\"nonsense\" is not an address"), "{error}");
    }

    #[tokio::test]
    async fn remote_address_in_table_is_not_dialled_in_plaintext() {
        let (told, links) = ("10.0.0.1:7201", Links::new(Duration::from_secs(1), Transport::plaintext(false)));
        let refused = links.channel(told, ExpectedPeer::Servers).unwrap_err();
        assert!(refused.kind == ErrorKind::Refused && refused.message.contains("--insecure"), "{refused}");
        Links::new(Duration::from_secs(1), Transport::plaintext(true)).channel(told, ExpectedPeer::Servers).unwrap();
        assert!(beyond(&[told.to_owned(), "127.0.0.1:1".to_owned()]) && !beyond(&["127.0.0.1:1".to_owned()]));
    }

    #[tokio::test]
    async fn refused_connection_counts_as_never_sent() {
        let links = Links::new(Duration::from_secs(1), Transport::plaintext(false));
        // Port 1 of loopback: nothing listens there.
        let channel = links.channel("127.0.0.1:1", ExpectedPeer::Servers).unwrap();
        let mut table = archon_proto::v1::table_client::TableClient::new(channel);
        let status = table.get_table(archon_proto::v1::GetTableRequest::default()).await.unwrap_err();
        assert!(never_sent(&status), "{status:?}");
        assert!(!never_sent(&Status::unavailable("an answer")));
    }

    #[tokio::test]
    async fn timed_out_connection_counts_as_never_sent() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        // The listener accepts no connections: once its backlog is full, further attempts hang.
        let mut waiting = Vec::new();
        while let Ok(Ok(one)) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            waiting.push(one);
        }
        let links = Links::new(Duration::from_millis(200), Transport::default());
        let channel = links.channel(&address.to_string(), ExpectedPeer::Servers).unwrap();
        let mut table = archon_proto::v1::table_client::TableClient::new(channel);
        let status = table.get_table(archon_proto::v1::GetTableRequest::default()).await.unwrap_err();
        assert!(never_sent(&status), "{status:?}");
    }
}
