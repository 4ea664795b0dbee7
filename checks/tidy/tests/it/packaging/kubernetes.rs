//! Kubernetes manifests.

use super::version;
use archon_tidy::packaging::kubernetes::{BASE, KINDS, TLS, container, document, member, set, tls_patch, variables};
use archon_tidy::packaging::{port, text, texts, yaml};
use archon_tidy::{names, root};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the names of a set's pods.
fn pods(set: &Value) -> Vec<(u64, String)> {
    let first = set["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
    let replicas = set["spec"]["replicas"].as_u64().expect("replicas");
    let name = text(&set["metadata"]["name"]);
    (first..first + replicas).map(|ordinal| (ordinal, format!("{name}-{ordinal}"))).collect()
}

#[test]
fn pod_has_the_settings_of_its_kind() {
    for kind in KINDS {
        let member = member(kind);
        assert_eq!(member.verb(), kind);
        member.check_settings();
    }
}

/// A variable is expanded in an argument if it is defined, and in another variable if it is defined before; otherwise
/// the text stays unchanged.
#[test]
fn argument_names_existing_variables() {
    let check = |place: &str, known: &[&str], text: &str| {
        for named in text.split("$(").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(known.contains(&named), "{place}: $({named}) is not known in {text}");
        }
    };
    for kind in KINDS {
        let member = member(kind);
        let patch = tls_patch(kind);
        for variables in [&member.variables, &variables(container(&patch))] {
            let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
            for (index, (name, value)) in variables.iter().enumerate() {
                check(name, &names[..index], value);
            }
        }
        let names: Vec<&str> = member.variables.iter().map(|(name, _)| name.as_str()).collect();
        for word in &member.words {
            check(&member.place, &names, word);
        }
    }
}

#[test]
fn probes_use_the_metrics_port() {
    for kind in KINDS {
        let (member, set) = (member(kind), set(kind));
        let container = container(&set);
        let ports = container["ports"].as_array().expect("ports");
        let numbered = |name: &str| {
            let port = ports.iter().find(|port| port["name"] == name).unwrap_or_else(|| panic!("{kind}: no {name}"));
            port["containerPort"].as_u64().expect("a port")
        };
        assert_eq!(
            (numbered("grpc"), numbered("metrics")),
            (member.port("listen").into(), member.port("metrics-listen").into())
        );
        for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "metrics"}), "{kind}: {probe}");
        }
    }
}

