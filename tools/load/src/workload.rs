//! Description of a workload.

use crate::keys::Distribution;
use std::time::Duration;

/// Kind of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Writes every key once, in ascending order, and ends.
    Load,
    /// Writes every key once, spread over all of them, and ends.
    LoadSpread,
    /// Reads every key once, in ascending order, and ends.
    ReadBack,
    /// Writes.
    Put,
    /// Reads; the keys must be there.
    Get,
    /// Both, in random order.
    Mixed {
        /// Reads among them, in percent.
        get_percent: u8,
    },
    /// Ordered scans from random keys.
    Scan {
        /// Entries per scan, at most.
        limit: u32,
    },
}

/// End of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// This long after the warm-up.
    After(Duration),
    /// After this many operations, without the warm-up.
    Operations(u64),
}

/// A workload: operations, number of clients, and length.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Kind of operations.
    pub mix: Mix,
    /// Number of different keys, at least 1 and less than 10^10.
    pub keys: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Distribution of the chosen keys.
    pub distribution: Distribution,
    /// Concurrent operations, each issued by a client that waits for its answer.
    pub clients: usize,
    /// Connections (or client libraries) that the clients share; at most one per client.
    pub connections: usize,
    /// Threads that drive the clients; at most one per connection.
    pub threads: usize,
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// End of the workload.
    pub end: End,
    /// Operations started per second, all clients together; `None`: each client continues as soon as it has its answer.
    /// With a rate, latency counts from the scheduled start, so that a stall counts for all operations that came due
    /// during it.
    pub rate: Option<f64>,
}

/// An impossible workload.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(String);

impl Mix {
    /// Returns true if each key is used exactly once.
    pub const fn is_each_key_once(self) -> bool {
        matches!(self, Self::Load | Self::LoadSpread | Self::ReadBack)
    }
}

impl Workload {
    /// Returns a workload of writes with `clients` clients for 10 s, after 1 s of warm-up.
    pub fn puts(clients: usize) -> Self {
        Self {
            mix: Mix::Put,
            keys: 100_000,
            value_bytes: 100,
            distribution: Distribution::Uniform,
            clients,
            connections: 1,
            threads: 1,
            warm_up: Duration::from_secs(1),
            end: End::After(Duration::from_secs(10)),
            rate: None,
        }
    }

    /// Returns the same keys and values, each once: to be written ([`Mix::Load`], [`Mix::LoadSpread`]) or read
    /// ([`Mix::ReadBack`]).
    #[must_use]
    pub fn each_key_once(&self, mix: Mix, clients: usize) -> Self {
        Self { mix, clients, warm_up: Duration::ZERO, rate: None, ..self.clone() }
    }

    /// Checks that it is possible.
    ///
    /// # Errors
    /// The impossible value, and the valid range.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let wrong = |text: String| Err(WorkloadError(text));
        if !(1..10_000_000_000).contains(&self.keys) {
            return wrong(format!("{} keys; there must be at least 1 and less than 10^10", self.keys));
        }
        if self.clients == 0 || self.connections == 0 || self.threads == 0 {
            return wrong("clients, connections and threads must be at least 1 each".into());
        }
        if self.connections > self.clients {
            return wrong(format!("{} connections for {} clients; at most one each", self.connections, self.clients));
        }
        if self.threads > self.connections {
            return wrong(format!(
                "{} threads for {} connections; a connection stays on one thread, so give as many connections",
                self.threads, self.connections
            ));
        }
        if let Distribution::Zipfian { theta } = self.distribution
            && !(theta > 0.0 && theta < 1.0)
        {
            return wrong(format!("theta is {theta}; it must be between 0 and 1, as 0.99"));
        }
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate >= 0.1)
        {
            return wrong(format!("the rate is {rate}; it must be at least 0.1 operations per second"));
        }
        if matches!(self.mix, Mix::Mixed { get_percent } if get_percent > 100) {
            return wrong("a share of reads is at most 100 percent".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_workloads_are_refused_by_field() {
        let good = Workload::puts(4);
        assert_eq!(good.check(), Ok(()));
        for (bad, part) in [
            (Workload { keys: 0, ..good.clone() }, "keys"),
            (Workload { clients: 0, ..good.clone() }, "clients"),
            (Workload { connections: 5, ..good.clone() }, "5 connections"),
            (Workload { threads: 2, ..good.clone() }, "2 threads"),
            (Workload { distribution: Distribution::Zipfian { theta: 1.0 }, ..good.clone() }, "theta"),
            (Workload { rate: Some(0.0), ..good.clone() }, "rate"),
            (Workload { mix: Mix::Mixed { get_percent: 101 }, ..good.clone() }, "percent"),
        ] {
            assert!(bad.check().unwrap_err().to_string().contains(part), "{part}");
        }
    }
}
