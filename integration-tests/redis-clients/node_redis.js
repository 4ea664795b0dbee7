// A client of node-redis under test, with the protocol of driver.py.
"use strict";

const assert = require("node:assert");
const { createCluster, ErrorReply, RESP_TYPES } = require("redis");
const { serve, started } = require("./driver.js");

async function main() {
  const { nodes, tls } = started();
  const socket = tls ? { tls: true, ...tls } : {};
  const options = {
    rootNodes: nodes.map((node) => ({ socket: { ...node, ...socket } })),
    defaults: {
      socket: { ...socket, reconnectStrategy: () => 100 },
      commandOptions: { timeout: 10000, typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
    },
    maxCommandRedirections: 64,
  };
  const cluster = createCluster(options);
  const replicas = createCluster({ ...options, useReplicas: true });
  // The library sends `READONLY` to nodes that lead nothing only.
  replicas.on("node-ready", ({ host, port }) => {
    const { client } = replicas.nodeByAddress.get(`${host}:${port}`) ?? {};
    client?.sendCommand(["READONLY"]).catch(() => {});
  });
  // Errors reach the requests that have them.
  for (const each of [cluster, replicas]) each.on("error", () => {});
  await cluster.connect();

  async function send(client, command) {
    const reading = command[0].toString() === "GET";
    return client.sendCommand(command[1], reading, command);
  }

  const call = (command) => send(cluster, command);
  let connected;
  async function replica(command) {
    connected ??= replicas.connect();
    await connected;
    return send(replicas, command);
  }

  async function own() {
    const keys = Array.from({ length: 200 }, (_, number) => `clé node ${number}`);
    await Promise.all(keys.map((key) => cluster.set(key, key)));
    const found = new Set();
    for (const master of cluster.masters) {
      const node = await cluster.nodeClient(master);
      for await (const some of node.scanIterator({ MATCH: "clé node *", COUNT: 50 })) {
        some.forEach((key) => found.add(key.toString()));
      }
    }
    assert.deepStrictEqual(found, new Set(keys));
  }

  await serve({ call, replica, own }, (error) => error instanceof ErrorReply);
}

main();
