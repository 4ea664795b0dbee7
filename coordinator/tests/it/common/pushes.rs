//! Pushes that a node has received.

use archon_proto::v1;
use archon_proto::v1::control_server::Control;
use archon_types::{Assembly, AssemblyResult, PartitionTable, TablePiece};
use prost::Message as _;
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status};

/// Received pushes.
#[derive(Clone, Default)]
pub struct ReceivedPushes {
    /// The last push, with the obeyed duties.
    pub last: Arc<Mutex<Option<v1::PushRequest>>>,
    /// The received tables.
    pub tables: Arc<Mutex<Tables>>,
    /// The boot id that the process confirms.
    pub boot: Arc<Mutex<bytes::Bytes>>,
}

/// Received pieces of a table, and their assembly.
#[derive(Default)]
pub struct Tables {
    /// `from` and `next` of each piece.
    pub pieces: Vec<(u64, Option<u64>)>,
    pub largest_push_bytes: usize,
    /// The first received table.
    pub held: Option<PartitionTable>,
    pub complete: u64,
    pub nodes: usize,
    /// The received lists of tables.
    pub lists: Vec<v1::TableList>,
    /// The nodes of all pushes, encoded.
    pub nodes_encoded: Vec<u8>,
    /// Fault for the next piece that is not a first one; once.
    pub trouble: Option<Trouble>,
    assembly: Option<Assembly>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The connection breaks before the answer.
    Cut,
    /// The previous pieces are lost.
    Gap,
}

impl Tables {
    /// Applies a push like a node. Returns the fault of its answer, if any.
    fn take(&mut self, push: &v1::PushRequest) -> Option<Trouble> {
        self.largest_push_bytes = self.largest_push_bytes.max(push.encoded_len());
        for bytes in &push.deltas {
            let piece = v1::TableDelta::decode(&bytes[..]).unwrap();
            let piece = TablePiece::try_from(piece).unwrap();
            self.pieces.push((piece.from, piece.next));
            if piece.from > 0
                && let Some(trouble) = self.trouble.take()
            {
                self.assembly = self.assembly.take().filter(|_| trouble == Trouble::Cut);
                return Some(trouble);
            }
            match Assembly::take(&mut self.assembly, piece) {
                AssemblyResult::Whole(delta) => match &mut self.held {
                    Some(held) if held.table().id == delta.table.id => assert!(held.merge(delta)),
                    Some(_) => {} // of another table
                    None => self.held = Some(PartitionTable::from_whole(delta).unwrap()),
                },
                AssemblyResult::More(_) => assert_eq!(push.complete, 0, "more is to follow"),
                AssemblyResult::Gap => return Some(Trouble::Gap),
            }
        }
        self.lists.extend(push.tables.clone());
        if !push.nodes.is_empty() {
            self.nodes_encoded.extend_from_slice(&push.nodes);
            self.nodes += v1::NodeDelta::decode(&push.nodes[..]).unwrap().nodes.len();
        }
        self.complete = self.complete.max(push.complete);
        None
    }
}

#[tonic::async_trait]
impl Control for ReceivedPushes {
    async fn push(&self, request: Request<v1::PushRequest>) -> Result<Response<v1::PushResponse>, Status> {
        let mut push = request.into_inner();
        let trouble = self.tables.lock().unwrap().take(&push);
        if trouble == Some(Trouble::Cut) {
            return Err(Status::unavailable("the connection was cut"));
        }
        let version = push.version;
        let mut last = self.last.lock().unwrap();
        if push.duties_omitted {
            push.duties = last.take().map(|last| last.duties).unwrap_or_default();
        }
        *last = Some(push);
        Ok(Response::new(v1::PushResponse { version, gap: trouble.is_some(), results: Vec::new() }))
    }

    async fn confirm_boot(
        &self,
        request: Request<v1::ConfirmBootRequest>,
    ) -> Result<Response<v1::ConfirmBootResponse>, Status> {
        let confirmed = *self.boot.lock().unwrap() == request.into_inner().boot_id;
        Ok(Response::new(v1::ConfirmBootResponse { confirmed }))
    }

    async fn find_middle(&self, _: Request<v1::FindMiddleRequest>) -> Result<Response<v1::FindMiddleResponse>, Status> {
        Err(Status::unimplemented("it has no rows"))
    }
}
