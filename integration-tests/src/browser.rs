//! A real browser, driven by the four WebDriver calls (<https://www.w3.org/TR/webdriver2/>) that tests of a page need.
//! The crates that implement all of WebDriver bring forty-six others.

use crate::http;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Flags for a browser under test: allow root, no screen, no fetches of its own.
const ARGUMENTS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,1200",
];

/// A browser with one page. Stopped when dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// Address of the driver.
    address: String,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Errors
    /// The name of the missing program.
    ///
    /// # Panics
    /// If the programs exist and do not start.
    pub fn start() -> Result<Self, String> {
        let profile = tempfile::Builder::new().prefix("archon-browser-").tempdir().expect("a temporary directory");
        for program in ["chromium", "chromedriver"] {
            if Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                return Err(format!("this machine has no {program}"));
            }
        }
        let log = File::create(profile.path().join("driver.log")).expect("a log");
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(log)
            // Includes the processes that the driver starts.
            .process_group(0)
            .spawn()
            .expect("chromedriver starts");
        let lines = BufReader::new(driver.stdout.take().expect("piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("started successfully on port ")?;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        let address = format!("127.0.0.1:{}", port.expect("chromedriver says where it listens"));
        let mut browser = Self { driver, address, session: String::new(), _profile: profile };
        let directory = format!("--user-data-dir={}", browser._profile.path().join("profile").display());
        let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([directory.as_str()]).collect();
        let wished = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.call("", &wished);
        browser.session = format!("/{}", session["sessionId"].as_str().expect("a session"));
        browser.call("/timeouts", &json!({ "script": 20_000 }));
        Ok(browser)
    }

    /// Opens a page.
    ///
    /// # Panics
    /// If that fails.
    pub fn open(&self, url: &str) {
        self.call("/url", &json!({ "url": url }));
    }

    /// Runs a script in the page, as if typed into the developer console, and returns its result.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, script: &str) -> Value {
        self.call("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Returns the complaints of the page and the browser since the last call.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn complaints(&self) -> Vec<String> {
        let said = self.call("/se/log", &json!({ "type": "browser" }));
        let lines = said.as_array().into_iter().flatten();
        lines.filter_map(|line| Some(line["message"].as_str()?.to_owned())).collect()
    }

    /// Returns a screenshot as PNG.
    ///
    /// # Panics
    /// If it cannot be taken.
    pub fn picture(&self) -> Vec<u8> {
        let encoded = self.ask("GET", "/screenshot", None);
        STANDARD.decode(encoded.as_str().expect("a picture")).expect("base64")
    }

    /// Returns the browser's measurements of the page so far: an array of `name` and `value`.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn metrics(&self) -> Value {
        self.call("/goog/cdp/execute", &json!({ "cmd": "Performance.enable", "params": {} }));
        let mut told = self.call("/goog/cdp/execute", &json!({ "cmd": "Performance.getMetrics", "params": {} }));
        told["metrics"].take()
    }

    /// Returns the browser's processes of a kind, such as `renderer`.
    pub fn processes(&self, kind: &str) -> Vec<u32> {
        let kind = format!("--type={kind}");
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let read = |pid: &u32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        // The command may contain spaces; after its closing parenthesis come state, parent and group.
        let group = |pid: &u32| read(pid, "stat").rsplit(')').next()?.split_whitespace().nth(2)?.parse::<u32>().ok();
        let own = pids.filter(|pid| group(pid) == Some(self.driver.id()));
        own.filter(|pid| read(pid, "cmdline").split(['\0', ' ']).any(|argument| argument == kind)).collect()
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, Some(body))
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (address, body) = (&self.address, body.map(ToString::to_string).unwrap_or_default());
        let request = format!(
            "{method} /session{}{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.session,
            body.len()
        );
        let answer = http::send(address, &request).expect("the driver listens");
        let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.body);
        said["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.driver.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.driver.wait();
    }
}
