//! Handshakes over loopback: accepted and rejected peers, and their errors.

use crate::support::{authority, echo, handmade, handmade_until, identity, issue, pair, shake, tls, uri};
use archon_security::{ExpectedPeer, Protocol, Tls, TlsError};
use rcgen::ExtendedKeyUsagePurpose::ClientAuth;
use rcgen::SanType;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

#[tokio::test]
async fn both_sides_know_identity_of_peer() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    for who in ["client/shop", "node/sparta", "coordinator/1", "participant/billing", "operator/o", "admin/alice"] {
        let (_directory, client) = tls(&issue(&authority, who));
        for (protocol, expected) in
            [(Protocol::Frames, ExpectedPeer::Node("athens".to_owned())), (Protocol::Grpc, ExpectedPeer::Servers)]
        {
            let (dialled, accepted) = pair().await;
            let (dialled, accepted) =
                tokio::join!(client.connect(dialled, "127.0.0.1", &expected, protocol), server.accept(accepted));
            let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
            assert_eq!(dialled.peer().map(|peer| peer.to_string()).as_deref(), Some("node/athens"));
            assert_eq!(accepted.peer().map(|peer| peer.to_string()).as_deref(), Some(who));
            assert_eq!((dialled.protocol(), accepted.protocol()), (Some(protocol), Some(protocol)));
            echo(&mut dialled, &mut accepted).await.unwrap();
        }
    }
}

#[tokio::test]
async fn unexpected_server_is_rejected() {
    let authority = authority();
    let (_client, client) = tls(&issue(&authority, "client/shop"));
    for (who, expected, right) in [
        ("coordinator/1", ExpectedPeer::Coordinators, true),
        ("coordinator/1", ExpectedPeer::Coordinator(1), true),
        ("coordinator/1", ExpectedPeer::Servers, true),
        ("coordinator/1", ExpectedPeer::Coordinator(2), false),
        ("coordinator/1", ExpectedPeer::Node("1".to_owned()), false),
        ("node/athens", ExpectedPeer::Node("athens".to_owned()), true),
        ("node/athens", ExpectedPeer::Servers, true),
        ("node/athens", ExpectedPeer::Node("sparta".to_owned()), false),
        ("node/athens", ExpectedPeer::Coordinators, false),
        ("node/athens", ExpectedPeer::Coordinator(1), false),
    ] {
        let (_server, server) = tls(&issue(&authority, who));
        let (dialled, _) = shake(&client, &server, "127.0.0.1", &expected).await;
        match dialled {
            Ok(_) => assert!(right, "{who} was taken for {expected}"),
            Err(TlsError::Stranger { found, .. }) => assert!(!right && found == identity(who), "{found} {expected}"),
            Err(other) => panic!("{who}, {expected}: {other}"),
        }
    }
}

#[tokio::test]
async fn server_certificate_must_name_dialled_host() {
    let authority = authority();
    let (_server, server) = tls(&issue(&authority, "node/athens"));
    let (_client, client) = tls(&issue(&authority, "client/shop"));
    for host in ["localhost", "127.0.0.2", "::1"] {
        let (dialled, accepted) = shake(&client, &server, host, &ExpectedPeer::Servers).await;
        let error = dialled.unwrap_err();
        assert!(matches!(error, TlsError::Certificate(_)), "{host}: {error:?}");
        assert!(error.to_string().contains(&format!("--host {host}")), "{error}");
        let refused = accepted.unwrap_err();
        assert!(matches!(refused, TlsError::Refused(_)), "{refused:?}");
    }
    let (dialled, _accepted) = pair().await;
    let error = client.connect(dialled, "a b", &ExpectedPeer::Servers, Protocol::Grpc).await.unwrap_err();
    assert!(matches!(error, TlsError::Host(_)), "{error:?}");
}

