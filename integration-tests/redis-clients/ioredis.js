// A client of ioredis under test, with the commands and answers of redis_py.py.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const { Cluster } = require("ioredis");

function connect(address, files) {
  const at = address.lastIndexOf(":");
  const redisOptions = { commandTimeout: 10000 };
  if (files.length > 0) {
    const [ca, cert, key] = files.map((file) => fs.readFileSync(file));
    redisOptions.tls = { ca, cert, key };
  }
  const cluster = new Cluster([{ host: address.slice(0, at), port: Number(address.slice(at + 1)) }], {
    redisOptions,
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
  return cluster;
}

async function basics(redis) {
  const binary = Buffer.from(Array.from({ length: 768 }, (_, index) => index % 256));
  assert.strictEqual(await redis.set("binary js", binary), "OK");
  assert.deepStrictEqual(await redis.getBuffer("binary js"), binary);
  assert.strictEqual(await redis.get("absent js"), null);
  assert.strictEqual(await redis.set("binary js", "x", "NX"), null);
  const keys = Array.from({ length: 200 }, (_, number) => `clé js ${number}`);
  // Requests of one turn of the event loop share a pipeline.
  const replies = await Promise.all(
    keys.flatMap((key) => [redis.set(key, key), redis.append(key, "!"), redis.get(key)]),
  );
  assert.deepStrictEqual(replies.filter((_, index) => index % 3 === 2), keys.map((key) => `${key}!`));
  const found = new Set();
  for (const node of redis.nodes("master")) {
    let cursor = "0";
    do {
      const [next, some] = await node.scan(cursor, "MATCH", "clé js *", "COUNT", 50);
      some.forEach((key) => found.add(key));
      cursor = next;
    } while (cursor !== "0");
  }
  assert.deepStrictEqual(found, new Set(keys));
  await redis.del("sum js");
  assert.strictEqual(await redis.incrbyfloat("sum js", 0.1), "0.1");
  assert.strictEqual(await redis.setex("short js", 100, "v"), "OK");
  assert.strictEqual(await redis.del("short js"), 1);
}

class Load {
  constructor(redis) {
    Object.assign(this, { redis, last: new Map(), lost: 0 });
  }

  begin() {
    Object.assign(this, { done: 0, errors: [], stopped: false });
    this.running = this.run();
  }

  async read(key) {
    const found = Number((await this.redis.get(key)) ?? 0);
    if (found < (this.last.get(key) ?? 0)) this.lost += 1;
    return found;
  }

  async run() {
    for (let number = 1; !this.stopped; number += 1) {
      const key = `count js ${number % 50}`;
      try {
        const count = (await this.read(key)) + 1;
        await this.redis.set(key, count);
        this.last.set(key, count);
        this.done += 1;
      } catch (error) {
        this.errors.push(`${error.name}: ${error.message}`);
        await sleep(100);
      }
    }
  }

  async end() {
    this.stopped = true;
    await this.running;
    for (const key of this.last.keys()) await this.read(key);
    const errors = JSON.stringify(this.errors.slice(0, 5));
    return `${this.done} done, ${this.errors.length} failed, ${this.lost} lost ${errors}`;
  }
}

async function main() {
  const [address, ...files] = process.argv.slice(2);
  const redis = connect(address, files);
  const load = new Load(redis);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer = "ok";
    try {
      if (line === "basics") await basics(redis);
      if (line === "begin") load.begin();
      if (line === "end") answer = await load.end();
    } catch (error) {
      answer = `${error.name}: ${error.message}`;
    }
    console.log(answer.replaceAll("\n", " "));
  }
  redis.disconnect();
}

main();
