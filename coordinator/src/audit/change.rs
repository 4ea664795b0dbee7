//! Audit fields of each request that changes the cluster, as it was sent, before any check.

use archon_proto::v1;

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
    JoinQuorumRequest: |it| coordinator(it.id), wants {
        format!("join at {} as a {}", it.address, if it.learner { "learner" } else { "voter" })
    };
    SnapshotQuorumRequest: |_it| "quorum".to_owned(), wants "all that it holds, as a file".to_owned();
}

fn coordinator(id: u64) -> String {
    format!("coordinator {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(request: &impl Change) -> (String, Option<String>) {
        (request.subject(), request.wanted())
    }

    #[test]
    fn requests_name_their_subject_and_the_change() {
        let join = v1::JoinQuorumRequest { id: 4, address: "127.0.0.1:7104".into(), ..Default::default() };
        assert_eq!(said(&join), ("coordinator 4".into(), Some("join at 127.0.0.1:7104 as a voter".into())));
        let save = v1::SnapshotQuorumRequest::default();
        assert_eq!(said(&save), ("quorum".into(), Some("all that it holds, as a file".into())));
    }
}
