//! Rights, settings and protocols.

pub mod access;
pub mod settings;
pub mod upgrade;
