//! Certificate content: subject, validity period and usages.

use crate::error::CertificatesError;
use crate::host::Host;
use archon_security::{Identity, Role};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    SanType, SerialNumber,
};
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Validity of an authority: ten years including leap days.
pub(crate) const AUTHORITY_VALIDITY: Duration = DAY.saturating_mul(3_652);
/// Tolerated difference between the clocks of machines. A certificate is used as soon as it exists.
const CLOCKS_DIFFER_BY: Duration = Duration::from_secs(5 * 60);
/// Maximum length of a common name (RFC 5280); strict readers reject longer ones.
const COMMON_NAME_BYTES_MAX: usize = 64;

/// Returns the default validity of certificates: 90 days, or 30 days for people, whose keys are less protected.
pub const fn validity(role: Role) -> Duration {
    match role {
        Role::Coordinator | Role::Node | Role::Participant | Role::Client => DAY.saturating_mul(90),
        Role::Operator | Role::Admin => DAY.saturating_mul(30),
    }
}

/// Validity period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Period {
    /// Returns the period from now (with tolerance for clocks) that ends after `valid_for`.
    pub(crate) fn of(valid_for: Duration, now: SystemTime) -> Result<Self, CertificatesError> {
        if !(DAY..=AUTHORITY_VALIDITY).contains(&valid_for) {
            return Err(CertificatesError::Period(valid_for));
        }
        let not_before = now.checked_sub(CLOCKS_DIFFER_BY).ok_or(CertificatesError::Clock(now))?;
        let not_after = now.checked_add(valid_for).ok_or(CertificatesError::Clock(now))?;
        Ok(Self { not_before, not_after })
    }

    /// Returns the part within `outer`: no certificate outlives its authority.
    pub(crate) fn within(self, outer: Self) -> Self {
        Self { not_before: self.not_before.max(outer.not_before), not_after: self.not_after.min(outer.not_after) }
    }
}

/// Returns the parameters of an authority, which can sign members but no further authorities.
pub(crate) fn authority(cluster: &str, period: Period) -> Result<CertificateParams, CertificatesError> {
    archon_types::limits::check_name("cluster's", cluster)
        .map_err(|error| CertificatesError::Cluster(error.message))?;
    let name = format!("Archon authority of {cluster}");
    if name.len() > COMMON_NAME_BYTES_MAX {
        let most = COMMON_NAME_BYTES_MAX + cluster.len() - name.len();
        return Err(CertificatesError::Cluster(format!(
            "the cluster's name {cluster:?} must have 1 to {most} bytes here"
        )));
    }
    let mut params = params(&name, period)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Returns the parameters of a certificate for one process or person.
pub(crate) fn member(
    identity: &Identity,
    hosts: &[Host],
    period: Period,
) -> Result<CertificateParams, CertificatesError> {
    let mut params = params(identity.name(), period)?;
    params.subject_alt_names = names(identity, hosts)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A certificate without hosts cannot serve.
    params.extended_key_usages = match !hosts.is_empty() {
        true => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        false => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    Ok(params)
}

/// Parameters common to both kinds.
fn params(common_name: &str, period: Period) -> Result<CertificateParams, CertificatesError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date_time(period.not_before)?;
    params.not_after = date_time(period.not_after)?;
    params.serial_number = Some(serial_number()?);
    Ok(params)
}

/// Returns the alternative names: one URI, plus the hosts of a server or of an agent.
pub(crate) fn names(identity: &Identity, hosts: &[Host]) -> Result<Vec<SanType>, CertificatesError> {
    let role = identity.role();
    if role.is_server() && hosts.is_empty() {
        return Err(CertificatesError::NoHost(identity.clone()));
    }
    if !role.may_have_hosts() && !hosts.is_empty() {
        return Err(CertificatesError::HostUnwanted(identity.clone()));
    }
    let mut names = vec![SanType::URI(Ia5String::try_from(identity.uri())?)];
    for host in hosts {
        let name = match host {
            Host::Name(name) => SanType::DnsName(Ia5String::try_from(name.as_str())?),
            Host::Address(address) => SanType::IpAddress(*address),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns 128 random bits, which are unpredictable and unique.
fn serial_number() -> Result<SerialNumber, CertificatesError> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| CertificatesError::Making("the system gives no random bytes".to_owned()))?;
    Ok(SerialNumber::from_slice(&bytes))
}

fn date_time(time: SystemTime) -> Result<OffsetDateTime, CertificatesError> {
    let wrong = || CertificatesError::Clock(time);
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| wrong())?.as_secs();
    let seconds = i64::try_from(seconds).map_err(|_| wrong())?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| wrong())
}
