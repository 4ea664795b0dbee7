//! `archon access grant | revoke | withdraw | readmit | list`.

mod withdraw;

use crate::args::{AccessVerb, ListAccessArgs, SetAccessArgs};
#[cfg(test)]
use crate::documents::contract;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{AccessChanged, AccessRight, Admin, Right};
use archon_types::{grantee_text, weight_limit_text};

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("access grant", contract::one::<AccessChanged>),
    ("access revoke", contract::one::<AccessChanged>),
    ("access list", contract::one::<archon_client::AccessSummary>),
    ("access withdraw", contract::one::<archon_client::CertificatesWithdrawn>),
    ("access readmit", contract::one::<archon_client::CertificatesWithdrawn>),
];

/// Carries out one of them. Without TLS (`by_tls` is false) there are no certificates, and rights have no effect.
pub(crate) async fn run(verb: &AccessVerb, admin: &Admin, by_tls: bool, output: &Output) -> Result<Exit, Failure> {
    let (args, weight_max, revoke) = match verb {
        AccessVerb::List(args) => return list(args, admin, by_tls, output).await,
        AccessVerb::Withdraw(args) => return withdraw::withdraw(args, admin, output).await,
        AccessVerb::Readmit { identity } => return withdraw::readmit(identity, admin, output).await,
        AccessVerb::Grant(args) => (&args.right, args.weight_max, false),
        AccessVerb::Revoke(args) => (args, None, true),
    };
    let SetAccessArgs { right, table, .. } = args;
    let grantee = args.grantee().map_err(|why| Failure::usage(why, "see `archon access grant --help`"))?;
    let changed = match (weight_max, table.as_deref()) {
        (_, table) if revoke => admin.revoke(*right, grantee, table).await?,
        (Some(weight_max), Some(table)) => admin.grant_own(grantee, table, weight_max).await?,
        (_, table) => admin.grant(*right, grantee, table).await?,
    };
    let exit = output.done(&changed, text(&changed, *right, revoke))?;
    talk_of_plaintext(by_tls, output);
    Ok(exit)
}

/// Warns that rights have no effect without TLS.
fn talk_of_plaintext(by_tls: bool, output: &Output) {
    if !by_tls {
        output.talk(
            "this cluster talks in plaintext: clients have no identity, so each of them may read and write all rows",
        );
    }
}

async fn list(args: &ListAccessArgs, admin: &Admin, by_tls: bool, output: &Output) -> Result<Exit, Failure> {
    let found = admin.access(args.client.as_deref(), args.table.as_deref()).await?;
    if output.is_json() {
        output.json(&found)?;
        return Ok(Exit::Done);
    }
    let columns = [Column::text("GRANTEE"), Column::text("TABLE"), Column::text("RIGHT"), Column::text("WEIGHT MAX")];
    let row = |right: &AccessRight| {
        vec![
            grantee_text(right.client.as_deref(), right.may.known()),
            right.table.clone().unwrap_or_else(|| "every table".to_owned()),
            right.may.as_str().to_owned(),
            right.weight_max.map_or_else(|| "-".to_owned(), |weight| weight.to_string()),
        ]
    };
    let rows = found.rights.iter().map(row).collect();
    let nobody = match (&args.client, &args.table) {
        (Some(client), None) => format!("client/{client} was granted nothing, and nothing was granted to every client"),
        (None, None) if !by_tls => "no client was granted anything".to_owned(),
        (None, None) => "no client was granted anything; admins may read and write all rows".to_owned(),
        (_, Some(table)) => format!("nothing was granted for table {table}, or for every table"),
    };
    output.rows(&columns, rows, &nobody)?;
    talk_of_plaintext(by_tls, output);
    for withdrawn in &found.withdrawn {
        output.talk(withdraw::withdrawn_text(withdrawn));
    }
    if let (Some(client), Some(table)) = (&args.client, &args.table) {
        output.talk(match &found.may {
            Some(right) => format!("effective right: client/{client} may {} table {table}", verb(right.known())),
            None => format!("effective right: none of client/{client} to table {table}"),
        });
    }
    Ok(Exit::Done)
}

fn verb(right: Option<Right>) -> &'static str {
    right.map_or("use an unknown right on", Right::verb)
}

