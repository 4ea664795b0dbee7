// A client of ioredis under test, with the protocol of driver.py.
"use strict";

const assert = require("node:assert");
const { Cluster, ReplyError } = require("ioredis");
const { serve, started } = require("./driver.js");

const { nodes, tls } = started();
const cluster = new Cluster(nodes, {
  redisOptions: { commandTimeout: 10000, tls },
  enableAutoPipelining: true,
  slotsRefreshTimeout: 5000,
  retryDelayOnClusterDown: 100,
  retryDelayOnTryAgain: 100,
  retryDelayOnFailover: 100,
  clusterRetryStrategy: () => 100,
  maxRedirections: 64,
  // Certificates name addresses.
  dnsLookup: (host, callback) => callback(null, host),
});
// Errors reach the requests that have them.
cluster.on("error", () => {});

// Only the methods of the library share pipelines.
async function call([name, ...parameters]) {
  return cluster[`${name.toString().toLowerCase()}Buffer`](...parameters);
}

async function own() {
  const keys = Array.from({ length: 200 }, (_, number) => `clé js ${number}`);
  await Promise.all(keys.map((key) => cluster.set(key, key)));
  const found = new Set();
  for (const node of cluster.nodes("master")) {
    let cursor = "0";
    do {
      const [next, some] = await node.scan(cursor, "MATCH", "clé js *", "COUNT", 50);
      some.forEach((key) => found.add(key));
      cursor = next;
    } while (cursor !== "0");
  }
  assert.deepStrictEqual(found, new Set(keys));
  assert.strictEqual(await cluster.setex("short js", 100, "v"), "OK");
  assert.strictEqual(await cluster.del("short js"), 1);
}

serve({ call, own }, (error) => error instanceof ReplyError);
