/** An agent that a test directs: it serves events from a list, and records what the service sends. */

import assert from "node:assert/strict";
import http from "node:http";

/** Waits for a condition. */
export async function until(condition, describe = () => "the condition did not come true") {
  const limit = performance.now() + 20_000;
  while (!condition()) {
    assert.ok(performance.now() < limit, describe());
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export class FakeAgent {
  session = "s1";
  events = [];
  answers = [];
  /** Number of answers in each list. */
  lists = [];
  seen = [];
  positions = [];
  validForMs = 60_000;
  /** Number that answers to heartbeats name instead of the newest event. */
  named = undefined;
  silent = false;
  /** Heartbeats after this number of answers are refused. */
  silentFrom = Infinity;
  /** Answers to heartbeats wait for this promise. */
  held = undefined;
  holds = 0;
  /** Answers of the service get no response, which is in `heldAnswers`. */
  holdAnswers = false;
  heldAnswers = [];
  heldSince = undefined;
  leaseForMs = 1000;
  version = 1;
  /** Connections get no `hello`. */
  isMute = false;
  /** New sessions are refused. */
  isBusy = false;
  /** Kinds of answers of which the next is refused as invalid. */
  refuseOnce = [];
  /** A stop ends the session, as if nothing were owned. */
  endsAtStop = true;
  /** Number of heartbeats from now on that get no answer. */
  unanswered = 0;
  /** Open streams: `{ response, position }`. */
  streams = new Set();

  static async start(path = undefined) {
    const agent = new FakeAgent();
    agent.server = http.createServer((request, response) => {
      // A client may end the connection within a request.
      agent.#serve(request, response).catch(() => response.destroy());
    });
    await new Promise((resolve) => agent.server.listen(path ?? { port: 0, host: "127.0.0.1" }, resolve));
    agent.address = path === undefined ? `127.0.0.1:${agent.server.address().port}` : `unix:${path}`;
    return agent;
  }

  async #serve(request, response) {
    const refuse = (status, kind, message) => {
      response.writeHead(status).end(JSON.stringify({ error: { kind, message } }));
    };
    if (request.method === "GET" && request.url.startsWith("/v1/where/")) {
      this.asked = request.url;
      const owner = { participant: "w2", address: "127.0.0.1:8081", epoch: 9, serves: true };
      response.end(JSON.stringify({ table: "jobs", partition: 3, owner }));
      return;
    }
    if (request.method === "GET") {
      this.#stream(request, response, refuse);
      return;
    }
    let text = "";
    for await (const chunk of request) text += chunk;
    const body = JSON.parse(text);
    if (request.headers["archon-session"] !== this.session) return refuse(410, "ended", "the session has ended");
    if (request.url === "/v1/answers") {
      if (Buffer.byteLength(text) > 65_536 || /\\ud[89a-f]/i.test(text)) return refuse(400, "invalid", "no Unicode");
      if (this.holdAnswers) {
        this.heldSince ??= performance.now();
        this.heldAnswers.push(response);
        return;
      }
      if (!Array.isArray(body)) {
        const error = this.#take(body);
        if (error !== undefined) return refuse(400, error.kind, error.message);
        response.end("{}");
        return;
      }
      this.lists.push(body.length);
      const errors = body.map((answer, index) => ({ index, error: this.#take(answer) }));
      response.end(JSON.stringify({ refused: errors.filter(({ error }) => error !== undefined) }));
      return;
    }
    if (this.unanswered > 0) {
      this.unanswered -= 1;
      return;
    }
    if (this.held !== undefined) {
      this.holds += 1;
      await this.held;
    }
    this.seen.push(body.seen);
    if (this.silent || this.seen.length > this.silentFrom) return refuse(503, "unreachable", "silent");
    response.end(JSON.stringify({ valid_for_ms: this.validForMs, sequence: this.named ?? this.events.length }));
  }

  /** Takes an answer, or returns the error. */
  #take(answer) {
    const refused = this.refuseOnce.indexOf(answer.answer);
    if (refused >= 0) {
      this.refuseOnce.splice(refused, 1);
      return { kind: "invalid", message: "an unknown answer" };
    }
    this.answers.push(answer);
    if (answer.answer === "stop" && this.endsAtStop) this.fire({ event: "ended", reason: "stopped" });
    return undefined;
  }

  #stream(request, response, refuse) {
    const name = request.headers["archon-session"];
    if (this.isMute) {
      this.positions.push("mute");
      return;
    }
    if (this.isBusy) return refuse(409, "busy", "another process is connected");
    if (name !== "new" && name !== this.session) return refuse(410, "ended", "the session has ended");
    this.positions.push(request.headers["last-event-id"]);
    const stream = { response, position: Number(request.headers["last-event-id"]) };
    this.streams.add(stream);
    response.on("close", () => this.streams.delete(stream));
    response.writeHead(200, { "content-type": "text/event-stream" });
    const hello = { event: "hello", version: this.version, session: this.session, participant: "w1", tables: ["jobs"] };
    this.#send(response, { ...hello, service_lease_for_ms: this.leaseForMs, heartbeat_every_for_ms: 20 });
    this.#flush();
  }

  #send(response, event) {
    response.write(`event: ${event.event}\ndata: ${JSON.stringify(event)}\n\n`);
  }

  #flush() {
    for (const stream of this.streams) {
      while (stream.position < this.events.length) {
        const event = this.events[stream.position];
        stream.position += 1;
        this.#send(stream.response, { sequence: stream.position, ...event });
      }
    }
  }

  /** Adds an event. */
  fire(event) {
    this.events.push(event);
    this.#flush();
  }

  acquire(partition, epoch) {
    this.fire({ event: "acquire", table: "jobs", table_id: 7, partition, epoch, lease_left_for_ms: 900 });
  }

  lose(partition, epoch) {
    this.fire({ event: "lost", table: "jobs", partition, epoch });
  }

  release(partition, epoch, reason) {
    this.fire({ event: "release", table: "jobs", partition, epoch, reason });
  }

  /** Ends all connections of now. */
  cut() {
    for (const { response } of this.streams) response.destroy();
    this.streams.clear();
  }

  /** Begins another session, as a restarted agent. */
  restart() {
    [this.session, this.events] = ["s2", []];
    this.cut();
  }

  answered(kind) {
    return this.answers.filter((answer) => answer.answer === kind);
  }

  async wait(condition) {
    await until(condition, () => JSON.stringify({ answers: this.answers, positions: this.positions }));
  }

  close() {
    this.server.close();
    this.server.closeAllConnections?.();
    this.cut();
  }
}
