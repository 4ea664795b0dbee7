// A client of node-redis under test, with the protocol of driver.py.
"use strict";

const assert = require("node:assert");
const { createCluster, ErrorReply, RESP_TYPES } = require("redis");
const { serve, started } = require("./driver.js");

async function main() {
  const { nodes, tls } = started();
  const socket = tls ? { tls: true, ...tls } : {};
  const cluster = createCluster({
    rootNodes: nodes.map((node) => ({ socket: { ...node, ...socket } })),
    defaults: {
      socket: { ...socket, reconnectStrategy: () => 100 },
      commandOptions: { timeout: 10000, typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
    },
    maxCommandRedirections: 64,
  });
  // Errors reach the requests that have them.
  cluster.on("error", () => {});
  await cluster.connect();

  async function call(command) {
    const reading = command[0].toString() === "GET";
    return cluster.sendCommand(command[1], reading, command);
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

  await serve({ call, own }, (error) => error instanceof ErrorReply);
}

main();
