//! Checks of the cluster: its quorum, the alerts of the leading coordinator, and the members' own statistics.

mod alerts;
mod certificates;
mod members;
mod quorum;

pub(super) use members::member_of;

use super::target::Target;
use crate::connect;
use crate::doctor::subjects::CLUSTER;
use crate::documents::{Finding, FindingCode};
use crate::exit::Failure;
use archon_client::{Admin, CheckThresholds, Transport};
use archon_security::Credentials;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Time limit for the answer of each coordinator.
const EACH: Duration = Duration::from_secs(2);

/// Checks the cluster, if its addresses are known.
pub(super) async fn look(target: &Target) -> Vec<Finding> {
    if target.connection.coordinators.is_empty() {
        let why = "no coordinator is named; give --coordinators H:P,… or set ARCHON_COORDINATORS";
        return vec![Finding::not_checked(FindingCode::Quorum, CLUSTER, why)];
    }
    let reached = connect::transport(&target.connection)
        .and_then(|transport| Ok((transport, connect::admin(&target.connection)?)));
    match reached {
        Ok((transport, admin)) => ask(&transport, &admin).await,
        // Their faults are findings about this machine.
        Err(_) if target.connection.tls_dir.as_deref().is_some_and(is_unusable) => {
            let why = "these credentials cannot be used, so no member was contacted";
            vec![Finding::not_checked(FindingCode::Quorum, CLUSTER, why)]
        }
        Err(Failure { message, remedy, .. }) => {
            let remedy = remedy.unwrap_or_else(|| "correct the options or the file".to_owned());
            vec![Finding::error(FindingCode::Configuration, CLUSTER, message, remedy)]
        }
    }
}

fn is_unusable(credentials: &Path) -> bool {
    Credentials::load(credentials, SystemTime::now()).is_err()
}

async fn ask(transport: &Transport, admin: &Admin) -> Vec<Finding> {
    let each = admin.quorum_of_each(EACH).await;
    let mut findings = quorum::judge(&each);
    if !quorum::leads(&each) {
        let why = "only the coordinator that leads knows the members";
        findings.push(Finding::not_checked(FindingCode::Member, CLUSTER, why));
        return findings;
    }
    let thresholds = CheckThresholds::default();
    let (alerts, members) = tokio::join!(admin.check(&thresholds), members::ask(admin));
    findings.extend(alerts::judge(alerts));
    findings.extend(match members {
        Ok(members) => members::judge(&members, env!("CARGO_PKG_VERSION")),
        Err(error) => vec![Finding::not_checked(FindingCode::Member, CLUSTER, format!("the members: {error}"))],
    });
    if transport.tls().is_some() {
        let now = SystemTime::now();
        findings.extend(certificates::judge(crate::cert::members_found(transport, admin, now).await));
    }
    findings
}
