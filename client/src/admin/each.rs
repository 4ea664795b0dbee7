//! Queries of each coordinator, to find out why none of them leads.

use crate::admin::Admin;
use crate::error::Error;
use archon_documents::Quorum;
use archon_types::DEFAULT_TABLE;
use futures::future::join_all;
use std::time::Duration;

impl Admin {
    /// Returns the Raft quorum as seen by each coordinator: those at this client's endpoints, then those that these
    /// name. Each group is queried in parallel, with the time-out `within`. Each answer comes with its address.
    pub async fn quorum_of_each(&self, within: Duration) -> Vec<(String, Result<Quorum, Error>)> {
        let mut all = self.quorums_of(self.coordinator_client().endpoints().to_vec(), within).await;
        // Several endpoints may reach the same coordinator: nodes, or other names of its address.
        all.sort_by_key(|(_, answer)| answer.as_ref().ok().map_or(u64::MAX, |quorum| quorum.id));
        all.dedup_by(|next, held| matches!((&next.1, &held.1), (Ok(next), Ok(held)) if next.id == held.id));
        let answered: Vec<u64> = all.iter().filter_map(|(_, answer)| Some(answer.as_ref().ok()?.id)).collect();
        let named = all.iter().filter_map(|(_, answer)| answer.as_ref().ok()).flat_map(|quorum| &quorum.coordinators);
        let mut others: Vec<String> = named
            .filter(|named| !answered.contains(&named.id) && all.iter().all(|(address, _)| *address != named.address))
            .map(|named| named.address.clone())
            .collect();
        others.sort();
        others.dedup();
        all.extend(self.quorums_of(others, within).await);
        all
    }

    async fn quorums_of(&self, addresses: Vec<String>, within: Duration) -> Vec<(String, Result<Quorum, Error>)> {
        join_all(addresses.into_iter().map(async |address| {
            let answer = match self.at_endpoint(address.clone(), within) {
                Ok(one) => one.quorum().await,
                Err(error) => Err(error),
            };
            (address, answer)
        }))
        .await
    }

    /// Returns names and addresses of the nodes, by number, from the partition table of the first member that
    /// answers. This needs no leading coordinator; the newest nodes may be missing.
    ///
    /// # Errors
    /// As [`Admin::table`].
    pub async fn node_addresses(&self) -> Result<Vec<(String, String)>, Error> {
        let table = self.fetch(DEFAULT_TABLE).await?;
        Ok(table.nodes().map(|node| (node.name.clone(), node.address.clone())).collect())
    }
}
