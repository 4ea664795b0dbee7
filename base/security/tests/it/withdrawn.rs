//! Revoked certificates.

use crate::support::{authority, echo, identity, issue, issue_at, pair, shake, tls};
use archon_security::{ExpectedPeer, Protocol, Tls, TlsError, WithdrawnCertificates, in_words};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// Revokes the certificates of an identity that begin before `before`, or all of them.
fn withdraw(at: &Tls, who: &str, before: Option<SystemTime>) {
    at.withdraw(WithdrawnCertificates::from([(identity(who), before)]));
}

#[tokio::test]
async fn revoked_certificate_is_rejected_at_once() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    let (_bob, bob) = tls(&issue(&authority, "admin/bob"));
    let (dialled, accepted) = shake(&alice, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    echo(&mut dialled, &mut accepted).await.unwrap();

    withdraw(&server, "admin/alice", Some(SystemTime::now()));
    // An existing connection is closed on the next request.
    let error = echo(&mut dialled, &mut accepted).await.unwrap_err().to_string();
    assert!(error.contains("that of admin/alice") && error.contains("was withdrawn"), "{error}");
    // A new connection is rejected with the reason, also with a resumed session.
    for resumed in [true, false] {
        let fresh = tls(&issue(&authority, "admin/alice"));
        let client = if resumed { &alice } else { &fresh.1 };
        let (dialled, accepted) = shake(client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
        let error = accepted.unwrap_err();
        assert!(error.is_refusal() && error.refused() == Some(&identity("admin/alice")), "{error:?}");
        let heard = dialled.unwrap().read_u8().await.unwrap_err();
        if !resumed {
            let said = in_words(&heard).unwrap().to_string();
            assert!(said.contains("refuses this process's certificate: it was withdrawn"), "{said}");
        }
    }
    // Other identities are not affected.
    let (dialled, accepted) = shake(&bob, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
    // All certificates are accepted again.
    server.withdraw(WithdrawnCertificates::new());
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    let (dialled, accepted) = shake(&alice, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
}

#[tokio::test]
async fn certificate_issued_after_revocation_is_accepted() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    let (_old, old) = tls(&issue_at(&authority, "admin/alice", SystemTime::now() - Duration::from_secs(60)));
    let (_new, new) = tls(&issue(&authority, "admin/alice"));
    withdraw(&server, "admin/alice", Some(new.credentials().certificate.not_before));
    let (dialled, accepted) = shake(&new, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
    let (_, accepted) = shake(&old, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    assert!(matches!(accepted.unwrap_err(), TlsError::Revoked(_)));
}

/// As of a removed coordinator, whose number is not reused.
#[tokio::test]
async fn client_rejects_revoked_certificate_of_server() {
    let authority = authority();
    let (_third, server) = tls(&issue(&authority, "coordinator/3"));
    let (_athens, client) = tls(&issue(&authority, "node/athens"));
    let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Coordinators).await;
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    echo(&mut dialled, &mut accepted).await.unwrap();
    withdraw(&client, "coordinator/3", None);
    assert!(echo(&mut dialled, &mut accepted).await.is_err(), "the connection of before");
    let (dialled, _) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Coordinators).await;
    let error = dialled.unwrap_err();
    assert!(matches!(error, TlsError::Revoked(_)) && error.to_string().contains("coordinator/3"), "{error}");
}

/// Otherwise an admin who revokes their own certificate gets "outcome unknown".
#[tokio::test]
async fn admin_who_revokes_own_certificate_gets_the_answer() {
    let authority = authority();
    let (_one, server) = tls(&issue(&authority, "coordinator/1"));
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    let (dialled, accepted) = shake(&alice, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    echo(&mut dialled, &mut accepted).await.unwrap();
    let begun = Instant::now();
    withdraw(&server, "admin/alice", Some(SystemTime::now()));
    // Servers also read the next request while they make the answer.
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(100), accepted.read(&mut byte)).await.is_err(), "turned away too soon");
    accepted.write_all(b"!").await.unwrap();
    accepted.flush().await.unwrap();
    assert_eq!(dialled.read_u8().await.unwrap(), b'!');
    // A peer that only reads is disconnected as well.
    let turned_away = async { while timeout(Duration::from_millis(50), accepted.read(&mut byte)).await.is_err() {} };
    timeout(Duration::from_secs(60), turned_away).await.expect("it listens on");
    assert!(begun.elapsed() >= Duration::from_secs(2), "an answer that nodes are waited for would not arrive");
}

/// Otherwise a rejected peer sometimes gets a connection reset: its sent data is unread when the connection is
/// closed.
#[tokio::test]
async fn rejected_peer_reads_reason_despite_unread_data() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    withdraw(&server, "admin/alice", Some(SystemTime::now()));
    for _ in 0..20 {
        let (dialled, accepted) = pair().await;
        let asked = async {
            let connected = alice.connect(dialled, "127.0.0.1", &ExpectedPeer::Servers, Protocol::Grpc).await;
            let mut dialled = connected.unwrap();
            // A peer that sends several messages before any answer.
            for _ in 0..200 {
                let sent = async {
                    dialled.write_all(&[7; 100]).await?;
                    dialled.flush().await
                };
                if let Err(error) = sent.await {
                    return error;
                }
                tokio::task::yield_now().await;
            }
            dialled.read_u8().await.unwrap_err()
        };
        let (refused, heard) = tokio::join!(server.accept(accepted), asked);
        assert!(matches!(refused, Err(TlsError::Revoked(_))), "{refused:?}");
        let said = in_words(&heard).unwrap_or_else(|| panic!("heard nothing but {heard}"));
        assert!(said.to_string().contains("it was withdrawn"), "{said}");
    }
}
