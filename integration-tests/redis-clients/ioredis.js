// A client of ioredis under test, with the protocol of driver.py.
"use strict";

const assert = require("node:assert");
const { Cluster, ReplyError } = require("ioredis");
const { serve, started } = require("./driver.js");

const { nodes, tls } = started();
const options = {
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
};
const cluster = new Cluster(nodes, options);
const replicas = new Cluster(nodes, { ...options, scaleReads: "slave", lazyConnect: true });
// The library sends `READONLY` to nodes that lead nothing only.
replicas.on("+node", (node) => node.on("ready", () => node.readonly().catch(() => {})));
// Errors reach the requests that have them.
for (const each of [cluster, replicas]) each.on("error", () => {});

// Only the methods of the library share pipelines.
async function send(client, [name, ...parameters]) {
  return client[`${name.toString().toLowerCase()}Buffer`](...parameters);
}

const call = (command) => send(cluster, command);
const replica = (command) => send(replicas, command);

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

serve({ call, replica, own }, (error) => error instanceof ReplyError);
