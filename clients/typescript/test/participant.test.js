/** Tests of the package against a scripted agent. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";

import { AgentError, Lost, NotOwned, Participant } from "../src/index.js";
import { after, clock } from "../src/clock.js";
import { createGrant, loseGrant, Permission, stateOf } from "../src/grant.js";
import { FakeAgent, until } from "./fake_agent.js";

function ownedGrant(permission) {
  const grant = createGrant({ table: "jobs", tableId: 7, partition: 3, epoch: 5, sequence: 1 }, permission);
  stateOf(grant).stage = "owned";
  return grant;
}

describe("permission", () => {
  const { now } = clock;
  afterEach(() => {
    clock.now = now;
  });

  it("permission_counts_once_its_events_have_arrived", () => {
    const permission = new Permission();
    const grant = ownedGrant(permission);
    permission.extend(clock.now(), 60_000, 2);
    assert.throws(() => grant.check(), Lost);
    permission.receive(1);
    assert.equal(grant.validForMs(), 0);
    permission.receive(2);
    assert.equal(grant.check(), 5);
  });

  it("late_answer_does_not_shorten_or_extend", () => {
    const permission = new Permission();
    const grant = ownedGrant(permission);
    clock.now = () => ({ steady: 100_000, boot: 200_000 });
    permission.extend({ steady: 98_000, boot: 198_000 }, 1000, 0);
    assert.equal(grant.validForMs(), 0);
    permission.extend(clock.now(), 60_000, 0);
    permission.extend(clock.now(), 1000, 0);
    assert.ok(grant.validForMs() > 30_000);
    permission.end();
    permission.extend(clock.now(), 60_000, 0);
    permission.receive(1);
    assert.equal(grant.validForMs(), 0);
  });

  it("either_clock_ends_the_permission", () => {
    const permission = new Permission();
    const grant = ownedGrant(permission);
    clock.now = () => ({ steady: 1000, boot: 5000 });
    permission.extend(clock.now(), 500, 0);
    assert.ok(grant.validForMs() > 400);
    // The machine was suspended.
    clock.now = () => ({ steady: 1001, boot: 90_000 });
    assert.equal(grant.validForMs(), 0);
    clock.now = () => ({ steady: 1501, boot: 5001 });
    assert.equal(grant.validForMs(), 0);
  });

  it("coarse_clock_never_extends_the_permission", () => {
    const permission = new Permission();
    const grant = ownedGrant(permission);
    clock.now = () => ({ steady: 0, boot: 5000 });
    permission.extend(clock.now(), 500, 0);
    // The true time is up to 10 ms later than the clock shows.
    clock.now = () => ({ steady: 0, boot: 5490 });
    assert.equal(grant.validForMs(), process.platform === "linux" ? 0 : 10);
  });

  it("lost_is_final", () => {
    const grant = ownedGrant(new Permission());
    assert.ok(loseGrant(grant));
    assert.ok(!loseGrant(grant) && !stateOf(grant).advance(["acquiring", "owned", "releasing"], "owned"));
    assert.ok(grant.signal.aborted && grant.signal.reason instanceof Lost);
  });
});

describe("participant", () => {
  /** @type {FakeAgent} */
  let agent;
  let calls;
  let started;

  beforeEach(async () => {
    agent = await FakeAgent.start();
    [calls, started] = [[], []];
  });
  afterEach(async () => {
    await Promise.all(started.map((participant) => participant.stop(100)));
    agent.close();
  });

  function make(options = {}) {
    const participant = new Participant("jobs", {
      agent: agent.address,
      acquire: (grant) => void calls.push(["acquire", grant.partition, grant.epoch]),
      release: (grant, reason) => void calls.push(["release", grant.partition, reason, grant.check()]),
      lost: (grant) => void calls.push(["lost", grant.partition, grant.validForMs()]),
      log: () => {},
      ...options,
    });
    started.push(participant);
    return participant;
  }
  /** Waits for a number of owned partitions; returns the first one's grant, which may have ended meanwhile. */
  const owns = async (participant, count = 1) => {
    let grants = [];
    await until(() => (grants = participant.owned()).length === count);
    return grants[0];
  };
  const wasLost = () => until(() => calls.some(([kind]) => kind === "lost"));

  it("partition_is_acquired_checked_and_released", async () => {
    const participant = await make().start();
    assert.throws(() => participant.grant(3), NotOwned);
    agent.acquire(3, 5);
    await owns(participant);
    const grant = participant.grant(3);
    assert.deepEqual([grant.check(), grant.tableId, grant.signal.aborted], [5, 7, false]);
    agent.release(3, 5, "handed_over");
    await agent.wait(() => agent.answered("released").length > 0);
    assert.throws(() => grant.check(), Lost);
    assert.ok(grant.signal.aborted);
    const [{ sequence, partition, epoch }] = agent.answered("released");
    assert.deepEqual([sequence, partition, epoch], [2, 3, 5]);
    assert.equal(await participant.stop(), true);
    assert.deepEqual(calls, [
      ["acquire", 3, 5],
      ["release", 3, "handed_over", 5],
    ]);
    assert.equal(agent.answered("stop").length, 1);
  });

  it("failing_acquire_refuses_the_partition", async () => {
    const acquire = async () => {
      throw new Error("no room");
    };
    const participant = await make({ acquire }).start();
    agent.acquire(3, 5);
    await agent.wait(() => agent.answered("refused").length > 0);
    assert.equal(agent.answered("refused")[0].reason, "no room");
    assert.deepEqual(participant.owned(), []);
  });

  it("long_reason_is_cut_and_sent", async () => {
    const acquire = () => {
      throw new Error(`\ud800${"x".repeat(1019)}\u00e4${"x".repeat(100_000)}`);
    };
    await make({ acquire }).start();
    agent.acquire(3, 5);
    await agent.wait(() => agent.answered("refused").length > 0);
    assert.equal(agent.answered("refused")[0].reason, `\ufffd${"x".repeat(1019)}\u00e4`);
  });

  it("loss_ends_the_grant_before_the_callback", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    const grant = await owns(participant);
    agent.lose(3, 5);
    await wasLost();
    assert.deepEqual(calls.at(-1), ["lost", 3, 0]);
    // The same epoch is acquired again: the former grant stays void.
    agent.acquire(3, 5);
    await owns(participant);
    assert.deepEqual([participant.grant(3).check(), grant.validForMs()], [5, 0]);
  });

  it("loss_beside_the_answer_is_final", async () => {
    const grants = [];
    let isLost = false;
    const acquire = async (grant) => {
      grants.push(grant);
      agent.lose(3, 5);
      // The event is applied while the callback still runs; `acquired` is sent after it.
      await until(() => stateOf(grant).stage === "lost");
      isLost = true;
    };
    const participant = await make({ acquire }).start();
    agent.acquire(3, 5);
    await wasLost();
    await agent.wait(() => agent.seen.length > 2);
    assert.ok(isLost && stateOf(grants[0]).stage === "lost");
    assert.deepEqual(participant.owned(), []);
  });

  it("release_beside_the_answer_is_carried_out", async () => {
    const acquire = async (grant) => {
      agent.release(3, 5, "dropped");
      await until(() => stateOf(grant).stage === "releasing");
    };
    const participant = await make({ acquire }).start();
    agent.acquire(3, 5);
    await agent.wait(() => agent.answered("released").length > 0);
    assert.deepEqual(participant.owned(), []);
    assert.deepEqual(calls, [["release", 3, "dropped", 5]]);
  });

  it("callbacks_of_a_partition_run_in_order", async () => {
    let open;
    const gate = new Promise((resolve) => (open = resolve));
    const acquire = async (grant) => {
      if (grant.partition === 3) await gate;
      calls.push(["acquire", grant.partition, grant.epoch]);
    };
    const participant = await make({ acquire, callbacksMax: 2 }).start();
    agent.acquire(3, 5);
    agent.lose(3, 5);
    agent.acquire(3, 6);
    agent.acquire(4, 1);
    // Another partition does not wait for this one.
    await owns(participant);
    assert.equal(participant.grant(4).check(), 1);
    open();
    await owns(participant, 2);
    assert.deepEqual(
      calls.filter(([, partition]) => partition === 3),
      [
        ["acquire", 3, 5],
        ["lost", 3, 0],
        ["acquire", 3, 6],
      ],
    );
  });

  it("silent_agent_ends_the_permission", async () => {
    agent.validForMs = 150;
    const participant = await make().start();
    agent.acquire(3, 5);
    const grant = await owns(participant);
    agent.silent = true;
    await until(() => grant.validForMs() === 0);
    assert.throws(() => participant.grant(3), NotOwned);
  });

  it("stalled_stream_extends_nothing", async () => {
    agent.validForMs = 150;
    const participant = await make().start();
    agent.acquire(3, 5);
    await owns(participant);
    agent.named = 2; // An event that has not arrived.
    await owns(participant, 0);
  });

  it("blocked_loop_ends_the_permission", async () => {
    agent.validForMs = 150;
    const participant = await make().start();
    agent.acquire(3, 5);
    const grant = await owns(participant);
    const end = performance.now() + 20_000;
    while (grant.validForMs() > 0) assert.ok(performance.now() < end);
    assert.throws(() => grant.check(), Lost);
  });

  it("permission_counts_from_the_sending_of_the_heartbeat", async () => {
    const { now } = clock;
    let offset = 0;
    clock.now = () => after(now(), offset);
    try {
      let grant;
      let release;
      agent.leaseForMs = 60_000;
      agent.named = 9; // No heartbeat counts yet.
      const participant = await make({ acquire: (acquired) => void (grant = acquired) }).start();
      agent.acquire(3, 5);
      await until(() => grant !== undefined && stateOf(grant).stage === "owned");
      agent.held = new Promise((resolve) => (release = resolve));
      await agent.wait(() => agent.holds > 0);
      // The answer permits 60 s, and is read 100 s after the heartbeat was sent.
      offset = 100_000;
      const answered = agent.seen.length;
      [agent.named, agent.held, agent.silentFrom] = [undefined, undefined, answered + agent.holds];
      release();
      await agent.wait(() => agent.seen.length > answered + agent.holds);
      assert.deepEqual([stateOf(grant).stage, grant.validForMs(), participant.owned()], ["owned", 0, []]);
    } finally {
      clock.now = now;
    }
  });

  it("stream_continues_after_the_last_event", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    await owns(participant);
    agent.cut();
    await agent.wait(() => agent.positions.length === 2);
    assert.deepEqual(agent.positions, ["0", "1"]);
    agent.acquire(4, 6);
    await owns(participant, 2);
    assert.deepEqual(calls, [
      ["acquire", 3, 5],
      ["acquire", 4, 6],
    ]);
  });

  it("restarted_agent_gets_a_new_session", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    const grant = await owns(participant);
    agent.restart();
    await wasLost();
    assert.equal(grant.validForMs(), 0);
    agent.acquire(3, 6);
    await owns(participant);
    assert.deepEqual([participant.grant(3).check(), grant.validForMs()], [6, 0]);
  });

  it("unknown_event_is_counted_and_ignored", async () => {
    const participant = await make().start();
    agent.fire({ event: "news", of: "a later version" });
    agent.acquire(3, 5);
    await owns(participant);
    await agent.wait(() => agent.seen.includes(2));
  });

  it("malformed_event_begins_a_new_session", async () => {
    const participant = await make().start();
    agent.fire({ event: "acquire", table: "jobs", partition: 3 });
    await until(() => /table_id is no number/.test(participant.error?.message ?? ""));
    agent.restart();
    agent.acquire(3, 6);
    await owns(participant);
    assert.equal(participant.error, undefined);
  });

  it("inexact_epoch_is_no_epoch", async () => {
    const participant = await make().start();
    agent.acquire(3, 2 ** 53);
    await until(() => /epoch is no number/.test(participant.error?.message ?? ""));
    assert.deepEqual(calls, []);
  });

  it("missing_event_ends_the_session", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    await owns(participant);
    agent.fire({ event: "news", sequence: 7 });
    await wasLost();
    assert.match(participant.error.message, /event 7 follows event 1/);
  });

  it("malformed_answer_does_not_end_the_heartbeats", async () => {
    agent.validForMs = "soon";
    const participant = await make().start();
    agent.acquire(3, 5);
    await agent.wait(() => agent.seen.length > 2);
    agent.validForMs = 60_000;
    await owns(participant);
  });

  it("unanswered_heartbeat_does_not_end_the_permission", async () => {
    [agent.leaseForMs, agent.validForMs] = [1500, 4000];
    const participant = await make().start();
    agent.acquire(3, 5);
    const grant = await owns(participant);
    agent.unanswered = 1;
    await agent.wait(() => agent.unanswered === 0);
    const answered = agent.seen.length;
    // The check throws if the permission ends before.
    await until(() => grant.check() === 5 && agent.seen.length > answered + 1);
  });

  it("service_that_is_not_alive_sends_no_heartbeats", async () => {
    agent.validForMs = 150;
    let isAlive = () => true;
    const participant = await make({ isAlive: () => isAlive() }).start();
    agent.acquire(3, 5);
    await owns(participant);
    isAlive = () => {
      throw new Error("hangs");
    };
    await owns(participant, 0);
    isAlive = () => true;
    await owns(participant);
  });

  it("answers_of_several_callbacks_travel_in_one_request", async () => {
    let begun = 0;
    /** @type {() => void} */
    let end = () => {};
    const ended = new Promise((resolve) => (end = () => resolve(undefined)));
    const acquire = async () => {
      begun += 1;
      await ended;
    };
    await make({ acquire }).start();
    for (let partition = 0; partition < 5; partition += 1) agent.acquire(partition, 5);
    await until(() => begun === 5);
    end();
    await agent.wait(() => agent.answered("acquired").length === 5);
    assert.deepEqual(agent.lists, [5]);
  });

  it("error_of_a_former_session_is_not_of_the_present_one", async () => {
    agent.holdAnswers = true;
    const participant = await make().start();
    agent.acquire(3, 5);
    await until(() => agent.heldAnswers.length === 1);
    agent.holdAnswers = false;
    agent.restart();
    await until(() => agent.positions.length === 2 && participant.error === undefined);
    const error = { kind: "invalid", message: "an unknown answer" };
    agent.heldAnswers[0].end(JSON.stringify({ refused: [{ index: 0, error }] }));
    agent.acquire(3, 6);
    await owns(participant);
    assert.deepEqual([agent.positions, participant.error], [["0", "0"], undefined]);
  });

  it("refused_answer_ends_the_session", async () => {
    agent.refuseOnce.push("acquired");
    const participant = await make().start();
    agent.acquire(3, 5);
    await wasLost();
    await owns(participant);
    assert.deepEqual([agent.positions, participant.error], [["0", "0"], undefined]);
  });

  it("table_that_the_agent_does_not_serve_is_an_error", async () => {
    const participant = new Participant("orders", { agent: agent.address, log: () => {} });
    await assert.rejects(participant.start(), /serves jobs, not orders/);
  });

  it("later_version_of_the_protocol_is_an_error", async () => {
    agent.version = 2;
    await assert.rejects(make().start(), /version 2 of the protocol, not 1/);
  });

  it("start_names_the_cause", async () => {
    agent.isBusy = true;
    const busy = make({ startWithinMs: 2000 });
    const refused = assert.rejects(busy.start(), { kind: "busy", message: "another process is connected" });
    await until(() => busy.error?.kind === "busy");
    await refused;
    agent.close();
    await assert.rejects(make({ startWithinMs: 300 }).start(), { name: "AgentError", kind: "unreachable" });
  });

  it("mute_agent_does_not_answer_in_time", async () => {
    agent.isMute = true;
    await assert.rejects(make({ startWithinMs: 100 }).start(), /does not answer|has stopped/);
  });

  it("malformed_address_is_an_error_at_once", () => {
    for (const address of ["localhost", "127.0.0.1:", ":7700", "127.0.0.1:70000", "127.0.0.1:-1", "unix:"]) {
      assert.throws(() => new Participant("jobs", { agent: address }), TypeError, address);
    }
  });

  it("participant_starts_once", async () => {
    const participant = await make().start();
    await assert.rejects(participant.start(), /started once/);
    await participant.stop();
    await assert.rejects(participant.start(), /started once/);
  });

  it("stop_begins_no_session", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    await owns(participant);
    assert.equal(await participant.stop(), true);
    assert.deepEqual([agent.positions.length, participant.owned()], [1, []]);
  });

  it("stop_returns_beside_a_callback_that_hangs", async () => {
    let isCalled = false;
    const acquire = () => {
      isCalled = true;
      return new Promise(() => {});
    };
    const participant = await make({ acquire }).start();
    agent.acquire(3, 5);
    await until(() => isCalled);
    await participant.stop(100);
    assert.deepEqual(participant.owned(), []);
  });

  it("incomplete_stop_names_what_it_waited_for", async () => {
    const logged = [];
    agent.endsAtStop = false;
    const participant = await make({ log: (level, message) => void logged.push(`${level}: ${message}`) }).start();
    agent.acquire(3, 5);
    await owns(participant);
    assert.equal(await participant.stop(100), false);
    assert.deepEqual(
      logged.filter((line) => line.startsWith("warning")),
      ["warning: the stop ends after 100 ms without the release of partition 3 of jobs"],
    );
  });

  it("stop_does_not_wait_for_an_earlier_answer", async () => {
    const participant = await make().start();
    let isHeldAnswered = false;
    agent.holdAnswers = true;
    agent.acquire(3, 5);
    await agent.wait(() => agent.heldAnswers.length > 0);
    agent.heldAnswers[0].on("close", () => (isHeldAnswered = true));
    // The answer `stop` waits for the connection, which the held one has for 5 s.
    let isStopped = false;
    const stopping = participant.stop(100).then(() => (isStopped = true));
    await until(() => isStopped || isHeldAnswered);
    assert.ok(isStopped || performance.now() - agent.heldSince < 4000, "stop has waited for the time limit of the held answer");
    await stopping;
  });

  it("promise_is_no_sign_of_life", async () => {
    agent.validForMs = 150;
    let answer = true;
    const participant = await make({ isAlive: () => answer }).start();
    agent.acquire(3, 5);
    await owns(participant);
    answer = Promise.resolve(true);
    await owns(participant, 0);
  });

  it("thrown_value_without_a_text_refuses_the_partition", async () => {
    const acquire = () => {
      throw Object.create(null);
    };
    await make({ acquire }).start();
    agent.acquire(3, 5);
    await agent.wait(() => agent.answered("refused").length > 0);
    assert.equal(agent.answered("refused")[0].reason, "an error without a text");
  });

  it("release_waits_for_the_task_of_the_grant", async () => {
    const tasks = new Map();
    let finish;
    const participant = await make({ release: (grant) => tasks.get(grant) }).start();
    agent.acquire(3, 5);
    const grant = await owns(participant);
    tasks.set(grant, new Promise((resolve) => (finish = resolve)));
    agent.release(3, 5, "handed_over");
    await until(() => grant.isReleasing);
    assert.deepEqual([grant.check(), grant.signal.aborted, agent.answered("released")], [5, false, []]);
    finish();
    await agent.wait(() => agent.answered("released").length > 0);
    assert.deepEqual([grant.isReleasing, grant.signal.aborted], [false, true]);
  });

  it("callback_can_stop_the_participant", async () => {
    let isStopped = false;
    const acquire = async () => {
      await participant.stop(200);
      isStopped = true;
    };
    const participant = make({ acquire });
    await participant.start();
    agent.acquire(3, 5);
    await until(() => isStopped);
  });

  it("iterator_yields_owned_grants_and_ends_with_the_participant", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    await owns(participant);
    const seen = [];
    const reading = (async () => {
      for await (const grant of participant.acquired()) seen.push([grant.partition, grant.epoch, grant.signal.aborted]);
    })();
    await until(() => seen.length === 1);
    agent.acquire(4, 6);
    await until(() => seen.length === 2);
    await participant.stop();
    await reading;
    assert.deepEqual(seen, [
      [3, 5, false],
      [4, 6, false],
    ]);
  });

  it("owner_of_a_key_is_found", async () => {
    const participant = await make().start();
    const owner = { participant: "w2", address: "127.0.0.1:8081", epoch: 9, serves: true };
    assert.deepEqual(await participant.where("a/ä"), { table: "jobs", partition: 3, owner });
    assert.equal(agent.asked, "/v1/where/a%2F%C3%A4?table=jobs");
  });

  it("grant_is_dropped_and_load_is_published", async () => {
    const participant = await make().start();
    agent.acquire(3, 5);
    await owns(participant);
    await participant.drop(participant.grant(3));
    await participant.publishLoad({ bytesStored: 10, operationsPerSecond: 2 });
    assert.deepEqual(agent.answered("drop"), [{ answer: "drop", table: "jobs", partition: 3, epoch: 5 }]);
    assert.deepEqual(agent.answered("load"), [{ answer: "load", bytes_stored: 10, operations_per_second: 2 }]);
  });

  it("socket_of_unix_is_an_address", async () => {
    const directory = mkdtempSync(join(tmpdir(), "archon-"));
    const other = await FakeAgent.start(join(directory, "agent.sock"));
    const participant = await new Participant("jobs", { agent: other.address, log: () => {} }).start();
    other.acquire(3, 5);
    await owns(participant);
    assert.equal(await participant.stop(), true);
    other.close();
    rmSync(directory, { recursive: true });
  });
});