#[tokio::test]
async fn peer_of_authority_with_same_name_is_rejected() {
    let (ours, theirs) = (authority(), authority());
    let (_server, server) = tls(&issue(&ours, "node/athens"));
    let (_client, client) = tls(&issue(&theirs, "client/shop"));
    let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    let error = dialled.unwrap_err().to_string();
    assert!(error.contains("its certificate is refused") && error.contains("of another cluster?"), "{error}");
    assert!(accepted.is_err());

    // A client that trusts our authority, with a certificate of the other one.
    let mut issued = issue(&theirs, "client/shop");
    issued.authorities_pem = [theirs.believed_pem(), ours.believed_pem()].concat();
    let (_client, client) = tls(&issued);
    let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    let error = accepted.unwrap_err();
    assert!(matches!(error, TlsError::Certificate(_)), "{error:?}");
    assert!(error.to_string().contains("of another cluster?"), "{error}");
    // The client learns that this handshake failed when it reads its first byte.
    let error = dialled.unwrap().read_u8().await.unwrap_err();
    let said = archon_security::in_words(&error).unwrap().to_string();
    assert!(said.contains("refuses this process's certificate"), "{said}");
}

/// Returns a client that trusts our authority and has no certificate.
fn without_certificate(authorities_pem: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authorities_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn client_without_certificate_is_rejected() {
    let authority = authority();
    let (_server, server) = tls(&issue(&authority, "node/athens"));
    let connector = without_certificate(authority.believed_pem());
    let (dialled, accepted) = pair().await;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let (dialled, accepted) = tokio::join!(connector.connect(name, dialled), server.accept(accepted));
    let error = accepted.unwrap_err();
    assert!(matches!(error, TlsError::NoCertificate), "{error:?}");
    assert!(dialled.unwrap().read_u8().await.is_err(), "nothing can be said on it");
}

#[tokio::test]
async fn certificate_without_identity_is_rejected() {
    let usages = [rcgen::ExtendedKeyUsagePurpose::ServerAuth, ClientAuth];
    let at = SanType::IpAddress("127.0.0.1".parse().unwrap());
    let two = vec![uri("archon:///client/shop"), uri("archon:///admin/alice")];
    for names in [vec![at.clone()], two, vec![uri("spiffe://shop")]] {
        let stranger = handmade(names, &usages);
        let ours = authority();
        let mut issued = issue(&ours, "node/athens");
        issued.authorities_pem.push_str(&stranger.authorities_pem);
        let (_server, server) = tls(&issued);
        let (dialled, accepted) = pair().await;
        let connector = with_certificate(&stranger, ours.believed_pem());
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let (_dialled, accepted) = tokio::join!(connector.connect(name, dialled), server.accept(accepted));
        let error = accepted.unwrap_err();
        assert!(matches!(error, TlsError::NoIdentity(_)), "{error:?}");
    }
}

/// Returns a client that shows any certificate.
fn with_certificate(issued: &archon_certificates::IssuedCredentials, authorities_pem: &str) -> TlsConnector {
    use rustls::pki_types::PrivateKeyDer;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authorities_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn certificate_of_client_cannot_serve() {
    let authority = authority();
    let (_client, client) = tls(&issue(&authority, "client/shop"));
    let (_server, server) = tls(&issue(&authority, "admin/alice"));
    let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    let error = dialled.unwrap_err();
    assert!(matches!(error, TlsError::Certificate(_)), "{error:?}");
    assert!(accepted.is_err());
    // Even if it names the host: its usages do not allow serving.
    let at = vec![uri("archon:///client/shop"), SanType::IpAddress("127.0.0.1".parse().unwrap())];
    let made = handmade(at, &[ClientAuth]);
    let (_server, server) = tls(&made);
    let mut issued = issue(&authority, "client/shop");
    issued.authorities_pem.push_str(&made.authorities_pem);
    let (_client, client) = tls(&issued);
    let (dialled, _) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    let error = dialled.unwrap_err().to_string();
    assert!(error.contains("not valid for its purpose") || error.contains("extended key usage"), "{error}");
}

#[tokio::test]
async fn plaintext_is_detected_on_both_sides() {
    let authority = authority();
    let (_server, server) = tls(&issue(&authority, "node/athens"));
    for said in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"ARCHON x, and some more"] {
        let (mut dialled, accepted) = pair().await;
        dialled.write_all(said).await.unwrap();
        let error = server.accept(accepted).await.unwrap_err();
        assert!(matches!(error, TlsError::Plaintext), "{error:?}");
    }
    let (dialled, mut accepted) = pair().await;
    accepted.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let error = server.connect(dialled, "127.0.0.1", &ExpectedPeer::Servers, Protocol::Grpc).await.unwrap_err();
    assert!(matches!(error, TlsError::Plaintext) && error.to_string().contains("--tls-dir"), "{error:?}");
}

/// Returns the first message of a client that supports only TLS 1.2: no extension names another version.
fn hello_of_tls_1_2() -> Vec<u8> {
    let mut body = vec![3, 3]; // TLS 1.2
    body.extend([7; 32]); // random
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]); // no session, ECDHE-ECDSA-AES128-GCM-SHA256, no compression
    let groups = [0, 10, 0, 4, 0, 2, 0, 23]; // P-256
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3]; // ECDSA on it
    body.extend([0, 16]);
    body.extend([groups, signatures].concat());
    let length = u8::try_from(body.len()).unwrap();
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat()
}

