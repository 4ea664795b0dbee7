//! Requests from untrusted senders.

use crate::support::{DAY, authority, hosts, identity, load, now, read};
use archon_certificates::{CertificatesError, IssuedCredentials, Request, request};
use archon_security::Identity;
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType};

fn uri(text: &str) -> SanType {
    SanType::URI(Ia5String::try_from(text).unwrap())
}

/// Creates a request with any content.
fn of(names: Vec<SanType>, key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    change(&mut params);
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn why(pem: &[u8]) -> String {
    match Request::read(pem).unwrap_err() {
        CertificatesError::Request(why) => why,
        other => panic!("{other}"),
    }
}

#[test]
fn signed_request_does_not_contain_the_key() {
    let (authority, athens) = (authority(), identity("node/athens"));
    let asked = request(&athens, &hosts(&["athens.example.org", "10.0.0.7"])).unwrap();
    assert!(!asked.request_pem.contains("PRIVATE") && asked.key_pem.contains("PRIVATE"));
    assert!(!format!("{asked:?}").contains("PRIVATE"));
    let found = Request::read(asked.request_pem.as_bytes()).unwrap();
    assert_eq!((found.identity(), found.hosts()), (&athens, &hosts(&["athens.example.org", "10.0.0.7"])[..]));
    let certificate_pem = authority.sign(&found, found.identity(), found.hosts(), 90 * DAY, now()).unwrap();
    let issued = IssuedCredentials {
        certificate_pem,
        key_pem: asked.key_pem,
        authorities_pem: authority.believed_pem().to_owned(),
    };
    let credentials = load(&issued, now()).unwrap();
    assert_eq!(credentials.identity, athens);
    assert_eq!(credentials.certificate.hosts, ["athens.example.org", "10.0.0.7"]);
}

#[test]
fn signer_chooses_identity_and_hosts() {
    let authority = authority();
    let asked = request(&identity("admin/alice"), &[]).unwrap();
    let found = Request::read(asked.request_pem.as_bytes()).unwrap();
    let signed = authority.sign(&found, &identity("node/athens"), &hosts(&["athens"]), DAY, now()).unwrap();
    let certificate = read(&signed);
    assert_eq!((certificate.identity, certificate.hosts), (Ok(identity("node/athens")), vec!["athens".to_owned()]));
    assert_eq!(certificate.subject, "CN=athens");
    assert!(matches!(
        authority.sign(&found, &identity("node/athens"), found.hosts(), DAY, now()),
        Err(CertificatesError::NoHost(_))
    ));
}

#[test]
fn request_cannot_become_an_authority() {
    let authority = authority();
    let key = KeyPair::generate().unwrap();
    let asked = of(vec![uri("archon:///client/shop")], &key, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let found = Request::read(asked.as_bytes()).unwrap();
    let certificate_pem = authority.sign(&found, found.identity(), found.hosts(), DAY, now()).unwrap();
    assert!(!read(&certificate_pem).is_authority);
    let der = crate::support::der(&certificate_pem);
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert!(!parsed.extended_key_usage().unwrap().unwrap().value.server_auth);
    assert!(!parsed.key_usage().unwrap().unwrap().value.key_cert_sign());
}

#[test]
fn invalid_requests_are_rejected_with_reason() {
    let key = KeyPair::generate().unwrap();
    let right = of(vec![uri("archon:///client/shop")], &key, |_| {});
    assert_eq!(Request::read(right.as_bytes()).unwrap().identity(), &identity("client/shop"));
    let certificate = authority().believed_pem().to_owned();
    let two = vec![uri("archon:///client/shop"), uri("archon:///admin/alice")];
    let mail = vec![uri("archon:///client/shop"), SanType::Rfc822Name(Ia5String::try_from("a@b").unwrap())];
    let pattern = vec![uri("archon:///node/athens"), SanType::DnsName(Ia5String::try_from("*.example.org").unwrap())];
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    for (pem, part) in [
        (String::new(), "-----BEGIN CERTIFICATE REQUEST-----"),
        ("garbage".to_owned(), "-----BEGIN CERTIFICATE REQUEST-----"),
        (certificate, "-----BEGIN CERTIFICATE REQUEST-----"),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n".to_owned(), "parse"),
        (right.repeat(200), "more than 65536 bytes"),
        (of(vec![], &key, |_| {}), "0 URIs"),
        (of(two, &key, |_| {}), "2 URIs"),
        (of(vec![uri("archon:///king/athens")], &key, |_| {}), "role is none of coordinator, node"),
        (of(vec![uri("archon:///coordinator/one")], &key, |_| {}), "number"),
        (of(vec![uri("https:///node/athens")], &key, |_| {}), "archon:///"),
        (of(mail, &key, |_| {}), "no use for"),
        (of(pattern, &key, |_| {}), "no pattern"),
        (of(vec![uri("archon:///client/shop")], &p384, |_| {}), "P-256"),
    ] {
        let why = why(pem.as_bytes());
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(why(&[0xff; 100]).contains("not PEM"));
}

#[test]
fn modified_request_is_rejected() {
    let asked = request(&identity("client/shop"), &[]).unwrap().request_pem;
    let der = pem_bytes(&asked);
    let mut refused = 0;
    for place in 0..der.len() {
        let mut changed = der.clone();
        changed[place] ^= 1;
        match Request::read(pem_of(&changed).as_bytes()) {
            Err(_) => refused += 1,
            // Bytes outside the signed part: lengths, and the number of unused bits of the signature.
            Ok(found) => assert_eq!(found.identity(), &identity("client/shop"), "byte {place}"),
        }
    }
    assert!(refused >= der.len() - 4, "{refused} of {}", der.len());
}

/// Returns the bytes of a PEM block.
fn pem_bytes(pem: &str) -> Vec<u8> {
    use rustls::pki_types::CertificateSigningRequestDer;
    use rustls::pki_types::pem::PemObject as _;
    CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

fn pem_of(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in der.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            text.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}

#[test]
fn requests_check_hosts_by_role() {
    let refused = |who: &str, at: &[&str]| request(&identity(who), &hosts(at)).unwrap_err();
    assert!(matches!(refused("node/athens", &[]), CertificatesError::NoHost(_)));
    assert!(matches!(refused("client/shop", &["localhost"]), CertificatesError::HostUnwanted(_)));
    assert!("king/athens".parse::<Identity>().is_err());
}