fn text(changed: &AccessChanged, asked: Right, revoke: bool) -> String {
    let client = grantee_text(changed.client.as_deref(), Some(asked));
    let table = changed.table.as_ref().map_or_else(|| "every table".to_owned(), |name| format!("table {name}"));
    let still = changed.may.as_ref().filter(|_| revoke).and_then(|right| right.known()).filter(|right| *right >= asked);
    let limit = weight_limit_text(changed.weight_max);
    let said = match (revoke, changed.changed) {
        (false, true) => format!("{client} may {} {table}{limit}", asked.verb()),
        (false, false) => {
            let granted = changed.granted.as_ref().and_then(|right| right.known());
            format!("{client} may {} {table}{limit} already", verb(granted))
        }
        // Grants to single clients or to single tables stay, and so do wider ones.
        (true, true) if changed.client.is_none() || changed.table.is_none() => {
            let left = changed.granted.as_ref().map_or("", |_| "; the right to read remains");
            format!("the grant to {client} for {table} is revoked{left}; see `archon access list` for other rights")
        }
        (true, true) if changed.granted.is_some() && still.is_none() => {
            format!("{client} may no longer {} {table}, but may still read it; `revoke read` ends that", asked.verb())
        }
        (true, true) => format!("{client} may no longer {} {table}", asked.verb()),
        (true, false) => format!("no such right was granted to {client} for {table}"),
    };
    let still = still.map_or_else(String::new, |right| {
        format!(", but may still {} it by a grant to every client or for every table", right.verb())
    });
    format!("{said}{still}{}", behind_text(changed.nodes_behind_count, &changed.nodes_behind))
}

/// Describes the nodes that do not apply a change yet.
pub(super) fn behind_text(count: u32, named: &[String]) -> String {
    match count as usize {
        0 => String::new(),
        count => {
            let more = if count > named.len() { ", …" } else { "" };
            let nodes = crate::output::count_text(count, "node does", "nodes do");
            format!("; {nodes} not apply it yet: {}{more}", named.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::OpenEnum;

    fn changed() -> AccessChanged {
        AccessChanged {
            client: Some("shop".into()),
            table: Some("orders".into()),
            changed: true,
            granted: Some(OpenEnum::Known(Right::Write)),
            weight_max: None,
            may: None,
            access_version: 7,
            nodes_behind: vec![],
            nodes_behind_count: 0,
        }
    }

    #[test]
    fn change_names_the_right_and_the_nodes_behind() {
        assert_eq!(text(&changed(), Right::Write, false), "client/shop may write to table orders");
        let behind = AccessChanged { nodes_behind: vec!["athens".into()], nodes_behind_count: 1, ..changed() };
        assert!(text(&behind, Right::Write, false).ends_with("; 1 node does not apply it yet: athens"));
        let already = AccessChanged { changed: false, ..changed() };
        assert_eq!(text(&already, Right::Read, false), "client/shop may write to table orders already");
        let everybody = AccessChanged { client: None, table: None, ..changed() };
        assert_eq!(text(&everybody, Right::Read, false), "every client may read every table");
    }

    #[test]
    fn grant_of_own_names_its_weight_limit() {
        let own = AccessChanged { granted: Some(OpenEnum::Known(Right::Own)), weight_max: Some(100), ..changed() };
        assert_eq!(
            text(&own, Right::Own, false),
            "participant/shop may own partitions of table orders up to weight 100"
        );
        let already = text(&AccessChanged { changed: false, ..own }, Right::Own, false);
        assert!(already.ends_with("of table orders up to weight 100 already"), "{already}");
    }

    #[test]
    fn revoked_right_covered_by_a_wider_one_is_reported() {
        let taken = AccessChanged { granted: None, ..changed() };
        assert_eq!(text(&taken, Right::Write, true), "client/shop may no longer write to table orders");
        let reads = AccessChanged { granted: Some(OpenEnum::Known(Right::Read)), ..changed() };
        assert_eq!(
            text(&reads, Right::Write, true),
            "client/shop may no longer write to table orders, but may still read it; `revoke read` ends that"
        );
        let still = AccessChanged { may: Some(OpenEnum::Known(Right::Write)), ..taken.clone() };
        assert!(text(&still, Right::Write, true).contains("but may still write to it"));
        let reads = AccessChanged { may: Some(OpenEnum::Known(Right::Read)), ..taken };
        assert!(
            !text(&reads, Right::Write, true).contains("may still"),
            "the remaining right is covered by the first \
                                                            part"
        );
        let everybody = AccessChanged { client: None, granted: None, ..changed() };
        assert_eq!(
            text(&everybody, Right::Read, true),
            "the grant to every client for table orders is revoked; see `archon access list` for other rights"
        );
    }
}
