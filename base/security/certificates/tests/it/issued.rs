//! Content of issued certificates.

use crate::support::{DAY, YEAR, authority, der, hosts, identity, issue, load, now, read, some_hosts};
use archon_certificates::{Authority, CertificatesError, validity};
use archon_security::{CredentialsError, Identity, Role};
use std::collections::BTreeSet;
use std::time::Duration;
use x509_parser::prelude::{FromDer as _, X509Certificate};

const MEMBERS: [&str; 6] =
    ["coordinator/1", "node/athens", "participant/billing-3", "client/shop", "operator/dashboard", "admin/alice"];

/// Parses a certificate in full.
fn parsed<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let der = der(pem);
    let (rest, certificate) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    look(&certificate)
}

#[test]
fn credentials_of_every_role_load_with_its_identity() {
    let authority = authority();
    for text in MEMBERS {
        let credentials = load(&issue(&authority, text), now()).unwrap();
        assert_eq!(credentials.identity.to_string(), text);
        assert!(!credentials.certificate.is_authority);
        assert_eq!(credentials.certificate.subject, format!("CN={}", credentials.identity.name()));
        assert_eq!(credentials.certificate.issuer, "CN=Archon authority of test");
        assert_eq!(credentials.authorities_expire, authority.certificate().not_after);
    }
}

#[test]
fn only_certificates_of_servers_allow_server_auth() {
    let authority = authority();
    for text in MEMBERS {
        let server = identity(text).role().is_server();
        parsed(&issue(&authority, text).certificate_pem, |certificate| {
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            assert_eq!((usage.server_auth, usage.client_auth), (server, true), "{text}");
            assert!(!usage.any && !usage.code_signing && usage.other.is_empty(), "{text}");
        });
    }
}

#[test]
fn certificate_allows_only_digital_signatures() {
    parsed(&issue(&authority(), "node/athens").certificate_pem, |certificate| {
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.digital_signature());
        assert_eq!(usage.value.flags, 1, "and for nothing else");
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && !constraints.value.ca);
        assert_eq!(
            certificate.public_key().algorithm.parameters.as_ref().unwrap().as_oid().unwrap().to_id_string(),
            "1.2.840.10045.3.1.7"
        );
    });
}

#[test]
fn server_certificate_names_hosts_once_and_in_order() {
    let (authority, athens) = (authority(), identity("node/athens"));
    let given = hosts(&["athens.example.org", "10.0.0.7", "::1", "athens.example.org", "localhost"]);
    let issued = authority.issue(&athens, &given, DAY, now()).unwrap();
    let certificate = read(&issued.certificate_pem);
    assert_eq!(certificate.hosts, ["athens.example.org", "10.0.0.7", "::1", "localhost"]);
    assert_eq!(certificate.identity, Ok(athens.clone()));
    let none = authority.issue(&athens, &[], DAY, now()).unwrap_err();
    assert!(matches!(&none, CertificatesError::NoHost(of) if *of == athens), "{none}");
    assert!(none.to_string().contains("--host"), "{none}");
    for text in ["client/shop", "operator/o", "admin/alice"] {
        let unwanted = authority.issue(&identity(text), &given, DAY, now()).unwrap_err();
        assert!(matches!(&unwanted, CertificatesError::HostUnwanted(_)), "{text}: {unwanted}");
    }
}

/// The agent of a participant may serve over the network.
#[test]
fn participant_certificate_serves_only_with_hosts() {
    let (authority, billing) = (authority(), identity("participant/billing"));
    for given in [hosts(&[]), hosts(&["10.0.0.7"])] {
        let issued = authority.issue(&billing, &given, DAY, now()).unwrap();
        assert_eq!(load(&issued, now()).unwrap().certificate.hosts.len(), given.len());
        parsed(&issued.certificate_pem, |certificate| {
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            assert_eq!((usage.server_auth, usage.client_auth), (!given.is_empty(), true));
        });
    }
}