#[tokio::test]
async fn versions_before_tls_1_3_are_rejected() {
    let (_server, server) = tls(&issue(&authority(), "node/athens"));
    let (mut dialled, accepted) = pair().await;
    dialled.write_all(&hello_of_tls_1_2()).await.unwrap();
    let error = server.accept(accepted).await.unwrap_err();
    assert!(matches!(error, TlsError::Broken(_)), "{error:?}");
    let mut answer = Vec::new();
    dialled.read_to_end(&mut answer).await.unwrap();
    // An alert record: fatal, protocol_version.
    assert_eq!((answer.first(), answer.get(5..7)), (Some(&21), Some(&[2, 70][..])), "{answer:?}");
}

/// TLS resumes sessions without requesting certificates: the expiry of a certificate must be noticed anyway.
#[tokio::test]
async fn resumed_session_with_expired_certificate_is_rejected() {
    let authority = authority();
    let stranger = handmade_until(vec![uri("archon:///client/shop")], &[ClientAuth], Duration::from_secs(5));
    let end = archon_security::Certificate::read(
        &CertificateDer::from_pem_slice(stranger.certificate_pem.as_bytes()).unwrap(),
    )
    .unwrap()
    .not_after;
    let mut issued = issue(&authority, "node/athens");
    issued.authorities_pem.push_str(&stranger.authorities_pem);
    let (_server, server) = tls(&issued);
    let connector = with_certificate(&stranger, authority.believed_pem());
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let (dialled, accepted) = pair().await;
    let (dialled, accepted) = tokio::join!(connector.connect(name.clone(), dialled), server.accept(accepted));
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.expect("it holds for five seconds"));
    // The session tickets come with the first byte.
    accepted.write_all(b"!").await.unwrap();
    accepted.flush().await.unwrap();
    assert_eq!(dialled.read_u8().await.unwrap(), b'!');
    while SystemTime::now() <= end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (dialled, accepted) = pair().await;
    let (dialled, accepted) = tokio::join!(connector.connect(name, dialled), server.accept(accepted));
    let error = accepted.unwrap_err();
    assert!(matches!(error, TlsError::Certificate(_)) && error.to_string().contains("expired"), "{error:?}");
    assert_eq!(dialled.unwrap().get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed), "or nothing was shown");
}

#[tokio::test]
async fn silent_strangers_do_not_block_other_handshakes() {
    let authority = authority();
    let (_server, server) = tls(&issue(&authority, "node/athens"));
    let (_client, client) = tls(&issue(&authority, "client/shop"));
    let (mut strangers, mut accepting) = (Vec::new(), JoinSet::new());
    for _ in 0..100 {
        let (dialled, accepted) = pair().await;
        strangers.push(dialled);
        let server = Arc::clone(&server);
        accepting.spawn(async move { server.accept(accepted).await });
    }
    // Each of the strangers has been polled once when this yields.
    tokio::task::yield_now().await;
    let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
    assert_eq!(accepting.len(), strangers.len());
    let ended = accepting.try_join_next();
    assert!(ended.is_none(), "they are still waited for: {ended:?}");
}

/// Far above the duration of a handshake, which is a second at most on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn silent_peer_times_out() {
    let (_server, server) = tls(&issue(&authority(), "node/athens"));
    let (_dialled, accepted) = pair().await;
    let error = tokio::time::timeout(TIMEOUT, server.accept(accepted)).await.unwrap().unwrap_err();
    assert!(matches!(error, TlsError::Silent(_)), "{error:?}");
    let (dialled, _accepted) = pair().await;
    let connecting = Tls::connect(&server, dialled, "127.0.0.1", &ExpectedPeer::Servers, Protocol::Grpc);
    let error = tokio::time::timeout(TIMEOUT, connecting).await.unwrap().unwrap_err();
    assert!(matches!(error, TlsError::Silent(_)), "{error:?}");
}
