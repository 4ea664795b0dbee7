//! Rows of a merge source, requested by the leader of its left neighbour: one task per page.

use crate::copies::copy::CopyRunner;
use crate::copies::pages;
use crate::shard::ShardMessage;
use archon_host::{YieldAsk, YieldPage};
use archon_kv::engine::Row;
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, Millis, Revision};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Time-out of a page; the leader then asks again.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);

impl CopyRunner {
    /// Requests a page from the partition's leader, and passes it to the requesting shard.
    pub(crate) fn ask_right(self: &Arc<Self>, ask: YieldAsk) {
        let (runner, stop) = (Arc::clone(self), self.stop.clone());
        let task = async move {
            let page = tokio::time::timeout(PAGE_TIMEOUT, runner.page_of(&ask));
            let Some(page) = stop.run_until_cancelled(page).await else { return };
            let late = |_| Err(ErrorDetail::new(ErrorKind::Unreachable, "no page came in time"));
            let page = page.unwrap_or_else(late);
            if let Err(detail) = &page {
                tracing::debug!(left = %ask.left, right = %ask.right, kind = %detail.kind, message = %detail.message, "no page");
            }
            let message = ShardMessage::AbsorbPage { placement: ask.placement, ask: ask.ask, page: page.ok() };
            // A shard that has ended needs nothing.
            let _ = runner.shards.of(ask.left).push(message).await;
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    async fn page_of(&self, ask: &YieldAsk) -> Result<YieldPage, ErrorDetail> {
        let unreachable = |why: String| ErrorDetail::new(ErrorKind::Unreachable, why);
        let life = self.node.membership.life().ok_or_else(|| unreachable("this node is not registered".into()))?;
        let leader = self.node.tables.leader(ask.right);
        let node = leader.ok_or_else(|| unreachable(format!("partition {} has no leader", ask.right)))?;
        let mut client = self.client_of(node).await?;
        let request = v1::YieldRequest {
            cluster: Some(life.member.cluster.into()),
            sender: Some(v1::Sender { id: life.member.node.get(), incarnation: life.member.incarnation.get() }),
            receiver: node.get(),
            partition: Some(ask.right.into()),
            attempt: ask.attempt.get(),
            after: ask.after.clone(),
        };
        let page = client.r#yield(request).await.map_err(|status| detail_of(&status))?.into_inner();
        let rows = pages::decode(&page.rows, page.crc32c).map_err(|error| unreachable(error.to_string()))?;
        // Rows go into the log, and from there into memory: each should keep only its own memory alive.
        let own = |(key, value): (Bytes, Bytes)| Row {
            key: Bytes::copy_from_slice(&key),
            value: Bytes::copy_from_slice(&value),
        };
        let rows = rows.into_iter().map(own).collect();
        Ok(YieldPage {
            rows,
            more: page.more,
            revision: Revision::new(page.revision),
            log_time: Millis::new(page.log_time_ms),
        })
    }
}