#[test]
fn validity_tolerates_clock_skew_and_ends_as_requested() {
    let authority = authority();
    for role in Role::ALL {
        let who = Identity::new(role, if role == Role::Coordinator { "1" } else { "a" }).unwrap();
        let days = if matches!(role, Role::Operator | Role::Admin) { 30 } else { 90 };
        assert_eq!(validity(role), days * DAY);
        let issued = authority.issue(&who, &some_hosts(&who), validity(role), now()).unwrap();
        let certificate = read(&issued.certificate_pem);
        assert_eq!(certificate.not_before, now() - Duration::from_secs(300));
        assert_eq!(certificate.not_after, now() + days * DAY);
        assert!(load(&issued, now() + days * DAY).is_ok());
        let late = load(&issued, now() + days * DAY + Duration::from_secs(1)).unwrap_err();
        assert!(matches!(late, CredentialsError::Date { .. }), "{late}");
    }
    let alice = identity("admin/alice");
    for wrong in [Duration::ZERO, Duration::from_secs(60), 11 * YEAR, Duration::MAX] {
        let error = authority.issue(&alice, &[], wrong, now()).unwrap_err();
        assert!(matches!(error, CertificatesError::Period(_)), "{wrong:?}: {error}");
    }
}

#[test]
fn certificate_does_not_outlive_authority() {
    let authority = authority();
    let end = authority.certificate().not_after;
    assert!(end > now() + 3_650 * DAY, "ten years");
    let issued = authority.issue(&identity("client/shop"), &[], 90 * DAY, end - 10 * DAY).unwrap();
    assert_eq!(read(&issued.certificate_pem).not_after, end);
    let first = authority.issue(&identity("client/shop"), &[], 90 * DAY, now() - Duration::from_secs(60)).unwrap();
    assert_eq!(read(&first.certificate_pem).not_before, authority.certificate().not_before);
    for (at, said) in [(end, "until"), (end + DAY, "until"), (now() - DAY, "from")] {
        let error = authority.issue(&identity("client/shop"), &[], DAY, at).unwrap_err();
        assert!(matches!(error, CertificatesError::AuthorityDate { .. }), "{error}");
        assert!(error.to_string().contains(said) && error.to_string().contains("archon cert ca"), "{error}");
    }
}

#[test]
fn serial_numbers_are_random_and_unique() {
    let authority = authority();
    let serials: BTreeSet<Vec<u8>> = (0..64)
        .map(|_| {
            parsed(&issue(&authority, "client/shop").certificate_pem, |certificate| certificate.raw_serial().to_vec())
        })
        .collect();
    assert_eq!(serials.len(), 64);
    assert!(serials.iter().all(|serial| serial.len() <= 20 && serial[0] < 0x80), "positive, as the standard wants");
    assert!(serials.iter().any(|serial| serial.len() >= 16), "128 bits");
}

#[test]
fn authority_cannot_sign_further_authorities() {
    let authority = Authority::create("harbour", now()).unwrap();
    assert!(authority.certificate().is_authority);
    parsed(authority.believed_pem(), |certificate| {
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
        assert_eq!(certificate.subject().to_string(), "CN=Archon authority of harbour");
    });
    for wrong in ["", "a b", &"x".repeat(45)] {
        let error = Authority::create(wrong, now()).unwrap_err();
        assert!(matches!(error, CertificatesError::Cluster(_)), "{wrong:?}: {error}");
    }
    assert!(Authority::create(&"x".repeat(44), now()).is_ok());
}

#[test]
fn authority_of_same_name_is_not_trusted() {
    let mut issued = issue(&authority(), "client/shop");
    issued.authorities_pem = authority().believed_pem().to_owned();
    let error = load(&issued, now()).unwrap_err().to_string();
    assert!(error.contains("tls.crt") && error.contains("not one that ca.crt vouches for"), "{error}");
}
