//! The Compose cluster.

use super::{Member, text, texts, yaml};
use serde_json::Value;

const COMPOSE: &str = "packaging/docker/compose.yaml";
/// Path of the program in the image.
pub const PROGRAM: &str = "/usr/bin/archon";

/// Returns the services that are coordinators or nodes, each with its description.
///
/// # Panics
/// If the file has another form.
#[must_use]
pub fn members() -> Vec<(Member, Value)> {
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

/// Returns the health command of a service, without the program.
///
/// # Panics
/// If it is another program's.
#[must_use]
pub fn health_command(member: &Member, service: &Value) -> Vec<String> {
    let mut asked = texts(&service["healthcheck"]["test"]);
    assert_eq!(asked[..2], ["CMD", PROGRAM], "{}", member.place);
    asked.split_off(2)
}
