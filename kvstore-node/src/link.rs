//! Channels to other processes: connected when first used, kept, with bounded patience.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Channels kept at once; more than a cluster has members means that addresses changed many times.
const CHANNELS_MAX: usize = 4_096;

/// One lazily connected channel per address. Each purpose keeps its own, so that bulk cannot delay what is urgent.
#[derive(Debug, Default)]
pub(crate) struct Links {
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Links {
    /// The channel to `address`, `host:port`, or `None` if that is not an address.
    pub(crate) fn channel(&self, address: &str) -> Option<Channel> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Some(channel.clone());
        }
        let channel = endpoint(address)?.connect_lazy();
        if channels.len() >= CHANNELS_MAX {
            channels.clear();
        }
        channels.insert(address.to_owned(), channel.clone());
        Some(channel)
    }
}

/// How `address` is dialled.
pub(crate) fn endpoint(address: &str) -> Option<Endpoint> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    Some(
        endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true),
    )
}
