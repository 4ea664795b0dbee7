//! Conversion of object store errors to backup errors.

use crate::error::BackupError;
use crate::trouble::StoreTrouble;
use object_store::Error;

/// Maximum length of a store's message in an error.
const SAID_MAX: usize = 300;

/// Texts in errors and their causes; the first match wins. Some causes can only be distinguished by these texts.
const SIGNS: &[(&str, StoreTrouble)] = &[
    // Sources of credentials of machines and pods.
    ("/latest/api/token", StoreTrouble::Credentials),
    ("/latest/meta-data", StoreTrouble::Credentials),
    ("computeMetadata", StoreTrouble::Credentials),
    ("oauth2", StoreTrouble::Credentials),
    ("169.254.", StoreTrouble::Credentials),
    ("InvalidAccessKeyId", StoreTrouble::Credentials),
    ("SignatureDoesNotMatch", StoreTrouble::Credentials),
    ("ExpiredToken", StoreTrouble::Credentials),
    ("InvalidToken", StoreTrouble::Credentials),
    ("NoSuchBucket", StoreTrouble::NoBucket),
    ("configured region", StoreTrouble::Region),
    ("PermanentRedirect", StoreTrouble::Region),
    ("AuthorizationHeaderMalformed", StoreTrouble::Region),
    ("URL scheme is not allowed", StoreTrouble::PlainHttp),
    ("certificate", StoreTrouble::Certificate),
    ("onnection refused", StoreTrouble::Unreachable),
    ("onnection reset", StoreTrouble::Unreachable),
    ("error sending request", StoreTrouble::Unreachable),
    ("timed out", StoreTrouble::Unreachable),
    ("dns error", StoreTrouble::Unreachable),
    ("status code: 5", StoreTrouble::Unreachable),
    ("SlowDown", StoreTrouble::Unreachable),
];

/// Returns a converter for the error of a request about `place`.
pub(super) fn failed(place: String, what: &'static str) -> impl FnOnce(Error) -> BackupError {
    move |error| {
        let (trouble, said) = (trouble(&error), said(&error));
        BackupError::ObjectStore { place, what, trouble, said }
    }
}

/// Converts the error of an invalid configuration.
pub(super) fn misconfigured(place: String, error: &Error) -> BackupError {
    let said = said(error);
    let of_credentials = ["Access Key", "AccessKey", "SecretAccessKey", "redential", "service account"];
    let trouble = match of_credentials.iter().any(|word| said.contains(word)) {
        true => StoreTrouble::Credentials,
        false => StoreTrouble::Settings,
    };
    BackupError::ObjectStore { place, what: "the environment lacks the settings of the store", trouble, said }
}

/// Returns whether only the object is missing, rather than its bucket.
pub(super) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !all(error).contains("NoSuchBucket")
}

fn trouble(error: &Error) -> StoreTrouble {
    let text = all(error);
    if let Some((_, trouble)) = SIGNS.iter().find(|(sign, _)| text.contains(sign)) {
        return *trouble;
    }
    match error {
        Error::Unauthenticated { .. } => StoreTrouble::Credentials,
        Error::PermissionDenied { .. } => StoreTrouble::NotPermitted,
        _ => StoreTrouble::Other,
    }
}

/// Returns the text of an error with its causes.
fn all(error: &Error) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Iterates over an error and its causes.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source())
}

/// Returns a short message: the store's code and sentence, or the last cause. The full answer is not shown: if the
/// store refuses a signature, it contains the signed text including a session token.
fn said(error: &Error) -> String {
    let text = all(error);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let told = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => {
            let last = causes(error).last().map(ToString::to_string).unwrap_or_default();
            // The status without the page that follows it.
            let of_status = last.starts_with("Server returned").then(|| last.splitn(3, ": ").take(2));
            of_status.map_or_else(|| last.clone(), |parts| parts.collect::<Vec<_>>().join(": "))
        }
    };
    told.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SAID_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn refused_signature_error_contains_no_token() {
        let error = generic(
            "Error performing GET http://h/b/k - Server returned non-2xx status code: 403 Forbidden: <?xml?><Error>\
             <Code>SignatureDoesNotMatch</Code><Message>The signatures \
             differ.</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId>\
             <CanonicalRequest>x-amz-security-token:SECRET</CanonicalRequest></Error>",
        );
        let told = failed("s3://b/k".to_owned(), "the object cannot be read")(error).to_string();
        assert_eq!(told, "s3://b/k: the object cannot be read: SignatureDoesNotMatch: The signatures differ.");
        let error = generic("Server returned non-2xx status code: 500 Oh no: <html>SECRET: x</html>");
        assert_eq!(said(&error), "Server returned non-2xx status code: 500 Oh no");
    }

    #[test]
    fn causes_of_store_errors_are_distinguished() {
        for (text, expected) in [
            ("PUT http://169.254.169.254/latest/api/token - timed out", StoreTrouble::Credentials),
            ("404 Not Found: <Code>NoSuchBucket</Code>", StoreTrouble::NoBucket),
            ("tcp connect error: Connection refused (os error 111)", StoreTrouble::Unreachable),
            ("Server returned non-2xx status code: 503 Service Unavailable", StoreTrouble::Unreachable),
            ("builder error: URL scheme is not allowed", StoreTrouble::PlainHttp),
            (
                "Received redirect without LOCATION, this normally indicates an incorrectly configured region",
                StoreTrouble::Region,
            ),
            ("invalid peer certificate: UnknownIssuer", StoreTrouble::Certificate),
            ("no idea", StoreTrouble::Other),
        ] {
            assert_eq!(trouble(&generic(text)), expected, "{text}");
        }
        let denied = |text: &str| Error::PermissionDenied { path: "k".to_owned(), source: text.to_owned().into() };
        assert_eq!(trouble(&denied("AccessDenied")), StoreTrouble::NotPermitted);
        assert_eq!(trouble(&denied("InvalidAccessKeyId")), StoreTrouble::Credentials);
        let absent = |text: &str| Error::NotFound { path: "k".to_owned(), source: text.to_owned().into() };
        assert!(is_absent(&absent("NoSuchKey")) && !is_absent(&absent("NoSuchBucket")));
    }
}
