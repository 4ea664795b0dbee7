//! What is issued, as those read it who use it.
#![allow(clippy::unwrap_used)]

mod authorities;
mod files;
mod issued;
mod requests;
mod support;
