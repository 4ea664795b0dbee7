//! Role of a coordinator in the quorum.

use crate::admin::word::words;

words! {
    /// Role of a coordinator in the quorum.
    #[non_exhaustive]
    pub enum CoordinatorRole: "role of a coordinator" {
        /// It leads.
        Leader = "leader",
        /// It follows.
        Follower = "follower",
        /// It copies the log, and has no vote.
        Learner = "learner",
        /// It stands for election.
        Candidate = "candidate",
        /// The leading coordinator does not hear it.
        Unreachable = "unreachable",
    }
}
