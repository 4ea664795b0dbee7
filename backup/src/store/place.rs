//! Names of places for backups.

use crate::error::BackupError;
use std::path::PathBuf;

/// A parsed name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// A directory.
    Directory(PathBuf),
    /// Objects under a prefix.
    #[cfg(feature = "object-store")]
    Objects { service: Service, bucket: String, prefix: String },
}

/// Kind of object store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Service {
    /// Amazon S3 and compatible stores.
    S3,
    /// Google Cloud Storage.
    Gcs,
}

impl Service {
    /// Returns the scheme of its names.
    pub(super) const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
        }
    }
}

impl Place {
    pub(super) fn parse(at: &str) -> Result<Self, BackupError> {
        let usage = |why: String| Err(BackupError::Usage(why));
        let Some((kind, rest)) = at.split_once("://") else {
            return match at {
                "" => usage("no place is named for the backup".to_owned()),
                directory => Ok(Self::Directory(directory.into())),
            };
        };
        match [Service::S3, Service::Gcs].into_iter().find(|service| service.scheme() == kind) {
            Some(service) => objects(service, rest),
            None if kind == "file" && rest.starts_with('/') => Ok(Self::Directory(rest.into())),
            None if kind == "file" => usage("file:// needs an absolute path, as in file:///backups/monday".to_owned()),
            None => usage(format!(
                "{kind}:// is not known; a backup is kept at /path, file:///path, s3://bucket/prefix or \
                 gs://bucket/prefix"
            )),
        }
    }
}

#[cfg(not(feature = "object-store"))]
fn objects(service: Service, _: &str) -> Result<Place, BackupError> {
    Err(BackupError::Usage(format!(
        "{}:// is an object store, which this archon was built without; build it with `--features object-store`, or \
         name a directory",
        service.scheme()
    )))
}

#[cfg(feature = "object-store")]
fn objects(service: Service, rest: &str) -> Result<Place, BackupError> {
    // The name is not repeated in the error, because it may contain credentials.
    let usage = |what: &str| {
        let scheme = service.scheme();
        Err(BackupError::Usage(format!("{what}: {scheme}://bucket/prefix is what names a place in an object store")))
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_of_bucket = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
    if bucket.is_empty() || !bucket.chars().all(is_of_bucket) {
        return usage("the bucket is named by small letters, digits, dots, dashes and underscores");
    }
    let prefix = prefix.trim_end_matches('/');
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..") && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.!'()=+@,".contains(c))
    };
    if !prefix.is_empty() && !prefix.split('/').all(is_part) {
        return usage("the prefix has parts of letters, digits and -_.!'()=+@, with one / between two");
    }
    Ok(Place::Objects { service, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_parsed() {
        for named in ["/backups/monday", "file:///backups/monday"] {
            assert_eq!(Place::parse(named).unwrap(), Place::Directory("/backups/monday".into()));
        }
        for wrong in ["", "file://monday", "ftp://host/monday", "://", "s3:///monday", "gs://"] {
            assert!(matches!(Place::parse(wrong), Err(BackupError::Usage(_))), "{wrong}");
        }
    }

    #[test]
    #[cfg(not(feature = "object-store"))]
    fn object_store_without_feature_names_the_feature() {
        for named in ["s3://bucket/monday", "gs://bucket/monday"] {
            assert!(Place::parse(named).unwrap_err().to_string().contains("--features object-store"));
        }
    }

    #[test]
    #[cfg(feature = "object-store")]
    fn bucket_names_are_parsed_with_prefix() {
        let of = |at: &str| match Place::parse(at) {
            Ok(Place::Objects { service, bucket, prefix }) => Some((service, bucket, prefix)),
            _ => None,
        };
        let place = |service, prefix: &str| Some((service, "my.bucket-1".to_owned(), prefix.to_owned()));
        assert_eq!(of("s3://my.bucket-1/archon/monday"), place(Service::S3, "archon/monday"));
        assert_eq!(of("gs://my.bucket-1/archon/monday/"), place(Service::Gcs, "archon/monday"));
        assert_eq!(of("s3://my.bucket-1"), place(Service::S3, ""));
        for wrong in ["s3://key:secret@bucket/x", "s3://b/x//y", "s3://b/../x", "s3://b/x?y", "s3://b/a b", "s3://B/x"]
        {
            let error = Place::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("s3://bucket/prefix") && !error.contains("secret"), "{error}");
        }
    }
}
