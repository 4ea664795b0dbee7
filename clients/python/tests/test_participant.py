"""Tests of the package against a scripted agent."""

import asyncio
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, List
from unittest import mock

from fake_agent import FakeAgent

from archon_participant import AgentError, AsyncParticipant, Grant, Lost, NotOwned, Participant
from archon_participant import _answers, _clock, _http, _work
from archon_participant import _participant
from archon_participant._exchange import Exchange
from archon_participant._flag import Flag
from archon_participant._grant import ACQUIRING, LOST, OWNED, Permission


def until(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + 20.0
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError("the condition did not come true")
        time.sleep(0.005)


class PermissionTest(unittest.TestCase):
    def grant(self, permission: Permission) -> Grant:
        grant = Grant("jobs", 7, 3, 5, 1, permission)
        grant._stage = OWNED
        return grant

    def test_permission_counts_once_its_events_have_arrived(self) -> None:
        permission = Permission()
        grant = self.grant(permission)
        permission.extend(_clock.now() + 60.0, 2)
        with self.assertRaises(Lost):
            grant.check()
        permission.receive(1)
        self.assertEqual(grant.valid_for(), 0.0)
        permission.receive(2)
        self.assertEqual(grant.check(), 5)

    def test_late_answer_does_not_shorten_or_extend(self) -> None:
        permission = Permission()
        grant = self.grant(permission)
        permission.extend(_clock.now() - 1.0, 0)
        self.assertEqual(grant.valid_for(), 0.0)
        permission.extend(_clock.now() + 60.0, 0)
        permission.extend(_clock.now() + 1.0, 0)
        self.assertGreater(grant.valid_for(), 30.0)
        permission.end()
        permission.extend(_clock.now() + 60.0, 0)
        self.assertEqual(grant.valid_for(), 0.0)

    def test_loss_before_an_extension_ends_the_grant(self) -> None:
        class Racing(Permission):
            """A loss, and then an extension, arrive right before the time is read."""

            until = property(lambda _: self.lose(), lambda *_: None)  # type: ignore[assignment]

        grant = self.grant(Racing())

        def lose() -> float:
            grant._stage = LOST
            return _clock.now() + 60.0

        self.lose = lose
        self.assertEqual(grant.valid_for(), 0.0)

    def test_thread_paused_within_the_check_notices_the_end(self) -> None:
        times = [100.0]

        class Paused(Grant):
            @property
            def _stage(self) -> str:
                times[0] = 200.0
                return OWNED

            @_stage.setter
            def _stage(self, _: str) -> None:
                pass

        permission = Permission()
        permission.until = 150.0
        with mock.patch.object(_clock, "now", lambda: times[0]):
            self.assertEqual(Paused("jobs", 7, 3, 5, 1, permission).valid_for(), 0.0)


class FlagTest(unittest.TestCase):
    def raised(self, handler: Callable[..., Any]) -> None:
        """Has a signal run the handler on this thread, while it waits."""
        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    def test_handler_sets_the_flag_that_its_thread_awaits(self) -> None:
        flag = Flag()
        self.assertFalse(flag.wait(0.0))
        self.raised(lambda *_: flag.set())
        self.assertTrue(flag.wait(20.0) and flag.wait(0.0) and flag.is_set())
        flag.set()
        self.assertTrue(flag.wait(-1.0))

    def test_handler_that_raises_leaves_the_flag_usable(self) -> None:
        flag = Flag()

        def fail(*_: Any) -> None:
            raise KeyError("a signal")

        self.raised(fail)
        with self.assertRaises(KeyError):
            flag.wait(20.0)
        flag.set()
        self.assertTrue(flag.wait(0.0))

    def test_flag_wakes_all_that_wait(self) -> None:
        flag, woken = Flag(), []
        threads = [threading.Thread(target=lambda: woken.append(flag.wait(20.0))) for _ in range(4)]
        for thread in threads:
            thread.start()
        flag.set()
        for thread in threads:
            thread.join(20.0)
        self.assertEqual(woken, [True] * 4)


class CallerTest(unittest.TestCase):
    def test_interrupted_request_leaves_no_answer_to_later_ones(self) -> None:
        class Keys(BaseHTTPRequestHandler):
            """Answers with the path, and slowly for one key."""

            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if "slow" in self.path:
                    time.sleep(0.3)
                body = json.dumps({"table": "jobs", "partition": self.path}).encode()
                try:
                    self.send_response(200)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        caller = _http.Caller(f"127.0.0.1:{server.server_address[1]}", 20.0)
        self.addCleanup(caller.close)
        found: List[Any] = []

        def fail(*_: Any) -> None:
            raise KeyError("a signal")

        def ask(*_: Any) -> None:
            found.append(caller.where(b"nested", "jobs").partition)

        for handler in (fail, ask):
            before = signal.signal(signal.SIGALRM, handler)
            self.addCleanup(signal.signal, signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                found.append(caller.where(b"slow", "jobs").partition)
            except KeyError:
                time.sleep(0.4)
            found += [caller.where(key, "jobs").partition for key in (b"a", b"b")]
        keys = ["a", "b", "nested", "slow", "a", "b"]
        self.assertEqual(found, [f"/v1/where/{key}?table=jobs" for key in keys])


#: A signal arrives while a stop waits for its answer, and the handler stops the participant as well.
STOPPED_TWICE = """
import signal, time
from fake_agent import FakeAgent
from archon_participant import Participant

agent = FakeAgent()
take, slow = agent.take, [0.6]


def take_slowly(path, session, body):
    if isinstance(body, dict) and body.get("answer") == "stop" and slow:
        time.sleep(slow.pop())
    return take(path, session, body)


agent.take = take_slowly
participant = Participant("jobs", agent.address).start()
signal.signal(signal.SIGALRM, lambda *_: print("second", participant.stop()))
signal.setitimer(signal.ITIMER_REAL, 0.2)
print("first", participant.stop())
"""

#: A signal arrives within a call on the main thread, and its handler stops the participant.
STOPPED_BY_A_SIGNAL = """
import signal, time
from fake_agent import FakeAgent
from archon_participant import NotOwned, Participant

agent = FakeAgent()
participant = Participant("jobs", agent.address).start()
agent.acquire(3, 5)
while not participant.owned():
    time.sleep(0.005)
signal.signal(signal.SIGUSR1, lambda *_: print("released", participant.stop()))


class Interrupted(dict):
    def get(self, key, default=None):
        signal.raise_signal(signal.SIGUSR1)
        return super().get(key, default)


participant._session.grants = Interrupted(participant._session.grants)
try:
    participant.grant(3)
except NotOwned:
    print("not owned")
"""


class ExchangeTest(unittest.TestCase):
    def exchange(self, answers: bytes) -> "tuple[Exchange, mock.Mock]":
        """Returns a connection with these answers, and its socket."""
        connection = mock.Mock(host="::1", port=7700)
        connection.sock.makefile.return_value = io.BytesIO(answers)
        return Exchange(connection), connection.sock

    def test_request_is_one_write(self) -> None:
        ok = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        exchange, connection = self.exchange(ok + ok.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual(exchange.send("POST", "/v1/heartbeat", "s1", b'{"seen":7}', 1.0), (200, b"{}"))
        self.assertTrue(exchange.is_kept)
        self.assertEqual(exchange.send("GET", "/v1/where/a", None, None, 1.0), (200, b"{}"))
        self.assertFalse(exchange.is_kept)
        first, second = [call.args[0] for call in connection.sendall.call_args_list]
        self.assertEqual(second, b"GET /v1/where/a HTTP/1.1\r\nhost: [::1]:7700\r\n\r\n")
        head, _, body = first.partition(b"\r\n\r\n")
        self.assertIn(b"archon-session: s1\r\n", head)
        self.assertIn(b"content-length: 10", head)
        self.assertEqual(body, b'{"seen":7}')

    def test_malformed_answer_is_an_error(self) -> None:
        head = b"HTTP/1.1 200 OK\r\n"
        for broken in (b"", b"HTTP/1.1 200", head, head + b"content-length: 2\r\n\r\n{"):
            with self.assertRaises(OSError, msg=broken):
                self.exchange(broken)[0].send("GET", "/", None, None, 1.0)
        for foreign in (
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/1.1 OK\r\n\r\n",
            head + b"\r\n",
            head + b"content-length: -1\r\n\r\n",
            head + b"content-length: 99999999999\r\n\r\n",
            head + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            head + b"content-length: 2\r\n" + 120 * b"a: b\r\n" + b"\r\n{}",
        ):
            with self.assertRaises(ValueError, msg=foreign):
                self.exchange(foreign)[0].send("GET", "/", None, None, 1.0)
        with self.assertRaises(ValueError):
            self.exchange(b"")[0].send("GET", "/\r\nx: y", None, None, 1.0)


class ParticipantTest(unittest.TestCase):
    def setUp(self) -> None:
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.agent = FakeAgent()
        self.addCleanup(self.agent.close)
        self.calls: List[Any] = []

    def participant(self, **callbacks: Any) -> Participant:
        record = {
            "acquire": lambda grant: self.calls.append(("acquire", grant.partition, grant.epoch)),
            "release": lambda grant, reason: self.calls.append(("release", grant.partition, reason, grant.check())),
            "lost": lambda grant: self.calls.append(("lost", grant.partition, grant.valid_for())),
        }
        return Participant("jobs", self.agent.address, **{**record, **callbacks})

    def test_partition_is_acquired_checked_and_released(self) -> None:
        with self.participant() as participant:
            with self.assertRaises(NotOwned):
                participant.grant(3)
            self.agent.acquire(3, 5)
            self.agent.wait(lambda: self.agent.answered("acquired"))
            until(participant.owned)
            grant = participant.grant(3)
            self.assertEqual((grant.check(), grant.table_id), (5, 7))
            self.agent.fire({"event": "release", "table": "jobs", "partition": 3, "epoch": 5, "reason": "handed_over"})
            self.agent.wait(lambda: self.agent.answered("released"))
            with self.assertRaises(Lost):
                grant.check()
            answer = self.agent.answered("released")[0]
            self.assertEqual((answer["sequence"], answer["partition"], answer["epoch"]), (2, 3, 5))
        self.assertEqual(self.calls, [("acquire", 3, 5), ("release", 3, "handed_over", 5)])
        self.assertTrue(self.agent.answered("stop"))

    def test_failing_acquire_refuses_the_partition(self) -> None:
        def acquire(_: Grant) -> None:
            raise ValueError("no room")

        with self.participant(acquire=acquire) as participant:
            self.agent.acquire(3, 5)
            self.agent.wait(lambda: self.agent.answered("refused"))
            self.assertEqual(self.agent.answered("refused")[0]["reason"], "no room")
            self.assertEqual(participant.owned(), [])

    def test_loss_ends_the_grant_before_the_callback(self) -> None:
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            grant = participant.grant(3)
            self.agent.fire({"event": "lost", "table": "jobs", "partition": 3, "epoch": 5})
            until(lambda: ("lost", 3, 0.0) in self.calls)
            self.assertEqual(grant.valid_for(), 0.0)
            # The same epoch is acquired again: the former grant stays void.
            self.agent.acquire(3, 5)
            until(participant.owned)
            self.assertEqual((participant.grant(3).check(), grant.valid_for()), (5, 0.0))

    def race_with_the_answer(self, event: Any) -> Grant:
        """Returns a grant that an event reached between the look at its stage and the next step of `acquired`."""
        raced: List[Grant] = []

        class Racing(Grant):
            """Another thread handles the event as soon as the stage has been read; it waits if a lock is held."""

            @property
            def _stage(self) -> str:
                stage = str(self.__dict__.get("stage"))
                if stage == ACQUIRING and agent.answered("acquired") and not raced:
                    raced.append(self)
                    session = participant._session
                    other = threading.Thread(target=participant._take, args=(session, {**event, "sequence": 2}))
                    other.start()
                    other.join(0.2)
                return stage

            @_stage.setter
            def _stage(self, stage: str) -> None:
                self.__dict__["stage"] = stage

        agent = self.agent
        with mock.patch.object(_participant, "Grant", Racing), self.participant() as participant:
            self.agent.acquire(3, 5)
            until(lambda: raced and participant._work.is_idle)
            until(lambda: participant._session.permission.received == 2)
            until(lambda: participant._work.is_idle)
            self.accepting = participant.owned()
            self.agent.fire({"event": "news"})  # Takes the number of the event above.
        return raced[0]

    def test_loss_beside_the_answer_is_final(self) -> None:
        grant = self.race_with_the_answer({"event": "lost", "table": "jobs", "partition": 3, "epoch": 5})
        self.assertEqual(grant._stage, LOST)
        self.assertIn(("lost", 3, 0.0), self.calls)

    def test_release_beside_the_answer_is_carried_out(self) -> None:
        release = {"event": "release", "table": "jobs", "partition": 3, "epoch": 5, "reason": "dropped"}
        self.race_with_the_answer(release)
        self.assertEqual(self.accepting, [])
        self.assertIn(("release", 3, "dropped", 5), self.calls)

    def test_silent_agent_ends_the_permission(self) -> None:
        self.agent.valid_for_ms = 100
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            grant = participant.grant(3)
            self.agent.silent = True
            until(lambda: grant.valid_for() == 0.0)
            with self.assertRaises(NotOwned):
                participant.grant(3)

    def test_stalled_stream_extends_nothing(self) -> None:
        self.agent.valid_for_ms = 100
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            self.agent.named = 2  # An event that has not arrived.
            until(lambda: not participant.owned())

    def test_stream_continues_after_the_last_event(self) -> None:
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            self.agent.cut()
            self.agent.wait(lambda: len(self.agent.positions) == 2)
            self.assertEqual(self.agent.positions, ["0", "1"])
            self.agent.acquire(4, 6)
            until(lambda: len(participant.owned()) == 2)
        self.assertEqual([call for call in self.calls if call[0] == "acquire"], [("acquire", 3, 5), ("acquire", 4, 6)])

    def test_restarted_agent_gets_a_new_session(self) -> None:
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            grant = participant.grant(3)
            self.agent.restart()
            until(lambda: ("lost", 3, 0.0) in self.calls)
            self.assertEqual(grant.valid_for(), 0.0)
            self.agent.acquire(3, 6)
            until(participant.owned)
            self.assertEqual(participant.grant(3).check(), 6)

    def test_stop_waits_for_releases_and_begins_no_session(self) -> None:
        participant = self.participant().start()
        self.agent.acquire(3, 5)
        until(participant.owned)
        self.assertTrue(participant.stop())
        self.assertEqual(len(self.agent.positions), 1)
        self.assertEqual(participant.owned(), [])

    def test_unknown_event_is_counted_and_ignored(self) -> None:
        with self.participant() as participant:
            self.agent.fire({"event": "news", "of": "a later version"})
            self.agent.acquire(3, 5)
            until(participant.owned)
            self.agent.wait(lambda: 2 in self.agent.seen)

    def test_table_that_the_agent_does_not_serve_is_an_error(self) -> None:
        with self.assertRaises(AgentError) as refused:
            Participant("orders", self.agent.address).start()
        self.assertIn("serves jobs, not orders", str(refused.exception))

    def test_absent_agent_is_an_error(self) -> None:
        with self.assertRaises(AgentError) as absent:
            Participant("jobs", "127.0.0.1:1", start_within=0.3).start()
        self.assertEqual(absent.exception.kind, "unreachable")
        self.assertIn("start one: archon participant --table jobs", str(absent.exception))

    def test_agent_that_stays_away_is_a_warning(self) -> None:
        with mock.patch.object(_participant, "UNREACHED_WARNED", 2), mock.patch.object(_participant, "log") as log:
            with self.assertRaises(AgentError):
                Participant("jobs", "127.0.0.1:1", start_within=1.0).start()
        levels = [call.args[0] for call in log.call_args_list]
        self.assertEqual(levels.count(logging.WARNING), 1, levels)
        self.assertEqual(levels[1], logging.WARNING, levels)

    def test_asyncio_callbacks_run_on_the_loop(self) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()

            async def acquire(grant: Grant) -> None:
                self.calls.append((grant.partition, asyncio.get_running_loop() is loop))

            async with AsyncParticipant("jobs", self.agent.address, acquire=acquire) as participant:
                self.agent.acquire(3, 5)
                while not participant.owned():
                    await asyncio.sleep(0.005)
                self.assertEqual(participant.grant(3).check(), 5)

        asyncio.run(run())
        self.assertEqual(self.calls, [(3, True)])

    def test_long_reason_is_cut_and_sent(self) -> None:
        def acquire(_: Grant) -> None:
            raise ValueError("\ud800" + "x" * 100_000)

        with self.participant(acquire=acquire):
            self.agent.acquire(3, 5)
            self.agent.wait(lambda: self.agent.answered("refused"))
            self.assertEqual(self.agent.answered("refused")[0]["reason"], "?" + "x" * 1023)

    def test_callback_that_exits_refuses_the_partition(self) -> None:
        def acquire(_: Grant) -> None:
            raise SystemExit(3)

        with self.participant(acquire=acquire):
            self.agent.acquire(3, 5)
            self.agent.wait(lambda: self.agent.answered("refused"))

    def test_refused_answer_ends_the_session(self) -> None:
        self.agent.refuse_once.append("acquired")
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(lambda: ("lost", 3, 0.0) in self.calls)
            until(participant.owned)
            self.assertEqual((self.agent.positions, participant.error), (["0", "0"], None))

    def test_answers_of_several_threads_travel_in_one_request(self) -> None:
        self.agent.holds_lists = True
        with self.participant() as participant:
            for partition in range(5):
                self.agent.acquire(partition, 5)
            self.agent.wait(lambda: self.agent.lists)
            until(lambda: len(self.calls) == 5 and participant._work.is_idle)
            self.agent.release_lists()
            self.agent.wait(lambda: len(self.agent.answered("acquired")) == 5)
            self.assertLessEqual(len(self.agent.lists), 2, self.agent.lists)

    def test_answers_of_running_callbacks_wait_for_each_other(self) -> None:
        caller = mock.Mock()
        caller.call_with.return_value = {}
        asked, complete = threading.Event(), threading.Event()
        answers = _answers.Answers(caller, lambda: asked.set() or complete.is_set())
        self.addCleanup(answers.close)
        with mock.patch.object(_answers, "GATHER_SECONDS", 20.0):
            answers.start()
            kinds: List[Any] = []
            answers.send("s1", {"sequence": 1}, lambda: True, kinds.append)
            self.assertTrue(asked.wait(20.0))
            answers.send("s1", {"sequence": 2}, lambda: True, kinds.append)
            complete.set()
            answers.flush()
            until(lambda: len(kinds) == 2)
        self.assertEqual(caller.call_with.call_count, 1)

    def test_last_callback_sends_the_answers(self) -> None:
        release: Callable[..., Any] = lambda *_: together.wait(20.0)
        together = threading.Barrier(3)
        with mock.patch.object(_answers, "GATHER_SECONDS", 20.0), self.participant(release=release) as participant:
            for partition in range(3):
                self.agent.acquire(partition, 5)
            until(lambda: len(participant.owned()) == 3)
            before = len(self.agent.lists)
            for partition in range(3):
                of = {"table": "jobs", "partition": partition, "epoch": 5}
                self.agent.fire({"event": "release", **of, "reason": "stopped"})
            self.agent.wait(lambda: len(self.agent.answered("released")) == 3, 10.0)
            self.assertEqual(self.agent.lists[before:], [3])

    def test_answer_does_not_wait_long_for_a_slow_callback(self) -> None:
        finish = threading.Event()
        self.addCleanup(finish.set)
        acquire: Callable[[Grant], Any] = lambda grant: grant.partition == 0 and finish.wait(20.0)
        with self.participant(acquire=acquire) as participant:
            self.agent.acquire(0, 5)
            self.agent.acquire(1, 5)
            until(lambda: [grant.partition for grant in participant.owned()] == [1])
            finish.set()

    def test_failing_outcome_does_not_keep_later_answers(self) -> None:
        answers, _ = self.answers({"refused": []}, AgentError("unreachable", "no answer"), {"refused": []})
        ends: List[Any] = []

        def fail(*_: Any) -> Any:
            raise SystemExit("a failing handler")

        answers.start()
        answers.send("s1", {}, lambda: True, fail)
        until(lambda: answers._caller.call_with.call_count == 1)  # type: ignore[attr-defined]
        # Not sent again: the check fails, too.
        answers.send("s1", {}, fail, ends.append)
        answers.send("s1", {}, lambda: True, ends.append)
        until(lambda: len(ends) == 2)

    def test_failing_log_does_not_keep_a_session(self) -> None:
        logging.disable(logging.NOTSET)
        logger = logging.getLogger("archon_participant")

        def fail(_: logging.LogRecord) -> bool:
            raise ValueError("a failing filter of the service")

        logger.addFilter(fail)
        self.addCleanup(logger.removeFilter, fail)
        self.agent.refuse_once.append("acquired")
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(lambda: len(self.agent.positions) == 2 and participant.owned())

    def test_error_of_a_former_session_is_not_of_the_present_one(self) -> None:
        with self.participant() as participant:
            former = participant._session
            self.agent.restart()
            until(lambda: participant._session not in (None, former))
            positions = list(self.agent.positions)
            participant._abandon(former, AgentError("invalid", "an unknown answer"))  # type: ignore[arg-type]
            self.assertIsNone(participant.error)
            self.agent.acquire(3, 6)
            until(participant.owned)
            self.assertEqual(self.agent.positions, positions)

    def answers(self, *outcomes: Any) -> "tuple[_answers.Answers, mock.Mock]":
        """Returns a sender, and the caller whose requests have these outcomes."""
        caller = mock.Mock()
        caller.call_with.side_effect = outcomes
        answers = _answers.Answers(caller)
        self.addCleanup(answers.close)
        return answers, caller

    def test_answers_that_wait_travel_in_order_and_in_one_request(self) -> None:
        error = {"kind": "stale", "message": "it was lost"}
        answers, caller = self.answers({"refused": [{"index": 1, "error": error}]})
        kinds: List[Any] = []
        for number in range(3):
            outcome: Callable[[Any], None] = lambda error: kinds.append(error and error.kind)
            answers.send("s1", {"sequence": number}, lambda: True, outcome)
        answers.start()
        until(lambda: len(kinds) == 3)
        self.assertEqual(kinds, [None, "stale", None])
        body = caller.call_with.call_args.args[3]
        self.assertEqual(body, b'[{"sequence": 0},{"sequence": 1},{"sequence": 2}]')

    def test_unanswered_answer_is_sent_again_before_later_ones(self) -> None:
        answers, caller = self.answers()
        kinds: List[Any] = []
        answers.send("s1", {"sequence": 1}, lambda: True, kinds.append)
        caller.call_with.side_effect = lambda *_: self.fail_then_take(answers, kinds)
        answers.start()
        until(lambda: len(kinds) == 2)
        self.assertEqual(kinds, [None, None])
        bodies = [call.args[3] for call in caller.call_with.call_args_list]
        self.assertEqual(bodies, [b'[{"sequence": 1}]', b'[{"sequence": 1},{"sequence": 2}]'])

    def fail_then_take(self, answers: Any, kinds: List[Any]) -> Any:
        """Adds a later answer and fails, once; then takes all."""
        if not self.calls:
            self.calls.append("failed")
            answers.send("s1", {"sequence": 2}, lambda: True, kinds.append)
            raise AgentError("unreachable", "no answer")
        return {"refused": []}

    def test_single_attempt_raises_its_outcome(self) -> None:
        malformed = {"refused": [{"index": 9, "error": {"kind": "stale", "message": "it was lost"}}]}
        answers, _ = self.answers(malformed, {"refused": []})
        answers.start()
        with self.assertRaises(AgentError) as raised:
            answers.post("s1", {}, 20.0)
        self.assertEqual(raised.exception.kind, "unreachable")
        answers.post("s1", {}, 20.0)
        answers.close()
        with self.assertRaises(AgentError):
            answers.post("s1", {}, 20.0)

    def test_handler_stops_a_participant_that_it_interrupts(self) -> None:
        self.assertEqual(self.printed(STOPPED_BY_A_SIGNAL), ["released True", "not owned"])

    def test_handler_stops_a_participant_that_stops(self) -> None:
        self.assertEqual(self.printed(STOPPED_TWICE), ["second True", "first True"])

    def printed(self, script: str) -> List[str]:
        """Returns the lines that a process prints, which a deadlock would keep from its end."""
        place = os.path.dirname(os.path.abspath(__file__))
        ended = subprocess.run([sys.executable, "-c", script], cwd=place, stdout=subprocess.PIPE, timeout=30.0)
        return ended.stdout.decode().splitlines()

    def limited(self, starts: int) -> Any:
        """Lets the process start this number of threads."""
        start, left = threading.Thread.start, [starts]

        def limited(thread: threading.Thread) -> None:
            if thread.name.startswith("archon-"):
                left[0] -= 1
                if left[0] < 0:
                    raise RuntimeError("can't start new thread")
            start(thread)

        return mock.patch.object(threading.Thread, "start", limited)

    def test_release_is_answered_without_further_threads(self) -> None:
        with self.limited(4), self.participant() as participant:
            for partition in range(5):
                self.agent.acquire(partition, 5)
            until(lambda: len(participant.owned()) == 5)
            for partition in range(5):
                of = {"table": "jobs", "partition": partition, "epoch": 5}
                self.agent.fire({"event": "release", **of, "reason": "handed_over"})
            self.agent.wait(lambda: len(self.agent.answered("released")) == 5)
            self.assertEqual((len(participant._work.threads), len(self.agent.positions)), (1, 1))

    def test_thread_that_finds_no_helper_goes_on(self) -> None:
        work = _work.WorkQueues(8, lambda: None)
        self.addCleanup(work.close)
        begun, go_on, done = threading.Event(), threading.Event(), []
        with self.limited(1):
            work.start()
            work.dispatch(("jobs", 0), lambda: begun.set() or go_on.wait(20.0))
            self.assertTrue(begun.wait(20.0))
            for partition in range(1, 4):
                work.dispatch(("jobs", partition), lambda partition=partition: done.append(partition))
            go_on.set()
            until(lambda: work.is_idle)
        self.assertEqual(done, [1, 2, 3])

    def test_start_without_threads_fails_and_leaves_none(self) -> None:
        for starts in range(4):
            participant = self.participant(stop_within=0.5)
            with self.limited(starts), self.assertRaises(RuntimeError):
                participant.start()
            threads = [*participant._threads, *participant._work.threads, participant._sender]
            self.assertEqual([thread for thread in threads if thread and thread.is_alive()], [], starts)

    def test_slow_answer_does_not_keep_callbacks_waiting(self) -> None:
        self.agent.holds_lists = True
        with self.participant(callback_threads=1):
            for partition in range(3):
                self.agent.acquire(partition, 5)
            until(lambda: len(self.calls) == 3)
            self.assertEqual(self.agent.answers, [])
            self.agent.release_lists()
            self.agent.wait(lambda: len(self.agent.answered("acquired")) == 3)

    def in_thread(self, call: Callable[[], Any]) -> Any:
        """Returns the result of a call that ends."""
        results: List[Any] = []
        thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
        thread.start()
        thread.join(20.0)
        self.assertFalse(thread.is_alive(), "the call does not return")
        return results[0]

    def test_stop_returns_beside_a_callback_that_hangs(self) -> None:
        called, released = threading.Event(), threading.Event()
        self.addCleanup(released.set)

        def acquire(_: Grant) -> None:
            called.set()
            released.wait()

        participant = self.participant(acquire=acquire).start()
        self.agent.acquire(3, 5)
        self.assertTrue(called.wait(20.0))
        self.in_thread(lambda: participant.stop(within=0.1))
        self.assertTrue(all(worker.daemon for worker in participant._work.threads))

    def test_incomplete_stop_names_what_it_waited_for(self) -> None:
        logging.disable(logging.NOTSET)
        finish = threading.Event()
        self.addCleanup(finish.set)
        self.agent.ends_at_stop = False
        participant = self.participant(release=lambda *_: finish.wait(20.0)).start()
        self.agent.acquire(3, 5)
        until(participant.owned)
        with self.assertLogs("archon_participant", logging.WARNING) as logs:
            self.assertFalse(participant.stop(within=0.1))
        self.assertIn("the stop ends after 0.1 s without the release of partition 3 of jobs", logs.output[0])

    def test_callback_can_stop_the_participant(self) -> None:
        stopped: List[bool] = []
        participant = self.participant(acquire=lambda _: stopped.append(participant.stop(within=0.5)))
        participant.start()
        self.agent.acquire(3, 5)
        until(lambda: stopped)

    def test_participant_starts_once(self) -> None:
        participant = self.participant().start()
        with self.assertRaises(RuntimeError):
            participant.start()
        participant.stop()
        with self.assertRaises(RuntimeError):
            participant.start()

    def test_forked_child_owns_nothing(self) -> None:
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            grant = participant.grant(3)
            child = os.fork()
            if child == 0:
                try:
                    participant.drop(grant)
                except AgentError:
                    is_idle = grant.valid_for() == 0.0 and participant.owned() == []
                    os._exit(0 if is_idle and not participant.stop() else 1)
                os._exit(2)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual((grant.check(), self.agent.answered("drop")), (5, []))

    def test_malformed_event_begins_a_new_session(self) -> None:
        with self.participant() as participant:
            self.agent.fire({"event": "acquire", "table": "jobs", "partition": 3})
            until(lambda: isinstance(participant.error, KeyError))
            self.agent.restart()
            self.agent.acquire(3, 6)
            until(participant.owned)
            self.assertIsNone(participant.error)

    def test_missing_event_ends_the_session(self) -> None:
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            self.agent.fire({"event": "news", "sequence": 7})
            until(lambda: ("lost", 3, 0.0) in self.calls)
            self.assertIn("event 7 follows event 1", str(participant.error))

    def test_malformed_answer_does_not_end_the_heartbeats(self) -> None:
        self.agent.valid_for_ms = "soon"  # type: ignore[assignment]
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            self.agent.wait(lambda: len(self.agent.seen) > 2)
            self.agent.valid_for_ms = 60_000
            until(participant.owned)

    def test_unanswered_heartbeat_does_not_end_the_permission(self) -> None:
        self.agent.lease_for_ms, self.agent.valid_for_ms = 1_500, 4_000
        with self.participant() as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            grant = participant.grant(3)
            self.agent.unanswered = 1
            self.agent.wait(lambda: self.agent.unanswered == 0)
            answered = len(self.agent.seen)
            # The check raises if the permission ends before.
            until(lambda: grant.check() and len(self.agent.seen) > answered + 1)

    def test_service_that_is_not_alive_sends_no_heartbeats(self) -> None:
        self.agent.valid_for_ms = 100
        is_alive = [True]
        with self.participant(is_alive=lambda: is_alive[0]) as participant:
            self.agent.acquire(3, 5)
            until(participant.owned)
            is_alive.clear()  # It raises IndexError from here on.
            until(lambda: not participant.owned())
            is_alive.append(True)
            until(participant.owned)

    def test_start_names_the_cause(self) -> None:
        self.agent.is_busy = True
        with self.assertRaises(AgentError) as busy:
            Participant("jobs", self.agent.address, start_within=0.3).start()
        self.assertEqual((busy.exception.kind, str(busy.exception)), ("busy", "another process is connected"))

    def test_malformed_address_is_an_error_at_once(self) -> None:
        for address in ("localhost", "127.0.0.1:", ":7700", "127.0.0.1:70000", "127.0.0.1:-1", "unix:"):
            with self.assertRaises(ValueError, msg=address):
                Participant("jobs", address)

    def test_cancelled_start_leaves_no_participant(self) -> None:
        self.agent.is_mute = True
        participant = AsyncParticipant("jobs", self.agent.address)

        async def run() -> None:
            starting = asyncio.ensure_future(participant.start())
            while not self.agent.positions:
                await asyncio.sleep(0.005)
            starting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await starting

        self.in_thread(lambda: asyncio.run(run()))
        self.assertEqual([thread for thread in participant._inner._threads if thread.is_alive()], [])


if __name__ == "__main__":
    unittest.main()
