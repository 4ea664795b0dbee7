//! Static checks of the repository, and the readers of files that they share with tests of running programs.
//!
//! Depends on no crate of the product: `cargo test -p archon-tidy` builds in seconds and is the first step of CI. A check that
//! compares files with a running program stays in `integration-tests` and takes its readers from here.

mod files;
pub mod named;
pub mod packaging;

pub use files::{PUBLISHED_PREFIX, dependency_key, files_below, names, root, source};
