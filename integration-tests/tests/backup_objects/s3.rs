//! The subset of an object store that backups use, as S3 implements it, and as Google does where that differs.
//! Signatures are not verified; only their key id is.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The only bucket.
pub(crate) const BUCKET: &str = "bucket";
/// Accepted key id of a signature, or token.
pub(crate) const KEY_ID: &str = "AKIDTEST";
pub(crate) const SECRET: &str = "never-to-be-told";
/// Names per page of a listing: few, so that there are several pages.
const PAGE: usize = 3;
const MODIFIED: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

/// Conditions that a store ignores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum IgnoredConditions {
    #[default]
    Nothing,
    /// It checks for the presence of an object, not for its version.
    Versions,
    EveryCondition,
}

/// State of the store, independent of the running server.
#[derive(Default)]
pub(crate) struct StoreState {
    /// By name, each with its version.
    pub(crate) objects: BTreeMap<String, (Bytes, u64)>,
    pub(crate) uploads: HashMap<String, BTreeMap<u32, Bytes>>,
    /// Numbers of objects copied, and of objects completed from parts.
    pub(crate) copied: usize,
    pub(crate) of_parts: usize,
    /// As some stores do.
    pub(crate) ignores: IgnoredConditions,
    versions: u64,
}

impl StoreState {
    fn put(&mut self, name: &str, bytes: Bytes) -> u64 {
        self.versions += 1;
        self.objects.insert(name.to_owned(), (bytes, self.versions));
        self.versions
    }

    /// Returns the names with this prefix.
    pub(crate) fn names(&self, prefix: &str) -> BTreeSet<String> {
        self.objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }
}

