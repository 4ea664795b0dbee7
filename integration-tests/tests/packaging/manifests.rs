//! Compose and Kubernetes manifests.

use crate::truth::{Options, check_command, check_member, stop_deadline};
use archon_tidy::packaging::kubernetes::{BASE, KINDS, TLS, container, member, set, tls_patch, variables};
use archon_tidy::packaging::{compose, seconds, text};
use archon_tidy::source;

#[test]
fn compose_service_uses_known_settings() {
    for (member, service) in compose::members() {
        check_member(&member);
        let words = compose::health_command(&member, &service);
        check_command(&member.place, &words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn compose_service_is_killed_only_after_its_drain() {
    for (member, service) in compose::members() {
        let limit = seconds(text(&service["stop_grace_period"]));
        assert!(limit > stop_deadline(member.verb()), "{}: killed after {limit:?}", member.place);
    }
}

#[test]
fn pod_uses_known_settings() {
    for kind in KINDS {
        check_member(&member(kind));
        let options = Options::of(&[kind]);
        for (variable, _) in variables(container(&tls_patch(kind))) {
            options.check_variable(TLS, &variable);
        }
    }
}

#[test]
fn pod_is_killed_only_after_its_drain() {
    for kind in KINDS {
        let (pod, deadline) = (set(kind)["spec"]["template"]["spec"].clone(), stop_deadline(kind));
        let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("a grace period");
        assert!(grace > deadline.as_secs(), "{kind}: killed after {grace} s, and a stop may take {deadline:?}");
        let limit = format!("{} s at most", deadline.as_secs_f64().ceil());
        assert!(source(&format!("{BASE}/{kind}.yaml")).contains(&limit), "{kind}: not {limit:?}");
    }
}
