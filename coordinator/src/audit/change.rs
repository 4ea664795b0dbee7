//! Audit fields of each request that changes the cluster, as it was sent, before any check.

use archon_proto::v1;
use archon_proto::v1::change_quorum_request::Change as Quorum;

/// A request that changes the cluster.
pub(crate) trait Change {
    /// Returns the id that a retry repeats.
    fn request_id(&self) -> &[u8];

    /// Returns its subject.
    fn subject(&self) -> String;

    /// Returns the requested change of the subject, if the call alone does not state it.
    fn wanted(&self) -> Option<String> {
        None
    }
}

macro_rules! change {
    ($($request:ident: |$this:ident| $subject:expr $(, wants $wanted:expr)?;)+) => {
        $(impl Change for v1::$request {
            fn request_id(&self) -> &[u8] {
                &self.request_id
            }

            fn subject(&self) -> String {
                let $this = self;
                $subject
            }

            $(fn wanted(&self) -> Option<String> {
                let $this = self;
                Some($wanted)
            })?
        })+
    };
}

change! {
    ApplyPlanRequest: |_it| "rebalance".to_owned(), wants {
        format!("{} moves", _it.plan.as_ref().map_or(0, |plan| plan.moves.len()))
    };
    JoinQuorumRequest: |it| coordinator(it.id), wants {
        format!("join at {} as a {}", it.address, if it.learner { "learner" } else { "voter" })
    };
    ChangeQuorumRequest: |it| quorum(it).0, wants quorum(it).1;
    TransferLeadRequest: |_it| _it.to.map_or_else(|| "quorum".to_owned(), coordinator), wants "lead".to_owned();
    SnapshotQuorumRequest: |_it| "quorum".to_owned(), wants "all that it holds, as a file".to_owned();
}

fn coordinator(id: u64) -> String {
    format!("coordinator {id}")
}

/// Returns the text of the member and the requested change.
fn quorum(asked: &v1::ChangeQuorumRequest) -> (String, String) {
    let (whom, what) = match &asked.change {
        Some(Quorum::Promote(id)) => (coordinator(*id), "promote".to_owned()),
        Some(Quorum::Demote(id)) => (coordinator(*id), "demote".to_owned()),
        Some(Quorum::Remove(id)) => (coordinator(*id), "remove".to_owned()),
        Some(Quorum::Replace(it)) => (coordinator(it.old), format!("replace by {}", coordinator(it.new))),
        Some(Quorum::SetAddress(it)) => (coordinator(it.id), format!("reached at {}", it.address)),
        Some(Quorum::Cancel(_)) => ("quorum".to_owned(), "cancel".to_owned()),
        Some(Quorum::Settle(_)) => {
            let loss = if asked.force { ", also if acknowledged writes are lost" } else { "" };
            return ("quorum".to_owned(), format!("end the recovery{loss}"));
        }
        None => ("quorum".to_owned(), "nothing".to_owned()),
    };
    (whom, if asked.force { format!("{what}, also without a spare") } else { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(request: &impl Change) -> (String, Option<String>) {
        (request.subject(), request.wanted())
    }

    #[test]
    fn requests_say_what_they_are_about_and_what_is_wanted() {
        let change = Some(Quorum::Promote(4));
        let promote = v1::ChangeQuorumRequest { change, force: true, ..Default::default() };
        assert_eq!(said(&promote), ("coordinator 4".into(), Some("promote, also without a spare".into())));
        let lead = v1::TransferLeadRequest { to: None, ..Default::default() };
        assert_eq!(said(&lead), ("quorum".into(), Some("lead".into())));
    }
}
