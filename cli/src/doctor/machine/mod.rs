//! Checks of this machine for a coordinator or node.

mod certificate;
mod clock;
mod directory;
mod disk;
mod file_system;
mod lock;
mod open_files;
mod port;
mod timers;

pub(super) use disk::time_text;

use super::target::Target;
use crate::doctor::subjects::MACHINE;
use crate::documents::{Finding, FindingCode};
use crate::stalls;
use std::path::Path;
use std::time::SystemTime;

/// Checks all named objects.
pub(super) async fn look(target: &Target) -> Vec<Finding> {
    let watch = clock::Watch::begin();
    let stall = tokio::task::spawn_blocking(|| stalls::longest(stalls::WATCHED));
    let mut findings: Vec<Finding> = target.configuration.iter().cloned().collect();
    findings.push(Finding::ok(FindingCode::Version, MACHINE, format!("archon {}", env!("CARGO_PKG_VERSION"))));
    findings.push(clock::set(clock::synchronised().await, SystemTime::now()));
    findings.push(open_files::judge(open_files::read()));
    let mut unused = None;
    match target.data_dir.clone() {
        None => findings.push(Target::unnamed(FindingCode::Directory, "data directory", "data-dir")),
        // Syncs take time and must not block other tasks.
        Some(data_dir) => match tokio::task::spawn_blocking(move || data(&data_dir)).await {
            Ok((found, is_unused)) => {
                unused =
                    target.data_dir.as_ref().filter(|_| is_unused).map(|directory| directory.display().to_string());
                findings.extend(found);
            }
            Err(error) => findings.push(Finding::not_checked(FindingCode::Directory, MACHINE, error.to_string())),
        },
    }
    if target.listen.is_empty() {
        findings.push(Target::unnamed(FindingCode::Port, "address", "listen"));
    }
    findings.extend(port::look(target, unused.as_deref()).await);
    findings.extend(target.tls_dirs.iter().map(|directory| certificate::look(directory, SystemTime::now())));
    findings.push(match stall.await {
        Ok(stall) => timers::judge(stall),
        Err(error) => Finding::not_checked(FindingCode::Timers, MACHINE, error.to_string()),
    });
    findings.push(clock::steady(watch.end()));
    findings
}

/// Checks the data directory, or its future location; returns true if certainly no process uses it.
fn data(data_dir: &Path) -> (Vec<Finding>, bool) {
    let about = data_dir.display().to_string();
    let place = directory::place(data_dir);
    let lock = lock::read(data_dir);
    let unused = matches!(lock, lock::LockState::Never | lock::LockState::Free);
    let mut findings = vec![directory::judge(&about, &directory::read(data_dir, &place)), lock::judge(&about, lock)];
    let kind = file_system::read(&place);
    findings.push(file_system::judge(&about, &kind));
    findings.push(disk::space(&about, disk::read_space(&place)));
    findings.push(disk::syncs(&about, &kind, disk::measure(&place)));
    (findings, unused)
}
