//! Splits and merges: seals, split keys, forming of new copies, and the transfer of rows to a merge target.

pub(crate) mod absorb;
pub(crate) mod absorb_work;
pub(crate) mod byte_halves;
pub(crate) mod cleared_spaces;
pub(crate) mod form;
pub(crate) mod forming_copy;
mod heat;
mod key_sample;
pub(crate) mod middle;
pub(crate) mod middle_search;
pub(crate) mod split;
pub(crate) mod split_off;
pub(crate) mod split_point;
pub(crate) mod split_watch;
pub(crate) mod split_work;
mod undersized;
pub(crate) mod yield_page;
pub(crate) mod yielding;
