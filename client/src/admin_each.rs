//! What coordinators say when each is asked for itself, for who wants to know why none of them leads.

use crate::admin::Admin;
use crate::error::Error;
use crate::quorum_types::Quorum;
use archon_types::DEFAULT_TABLE;
use futures::future::join_all;
use std::time::Duration;

impl Admin {
    /// The Raft quorum as each coordinator sees it: those at this handle's endpoints, and those that these name. All are
    /// asked at once, `within` for the first and as long again for the second. Each comes with its address.
    pub async fn quorum_of_each(&self, within: Duration) -> Vec<(String, Result<Quorum, Error>)> {
        let mut all = self.quorums_of(self.coordinator_client().endpoints().to_vec(), within).await;
        // An endpoint that is a node, or another name of an address, is answered for by a coordinator.
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

    /// Names and addresses of the nodes, by number, as whoever answers first has them in its partition table: no
    /// coordinator needs to lead for that, and the newest nodes may be missing.
    ///
    /// # Errors
    /// As [`Admin::table`].
    pub async fn node_addresses(&self) -> Result<Vec<(String, String)>, Error> {
        let table = self.fetch(DEFAULT_TABLE).await?;
        Ok(table.nodes().map(|node| (node.name.clone(), node.address.clone())).collect())
    }
}
