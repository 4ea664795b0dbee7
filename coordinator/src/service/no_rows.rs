//! `Kv` at a coordinator, which holds no rows and names a node that does.

use crate::raft::Quorum;
use archon_proto::convert::error::status_of;
use archon_types::{ErrorDetail, ErrorKind, NodeStatus};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// Answers every call of `Kv` with UNIMPLEMENTED and the address of a node.
#[derive(Clone)]
pub(crate) struct NoRows {
    pub(crate) quorum: Arc<OnceLock<Quorum>>,
}

impl NoRows {
    fn status(&self) -> Status {
        let node = self.quorum.get().and_then(|quorum| {
            quorum.replicated().read(|state| {
                let mut nodes = state.nodes.values().filter(|row| row.participant.is_none());
                let alive = nodes.find(|row| row.node.status == NodeStatus::Alive)?;
                Some(format!(", such as {} at {}", alive.node.name, alive.node.address))
            })
        });
        let which = node.unwrap_or_default();
        let why = format!("coordinators hold no rows: ask a node{which} (Table/GetTable lists them)");
        let refused = status_of(&ErrorDetail::new(ErrorKind::Refused, why));
        Status::with_metadata(Code::Unimplemented, refused.message(), refused.metadata().clone())
    }
}

impl NamedService for NoRows {
    const NAME: &'static str = "archon.v1.Kv";
}

impl Service<http::Request<Body>> for NoRows {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Ok(self.status().into_http()))
    }
}
