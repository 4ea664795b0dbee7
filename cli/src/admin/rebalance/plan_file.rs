//! A plan in a file: `archon rebalance plan --out FILE` writes it, `archon rebalance apply FILE` reads it.

use crate::documents::{Node, Plan, Status};
use crate::exit::{Exit, Failure};
use crate::text_input;
use crate::wanted::in_words;
use archon_client::{Admin, TableSummary};
use archon_types::ErrorKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest plan file that is read, in bytes.
const PLAN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A plan and the cluster it was made for: what the file holds, and what `rebalance plan -o json` prints. Fields of a newer
/// coordinator are printed and written; a file with one is refused, as this version would not obey it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlanFile {
    /// The cluster that it is for.
    cluster_id: String,
    /// The plan.
    #[serde(flatten)]
    plan: Plan,
}

impl PlanFile {
    /// Creates the file of a new plan.
    pub(in crate::admin) fn new(cluster_id: &str, plan: Plan) -> Self {
        Self { cluster_id: cluster_id.to_owned(), plan }
    }

    /// Writes a temporary file and renames it, so that a reader never sees half a plan.
    ///
    /// # Errors
    /// The directory is not writable.
    pub(in crate::admin) fn write(&self, path: &Path) -> Result<(), Failure> {
        let wrong = |error: String| {
            Failure::failed(format!("writing the plan to {}: {error}", path.display()))
                .with_remedy("name a file in a directory that you may write to")
        };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(|error| wrong(error.to_string()))?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|error| wrong(error.to_string()))?;
        file.persist(path).map_err(|error| wrong(error.to_string()))?;
        Ok(())
    }

    /// Reads a plan file.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or is no plan.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |error: String| unusable(path, &error);
        let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if size > PLAN_BYTES_MAX {
            return Err(wrong(format!("it has {size} bytes; a plan has at most {PLAN_BYTES_MAX}")));
        }
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let unfit = |problem: &str| wrong(format!("not a plan, or a plan of another version of archon: {problem}"));
        let file: Self = serde_json::from_str(text_input::decode(&bytes).map_err(wrong)?)
            .map_err(|error| unfit(&in_words(&error.to_string())))?;
        match file.plan.unknown_field() {
            Some(field) => Err(unfit(&format!("unknown field `{field}`"))),
            None => Ok(file),
        }
    }

    /// Returns the plan in a file, if it is for this cluster and its names match its numbers.
    ///
    /// # Errors
    /// As [`PlanFile::read`], a plan for another cluster, and names that do not match the numbers beside them.
    pub(in crate::admin) async fn of_cluster(path: &Path, admin: &Admin) -> Result<Plan, Failure> {
        let file = Self::read(path)?;
        let (status, nodes, tables) = (admin.status().await?, admin.list_nodes().await?, admin.list_tables().await?);
        file.check(path, &status, &nodes, &tables)?;
        Ok(file.plan)
    }

    /// Checks that each name matches the number beside it: the quorum uses only the numbers, and people read the names.
    fn check(&self, path: &Path, status: &Status, nodes: &[Node], tables: &[TableSummary]) -> Result<(), Failure> {
        if self.cluster_id != status.cluster_id {
            let (file, made, here) = (path.display(), &self.cluster_id, &status.cluster_id);
            let message = format!("{file}: the plan is for cluster {made}, but this is cluster {here}");
            let refused = Failure { kind: ErrorKind::WrongCluster.as_str(), ..Failure::new(Exit::Refused, message) };
            return Err(
                refused.with_remedy("check --coordinators; for a plan of this cluster: `archon rebalance plan`")
            );
        }
        if self.plan.table_version.get() != status.table_version {
            // The quorum refuses it with a better message. Its nodes may be gone by now.
            return Ok(());
        }
        let node = |id: u64| nodes.iter().find(|node| node.id == id).map(|node| node.name.as_str());
        let table = |id: u64| tables.iter().find(|table| table.id == id).map(|table| table.name.as_str());
        for step in &self.plan.moves {
            let named = [
                ("from", &step.from, step.from_id.get(), node(step.from_id.get()), "node"),
                ("to", &step.to, step.to_id.get(), node(step.to_id.get()), "node"),
                ("table", &step.table, step.table_id.get(), table(step.table_id.get()), "table"),
            ];
            for (field, name, id, is, what) in named {
                let is = match is {
                    Some(is) if is == name => continue,
                    Some(is) => format!("the number of {is}"),
                    None => format!("no {what} of this cluster"),
                };
                let label = step.partition_name();
                let message = format!("the move of {label} has {field}: {name:?}, but {field}_id {id} is {is}");
                return Err(unusable(path, &message));
            }
        }
        Ok(())
    }
}

