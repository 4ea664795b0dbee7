//! Answers of the administrative methods that carry documents.

use super::admin::{Admins, Result};
use super::call::Call;
use super::refuse;
use archon_documents::{
    AlterNode, AlterTable, CancelRebalance, ChangeUpgrade, CheckCluster, CheckNode, CheckTable, Configure, CreateTable,
    DescribePartition, DropTable, Effect, Explain, ForceLeader, GiveOrder, ListAccess, ListEvents, ListNodes,
    ListSettings, ListTables, LoseNode, MergePartition, Method, MethodCall, RemoveNode, SetAccess, SetNode, ShowQuorum,
    ShowRebalance, ShowStatus, ShowUpgrade, SplitPartition, Withdraw, read_request, write,
};
use archon_proto::convert::ids::request_id;
use archon_proto::documents::{AnswerDocuments, Answering};
use archon_proto::v1;
use archon_types::ErrorDetail;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Answers one method.
type Answer = fn(Arc<Admins>, Request<v1::AdminRequest>) -> Answering;

macro_rules! answers {
    ($($request:ident: $answer:ident,)+) => {
        /// Every method with its function.
        const ANSWERS: &[(&str, Answer)] = &[$((
            <$request as MethodCall>::METHOD.name,
            |admins, request| Box::pin(async move {
                let document = read_request::<$request>(&request.get_ref().document);
                let call = Call::with_document(&admins.context().audit, &request, document.as_ref().ok());
                let answer = match checked(document, &request) {
                    Ok(document) => admins.$answer(document, &call).await,
                    Err(error) => Err(error),
                };
                call.end(answer.as_ref().err());
                written(answer.and_then(|answer: <$request as MethodCall>::Answer| write(&answer)))
            }),
        ),)+];
    };
}

answers! {
    ShowStatus: status_of,
    CheckCluster: looked_over,
    Explain: explained,
    ListEvents: happened,
    ListNodes: nodes,
    SetNode: set,
    AlterNode: alter_node_of,
    CheckNode: checked_node,
    RemoveNode: remove,
    LoseNode: lose,
    DescribePartition: described,
    ForceLeader: force,
    GiveOrder: ordered,
    SplitPartition: split,
    MergePartition: merge,
    ListTables: tables,
    CreateTable: create,
    AlterTable: alter,
    CheckTable: checked_table,
    DropTable: drop_table_of,
    PlanRebalance: plan,
    ApplyPlan: apply,
    ShowRebalance: rebalance,
    CancelRebalance: cancel,
    ListSettings: settings,
    Configure: configured,
    ListAccess: access,
    SetAccess: set_access_of,
    Withdraw: withdrawn,
    ShowQuorum: quorum_seen,
    ChangeQuorum: changed_quorum,
    TransferLead: transferred,
    ShowUpgrade: shown_upgrade,
    ChangeUpgrade: changed_upgrade,
}

/// Returns the document, if its fields are valid, and a changing request has an id.
fn checked<T: MethodCall>(document: Result<T>, request: &Request<v1::AdminRequest>) -> Result<T> {
    let document = document?;
    document.check()?;
    if T::METHOD.effect == Effect::Writes {
        request_id(&request.get_ref().request_id, "AdminRequest.request_id")?;
    }
    Ok(document)
}

fn written(answer: Result<Vec<u8>, ErrorDetail>) -> Result<Response<v1::AdminAnswer>, Status> {
    answer.map(|document| Response::new(v1::AdminAnswer { document: document.into() })).map_err(refuse)
}

impl AnswerDocuments for Admins {
    fn answer(self: Arc<Self>, method: &'static Method, request: Request<v1::AdminRequest>) -> Answering {
        match ANSWERS.iter().find(|(name, _)| *name == method.name) {
            Some((_, answer)) => answer(self, request),
            None => Box::pin(async { Err(Status::unimplemented("this coordinator does not know the method")) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_documents::METHODS;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_an_answer() {
        let answered: BTreeSet<&str> = ANSWERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(answered, METHODS.iter().map(|method| method.name).collect());
    }
}
