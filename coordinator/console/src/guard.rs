//! Checks of the origin and role of requests. A browser sends requests for any page it shows, so changes must come
//! from the console's own page or a program, and the caller must have the required role.

use crate::error::ApiError;
use archon_client::ErrorKind;
use archon_security::{Caller, Role, callers, is_local_name};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode, Uri};

/// Required header of all changes: pages of other origins cannot set it without a preflight request.
pub(crate) const HEADER: &str = "x-archon-console";

/// Rejects requests that another site may have caused a browser to send.
///
/// # Errors
/// The failed check.
pub(crate) fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap, encrypted: bool) -> Result<(), ApiError> {
    let refused = |why: String| Err(forbidden(why));
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(host) = uri.authority().map(|authority| authority.as_str()).or_else(|| text(HOST)) else {
        return refused("the request names no host".to_owned());
    };
    // With DNS rebinding, a foreign name that resolves to this address would make this page part of the foreign
    // origin. With TLS, the certificate identifies the server.
    if !encrypted && !is_local_name(host) {
        return refused(format!(
            "this console has no TLS and accepts requests for IP addresses only, not for {host}: \
                                open it by its address"
        ));
    }
    if method.is_safe() {
        return Ok(());
    }
    if let Some(origin) = text(ORIGIN) {
        let own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        if !own {
            return refused(format!("a page of {origin} may not change anything here"));
        }
    }
    if !headers.contains_key(HEADER) {
        return refused(format!("a change requires the header `{HEADER}: 1`"));
    }
    Ok(())
}

/// Rejects a caller without the role for the corresponding gRPC call.
///
/// # Errors
/// The roles that may.
pub(crate) fn check_role(caller: &Caller, call: &str, encrypted: bool) -> Result<(), ApiError> {
    if !encrypted {
        return Ok(());
    }
    let Some(identity) = &caller.identity else {
        return Err(forbidden("the caller has no identity".to_owned()));
    };
    // Coordinators use gRPC, which also checks whether they were removed.
    if identity.role() == Role::Coordinator {
        return Err(forbidden("the console is for operators and admins, not for coordinators".to_owned()));
    }
    caller.check_role(callers(call), call).map_err(|detail| forbidden(detail.message))
}

/// Returns the error of an unauthorized caller.
pub(crate) fn forbidden(why: String) -> ApiError {
    ApiError::new(ErrorKind::Refused, why).with_status(StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::sync::Arc;

    fn said(method: &Method, headers: &[(&'static str, &str)], encrypted: bool) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        check_origin(method, &Uri::from_static("/api/v1/nodes"), &map, encrypted)
            .map_err(|error| serde_json::to_string(&error.message()).unwrap())
    }

    #[test]
    fn coordinators_are_refused_despite_read_rights() {
        let judged = |identity: &str| {
            let (address, identity) = (IpAddr::from([127, 0, 0, 1]), Some(Arc::new(identity.parse().unwrap())));
            let caller = Caller::new(address, address, identity, Arc::default());
            check_role(&caller, "/archon.v1.Admin/Status", true).is_ok()
        };
        assert_eq!(["admin/alice", "operator/olga", "coordinator/3"].map(judged), [true, true, false]);
    }

    #[test]
    fn foreign_host_names_are_refused_without_tls() {
        for host in ["127.0.0.1:8101", "localhost:8101", "[::1]:8101", "LOCALHOST"] {
            assert_eq!(said(&Method::GET, &[("host", host)], false), Ok(()), "{host}");
        }
        for host in ["rebound.example:8101", "127.0.0.1.rebound.example", "localhost.rebound.example:1"] {
            assert!(said(&Method::GET, &[("host", host)], false).unwrap_err().contains("open it by its address"));
            assert_eq!(said(&Method::GET, &[("host", host)], true), Ok(()), "by TLS its certificate says so");
        }
        assert!(said(&Method::GET, &[], false).is_err());
    }

    #[test]
    fn changes_from_other_origins_are_refused() {
        let host = ("host", "127.0.0.1:8101");
        let own = ("origin", "http://127.0.0.1:8101");
        assert_eq!(said(&Method::POST, &[host, own, (HEADER, "1")], false), Ok(()));
        assert_eq!(said(&Method::POST, &[host, (HEADER, "1")], false), Ok(()), "a program sends no origin");
        for origin in ["http://127.0.0.1:9999", "https://elsewhere.example", "null"] {
            let refused = said(&Method::POST, &[host, ("origin", origin), (HEADER, "1")], false);
            assert!(refused.unwrap_err().contains("may not change anything here"), "{origin}");
        }
        assert!(said(&Method::DELETE, &[host, own], false).unwrap_err().contains(HEADER));
    }
}
