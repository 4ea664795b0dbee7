//! The image, and the cluster of Compose.

use crate::truth::{Member, check_command, port, seconds, stop_deadline, text, texts, yaml};
use crate::{root, source};
use serde_json::Value;
use std::collections::BTreeSet;

const COMPOSE: &str = "packaging/docker/compose.yaml";
/// Where the image has the program.
const PROGRAM: &str = "/usr/bin/archon";

fn workspace() -> toml::Table {
    source("Cargo.toml").parse().expect("TOML")
}

/// Version of the workspace, as images are named.
pub(crate) fn version() -> String {
    workspace()["workspace"]["package"]["version"].as_str().expect("a version").to_owned()
}

/// The services that are coordinators or nodes.
fn members() -> Vec<(Member, Value)> {
    let documents = yaml(COMPOSE);
    let [compose] = &documents[..] else { panic!("{COMPOSE} is one document") };
    let services = compose["services"].as_object().expect("services");
    let member = |(name, service): (&String, &Value)| {
        let variables = service["environment"].as_object().expect("variables").iter();
        let variables = variables.map(|(name, value)| (name.clone(), text(value).to_owned())).collect();
        let member = Member { place: format!("{COMPOSE}: {name}"), words: texts(&service["command"]), variables };
        (member, service.clone())
    };
    services.iter().filter(|(name, _)| *name != "cli").map(member).collect()
}

#[test]
fn a_service_was_started_with_what_the_program_does_not_know() {
    let members = members();
    assert_eq!(members.len(), 6);
    for (member, service) in &members {
        member.check();
        assert_eq!(text(&service["image"]), format!("archon:{}", version()), "{}", member.place);
        let limit = seconds(text(&service["stop_grace_period"]));
        assert!(limit > stop_deadline(member.verb()), "{}: killed after {limit:?}", member.place);
        assert_eq!(service["read_only"], true);
        let [volume] = &texts(&service["volumes"])[..] else { panic!("{}: one volume", member.place) };
        assert!(volume.ends_with(":/var/lib/archon"), "{}: {volume}", member.place);
    }
}

#[test]
fn each_service_is_asked_for_its_health_at_its_own_port() {
    for (member, service) in members() {
        let asked = texts(&service["healthcheck"]["test"]);
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let ["CMD", PROGRAM, words @ ..] = &asked[..] else { panic!("{}: {asked:?}", member.place) };
        check_command(&member.place, words);
        let address = words.iter().find_map(|word| word.strip_prefix("--coordinators=")).expect("an address");
        assert_eq!(
            (port(address), address.starts_with("127.0.0.1:")),
            (member.port("listen"), true),
            "{}",
            member.place
        );
    }
}

#[test]
fn services_call_each_other_by_their_names_and_ports() {
    let members = members();
    let name = |member: &Member| member.place.rsplit(' ').next().unwrap_or_default().to_owned();
    let coordinators = || members.iter().map(|(member, _)| member).filter(|member| member.verb() == "coordinator");
    let address = |member: &Member| format!("{}:{}", name(member), member.port("listen"));
    let list = coordinators().map(address).collect::<Vec<_>>().join(",");
    let peers: Vec<_> = coordinators().map(|member| format!("{}={}", member.wants("id"), address(member))).collect();
    for (member, _) in &members {
        match member.verb() {
            "coordinator" => assert_eq!(member.wants("peers"), peers.join(","), "{}", member.place),
            _ => {
                assert_eq!(member.wants("coordinators"), list, "{}", member.place);
                assert_eq!(member.wants("advertise"), address(member), "{}", member.place);
                assert_eq!(member.wants("name"), name(member));
            }
        }
    }
}

#[test]
fn the_image_was_built_by_another_toolchain_and_without_a_room() {
    let dockerfile = source("packaging/docker/Dockerfile");
    let workspace = workspace();
    let toolchain = workspace["workspace"]["package"]["rust-version"].as_str().expect("a version");
    assert!(dockerfile.contains(&format!("FROM rust:{toolchain}-slim-")), "not by Rust {toolchain}");
    assert!(dockerfile.contains(&format!("-t archon:{} ", version())));
    assert!(
        dockerfile.contains(&format!("ENTRYPOINT [\"{PROGRAM}\"]"))
            && dockerfile.contains(&format!("/out/archon {PROGRAM}\n"))
    );
    assert!(dockerfile.contains("\nUSER 65532:65532\n") && dockerfile.contains("\nSTOPSIGNAL SIGTERM\n"));
    assert!(workspace["profile"].get("dist").is_some() && dockerfile.contains("--profile dist -p archon-cli"));
    let exposed = dockerfile.lines().find_map(|line| line.strip_prefix("EXPOSE ")).expect("ports");
    let exposed: BTreeSet<u16> = exposed.split(' ').map(|port| port.parse().expect("a port")).collect();
    let told = |member: &Member, setting: &str| member.value(setting).map(port);
    let used = members()
        .into_iter()
        .flat_map(|(member, _)| ["listen", "metrics-listen", "http-listen"].map(|setting| told(&member, setting)));
    assert_eq!(used.flatten().collect::<BTreeSet<u16>>(), exposed);

    let sent = source("packaging/docker/Dockerfile.dockerignore");
    let sent: BTreeSet<&str> = sent.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let rooms = workspace["workspace"]["members"].as_array().expect("members").iter().filter_map(toml::Value::as_str);
    let needed = rooms.filter_map(|room| room.split('/').next()).chain(["Cargo.toml", "Cargo.lock", "LICENSE"]);
    assert_eq!(sent, needed.collect::<BTreeSet<_>>(), "what the build gets is what it needs");
    assert!(sent.iter().all(|name| root().join(name).exists()));
}
