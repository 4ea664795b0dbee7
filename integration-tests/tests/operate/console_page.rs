//! The console page in a real browser, on a real cluster.

use crate::EXE;
use archon_integration_tests::browser::Browser;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::{skipped, wait_for};
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until a script in the page returns true.
fn wait(browser: &Browser, what: &str, script: &str) {
    let mut last = Value::Null;
    wait_for(what, TIMEOUT, || {
        last = browser.run(&format!("return {script}"));
        if last == true { Ok(()) } else { Err(format!("{last}, of {}", browser.run(SEEN))) }
    });
}

/// Script that summarises the visible page, for messages.
const SEEN: &str = "return ['#connection', '#health', '#said', '#node-rows', '#event-list'].map(of => document.querySelector(of)?.innerText?.slice(0, 400))";

/// Returns a script that finds the node's row with this attribute.
fn node(name: &str, attribute: &str, value: &str) -> String {
    format!("!!document.querySelector('.node[data-name={name}][data-{attribute}={value}]')")
}

/// Returns a script that counts the partitions of the table in this state, by its letter.
fn counted(letter: char, count: u32) -> String {
    let counts = "JSON.parse(document.querySelector('#grid canvas[data-table=default]')?.dataset.counts ?? '{}')";
    format!("({counts}.{letter} ?? 0) === {count}")
}

fn click(browser: &Browser, selector: &str) {
    wait(browser, selector, &format!("!!document.querySelector('{selector}')"));
    browser.run(&format!("document.querySelector('{selector}').click()"));
}

#[test]
fn console_page_shows_changes_and_runs_orders() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(missing) => return skipped(missing),
    };
    let options = Options { consoles: true, replication: 3, ..Options::default() };
    let mut cluster = Cluster::start(EXE, &options);
    let at = format!("http://{}/", cluster.console_address(0));
    browser.open(&at);
    wait(&browser, "the page is live", "document.querySelector('#connection')?.dataset.state === 'live'");
    let partitions = cluster.json(&["status"]).expect("a status")["partitions_total"].as_u64().expect("a number");
    let partitions = u32::try_from(partitions).expect("few");
    wait(&browser, "all partitions are online", &counted('o', partitions));
    wait(&browser, "a row for athens", &node("athens", "status", "alive"));
    // A killed node changes the state of its cells, and they recover when it is back.
    cluster.take_node("athens").kill();
    wait(&browser, "athens has failed", &node("athens", "status", "failed"));
    wait(&browser, "all have too few copies", &counted('d', partitions));
    let told = "[...document.querySelectorAll('#events li')].some(line => line.dataset.code === 'node_failed')";
    wait(&browser, "the failure is among the events", told);
    cluster.start_node("athens");
    wait(&browser, "all partitions are online again", &counted('o', partitions));
    // A plan for a new node is previewed and then applied.
    cluster.start_node("ephesus");
    wait(&browser, "ephesus is there", &node("ephesus", "status", "alive"));
    click(&browser, "#plan-ask");
    click(&browser, "#plan button[data-action=apply]");
    wait(
        &browser,
        "the plan has begun",
        "[...document.querySelectorAll('#events li')].some(line => line.dataset.code === 'plan_started')",
    );
    let over = "/done/.test(document.querySelector('#moves-sum')?.innerText) && document.querySelectorAll('.move progress').length === 0";
    wait(&browser, "the moves are over", over);
    let held = cluster.json(&["node", "describe", "ephesus"]).expect("ephesus")["copies_held"].as_u64();
    assert!(held > Some(0), "ephesus holds {held:?} copies");
    // A node is drained, after confirmation.
    browser.run("document.querySelector('.node[data-name=byzantium] .orders button').click()");
    click(&browser, "#node-menu [data-action=drain]");
    wait(
        &browser,
        "the command that does the same",
        "/archon node drain byzantium/.test(document.querySelector('#confirm').innerText)",
    );
    assert!(!cluster.archon(&["node", "list"]).stdout.contains("Drain"), "nothing is done before it is confirmed");
    click(&browser, "#confirm [data-action=confirm]");
    wait(&browser, "byzantium is emptied", &node("byzantium", "goal", "drain"));
    // The page is open while its coordinator restarts.
    cluster.take_coordinator(0).kill();
    wait(&browser, "the page tries again", "document.querySelector('#connection').dataset.state === 'reconnecting'");
    let complained = browser.complaints();
    let own: Vec<_> = complained.iter().filter(|line| !line.contains("/api/v1/feed")).collect();
    assert!(own.is_empty(), "the console of the browser: {own:?}");
    cluster.start_coordinator(0);
    wait(&browser, "the page is live again", "document.querySelector('#connection').dataset.state === 'live'");
    // Nothing was loaded from elsewhere.
    let fetched = browser.run("return performance.getEntriesByType('resource').map(one => one.name)");
    let fetched: Vec<&str> = fetched.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let elsewhere: Vec<_> = fetched.iter().filter(|url| !url.starts_with(&at) && !url.starts_with("data:")).collect();
    assert!(elsewhere.is_empty() && fetched.len() > 10, "{elsewhere:?} of {fetched:?}");
}
