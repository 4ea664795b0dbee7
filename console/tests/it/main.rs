//! The console, without a cluster that is served.

#![allow(missing_docs, clippy::unwrap_used)]

mod nobody_leads;
mod places;
