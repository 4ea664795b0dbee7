//! What may be wrong with an object store, and what to do about it.

/// Why an object store did not do what was asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreTrouble {
    /// There are no credentials, or the store does not know them.
    Credentials,
    /// The credentials are known, and not allowed to do this.
    NotPermitted,
    /// There is no such bucket.
    NoBucket,
    /// The bucket is in another region.
    Region,
    /// It is spoken to without TLS, which nobody has allowed.
    PlainHttp,
    /// Nobody has signed its certificate who is believed here.
    Certificate,
    /// A variable of the environment is not as it must be.
    Settings,
    /// It does not put an object on condition, so it cannot keep two writers apart.
    NoConditions,
    /// It does not answer, or says that it cannot at present.
    Unreachable,
    /// Something else, as it says.
    Other,
}

impl StoreTrouble {
    /// What to do about it, if there is anything to say.
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Credentials => Some(
                "give credentials by the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, or the role of the machine); docs/BACKUPS.md lists them",
            ),
            Self::NotPermitted => {
                Some("let these credentials list the bucket and get, put and delete objects below the prefix")
            }
            Self::NoBucket => Some("make the bucket, or look at its name and at AWS_ENDPOINT"),
            Self::Region => Some("set AWS_REGION to the region of the bucket"),
            Self::PlainHttp => Some("give an endpoint with https://, or allow this by AWS_ALLOW_HTTP=true"),
            Self::Certificate => Some("name the certificates of those who are believed in SSL_CERT_FILE"),
            Self::Settings => Some("look at the variables of the environment that begin with AWS_ or GOOGLE_"),
            Self::NoConditions => Some(
                "use a store that knows If-None-Match and If-Match at a put, or back up into a directory and copy that",
            ),
            Self::Unreachable => {
                Some("look whether the store is reached from here (AWS_ENDPOINT names another one than Amazon's)")
            }
            Self::Other => None,
        }
    }
}
