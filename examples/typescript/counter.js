/**
 * A service that counts requests: each counter in one of its processes at a time.
 *
 *     node counter.js --agent 127.0.0.1:7701 --listen 127.0.0.1:8081 --logs /tmp/counters
 *
 * `examples/python/run.py --service typescript` starts three of them, kills one, and looks for a moment with two owners.
 */

import { appendFileSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { parseArgs } from "node:util";

// "archon-participant" once the package is installed.
import { Lost, NotOwned, Participant } from "../../clients/typescript/src/index.js";
/** @import { Grant } from "../../clients/typescript/src/index.js" */

const text = /** @type {const} */ ({ type: "string", default: "" });
const { values: options } = parseArgs({ options: { agent: text, listen: text, logs: text } });

/**
 * Adds a line to the log of a partition, which all processes share. The epoch is the fencing token: a line after one of a
 * later epoch is from a former owner, and every reader ignores it.
 *
 * @param {Grant} grant
 * @param {string} [request]
 */
function append(grant, request = "") {
  const file = join(options.logs, `${grant.tableId}-${grant.partition}.log`);
  appendFileSync(file, `${grant.epoch} ${options.listen} ${request}\n`);
  const epochs = readFileSync(file, "utf8").split("\n").map((line) => Number(line.split(" ")[0]));
  if (epochs.some((epoch) => epoch > grant.epoch)) throw new Lost("a later owner has written its epoch");
}

/** @type {Map<string, number>} The partition of a key never changes, so it is known also while the agent is down. */
const partitions = new Map();

/** @param {string} counter */
async function partitionOf(counter) {
  const partition = partitions.get(counter) ?? (await participant.where(counter)).partition;
  partitions.set(counter, partition);
  return partition;
}

/**
 * `POST /?counter=votes&user=1&request=7`: 200 once it is counted, 421 if another process owns the counter, and 503 if its
 * partition is unknown and the agent does not answer. A request that comes again is counted once: readers know its number.
 *
 * @param {URLSearchParams} of
 */
async function count(of) {
  try {
    const grant = participant.grant(await partitionOf(String(of.get("counter"))));
    grant.check(); // Right before the write. Nothing is awaited between.
    append(grant, `${of.get("counter")} ${of.get("user")} ${of.get("request")}`);
    return 200;
  } catch (error) {
    return error instanceof NotOwned || error instanceof Lost ? 421 : 503;
  }
}

// A new owner writes its epoch before it does anything else.
const participant = new Participant("counters", { agent: options.agent, acquire: (grant) => append(grant) });
await participant.start();
const server = createServer(async (request, response) => {
  response.writeHead(await count(new URL(request.url ?? "", "http://localhost").searchParams)).end();
});
const [, host, port] = /^(.*):(\d+)$/.exec(options.listen) ?? [];
server.listen({ host, port: Number(port), backlog: 128 }); // Room for the requests of a pause.
process.on("SIGTERM", async () => {
  await participant.stop();
  process.exit();
});
