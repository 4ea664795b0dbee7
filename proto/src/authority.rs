//! Whether a role may make a call of gRPC, asked before anything of the call is looked at.

use crate::convert::error::status_of;
use archon_security::{Caller, ON_BEHALF_OF, Role, Transport, callers};
use futures::future::{Either, Ready, ready};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tower_layer::Layer;

/// Refuses calls that the caller's role may not make. Without TLS nobody knows who calls, and everybody may.
#[derive(Clone, Copy, Debug)]
pub struct Authority {
    asked: bool,
}

impl Authority {
    /// As a process asks that is reached by `transport`.
    pub const fn of(transport: &Transport) -> Self {
        Self { asked: transport.tls().is_some() }
    }
}

impl<S> Layer<S> for Authority {
    type Service = Authorized<S>;

    fn layer(&self, inner: S) -> Authorized<S> {
        Authorized { inner, asked: self.asked }
    }
}

/// A service whose callers are looked at.
#[derive(Clone, Debug)]
pub struct Authorized<S> {
    inner: S,
    asked: bool,
}

impl<S> Service<http::Request<Body>> for Authorized<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if self.asked {
            match authorized(&request) {
                // From here on it is whoever the call is made for.
                Ok(caller) => drop(request.extensions_mut().insert(caller)),
                Err(status) => return Either::Left(ready(Ok(status.into_http()))),
            }
        }
        Either::Right(self.inner.call(request))
    }
}

/// Who makes a call, if that role may.
fn authorized(request: &http::Request<Body>) -> Result<Caller, tonic::Status> {
    let nobody = || tonic::Status::unauthenticated("who calls is not known");
    // A connection that was not let in by the limit of connections would be nobody's: there is none.
    let connected = request.extensions().get::<Caller>().ok_or_else(nobody)?;
    let identity = connected.identity.as_ref().ok_or_else(nobody)?;
    let path = request.uri().path();
    let caller = match request.headers().get(ON_BEHALF_OF) {
        Some(text) => {
            if identity.role() != Role::Coordinator {
                let why = format!("{identity} may not speak for others: that is for {}", Role::Coordinator);
                return Err(status_of(&connected.refused(path, None, why)));
            }
            let behalf = text.to_str().ok().and_then(|text| connected.on_behalf_of(text));
            behalf.ok_or_else(|| {
                tonic::Status::invalid_argument(format!("{identity} does not say for whom it asks ({ON_BEHALF_OF})"))
            })?
        }
        None => connected.clone(),
    };
    caller.check_role(callers(path), path).map_err(|detail| status_of(&detail))?;
    Ok(caller)
}
