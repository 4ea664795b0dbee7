//! Certificates, access rights and the audit trail on clusters of real processes.

mod access;
mod audit;
mod refused;
mod tls;
mod withdrawn;
