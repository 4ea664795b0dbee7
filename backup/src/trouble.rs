//! Problems of object stores, with remedies.

/// Reason why a request to an object store failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreTrouble {
    /// Credentials are missing or unknown to the store.
    Credentials,
    /// The credentials do not permit the request.
    NotPermitted,
    /// The bucket does not exist.
    NoBucket,
    /// The bucket is in another region.
    Region,
    /// The connection has no TLS, which was not explicitly allowed.
    PlainHttp,
    /// The certificate of the store is not trusted.
    Certificate,
    /// An environment variable is invalid.
    Settings,
    /// It does not support conditional writes, so it cannot exclude a second writer.
    NoConditions,
    /// It does not answer, or reports that it is unavailable.
    Unreachable,
    /// Another reason, given in the message.
    Other,
}

impl StoreTrouble {
    /// Returns the remedy, if there is one.
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Credentials => Some(
                "set credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
                 GOOGLE_APPLICATION_CREDENTIALS, or the role of the machine); docs/operate/backups.md lists them",
            ),
            Self::NotPermitted => {
                Some("permit these credentials to list the bucket, and to get, put and delete objects below the prefix")
            }
            Self::NoBucket => Some("create the bucket, or correct its name or AWS_ENDPOINT"),
            Self::Region => Some("set AWS_REGION to the region of the bucket"),
            Self::PlainHttp => Some("use an endpoint with https://, or allow plain HTTP with AWS_ALLOW_HTTP=true"),
            Self::Certificate => Some("set SSL_CERT_FILE to a file with the certificates of the trusted authorities"),
            Self::Settings => Some("check the environment variables that begin with AWS_ or GOOGLE_"),
            Self::NoConditions => Some(
                "use a store that supports If-None-Match and If-Match for writes, or back up to a directory and copy \
                 it",
            ),
            Self::Unreachable => {
                Some("check that this machine can reach the store; AWS_ENDPOINT names a store other than Amazon S3")
            }
            Self::Other => None,
        }
    }
}
