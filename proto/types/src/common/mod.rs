//! Common helpers: limits, pauses, texts, keys in JSON, metrics, and trace contexts.

pub(crate) mod backoff;
pub(crate) mod disk_full;
pub mod hex;
pub(crate) mod key_text;
pub mod limits;
pub(crate) mod log_pin;
pub(crate) mod metric;
pub(crate) mod mixed;
pub(crate) mod text;
pub(crate) mod trace_context;