/// A running server; dropping it closes all its connections.
pub(crate) struct Server {
    kept: Arc<Mutex<StoreState>>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::serving("127.0.0.1:0", Arc::default())
    }

    /// Starts another server in its place.
    pub(crate) fn again(address: SocketAddr, kept: Arc<Mutex<StoreState>>) -> Self {
        Self::serving(&address.to_string(), kept)
    }

    fn serving(at: &str, kept: Arc<Mutex<StoreState>>) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(at)).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let of_all = kept.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = of_all.clone();
                let service = service_fn(move |request| answer(kept.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { kept, address, _runtime: runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, StoreState> {
        self.kept.lock().expect("nobody panicked")
    }

    pub(crate) fn share(&self) -> Arc<Mutex<StoreState>> {
        self.kept.clone()
    }
}

type Answer = Response<Full<Bytes>>;

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

fn refused(status: StatusCode, code: &str) -> Answer {
    plain(status, format!("<Error><Code>{code}</Code><Message>as a test has it</Message></Error>"))
}

fn with_version(mut answer: Answer, version: u64) -> Answer {
    answer.headers_mut().insert(ETAG, format!("\"{version}\"").parse().expect("a header"));
    answer.headers_mut().insert("x-goog-generation", version.into());
    answer.headers_mut().insert(LAST_MODIFIED, MODIFIED.parse().expect("a header"));
    answer
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        whole.push(u8::from_str_radix(code, 16).expect("two digits").into());
        whole.push_str(rest);
    }
    whole
}

fn header(headers: &HeaderMap, name: impl hyper::header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

async fn answer(kept: Arc<Mutex<StoreState>>, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let query: HashMap<String, String> = head.uri.query().unwrap_or_default().split('&').map(pair).collect();
    let path = decoded(head.uri.path());
    let (bucket, name) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    let is_known = |by: &str| by.contains(&format!("Credential={KEY_ID}/")) || by == format!("Bearer {SECRET}");
    if !header(&head.headers, AUTHORIZATION).is_some_and(is_known) {
        return Ok(refused(StatusCode::FORBIDDEN, "InvalidAccessKeyId"));
    }
    if bucket != BUCKET {
        return Ok(refused(StatusCode::NOT_FOUND, "NoSuchBucket"));
    }
    let mut kept = kept.lock().expect("nobody panicked");
    Ok(match head.method {
        Method::GET if name.is_empty() => listed(&kept, &query),
        Method::GET | Method::HEAD => read(&kept, name, &head.method, &head.headers),
        Method::PUT => put(&mut kept, name, &query, &head.headers, body),
        Method::POST if query.contains_key("uploads") => {
            kept.versions += 1;
            let id = format!("upload-{}", kept.versions);
            kept.uploads.insert(id.clone(), BTreeMap::new());
            let answer = format!("<UploadId>{id}</UploadId>");
            plain(StatusCode::OK, format!("<InitiateMultipartUploadResult>{answer}</InitiateMultipartUploadResult>"))
        }
        Method::POST => match query.get("uploadId").and_then(|id| kept.uploads.remove(id)) {
            Some(parts) => {
                let version = kept.put(name, parts.into_values().collect::<Vec<_>>().concat().into());
                kept.of_parts += 1;
                let answer = format!("<ETag>\"{version}\"</ETag>");
                let answer = format!("<CompleteMultipartUploadResult>{answer}</CompleteMultipartUploadResult>");
                with_version(plain(StatusCode::OK, answer), version)
            }
            None => refused(StatusCode::NOT_FOUND, "NoSuchUpload"),
        },
        Method::DELETE => {
            match query.get("uploadId") {
                Some(id) => drop(kept.uploads.remove(id)),
                None => drop(kept.objects.remove(name)),
            }
            plain(StatusCode::NO_CONTENT, "")
        }
        _ => refused(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    })
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (decoded(name), decoded(value))
}

fn listed(kept: &StoreState, query: &HashMap<String, String>) -> Answer {
    let of = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, after) = (of("prefix"), of("continuation-token"));
    let (mut contents, mut folders, mut last, mut is_cut) = (String::new(), BTreeSet::new(), "", false);
    let names = kept.objects.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
    for (number, (name, (bytes, version))) in names.filter(|(name, _)| name.starts_with(prefix)).enumerate() {
        if number == PAGE {
            is_cut = true;
            break;
        }
        last = name;
        match name[prefix.len()..].split_once('/') {
            Some((folder, _)) if !of("delimiter").is_empty() => drop(folders.insert(folder)),
            _ => contents.push_str(&format!(
                "<Contents><Key>{name}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>\"{version}\"</ETag>\
                 <Size>{}</Size></Contents>",
                bytes.len()
            )),
        }
    }
    for folder in folders {
        contents.push_str(&format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>"));
    }
    let next = if is_cut { format!("<NextContinuationToken>{last}</NextContinuationToken>") } else { String::new() };
    let body = format!("<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{next}{contents}</ListBucketResult>");
    plain(StatusCode::OK, body)
}

fn read(kept: &StoreState, name: &str, method: &Method, headers: &HeaderMap) -> Answer {
    let Some((bytes, version)) = kept.objects.get(name) else {
        return refused(StatusCode::NOT_FOUND, "NoSuchKey");
    };
    let range = header(headers, RANGE).and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let answer = match range {
        Some((first, last)) => {
            let number = |text: &str| text.parse::<usize>().expect("a number");
            let (first, last) = (number(first), number(last).min(bytes.len().saturating_sub(1)));
            let mut answer = plain(StatusCode::PARTIAL_CONTENT, bytes.slice(first..=last));
            let told = format!("bytes {first}-{last}/{}", bytes.len());
            answer.headers_mut().insert(CONTENT_RANGE, told.parse().expect("a header"));
            answer
        }
        None if *method == Method::HEAD => {
            let mut answer = plain(StatusCode::OK, "");
            answer.headers_mut().insert(CONTENT_LENGTH, bytes.len().into());
            answer
        }
        None => plain(StatusCode::OK, bytes.clone()),
    };
    with_version(answer, *version)
}

fn put(kept: &mut StoreState, name: &str, query: &HashMap<String, String>, headers: &HeaderMap, body: Bytes) -> Answer {
    if let (Some(id), Some(part)) = (query.get("uploadId"), query.get("partNumber")) {
        let Some(parts) = kept.uploads.get_mut(id) else { return refused(StatusCode::NOT_FOUND, "NoSuchUpload") };
        parts.insert(part.parse().expect("a number"), body);
        return with_version(plain(StatusCode::OK, ""), 0);
    }
    let there = kept.objects.get(name).map(|(_, version)| version.to_string());
    let is_there = |wanted: &str| there.as_deref() == Some(wanted.trim_matches('"'));
    let is_new = header(headers, IF_NONE_MATCH).is_none_or(|_| there.is_none());
    let is_that = header(headers, IF_MATCH).is_none_or(is_there);
    // Of Google's store, where 0 means absent.
    let is_generation = header(headers, "x-goog-if-generation-match")
        .is_none_or(|wanted| is_there(wanted) || (wanted == "0" && there.is_none()));
    let fits = match kept.ignores {
        IgnoredConditions::Nothing => is_new && is_that && is_generation,
        IgnoredConditions::Versions => is_new,
        IgnoredConditions::EveryCondition => true,
    };
    if !fits {
        return refused(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
    }
    let Some(from) = header(headers, "x-amz-copy-source").or(header(headers, "x-goog-copy-source")) else {
        let version = kept.put(name, body);
        return with_version(plain(StatusCode::OK, ""), version);
    };
    let from = decoded(from).trim_start_matches('/').strip_prefix(&format!("{BUCKET}/")).map(str::to_owned);
    match from.and_then(|from| kept.objects.get(&from).cloned()) {
        Some((bytes, _)) => {
            let version = kept.put(name, bytes);
            kept.copied += 1;
            plain(StatusCode::OK, format!("<CopyObjectResult><ETag>\"{version}\"</ETag></CopyObjectResult>"))
        }
        None => refused(StatusCode::NOT_FOUND, "NoSuchKey"),
    }
}
