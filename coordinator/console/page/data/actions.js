// Requests to the cluster, each with the equivalent command.

import { partitionArguments, quoted } from "./words.js";

/** Time limit of a request. */
const TIMEOUT_MS = 30_000;

/** Reason why a request was refused or not answered. */
export class Refusal extends Error {
  constructor(message, remedy = null, code = "failed") {
    super(message);
    this.remedy = remedy;
    this.code = code;
  }
}

async function call(method, path, body) {
  const options = { method, signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" };
  if (method === "POST") {
    options.headers = { "content-type": "application/json", "x-archon-console": "1" };
    options.body = JSON.stringify(body ?? {});
  }
  let response;
  let answer = null;
  try {
    response = await fetch(`api/v1/${path}`, options);
    answer = await response.json();
  } catch (error) {
    if (!response) {
      const late = error.name === "TimeoutError";
      const message = late ? `no answer within ${TIMEOUT_MS / 1_000} s` : "the console does not answer";
      const remedy = method === "GET" ? null : "It may have taken effect: check before you retry.";
      throw new Refusal(message, remedy, "unreachable");
    }
  }
  if (response.ok && answer !== null) return answer;
  const { message, remedy, kind } = answer?.error ?? {};
  throw new Refusal(message ?? `the console answered ${response.status} ${response.statusText}`, remedy, kind);
}

const partitionPath = (table, number) => `partitions/${encodeURIComponent(table)}/${number}`;

export const nodeCheck = (node) => call("GET", `nodes/${encodeURIComponent(node)}`);
export const partitionDescription = (table, number) => call("GET", partitionPath(table, number));
export const plan = () => call("GET", "rebalance/plan");

/** Orders for a node: `{label, command, run}`. */
export const nodeOrder = (verb, node) => ({
  command: `archon node ${verb} ${quoted(node)}`,
  run: () => call("POST", `nodes/${encodeURIComponent(node)}/${verb}`),
});

/** Orders for a partition: bump, split or merge. */
export const partitionOrder = (verb, table, number, body = {}) => {
  const options = Object.entries(body).filter(([, value]) => value !== "");
  const extra = options.map(([name, value]) => ` --${name} ${quoted(value)}`).join("");
  return {
    command: `archon partition ${verb} ${partitionArguments(table, number)}${extra}`,
    run: () => call("POST", `${partitionPath(table, number)}/${verb}`, Object.fromEntries(options)),
  };
};

export const applyOrder = (made) => ({
  command: "archon rebalance apply",
  run: () => call("POST", "rebalance/apply", made),
});

export const cancelOrder = () => ({
  command: "archon rebalance cancel",
  run: () => call("POST", "rebalance/cancel"),
});
