//! One order on several members: all are checked before any is changed, and a failure reports the outcome for each.

use super::list_text;
use crate::exit::Failure;

/// Checks every member; if one must be refused, nothing is changed.
///
/// # Errors
/// The first refusal; its message states that no other member was changed.
pub(super) async fn judge<T>(
    names: &[String],
    judge: impl AsyncFn(&str) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut judged = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        judged.push(judge(name).await.map_err(|failure| unchanged(failure, names, at))?);
    }
    Ok(judged)
}

/// Carries an order out on every member.
///
/// # Errors
/// The first failure, with the members already changed and those that were left out.
pub(super) async fn act<T>(
    names: &[String],
    judged: Vec<T>,
    act: impl AsyncFn(&str, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (at, (name, judged)) in names.iter().zip(judged).enumerate() {
        act(name, judged).await.map_err(|failure| partly(failure, names, at))?;
    }
    Ok(())
}

fn unchanged(failure: Failure, names: &[String], at: usize) -> Failure {
    let others = names.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, name)| name);
    match names.len() {
        0 | 1 => failure,
        _ => Failure { message: format!("{}\n  unchanged as well: {}", failure.message, list_text(others)), ..failure },
    }
}

/// Adds the outcome for the members before and after the one at which an order failed.
pub(super) fn partly(failure: Failure, names: &[String], at: usize) -> Failure {
    let mut message = failure.message;
    for (what, which) in [("done already", &names[..at]), ("not done", names.get(at + 1..).unwrap_or_default())] {
        if !which.is_empty() {
            message.push_str(&format!("\n  {what}: {}", list_text(which)));
        }
    }
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use std::cell::RefCell;

    fn refuse(name: &str, refused: &str) -> Result<(), Failure> {
        if name == refused { Err(Failure::new(Exit::Refused, format!("{name} cannot"))) } else { Ok(()) }
    }

    #[tokio::test]
    async fn orders_on_several_members_report_each_outcome() {
        let names = ["athens", "byzantium", "cyrene"].map(str::to_owned);
        let error = judge(&names, async |name: &str| refuse(name, "byzantium")).await.expect_err("refused");
        assert_eq!(error.message, "byzantium cannot\n  unchanged as well: athens cyrene");
        let alone = judge(&names[..1], async |name: &str| refuse(name, "athens")).await.expect_err("refused");
        assert_eq!(alone.message, "athens cannot");
        let judged = judge(&names, async |_: &str| Ok(())).await.expect("all may");
        let done = RefCell::new(Vec::new());
        let order = async |name: &str, ()| {
            refuse(name, "byzantium")?;
            done.borrow_mut().push(name.to_owned());
            Ok(())
        };
        let error = act(&names, judged, order).await.expect_err("refused");
        assert_eq!((error.exit, done.into_inner()), (Exit::Refused, vec!["athens".to_owned()]));
        assert_eq!(error.message, "byzantium cannot\n  done already: athens\n  not done: cyrene");
    }
}