#[test]
fn pods_resolve_under_their_names() {
    for kind in KINDS {
        let (member, set) = (member(kind), set(kind));
        let service = document(&format!("{BASE}/{kind}.yaml"), "Service");
        assert_eq!(
            (&set["spec"]["serviceName"], &service["spec"]["clusterIP"]),
            (&service["metadata"]["name"], &json!("None"))
        );
        assert_eq!(
            service["spec"]["publishNotReadyAddresses"], true,
            "a first quorum is made of coordinators that are not ready"
        );
        for (name, setting) in [("grpc", "listen"), ("metrics", "metrics-listen")] {
            let wanted = json!({"name": name, "port": member.port(setting), "targetPort": name});
            assert!(
                service["spec"]["ports"].as_array().is_some_and(|ports| ports.contains(&wanted)),
                "{kind}: {wanted}"
            );
        }
        let labels = &set["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&set["spec"]["selector"]["matchLabels"], &service["spec"]["selector"]), (labels, labels));
        assert!(labels["app.kubernetes.io/component"] == kind);
        let budget = document(&format!("{BASE}/{kind}.yaml"), "PodDisruptionBudget");
        assert_eq!(
            (&budget["spec"]["maxUnavailable"], &budget["spec"]["selector"]["matchLabels"]),
            (&json!(1), labels)
        );
        let apart = &set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            [0];
        assert_eq!(
            (&apart["labelSelector"]["matchLabels"], text(&apart["topologyKey"])),
            (labels, "kubernetes.io/hostname")
        );
    }
    let (coordinator, node) = (member("coordinator"), member("node"));
    let address = |name: &str, service: &str, port: u16| format!("{name}.{service}.$(POD_NAMESPACE).svc:{port}");
    let coordinators: Vec<_> = pods(&set("coordinator"))
        .into_iter()
        .map(|(ordinal, pod)| (ordinal, address(&pod, "archon-coordinator", coordinator.port("listen"))))
        .collect();
    let peers: Vec<_> = coordinators.iter().map(|(ordinal, address)| format!("{ordinal}={address}")).collect();
    assert_eq!(coordinator.wants("peers"), peers.join(","));
    assert_eq!(
        coordinator.wants("id"),
        "metadata.labels['apps.kubernetes.io/pod-index']",
        "voters are numbered by ordinals"
    );
    assert_eq!(coordinators[0].0, 1, "from 1");
    let list: Vec<_> = coordinators.iter().map(|(_, address)| address.as_str()).collect();
    assert_eq!(node.wants("coordinators"), list.join(","));
    assert_eq!(node.wants("name"), "$(POD_NAME)");
    assert_eq!(node.wants("advertise"), address("$(POD_NAME)", "archon-node", node.port("listen")));
}

#[test]
fn pods_keep_data_and_have_no_privileges() {
    for kind in KINDS {
        let (member, set) = (member(kind), set(kind));
        let (pod, container) = (&set["spec"]["template"]["spec"], container(&set));
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!((&pod["enableServiceLinks"], &pod["automountServiceAccountToken"]), (&json!(false), &json!(false)));
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert!(
            container["resources"]["requests"]["cpu"].is_string()
                && container["resources"]["limits"]["memory"].is_string()
        );
        let claim = &set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
        let mount = &container["volumeMounts"][0];
        assert_eq!(&mount["name"], claim);
        assert!(member.wants("data-dir").starts_with(&format!("{}/", text(&mount["mountPath"]))), "{kind}");
        // The console is unrestricted: it is for users who may forward a port.
        assert!(member.value("http-listen").is_none_or(|address| address.starts_with("127.0.0.1:")));
    }
    let policy = document(&format!("{BASE}/network-policy.yaml"), "NetworkPolicy");
    let ports = |rule: usize| -> BTreeSet<u64> {
        let ports = policy["spec"]["ingress"][rule]["ports"].as_array().expect("ports").iter();
        ports.map(|port| port["port"].as_u64().expect("a port")).collect()
    };
    let members = KINDS.map(member);
    let told =
        |setting: &str| members.iter().map(|member| port(member.wants(setting)).into()).collect::<BTreeSet<u64>>();
    assert_eq!((ports(0), ports(1)), (told("listen"), told("metrics-listen")));
    // A port that every pod reaches lets every pod disturb liveness probes.
    let scrapers = json!([{
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"archon.metrics": "true"}},
    }]);
    assert_eq!(policy["spec"]["ingress"][1]["from"], scrapers);
}

#[test]
fn tls_pods_have_secrets_and_no_plaintext() {
    for kind in KINDS {
        let (set, patch) = (set(kind), tls_patch(kind));
        assert_eq!(patch["metadata"]["name"], set["metadata"]["name"]);
        let (of_patch, of_base) = (container(&patch), container(&set));
        assert_eq!(of_patch["name"], of_base["name"], "a patch for another container adds one");
        let plaintext = json!({"name": "ARCHON_INSECURE", "$patch": "delete"});
        assert!(of_patch["env"].as_array().is_some_and(|all| all.contains(&plaintext)));
        let mount = text(&of_patch["volumeMounts"][0]["mountPath"]);
        assert!(variables(of_patch).contains(&("ARCHON_TLS_DIR".to_owned(), format!("{mount}/$(POD_NAME)"))));
        let file = |pod: &str, name: &str| json!({"key": name, "path": format!("{pod}/{name}")});
        let secret = |pod: &str| {
            let items = ["ca.crt", "tls.crt", "tls.key"].map(|name| file(pod, name));
            json!({"secret": {"name": pod, "items": items}})
        };
        let wanted: Vec<Value> = pods(&set).iter().map(|(_, pod)| secret(pod)).collect();
        let projected = &patch["spec"]["template"]["spec"]["volumes"][0]["projected"];
        assert_eq!(projected["sources"], Value::Array(wanted));
        // Owned by root, and readable by the process's group.
        assert_eq!(projected["defaultMode"], 0o440);
    }
}

#[test]
fn every_manifest_is_applied() {
    let base = yaml(&format!("{BASE}/kustomization.yaml")).remove(0);
    let mut resources = texts(&base["resources"]);
    resources.push("kustomization.yaml".to_owned());
    resources.sort();
    assert_eq!(resources, names(BASE));
    for kind in KINDS {
        assert_eq!(container(&set(kind))["image"], base["images"][0]["name"]);
    }
    assert_eq!(text(&base["images"][0]["newTag"]), version());
    let tls = yaml(&format!("{TLS}/kustomization.yaml")).remove(0);
    assert!(texts(&tls["resources"]).iter().all(|path| root().join(TLS).join(path).is_dir()));
    assert_eq!(tls["patches"], json!([{"path": "coordinator.yaml"}, {"path": "node.yaml"}]));
}
