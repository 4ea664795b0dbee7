//! The Compose cluster.

use super::version;
use archon_tidy::packaging::compose::{health_command, members};
use archon_tidy::packaging::{Member, port, text, texts};

#[test]
fn service_has_image_settings_and_one_volume() {
    let members = members();
    assert_eq!(members.len(), 6);
    for (member, service) in &members {
        member.check_settings();
        assert_eq!(text(&service["image"]), format!("archon:{}", version()), "{}", member.place);
        assert_eq!(service["read_only"], true);
        let [volume] = &texts(&service["volumes"])[..] else { panic!("{}: one volume", member.place) };
        assert!(volume.ends_with(":/var/lib/archon"), "{}: {volume}", member.place);
    }
}

#[test]
fn service_health_check_uses_its_own_port() {
    for (member, service) in members() {
        let words = health_command(&member, &service);
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
fn services_reference_each_other_by_name_and_port() {
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
