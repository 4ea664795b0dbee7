//! Metrics and probes of an agent.

use crate::support::{SOON, World};
use archon_testkit::wait_for_async;
use std::time::Duration;

const PATIENT: (Duration, Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(30), Duration::from_secs(45));

/// Waits until `/metrics` has all of these lines.
async fn wait_for_lines(world: &World, wanted: &[&str]) {
    let poll = async || {
        let (status, text) = world.request("GET /metrics", &[], b"").await;
        assert_eq!(status, 200);
        let text = text.as_str().unwrap().to_owned();
        let missing: Vec<_> = wanted.iter().filter(|line| !text.lines().any(|found| found == **line)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} in\n{text}")) }
    };
    wait_for_async("metrics", SOON, poll).await;
}

async fn probe(world: &World, path: &str) -> (u16, String) {
    let (status, text) = world.request(&format!("GET {path}"), &[], b"").await;
    (status, text.as_str().unwrap().trim_end().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_follow_a_session() {
    let world = World::start_with(SOON, Some(PATIENT)).await;
    assert_eq!(probe(&world, "/livez").await, (200, "ok".to_owned()));
    assert_eq!(probe(&world, "/readyz").await, (503, "no service is connected".to_owned()));
    let first = ["archon_agent_service_connected 0", "archon_agent_permission_left_seconds 0.0"];
    wait_for_lines(&world, &first).await;
    let mut service = world.connect().await;
    world.grant(3);
    service.next_acquire().await;
    wait_for_lines(&world, &["archon_agent_service_connected 1", "archon_agent_events_unconfirmed 1"]).await;
    wait_for_async("readiness", SOON, async || {
        let found = probe(&world, "/readyz").await;
        if found.0 == 200 { Ok(()) } else { Err(found.1) }
    })
    .await;
    service.answer("acquired", 1, 3, 1).await;
    service.permitted().await;
    assert_eq!(service.get("/v1/nothing").await.0, 404);
    let lines = [
        "archon_agent_registered 1",
        "archon_agent_partitions 1",
        "archon_agent_events_unconfirmed 0",
        "archon_agent_events_total 1",
        "archon_agent_sessions_total 1",
        "archon_agent_requests_refused_total{kind=\"not_found\"} 1",
        "archon_agent_sessions_ended_total{reason=\"service_stops\"} 0",
    ];
    wait_for_lines(&world, &lines).await;
    let (_, text) = world.request("GET /metrics", &[], b"").await;
    let left =
        text.as_str().unwrap().lines().find_map(|line| line.strip_prefix("archon_agent_permission_left_seconds "));
    assert!(left.unwrap().parse::<f64>().unwrap() > 0.0, "{text}");
    // Of the participant library: other tests of this process count there as well.
    assert!(text.as_str().unwrap().contains("archon_participant_registrations_total "), "{text}");

    assert_eq!(service.post("/v1/answers", &serde_json::json!({"answer": "stop"})).await.0, 200);
    let released = service.next_release().await;
    service.answer("released", released.sequence, 3, released.epoch).await;
    let lines = [
        "archon_agent_sessions_ended_total{reason=\"service_stops\"} 1",
        "archon_agent_events_total 3",
        "archon_agent_partitions 0",
        "archon_agent_permission_left_seconds 0.0",
        "archon_agent_service_connected 0",
    ];
    wait_for_lines(&world, &lines).await;
    assert_eq!(probe(&world, "/readyz").await.0, 503);
    world.end();
}
