//! What is to be done to a store.

use crate::keys::Distribution;
use std::time::Duration;

/// Which operations.
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

/// When it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// So long after the warm-up.
    After(Duration),
    /// After so many operations, those of the warm-up not counted.
    Operations(u64),
}

/// What is to be done to a store, by how many, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Which operations.
    pub mix: Mix,
    /// How many different keys, at least 1 and less than 10^10.
    pub keys: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// How often which key.
    pub distribution: Distribution,
    /// Operations that may be under way at once, each issued by a client that waits for its answer.
    pub clients: usize,
    /// Connections (or client libraries) that the clients share; at most one per client.
    pub connections: usize,
    /// Threads that drive the clients; at most one per connection.
    pub threads: usize,
    /// What is done before anything is counted.
    pub warm_up: Duration,
    /// When it ends.
    pub end: End,
    /// Operations per second to be begun, all clients together; `None`: each client goes on as soon as it has its
    /// answer. With a rate latency counts from when an operation was to begin, so that a stall counts for all that came
    /// due during it.
    pub rate: Option<f64>,
}

/// An impossible workload.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(String);

impl Mix {
    /// Whether each key has its turn once.
    pub const fn is_each_key_once(self) -> bool {
        matches!(self, Self::Load | Self::LoadSpread | Self::ReadBack)
    }
}

impl Workload {
    /// Writes with `clients` clients for 10 s, after 1 s of warm-up.
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

    /// The same keys and values, each once: to be written ([`Mix::Load`], [`Mix::LoadSpread`]) or read ([`Mix::ReadBack`]).
    #[must_use]
    pub fn each_key_once(&self, mix: Mix, clients: usize) -> Self {
        Self { mix, clients, warm_up: Duration::ZERO, rate: None, ..self.clone() }
    }

    /// Checks that it can be done.
    ///
    /// # Errors
    /// Which value is impossible, and what would do.
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
    fn impossible_workloads_are_refused_by_name() {
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
