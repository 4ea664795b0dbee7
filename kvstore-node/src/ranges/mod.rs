//! Splits and merges: searches for split keys, and requests for the rows of a merge source.

pub(crate) mod split_search;
mod yields;
