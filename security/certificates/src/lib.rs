//! Issues the certificates of a cluster.
