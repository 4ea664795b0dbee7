//! Identities: a role and a name, as in certificates.

use archon_types::limits::{check_member_name, check_name};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Role of an identity, which determines its rights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A voter of the quorum. Its name is its number.
    Coordinator,
    /// A node that holds partitions of the key-value store.
    Node,
    /// A process of another service that owns partitions of lease tables.
    Participant,
    /// A client, which reads and writes keys.
    Client,
    /// Reads the state of the cluster, but neither changes it nor accesses keys.
    Operator,
    /// Changes the cluster; includes the rights of clients and operators.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] =
        [Self::Coordinator, Self::Node, Self::Participant, Self::Client, Self::Operator, Self::Admin];

    /// Returns the name of the role in certificates and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Node => "node",
            Self::Participant => "participant",
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Returns whether the role accepts connections of other members, so that its certificate names hosts.
    pub const fn is_server(self) -> bool {
        matches!(self, Self::Coordinator | Self::Node)
    }

    /// Returns whether a certificate of the role may name hosts. A participant may have an agent that its service
    /// reaches over the network.
    pub const fn may_have_hosts(self) -> bool {
        self.is_server() || matches!(self, Self::Participant)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.word())
    }
}

/// A role and a name. A certificate holds it as its only URI name, `archon:///node/athens`; the common name is for
/// people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    role: Role,
    name: String,
}

/// A text that is not an identity.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text:?} is not an identity: {why}")]
pub struct IdentityError {
    /// The text.
    pub text: String,
    /// The reason.
    pub why: String,
}

/// Prefix of identity URIs.
const SCHEME: &str = "archon:///";

impl Identity {
    /// Creates the identity with this role and name.
    ///
    /// # Errors
    /// The name is not valid for a member; the name of a coordinator is its number, from 1.
    pub fn new(role: Role, name: &str) -> Result<Self, IdentityError> {
        let failed = |why: String| IdentityError { text: format!("{role}/{name}"), why };
        match role {
            Role::Coordinator if number(name).is_none() => {
                return Err(failed("a coordinator's name is its number, from 1".to_owned()));
            }
            Role::Coordinator => {}
            Role::Node | Role::Participant => {
                check_member_name(role.word(), name).map_err(|detail| failed(detail.message))?
            }
            Role::Client | Role::Operator | Role::Admin => {
                check_name(role.word(), name).map_err(|detail| failed(detail.message))?;
            }
        }
        Ok(Self { role, name: name.to_owned() })
    }

    /// Returns the role.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the name, unique within the role.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of a coordinator.
    pub fn coordinator(&self) -> Option<u64> {
        (self.role == Role::Coordinator).then(|| number(&self.name)).flatten()
    }

    /// Returns the URI of the identity, as in certificates: `archon:///node/athens`.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{self}")
    }

    /// Parses the URI of a certificate.
    ///
    /// # Errors
    /// The URI is not an identity.
    pub fn of_uri(uri: &str) -> Result<Self, IdentityError> {
        let failed = |why: &str| IdentityError { text: uri.to_owned(), why: why.to_owned() };
        uri.strip_prefix(SCHEME).ok_or_else(|| failed("it does not begin with archon:///"))?.parse()
    }
}

/// Parses the number of a coordinator. Only the canonical form is valid, so two names never mean one coordinator.
fn number(name: &str) -> Option<u64> {
    name.parse::<u64>().ok().filter(|number| *number > 0 && number.to_string() == name)
}

impl fmt::Display for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.role, self.name)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let failed = |why: String| IdentityError { text: text.to_owned(), why };
        let (role, name) = text.split_once('/').ok_or_else(|| failed("it is not ROLE/NAME".to_owned()))?;
        let role = Role::ALL.into_iter().find(|known| known.word() == role);
        let role = role.ok_or_else(|| {
            let known: Vec<&str> = Role::ALL.iter().map(|role| role.word()).collect();
            failed(format!("its role is none of {}", known.join(", ")))
        })?;
        Self::new(role, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identities_round_trip_as_text_and_uri() {
        for text in
            ["coordinator/1", "node/athens", "participant/billing-3", "client/shop", "operator/o", "admin/alice"]
        {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(Identity::of_uri(&identity.uri()).unwrap(), identity);
            assert_eq!((identity.to_string().as_str(), identity.uri()), (text, format!("archon:///{text}")));
        }
        assert_eq!("coordinator/12".parse::<Identity>().unwrap().coordinator(), Some(12));
        assert_eq!("node/n12".parse::<Identity>().unwrap().coordinator(), None);
        for wrong in [
            "",
            "node",
            "node/",
            "/athens",
            "king/athens",
            "node/a/b",
            "node/a b",
            "coordinator/one",
            "coordinator/0",
            "coordinator/01",
            "coordinator/+1",
            "NODE/athens",
        ] {
            assert!(wrong.parse::<Identity>().is_err(), "{wrong}");
            assert!(Identity::of_uri(&format!("archon:///{wrong}")).is_err(), "{wrong}");
        }
        for wrong in ["archon://node/athens", "node/athens", "https:///node/athens", "archon:////node/athens"] {
            assert!(Identity::of_uri(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_rejected_or_round_trips(text in ".{0,40}") {
            if let Ok(identity) = Identity::of_uri(&format!("{SCHEME}{text}")) {
                prop_assert_eq!(identity.to_string(), text);
            }
        }
    }
}
