//! Certificates that were withdrawn though the authority vouches for them.

use crate::support::{authority, echo, identity, issue, issue_at, pair, shake, tls};
use archon_security::{Expected, Protocol, Tls, TlsError, WithdrawnCertificates, in_words};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// Certificates of one that begin before that moment, or all of them.
fn withdraw(at: &Tls, who: &str, before: Option<SystemTime>) {
    at.withdraw(WithdrawnCertificates::from([(identity(who), before)]));
}

#[tokio::test]
async fn a_stolen_certificate_was_good_until_it_ended() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    let (_bob, bob) = tls(&issue(&authority, "admin/bob"));
    let (dialled, accepted) = shake(&alice, &server, "127.0.0.1", &Expected::Servers).await;
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    echo(&mut dialled, &mut accepted).await.unwrap();

    withdraw(&server, "admin/alice", Some(SystemTime::now()));
    // Who is there is turned away at the next word.
    let error = echo(&mut dialled, &mut accepted).await.unwrap_err().to_string();
    assert!(error.contains("that of admin/alice") && error.contains("was withdrawn"), "{error}");
    // Who comes is refused, also by the session of before, and told so.
    for resumed in [true, false] {
        let fresh = tls(&issue(&authority, "admin/alice"));
        let client = if resumed { &alice } else { &fresh.1 };
        let (dialled, accepted) = shake(client, &server, "127.0.0.1", &Expected::Servers).await;
        let error = accepted.unwrap_err();
        assert!(error.is_refusal() && error.refused() == Some(&identity("admin/alice")), "{error:?}");
        let heard = dialled.unwrap().read_u8().await.unwrap_err();
        if !resumed {
            let said = in_words(&heard).unwrap().to_string();
            assert!(said.contains("refuses this process's certificate: it was withdrawn"), "{said}");
        }
    }
    // Nobody else is.
    let (dialled, accepted) = shake(&bob, &server, "127.0.0.1", &Expected::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
    // All count again.
    server.withdraw(WithdrawnCertificates::new());
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    let (dialled, accepted) = shake(&alice, &server, "127.0.0.1", &Expected::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
}

#[tokio::test]
async fn whoever_was_given_a_new_certificate_goes_on() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    let (_old, old) = tls(&issue_at(&authority, "admin/alice", SystemTime::now() - Duration::from_secs(60)));
    let (_new, new) = tls(&issue(&authority, "admin/alice"));
    withdraw(&server, "admin/alice", Some(new.credentials().certificate.not_before));
    let (dialled, accepted) = shake(&new, &server, "127.0.0.1", &Expected::Servers).await;
    echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
    let (_, accepted) = shake(&old, &server, "127.0.0.1", &Expected::Servers).await;
    assert!(matches!(accepted.unwrap_err(), TlsError::Revoked(_)));
}

/// Of a removed coordinator, whose number is not given again.
#[tokio::test]
async fn whoever_dials_takes_a_withdrawn_certificate_of_nobody() {
    let authority = authority();
    let (_third, server) = tls(&issue(&authority, "coordinator/3"));
    let (_athens, client) = tls(&issue(&authority, "node/athens"));
    let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &Expected::Coordinators).await;
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    echo(&mut dialled, &mut accepted).await.unwrap();
    withdraw(&client, "coordinator/3", None);
    assert!(echo(&mut dialled, &mut accepted).await.is_err(), "the connection of before");
    let (dialled, _) = shake(&client, &server, "127.0.0.1", &Expected::Coordinators).await;
    let error = dialled.unwrap_err();
    assert!(matches!(error, TlsError::Revoked(_)) && error.to_string().contains("coordinator/3"), "{error}");
}

/// An admin who withdrew the own certificate heard "outcome unknown".
#[tokio::test]
async fn whoever_withdrew_the_own_certificate_heard_no_answer() {
    let authority = authority();
    let (_one, server) = tls(&issue(&authority, "coordinator/1"));
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    let (dialled, accepted) = shake(&alice, &server, "127.0.0.1", &Expected::Servers).await;
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    echo(&mut dialled, &mut accepted).await.unwrap();
    let begun = Instant::now();
    withdraw(&server, "admin/alice", Some(SystemTime::now()));
    // As servers do: the next word is listened for while the answer is made.
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(100), accepted.read(&mut byte)).await.is_err(), "turned away too soon");
    accepted.write_all(b"!").await.unwrap();
    accepted.flush().await.unwrap();
    assert_eq!(dialled.read_u8().await.unwrap(), b'!');
    // Whoever only listens is turned away as well.
    let turned_away = async { while timeout(Duration::from_millis(50), accepted.read(&mut byte)).await.is_err() {} };
    timeout(Duration::from_secs(10), turned_away).await.expect("it listens on");
    assert!(begun.elapsed() >= Duration::from_secs(2), "an answer that nodes are waited for would not arrive");
}

/// At times they heard of a reset connection: what they had sent lay unread where it was closed.
#[tokio::test]
async fn whoever_was_refused_lost_the_reason_among_what_it_had_sent() {
    let authority = authority();
    let (_athens, server) = tls(&issue(&authority, "node/athens"));
    let (_alice, alice) = tls(&issue(&authority, "admin/alice"));
    withdraw(&server, "admin/alice", Some(SystemTime::now()));
    for _ in 0..20 {
        let (dialled, accepted) = pair().await;
        let asked = async {
            let connected = alice.connect(dialled, "127.0.0.1", &Expected::Servers, Protocol::Grpc).await;
            let mut dialled = connected.unwrap();
            // As somebody who says several things before anything is answered.
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
