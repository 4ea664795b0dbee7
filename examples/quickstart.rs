//! Put, get, compare-and-set and scan.
//!
//! ```sh
//! cargo run --release -p archon-examples --example quickstart    # on a cluster of its own, which ends with it
//! ```
//!
//! On yours, if you name it in ARCHON_COORDINATORS or here:
//!
//! ```sh
//! cargo run --release -p archon-examples --example quickstart -- 127.0.0.1:7101
//! ```

use archon_client::{Client, Error, Revision};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    archon_examples::run(quickstart)
}

async fn quickstart() -> archon_examples::Result {
    // Coordinators and nodes will do as endpoints, and one that answers is enough: it tells where all others are.
    let own;
    let endpoints = match archon_examples::endpoints() {
        Some(endpoints) => endpoints,
        None => {
            own = archon_examples::cluster().await?;
            own.endpoints()
        }
    };

    // Building a client fetches the partition table, so that each call goes to the right node at once. Share a client:
    // clones are cheap, and what they ask at the same time travels together. The time-out is that of a call with all
    // its retries.
    let client = Client::builder(endpoints).timeout(Duration::from_secs(10)).build().await?;

    // Keys and values are bytes. Once `put` has returned, every copy that counts has the value on its disk.
    let first = client.put("quickstart/athens", "owl").await?;
    println!("put              athens = owl           revision {first}");

    // A get is linearizable: it finds the latest value, never one from a stale cache.
    let found = client.get("quickstart/athens").await?.ok_or("the key that was just written is absent")?;
    println!("get              athens = {}           revision {}", text(&found.value), found.revision);

    // Every write of a key has a higher revision. A compare-and-set writes only where the key still has the revision
    // that you read: so of two that read the same, one wins and the other is told, and no change is lost unseen.
    let second = client.compare_and_set("quickstart/athens", found.revision, "owl, olive").await?;
    println!("compare-and-set  athens = owl, olive    revision {second}");
    match client.compare_and_set("quickstart/athens", first, "spear").await {
        Err(Error::ConditionFailed { found }) => {
            println!("compare-and-set  refused: athens has revision {found} by now")
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a compare-and-set with an old revision was taken".into()),
    }

    // Revision zero is that of a key that is absent: this writes a key only if nobody has.
    match client.compare_and_set("quickstart/byzantium", Revision::ZERO, "crescent").await {
        Ok(revision) => println!("compare-and-set  byzantium = crescent   revision {revision}"),
        Err(Error::ConditionFailed { .. }) => println!("compare-and-set  byzantium is there already"),
        // An error says whether a retry may help, and whether the write may have taken effect. The client has retried
        // by then.
        Err(error) if error.outcome_unknown() => return Err(format!("it may be there: {error}").into()),
        Err(error) => return Err(error.into()),
    }

    // Calls that do not wait for each other share messages, if they go to the same node.
    tokio::try_join!(client.put("quickstart/cyrene", "silphium"), client.put("quickstart/delphi", "tripod"))?;

    // A scan lists the keys with a prefix in order, all partitions together, page by page: after the last key of the
    // page before, at most so many.
    let mut after = Vec::new();
    loop {
        let page = client.scan("quickstart/").after(&after).limit(3).page().await?;
        for entry in &page.entries {
            println!("scan             {} = {}", text(&entry.key), text(&entry.value));
        }
        match page.entries.last() {
            Some(last) if page.more => after = last.key.to_vec(),
            _ => break,
        }
    }

    // Leave nothing behind in a cluster that is yours.
    for city in ["athens", "byzantium", "cyrene", "delphi"] {
        client.delete(format!("quickstart/{city}")).await?;
    }
    client.close().await;
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
