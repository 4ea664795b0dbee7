//! Static files of the page, built into the program; nothing is loaded from elsewhere.

use crate::api::shared::Shared;
use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Content security policy: only content of this origin, and no embedding in other pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal: $kind:expr),* $(,)?) => {
        /// Every file: name, media type and content.
        const FILES: &[(&str, &str, &[u8])] = &[$(($name, $kind, include_bytes!(concat!("../page/", $name)))),*];
    };
}

files! {
    "actions.js": SCRIPT,
    "appearance.js": SCRIPT,
    "base.css": STYLE,
    "chart.js": SCRIPT,
    "colours.js": SCRIPT,
    "command.js": SCRIPT,
    "confirm.js": SCRIPT,
    "details.js": SCRIPT,
    "dialog.js": SCRIPT,
    "dialogs.css": STYLE,
    "dom.js": SCRIPT,
    "dots.js": SCRIPT,
    "events.js": SCRIPT,
    "feed.js": SCRIPT,
    "format.js": SCRIPT,
    "grid.js": SCRIPT,
    "head.js": SCRIPT,
    "health.js": SCRIPT,
    "index.html": HTML,
    "keyboard.js": SCRIPT,
    "layout.css": STYLE,
    "lines.js": SCRIPT,
    "main.js": SCRIPT,
    "moves.js": SCRIPT,
    "node_menu.js": SCRIPT,
    "node_order.js": SCRIPT,
    "node_row.js": SCRIPT,
    "nodes.css": STYLE,
    "nodes.js": SCRIPT,
    "partition_map.js": SCRIPT,
    "partitions.css": STYLE,
    "plan.js": SCRIPT,
    "progress_row.js": SCRIPT,
    "quorum.js": SCRIPT,
    "reshapings.js": SCRIPT,
    "sections.css": STYLE,
    "shares.js": SCRIPT,
    "speed.js": SCRIPT,
    "store.js": SCRIPT,
    "table_block.js": SCRIPT,
    "tables.js": SCRIPT,
    "theme.js": SCRIPT,
    "tiles.js": SCRIPT,
    "tooltip.js": SCRIPT,
    "words.js": SCRIPT,
}

pub(crate) fn router() -> Router<Shared> {
    FILES.iter().fold(Router::new(), |router, (name, kind, content)| {
        let path = if *name == "index.html" { "/".to_owned() } else { format!("/page/{name}") };
        router.route(&path, get(move || async move { file(kind, content) }))
    })
}

fn file(kind: &'static str, content: &'static [u8]) -> Response {
    const HEADERS: [(HeaderName, &str); 4] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        // The next version may have other files, and all of them are small.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    let mut response = content.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let there = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let served = FILES.iter().map(|(name, ..)| (*name).to_owned());
        assert_eq!(there.collect::<BTreeSet<_>>(), served.collect());
    }
}
