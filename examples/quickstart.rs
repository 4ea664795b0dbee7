//! Put, get, compare-and-set and scan.
//!
//! ```sh
//! cargo run --release -p archon-examples --example quickstart    # on a cluster of its own, which ends with it
//! ```
//!
//! On your cluster, named by ARCHON_COORDINATORS or here:
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
    // Coordinators and nodes both serve as endpoints, and one that answers is enough: it names all others.
    let own;
    let endpoints = match archon_examples::endpoints() {
        Some(endpoints) => endpoints,
        None => {
            own = archon_examples::cluster().await?;
            own.endpoints()
        }
    };

    // Building a client fetches the partition table, so that each call goes directly to the right node. Share a client:
    // clones are cheap, and concurrent requests share messages. The time-out covers a call with all its retries.
    let client = Client::builder(endpoints).timeout(Duration::from_secs(10)).build().await?;

    // Keys and values are bytes. Once `put` has returned, every in-sync copy has the value on its disk.
    let first = client.put("quickstart/athens", "owl").await?;
    println!("put              athens = owl           revision {first}");

    // A get is linearizable: it finds the latest value, never one from a stale cache.
    let found = client.get("quickstart/athens").await?.ok_or("the key that was just written is absent")?;
    println!("get              athens = {}           revision {}", text(&found.value), found.revision);

    // Every write of a key has a higher revision. A compare-and-set writes only where the key still has the revision
    // that you read: of two clients that read the same revision, one succeeds and the other gets an error, and no
    // change is lost silently.
    let second = client.compare_and_set("quickstart/athens", found.revision, "owl, olive").await?;
    println!("compare-and-set  athens = owl, olive    revision {second}");
    match client.compare_and_set("quickstart/athens", first, "spear").await {
        Err(Error::ConditionFailed { found }) => {
            println!("compare-and-set  refused: athens has revision {found} by now")
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a compare-and-set with an old revision was taken".into()),
    }

    // Revision zero stands for an absent key: this writes a key only if it does not exist.
    match client.compare_and_set("quickstart/byzantium", Revision::ZERO, "crescent").await {
        Ok(revision) => println!("compare-and-set  byzantium = crescent   revision {revision}"),
        Err(Error::ConditionFailed { .. }) => println!("compare-and-set  byzantium is there already"),
        // An error says whether a retry may help, and whether the write may have taken effect. The client has already
        // retried.
        Err(error) if error.outcome_unknown() => return Err(format!("it may be there: {error}").into()),
        Err(error) => return Err(error.into()),
    }

    // Concurrent calls share messages, if they go to the same node.
    tokio::try_join!(client.put("quickstart/cyrene", "silphium"), client.put("quickstart/delphi", "tripod"))?;

    // A scan lists the keys with a prefix in order, across all partitions, page by page: it starts after the last key
    // of the previous page and returns at most this many.
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

    // Leave nothing behind in a cluster of yours.
    for city in ["athens", "byzantium", "cyrene", "delphi"] {
        client.delete(format!("quickstart/{city}")).await?;
    }
    client.close().await;
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
