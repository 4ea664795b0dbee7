//! Who is spoken to, and how: as the environment says.

use crate::store::place::Service;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, Error, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// How long a request may take, with its body: a part of an object at 140 KB per second.
const TIMEOUT: &str = "60 seconds";
const TIMEOUT_KEY: ClientConfigKey = ClientConfigKey::Timeout;
/// How long a request is tried again. A node ends a snapshot of which no page is taken for as long, so more would be in vain.
const RETRIED_FOR: Duration = Duration::from_secs(30);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A client of a bucket.
pub(super) fn client(service: Service, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
    // The HTTP library below takes what the process has agreed on. Somebody may have done so before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let backoff = BackoffConfig { max_backoff: PAUSE_MAX, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: usize::MAX, retry_timeout: RETRIED_FOR };
    match service {
        Service::S3 => {
            // Objects are deleted one by one here, and that every store knows.
            let mut builder = AmazonS3Builder::from_env().with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
            if std::env::var_os("AWS_TIMEOUT").is_none() {
                builder = builder.with_config(AmazonS3ConfigKey::Client(TIMEOUT_KEY), TIMEOUT);
            }
            Ok(Arc::new(builder.with_bucket_name(bucket).with_retry(retry).build()?))
        }
        Service::Gcs => {
            let mut builder = GoogleCloudStorageBuilder::from_env();
            if std::env::var_os("GOOGLE_TIMEOUT").is_none() {
                builder = builder.with_config(GoogleConfigKey::Client(TIMEOUT_KEY), TIMEOUT);
            }
            Ok(Arc::new(builder.with_bucket_name(bucket).with_retry(retry).build()?))
        }
    }
}