fn unusable(path: &Path, what: &str) -> Failure {
    Failure::usage(format!("{}: {what}", path.display()), "make a new plan: `archon rebalance plan --out FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::{node, status};

    const FILE: &str = r#"{"cluster_id": "6f1e", "table_version": 37, "moves_version": 5, "moves": [{"kind": "copy",
        "partition": 7, "table_id": 1, "table": "default", "from": "athens", "from_id": 1, "to": "ephesus", "to_id": 4,
        "bytes_total": 9, "code": "balance", "message": "m"}]}"#;

    fn read(text: &str) -> Result<PlanFile, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        std::fs::write(&path, text).unwrap();
        PlanFile::read(&path)
    }

    fn check(text: &str) -> Result<(), Failure> {
        let status = Status { table_version: 37, ..status() };
        let nodes = [node(1, "athens", 3), node(2, "byzantium", 3), node(4, "ephesus", 3)];
        let table = TableSummary {
            id: 1,
            name: "default".into(),
            partitions_total: 9,
            replication: 1,
            keys: archon_client::KeysBy::Hash.into(),
            split_above_bytes: None,
            split_above_rate: None,
            merge_below_bytes: None,
            holds: archon_client::TableContent::Data.into(),
            version: 1,
        };
        read(text)?.check(Path::new("plan.json"), &status, &nodes, &[table])
    }

    #[test]
    fn plan_is_written_completely_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        let plan = read(FILE).unwrap();
        plan.write(&path).unwrap();
        assert_eq!(PlanFile::read(&path).unwrap(), plan);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn invalid_plan_file_is_refused_with_the_remedy() {
        let absent = PlanFile::read(Path::new("/nonexistent/plan.json")).unwrap_err();
        let partial = read(r#"{"cluster_id": "c", "moves_version": 5, "moves": []}"#).unwrap_err();
        assert!(partial.message.contains("table_version"), "{partial}");
        let undated = read(&FILE.replace("\"moves_version\": 5,", "")).unwrap_err();
        assert!(undated.message.contains("moves_version"), "{undated}");
        for failure in [absent, partial] {
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.to_string().contains("rebalance plan --out"), "{failure}");
        }
    }

    #[test]
    fn edited_plan_is_followed_literally_or_refused() {
        check(FILE).unwrap();
        let renamed = check(&FILE.replace("ephesus", "byzantium")).unwrap_err();
        assert_eq!(renamed.exit, Exit::Usage);
        let text = "the move of default/7 has to: \"byzantium\", but to_id 4 is the number of ephesus";
        assert!(renamed.message.contains(text), "{renamed}");
        let unknown = check(&FILE.replace(r#""to_id": 4"#, r#""to_id": 99"#)).unwrap_err();
        assert!(unknown.message.contains("to_id 99 is no node of this cluster"), "{unknown}");
        let other = check(&FILE.replace(r#""table": "default""#, r#""table": "orders""#)).unwrap_err();
        assert!(other.message.contains("table: \"orders\", but table_id 1 is the number of default"), "{other}");
        for more in [r#""priority": 1, "moves""#, r#""moves""#] {
            let text =
                FILE.replace(r#""moves""#, more).replace(r#""bytes_total": 9"#, r#""bytes_total": 9, "speed": 1"#);
            let failure = check(&text).unwrap_err();
            assert!(failure.message.contains("unknown field"), "{failure}");
        }
    }

    #[test]
    fn plan_for_another_cluster_is_refused() {
        let failure = check(&FILE.replace("6f1e", "0000")).unwrap_err();
        assert_eq!((failure.exit, failure.kind), (Exit::Refused, "wrong_cluster"));
        assert!(failure.message.contains("is for cluster 0000, but this is cluster 6f1e"), "{failure}");
    }

    #[test]
    fn stale_plan_is_left_to_the_quorum() {
        check(&FILE.replace("37", "36").replace(r#""to_id": 4"#, r#""to_id": 99"#)).unwrap();
    }
}
