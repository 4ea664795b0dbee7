//! Role of a coordinator in the quorum.

use crate::admin::open_enum::words;

words! {
    /// Role of a coordinator in the quorum.
    #[non_exhaustive]
    pub enum CoordinatorRole: "role of a coordinator" {
        /// Leads the quorum.
        Leader = "leader",
        /// Follows the leader.
        Follower = "follower",
        /// Copies the log without a vote.
        Learner = "learner",
        /// Is a candidate in an election.
        Candidate = "candidate",
        /// Does not answer the leading coordinator.
        Unreachable = "unreachable",
    }
}
