//! Issued certificates, read with `archon-security`.
#![allow(clippy::unwrap_used)]

mod authorities;
mod files;
mod issued;
mod requests;
mod support;
