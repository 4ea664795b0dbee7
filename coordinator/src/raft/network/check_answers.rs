//! Check that a coordinator answers at an address.

use crate::raft::network::hello::{HelloQuestions, ask_all, boot_at};
use crate::raft::quorum::Quorum;
use archon_security::Transport;
use std::collections::BTreeMap;
use tonic::Code;

impl Quorum {
    /// Checks that the coordinator of this number, with the quorum's key, answers at an address.
    ///
    /// # Errors
    /// The identity that answers instead, or that there is no answer.
    pub(crate) async fn check_answers(&self, transport: &Transport, id: u64, address: &str) -> Result<(), String> {
        let local_voter = &self.local_voter;
        if id == local_voter.id {
            let boot = boot_at(transport, local_voter, address).await;
            return boot.map(drop).ok_or_else(|| "it does not reach itself there".to_owned());
        }
        let asked = BTreeMap::from([(id, address.to_owned())]);
        match ask_all(transport, local_voter, &asked, &HelloQuestions::default()).await.remove(&id) {
            Some(Ok(_)) => Ok(()),
            Some(Err(status)) if status.code() == Code::FailedPrecondition => Err(status.message().to_owned()),
            Some(Err(_)) | None => Err("no process answers there".to_owned()),
        }
    }
}
