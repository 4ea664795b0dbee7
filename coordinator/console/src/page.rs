//! Static files of the page, built into the program; nothing is loaded from elsewhere.

use crate::api::console_state::ConsoleState;
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
    "cluster/chart.js": SCRIPT,
    "cluster/events.js": SCRIPT,
    "cluster/head.js": SCRIPT,
    "cluster/health.js": SCRIPT,
    "cluster/lines.js": SCRIPT,
    "cluster/quorum.js": SCRIPT,
    "controls/appearance.js": SCRIPT,
    "controls/colours.js": SCRIPT,
    "controls/command.js": SCRIPT,
    "controls/confirm.js": SCRIPT,
    "controls/dialog.js": SCRIPT,
    "controls/dom.js": SCRIPT,
    "controls/keyboard.js": SCRIPT,
    "controls/theme.js": SCRIPT,
    "controls/tooltip.js": SCRIPT,
    "data/actions.js": SCRIPT,
    "data/feed.js": SCRIPT,
    "data/format.js": SCRIPT,
    "data/store.js": SCRIPT,
    "data/words.js": SCRIPT,
    "index.html": HTML,
    "main.js": SCRIPT,
    "moves/moves.js": SCRIPT,
    "moves/plan.js": SCRIPT,
    "moves/progress_row.js": SCRIPT,
    "moves/reshapings.js": SCRIPT,
    "moves/speed.js": SCRIPT,
    "nodes/node_menu.js": SCRIPT,
    "nodes/node_order.js": SCRIPT,
    "nodes/node_row.js": SCRIPT,
    "nodes/nodes.js": SCRIPT,
    "nodes/shares.js": SCRIPT,
    "styles/base.css": STYLE,
    "styles/dialogs.css": STYLE,
    "styles/layout.css": STYLE,
    "styles/nodes.css": STYLE,
    "styles/partitions.css": STYLE,
    "styles/sections.css": STYLE,
    "tables/details.js": SCRIPT,
    "tables/dots.js": SCRIPT,
    "tables/grid.js": SCRIPT,
    "tables/partition_map.js": SCRIPT,
    "tables/table_block.js": SCRIPT,
    "tables/tables.js": SCRIPT,
    "tables/tiles.js": SCRIPT,
}

pub(crate) fn router() -> Router<ConsoleState> {
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
    use std::path::Path;

    /// Returns the files below a folder, relative to `page`.
    fn files_below(page: &Path, folder: &Path) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files.append(&mut files_below(page, &path));
            } else {
                files.insert(path.strip_prefix(page).unwrap().to_str().unwrap().replace('\\', "/"));
            }
        }
        files
    }

    #[test]
    fn every_file_of_the_page_is_served() {
        let page = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/page"));
        let served = FILES.iter().map(|(name, ..)| (*name).to_owned());
        assert_eq!(files_below(page, page), served.collect());
    }
}
