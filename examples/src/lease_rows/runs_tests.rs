use super::super::memory::MemoryRows;
use super::super::timing::Timing;
use super::*;
use archon_client::AcquireError;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Panics at the first call of each callback.
#[derive(Default)]
struct PanickingService {
    acquired: AtomicU32,
}

impl Service for PanickingService {
    async fn acquire(&self, _: Ownership) -> Result<(), AcquireError> {
        assert!(self.acquired.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        Ok(())
    }

    async fn release(&self, _: Ownership) {
        panic!("always");
    }

    fn lost(&self, _: Lease) {}
}

#[tokio::test]
async fn lease_whose_callback_panicked_is_given_up() {
    let timing = Timing { renew_every: 20, lease: 100, take_over: 150, list_every: 20 };
    let config = Config { name: "me".to_owned(), timing, partitions_max: 1, load_max: None };
    let server = LeaseRows::start(config, Duration::from_secs(1), MemoryRows::create(1), PanickingService::default());
    let server = server.expect("the times are safe");
    let owned = async {
        while server.have_partition(0).is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TIMEOUT, owned).await.expect("it is acquired the second time");
    timeout(TIMEOUT, server.stop()).await.expect("it is given up though its release panics");
}
