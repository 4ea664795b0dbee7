//! Clients of object stores, configured by the environment.

use crate::store::place::Service;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, Error, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// Time-out of a request including its body: a part of an object at 140 KB per second.
const TIMEOUT: &str = "60 seconds";
const TIMEOUT_KEY: ClientConfigKey = ClientConfigKey::Timeout;
/// Duration of retries. Nodes end a snapshot without reads after the same time, so longer retries would be useless.
const RETRIED_FOR: Duration = Duration::from_secs(30);
/// Maximum pause between retries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Creates a client of a bucket.
pub(super) fn client(service: Service, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
    // The HTTP library uses the default provider of the process, which may be set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let backoff = BackoffConfig { max_backoff: PAUSE_MAX, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: usize::MAX, retry_timeout: RETRIED_FOR };
    match service {
        Service::S3 => {
            // Objects are deleted individually, which every store supports.
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
