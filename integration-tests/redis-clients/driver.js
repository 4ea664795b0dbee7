// The protocol of driver.py for libraries in JavaScript.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");

// Returns the addresses to connect to, and the files of TLS (undefined without).
function started() {
  const [addresses, , ...files] = process.argv.slice(2);
  const nodes = addresses.split(",").map((address) => {
    const at = address.lastIndexOf(":");
    return { host: address.slice(0, at), port: Number(address.slice(at + 1)) };
  });
  if (files.length === 0) return { nodes };
  const [ca, cert, key] = files.map((file) => fs.readFileSync(file));
  return { nodes, tls: { ca, cert, key } };
}

// Encodes the reply of a library; errors for which `refused` returns true are those that the server replied.
function encoded(reply, refused) {
  if (reply === null || reply === undefined) return "_";
  if (typeof reply === "number") return `:${reply}`;
  if (reply instanceof Error) {
    return (refused(reply) ? "-" : "!") + Buffer.from(`${reply.name}: ${reply.message}`).toString("hex");
  }
  return `=${Buffer.from(reply).toString("hex")}`;
}

// Decodes the commands of a request.
function commands(words) {
  const found = [[]];
  for (const word of words) {
    if (word === ",") found.push([]);
    else found.at(-1).push(Buffer.from(word.slice(1), "hex"));
  }
  return found;
}

// Answers requests until standard input ends. `library` has `call` and `replica`, which return a reply, and `own`. Requests of one
// turn of the event loop share a pipeline, so `pipeline` calls them all.
async function serve(library, refused) {
  const answer = async (line) => {
    const [number, verb, ...words] = line.split(" ");
    // Errors of the library are replies; another one ends the process, which prints it.
    const requests = commands(words);
    const one = verb === "replica" ? library.replica : library.call;
    const done = verb === "own" ? [library.own().then(() => "OK")] : requests.map((request) => one(request));
    const replies = await Promise.all(done.map((reply) => reply.catch((error) => error)));
    console.log([number, ...replies.map((reply) => encoded(reply, refused))].join(" "));
  };
  for await (const line of readline.createInterface({ input: process.stdin })) answer(line);
  process.exit();
}

module.exports = { serve, started };
