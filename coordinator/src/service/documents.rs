//! Answers of the administrative methods that carry documents. Each file of functions names its methods with `answers!`; the method table
//! decides which there must be.

use super::call::Call;
use super::refuse;
use crate::service::admins::{Admins, Result};
use archon_documents::{Effect, Method, MethodCall, read_request, write};
use archon_proto::convert::ids::request_id;
use archon_proto::documents::{AnswerDocuments, AnswerFuture, DOCUMENT_BYTES_MAX};
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Request, Response, Status};

/// Answers the method with this request.
pub(super) trait Answers<T: MethodCall> {
    /// Answers one call with a checked request.
    fn answer(&self, asked: T, call: &Call<'_>) -> impl Future<Output = Result<T::Answer>> + Send;
}

/// Names the functions that answer methods, by their requests: `DropTable: drop_table_of`.
macro_rules! answers {
    ($($request:ty: $function:ident,)+) => {
        $(impl $crate::service::documents::Answers<$request> for Admins {
            async fn answer(
                &self,
                asked: $request,
                call: &Call<'_>,
            ) -> Result<<$request as archon_documents::MethodCall>::Answer> {
                self.$function(asked, call).await
            }
        })+
    };
}
pub(super) use answers;

/// Answers one method.
type Answer = fn(Arc<Admins>, Request<v1::AdminRequest>) -> AnswerFuture;

macro_rules! table {
    ($($request:path,)+) => {
        /// Every method with its function.
        const ANSWERS: &[(&str, Answer)] = &[$((
            <$request as MethodCall>::METHOD.name,
            |admins, request| Box::pin(answered::<$request>(admins, request)),
        ),)+];
    };
}
archon_documents::for_each_request!(table);

/// Length from which a request is long, in bytes: plans and tables with many split keys are.
const LONG_REQUEST_BYTES: usize = 1024 * 1024;
/// Maximum number of long requests that are read and answered at once: one takes several times its length.
pub(super) const LONG_REQUESTS_MAX: usize = 2;

/// Takes a place for a request of this length; short ones need none.
///
/// # Errors
/// `Overloaded`, if all places are taken.
fn take_place(places: &Semaphore, bytes: usize) -> Result<Option<SemaphorePermit<'_>>> {
    if bytes < LONG_REQUEST_BYTES {
        return Ok(None);
    }
    places.try_acquire().map(Some).map_err(|_| {
        let why = format!(
            "the request has {bytes} bytes, and {LONG_REQUESTS_MAX} others of more than {LONG_REQUEST_BYTES} bytes are being \
             carried out; try again when they have ended"
        );
        ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(500)
    })
}

/// Reads a request, checks it, has it answered, and records the outcome.
async fn answered<T: MethodCall>(
    admins: Arc<Admins>,
    request: Request<v1::AdminRequest>,
) -> Result<Response<v1::AdminAnswer>, Status>
where
    Admins: Answers<T>,
{
    let place = take_place(&admins.long_requests, request.get_ref().document.len());
    let document = match &place {
        Ok(_) => read_request::<T>(&request.get_ref().document),
        Err(error) => Err(error.clone()),
    };
    let call = Call::with_document(&admins.context().audit, &request, document.as_ref().ok());
    let answer = match checked(document, &request) {
        Ok(document) => Answers::answer(&*admins, document, &call).await,
        Err(error) => Err(error),
    };
    call.end(answer.as_ref().err());
    written(answer.and_then(|answer| write(&answer)))
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
    let answer = answer.and_then(|document| match document.len() {
        ..=DOCUMENT_BYTES_MAX => Ok(document),
        bytes => Err(ErrorDetail::new(
            ErrorKind::Refused,
            format!("the answer has {bytes} bytes; the limit is {DOCUMENT_BYTES_MAX}; ask for one object at a time"),
        )),
    });
    answer.map(|document| Response::new(v1::AdminAnswer { document: document.into() })).map_err(refuse)
}

impl AnswerDocuments for Admins {
    fn answer(self: Arc<Self>, method: &'static Method, request: Request<v1::AdminRequest>) -> AnswerFuture {
        match ANSWERS.iter().find(|(name, _)| *name == method.name) {
            Some((_, answer)) => answer(self, request),
            None => Box::pin(async {
                Err(Status::unimplemented(
                    "unknown method; this coordinator may be older than the \
                                                                caller",
                ))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_documents::METHODS;
    use std::collections::BTreeSet;

    #[test]
    fn document_longer_than_clients_read_is_refused() {
        assert!(written(Ok(vec![0; DOCUMENT_BYTES_MAX])).is_ok());
        let status = written(Ok(vec![0; DOCUMENT_BYTES_MAX + 1])).unwrap_err();
        assert!(status.message().contains("the limit is"), "{status}");
    }

    #[test]
    fn long_requests_above_limit_are_refused_and_short_ones_are_not() {
        let places = Semaphore::new(LONG_REQUESTS_MAX);
        let held: Vec<_> = (0..LONG_REQUESTS_MAX).map(|_| take_place(&places, LONG_REQUEST_BYTES).unwrap()).collect();
        let refused = take_place(&places, LONG_REQUEST_BYTES).unwrap_err();
        assert!(refused.kind == ErrorKind::Overloaded && refused.retry_after_ms.is_some(), "{refused}");
        assert!(take_place(&places, LONG_REQUEST_BYTES - 1).unwrap().is_none());
        drop(held);
        assert!(take_place(&places, LONG_REQUEST_BYTES).unwrap().is_some());
    }

    #[test]
    fn every_method_has_an_answer() {
        let answered: BTreeSet<&str> = ANSWERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(answered, METHODS.iter().map(|method| method.name).collect());
    }
}
