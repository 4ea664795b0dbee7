//! Relays as nodes have them, on ports of their own: what is played is the node around each.

use archon_frames::{PartialBudget, StreamKind, accept};
use archon_member::{Rows, next_by_relay};
use archon_proto::convert::session::{Member, Registered};
use archon_security::Transport;
use archon_session::{BootClock, Coordinators, RelayStreams};
use archon_types::{Incarnation, Millis, NodeId, Over, Version};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Most members that one of them carries.
const MEMBERS_MAX: usize = 1_000_000;
/// Bytes of heartbeats that have not arrived whole.
const PARTIAL_BYTES: usize = 64 * 1024 * 1024;

/// Rows by which nobody's life is over.
struct NoRows;

impl Rows for NoRows {
    fn members_max(&self) -> usize {
        MEMBERS_MAX
    }

    fn over(&self, _: NodeId, _: Incarnation) -> Option<Over> {
        None
    }
}

/// Relays; they carry once each has a life. They end with this.
#[derive(Debug)]
pub struct PlayedRelays {
    relays: Vec<(String, RelayStreams)>,
    stop: CancellationToken,
}

impl PlayedRelays {
    /// So many, which listen.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(count: usize) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let mut relays = Vec::with_capacity(count);
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let (address, streams) = (listener.local_addr()?.to_string(), RelayStreams::new());
            tokio::spawn(serve(listener, streams.clone(), stop.clone()));
            relays.push((address, streams));
        }
        Ok(Self { relays, stop })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.relays.len()
    }

    /// Where this member's heartbeats go; `None` if there are no relays.
    pub fn address(&self, member: usize) -> Option<&str> {
        let place = member.checked_rem(self.relays.len())?;
        self.relays.get(place).map(|(address, _)| address.as_str())
    }

    /// If this member is a relay, it carries from now on, in the name of its registration.
    pub fn begin(&self, member: usize, leader: &str, registered: &Registered) {
        let Some((_, streams)) = self.relays.get(member) else { return };
        let (streams, stop, leader) = (streams.clone(), self.stop.clone(), leader.to_owned());
        let timing = registered.settings.timing;
        let member = Member { cluster: registered.cluster, node: registered.node, incarnation: registered.incarnation };
        tokio::spawn(async move {
            let coordinators = Coordinators::new(vec![leader], Transport::plaintext(true), Vec::new);
            let (_rows, changes) = watch::channel(Version::ZERO);
            let carries = streams.carry(&coordinators, &BootClock, member, timing, &NoRows, changes);
            tokio::select! {
                never = carries => match never {},
                () = stop.cancelled() => {}
            }
        });
    }
}

impl Drop for PlayedRelays {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How long after a heartbeat that left at `began` the next one does, whose relay's next batch leaves in `departure_ms` from now.
pub fn next(began: Instant, departure_ms: u64, interval: Duration) -> Duration {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let now = Millis::new(millis(began.elapsed()));
    let every = millis(interval);
    Duration::from_millis(next_by_relay(Millis::ZERO, now, departure_ms, every, every).get())
}

async fn serve(listener: TcpListener, streams: RelayStreams, stop: CancellationToken) {
    let budget = PartialBudget::new(PARTIAL_BYTES);
    while let Ok((connection, _)) = listener.accept().await {
        let (streams, stop, budget) = (streams.clone(), stop.clone(), budget.clone());
        tokio::spawn(async move {
            if let Ok((StreamKind::Beats, reader, writer)) = accept(connection.into(), |_| budget.clone()).await {
                streams.serve(&BootClock, reader, writer, &|_| Ok(()), &stop).await;
            }
        });
    }
}
