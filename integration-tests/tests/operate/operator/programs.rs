//! Programs that use a cluster while an operator follows a runbook.

use archon_client::Client;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Load, LoadReport};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// Programs that write to a table, stopped and started by the runbook operator.
pub(crate) struct Programs {
    load: Option<Load>,
    table: &'static str,
    coordinators: String,
    /// Reports of the stopped programs.
    pub(crate) reports: Vec<LoadReport>,
}

impl Programs {
    pub(crate) const fn new(table: &'static str, coordinators: String) -> Self {
        Self { load: None, table, coordinators, reports: Vec::new() }
    }

    pub(crate) fn obey(&mut self, order: &str) {
        block_in_place(|| {
            Handle::current().block_on(async {
                match order {
                    "stop" => self.reports.push(self.load.take().expect("they run").stop().await),
                    "start" => {
                        let client = Client::builder(self.coordinators.split(',')).table(self.table);
                        let client = client.timeout(TIMEOUT).build().await.expect("a client");
                        self.load = Some(Load::start(&client, &format!("run-{}", self.reports.len()), 2));
                    }
                    other => panic!("programs are stopped and started, not {other:?}"),
                }
            });
        });
    }
}
