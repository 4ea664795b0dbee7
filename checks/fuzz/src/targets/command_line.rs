//! Files that an operator passes to the command line.

use crate::target::{Target, Verdict};
use archon_cli::fuzzing;
use std::path::Path;

fn in_a_file(input: &[u8], read: fn(&Path) -> Result<(), String>) -> Verdict {
    let Ok(directory) = tempfile::tempdir() else { return Verdict::Refused("no temporary directory".into()) };
    let path = directory.path().join("file");
    if std::fs::write(&path, input).is_err() {
        return Verdict::Refused("no room for a file".into());
    }
    let named = path.display().to_string();
    let result = read(&path).map_err(|text| {
        assert!(text.contains(&named), "an error about a file does not name it: {text}");
        text.replace(&named, "FILE")
    });
    Verdict::of(result, |()| "read".into())
}

fn plan(input: &[u8]) -> Verdict {
    in_a_file(input, fuzzing::plan)
}

fn plans() -> Vec<Vec<u8>> {
    vec![
        br#"{"cluster_id":"6f1e7a52-8a0e-4c7e-9d5f-2f1f0a9c3b11","table_version":7,"moves_version":3,"moves":[{"partition":3,"table_id":1,"table":"default","from":"athens","from_id":1,"to":"byzantium","to_id":2,"kind":"copy","bytes_total":1024,"code":"balance","message":"the node has 3, its share is 2"}],"unmet":[]}"#.to_vec(),
        br#"{"cluster_id":"6f1e7a52-8a0e-4c7e-9d5f-2f1f0a9c3b11","table_version":7,"moves_version":3,"moves":[],"unmet":[{"code":"not_alive","message":"the node is not alive","subject":{"kind":"node","node_id":3,"node":"chalkis"}}]}"#.to_vec(),
    ]
}

fn node_file(input: &[u8]) -> Verdict {
    in_a_file(input, fuzzing::node_file)
}

fn node_files() -> Vec<Vec<u8>> {
    vec![b"name = \"athens\"\nlisten = \"127.0.0.1:7001\"\ncoordinators = [\"127.0.0.1:7000\"]\nweight = 3\n".to_vec()]
}

fn coordinator_file(input: &[u8]) -> Verdict {
    in_a_file(input, fuzzing::coordinator_file)
}

fn coordinator_files() -> Vec<Vec<u8>> {
    vec![b"id = 1\nlisten = \"127.0.0.1:7000\"\npeers = [\"1=127.0.0.1:7000\"]\nlease_ms = 1000 # comment\n".to_vec()]
}

fn json_rows(input: &[u8]) -> Verdict {
    Verdict::of(fuzzing::rows(input, false), |rows| format!("{rows} rows"))
}

fn csv_rows(input: &[u8]) -> Verdict {
    Verdict::of(fuzzing::rows(input, true), |rows| format!("{rows} rows"))
}

fn files_of_json_rows() -> Vec<Vec<u8>> {
    vec![
        br#"{"key":"city/1","value":"a\"b\u0000"}
{"key":{"hex":"fe6e"},"value_hex":"ff00"}

{"revision":7,"key":"c","value":""}
"#
        .to_vec(),
    ]
}

fn files_of_csv_rows() -> Vec<Vec<u8>> {
    vec![
        b"key,key_hex,value,value_hex\ncity/1,,\"a,\"\"b\"\"\nc\",\n,fe6e,,ff00\nc,,,\n".to_vec(),
        b"\xef\xbb\xbfvalue,revision,key\r\n1,7,a\r\n".to_vec(),
    ]
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target::new("command-line/plan", plan, plans),
        Target::new("command-line/node-file", node_file, node_files),
        Target::new("command-line/coordinator-file", coordinator_file, coordinator_files),
        Target::new("command-line/json-rows", json_rows, files_of_json_rows),
        Target::new("command-line/csv-rows", csv_rows, files_of_csv_rows),
    ]
}
