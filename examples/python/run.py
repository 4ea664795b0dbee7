"""Runs the service of `counter.py` in three processes, each with an agent, beside a running cluster. One process is
killed or paused halfway. Every request is counted, and a partition has one owner at a time: the processes write a
journal without a fence, in which no epoch comes after a later one, and no epoch belongs to two processes.

`--service typescript` runs `examples/typescript/counter.js` instead, which needs `node`.

    python3 examples/python/run.py --archon target/release/archon --coordinators 127.0.0.1:7101
"""

import argparse
import http.client
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("ada", "grace", "mary")
PARTITIONS = 12
COUNTERS = [f"counter-{number}" for number in range(24)]
PATIENCE = 60.0

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--archon", default="archon", help="the command line of Archon")
arguments.add_argument("--coordinators", required=True, help="host:port of one or more coordinators, with commas")
arguments.add_argument("--requests", type=int, default=600)
FAULTS = ("kill-service", "kill-agent", "pause-service", "pause-both")
arguments.add_argument("--fault", choices=FAULTS, default="kill-service")
arguments.add_argument("--service", choices=("python", "typescript"), default="python")
options = arguments.parse_args()


def service_command(agent: str, address: str, directory: Path):
    """Returns the command of a process of the service, and its option for the shared data."""
    if options.service == "python":
        program = [sys.executable, Path(__file__).with_name("counter.py"), "--db", directory / "counters.sqlite"]
    else:
        program = ["node", Path(__file__).parents[1] / "typescript/counter.js", "--logs", directory / "logs"]
    return [str(word) for word in program] + ["--agent", agent, "--listen", address]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(what, condition):
    """Waits for a condition, and returns its value."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    states = "".join(f"\n  {instance.name}: {instance.state()}" for instance in instances.values())
    remedy = "  next: archon check, and archon node list; on a busy machine, end other programs and try again"
    sys.exit(f"error: {what} did not come within {PATIENCE:.0f} s{states}\n{remedy}")


def call(address: str, method: str, path: str):
    """Returns status and body, or nothing if the process does not answer."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=2.0)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def send(address: str, counter: str, request: int) -> socket.socket:
    """Sends a request, and leaves the answer in the socket."""
    host, port = address.rsplit(":", 1)
    sent = socket.create_connection((host, int(port)), timeout=PATIENCE)
    sent.sendall(f"POST {path_of(counter, request)} HTTP/1.0\r\n\r\n".encode())
    return sent


def path_of(counter: str, request: int) -> str:
    return f"/?counter={counter}&user=1&request={request}"


class Instance:
    """A process of the service, and the agent beside it."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.address, self.agent = name, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.log = directory / f"{name}.log"
        log = self.log.open("wb")
        agent = [options.archon, "participant", "--table", "counters", "--name", name, "--address", self.address]
        agent += ["--listen", self.agent, "--coordinators", options.coordinators]
        self.agent_process = subprocess.Popen(agent, stderr=log)
        self.process = subprocess.Popen(service_command(self.agent, self.address, directory), stderr=log)

    def state(self) -> str:
        """Describes its processes, with the end of their log."""
        owned = ask(self.agent, "/v1/status").get("partitions_owned")
        agent = f"owns {owned} partitions" if owned is not None else "its agent does not answer"
        is_running = self.process.poll() is None
        service = "" if is_running else f", its service has ended with code {self.process.returncode}"
        last = self.log.read_text(errors="replace").splitlines()[-1:]
        return f"{agent}{service}" + "".join(f"; log: {line}" for line in last)

    def stop(self) -> None:
        for process in (self.process, self.agent_process):
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()


def ask(agent: str, path: str):
    """Returns the document of an agent's answer; an empty one without an answer."""
    answer = call(agent, "GET", path)
    return json.loads(answer[1]) if answer is not None and answer[0] == 200 else {}


def has_share(instance: Instance) -> bool:
    return ask(instance.agent, "/v1/status").get("partitions_owned") == PARTITIONS // len(NAMES)


def overlaps(journal):
    """Counts the rows of an epoch after a later one of the same partition, and the epochs of several processes."""
    highest, processes, late = {}, {}, 0
    for partition, epoch, process in journal:
        late += epoch < highest.get(partition, 0)
        highest[partition] = max(epoch, highest.get(partition, 0))
        processes.setdefault((partition, epoch), set()).add(process)
    return late, sum(len(found) > 1 for found in processes.values())


def read_database(path: Path):
    """Returns the number of counted requests, the epochs of the partitions, and the journal."""
    with sqlite3.connect(path) as database:
        counted = database.execute("SELECT count(*) FROM counted").fetchone()[0]
        epochs = database.execute("SELECT partition, epoch FROM owner ORDER BY partition").fetchall()
        journal = database.execute("SELECT partition, epoch, process FROM journal ORDER BY number").fetchall()
    return counted, epochs, journal


def read_logs(directory: Path):
    """As `read_database`, from a log of each partition: a line after one of a later epoch does not count."""
    counted, epochs, journal = set(), {}, []
    for log in directory.iterdir():
        partition = int(log.stem.partition("-")[2])
        for line in log.read_text().splitlines():
            epoch, process, *request = line.split()
            if request:
                journal.append((partition, int(epoch), process))
            if int(epoch) >= epochs.get(partition, 0):
                epochs[partition] = int(epoch)
                counted.update([tuple(request)] if request else [])
    return len(counted), sorted(epochs.items()), journal


create = [options.archon, "table", "create", "counters", "--partitions", str(PARTITIONS), "--lease"]
create += ["--timeout", "60s", "--coordinators", options.coordinators]
try:
    created = subprocess.run(create, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
except OSError as error:
    sys.exit(f"error: cannot start {options.archon} ({error.strerror}); name the command by --archon PATH")
if created.returncode != 0:
    is_left = "AlreadyExists" in created.stderr
    remedy = "  next: archon table drop counters --yes, if an earlier run has left it" if is_left else ""
    sys.exit(created.stderr.rstrip() + "\n" * bool(remedy) + remedy)
directory = tempfile.TemporaryDirectory(prefix="counter-")
(Path(directory.name) / "logs").mkdir()
instances = {name: Instance(name, Path(directory.name)) for name in NAMES}
asked, waiting = instances["ada"].agent, []
try:
    until("a share for each process", lambda: all(has_share(instance) for instance in instances.values()))
    print(f"{', '.join(NAMES)} share {PARTITIONS} partitions with {len(COUNTERS)} counters.")
    attempts, longest = 0, 0.0
    for request in range(options.requests):
        counter = COUNTERS[request % len(COUNTERS)]
        if request == options.requests // 2:
            victim = until("an owner", lambda: ask(asked, f"/v1/where/{counter}").get("owner"))["participant"]
            action, _, target = options.fault.partition("-")
            service, agent = instances[victim].process, instances[victim].agent_process
            for process in {"service": [service], "agent": [agent], "both": [service, agent]}[target]:
                process.send_signal(signal.SIGKILL if action == "kill" else signal.SIGSTOP)
            asked = next(instance.agent for name, instance in instances.items() if name != victim)
            done = "killed" if action == "kill" else "paused"
            what = "service with the agent" if target == "both" else target
            print(f"The {what} of {victim}, which owns {counter}, is {done} after half of the requests.")
            if action == "pause":
                # It finds these requests in its sockets once it wakes. They were counted before.
                waiting = [send(instances[victim].address, other, of) for of, other in enumerate(COUNTERS)]
        began = time.monotonic()

        def count():
            global attempts
            owner = ask(asked, f"/v1/where/{counter}").get("owner")
            if not owner:
                return False
            attempts += 1
            # Sent again after a lost answer: the service counts it once.
            answer = call(owner["address"], "POST", path_of(counter, request))
            return answer is not None and answer[0] == 200

        until("an owner that counts", count)
        longest = max(longest, time.monotonic() - began)
        if options.fault == "kill-agent" and request >= options.requests // 2:
            # The service without an agent gets every request as well, and may act only until its permission ends.
            call(instances[victim].address, "POST", path_of(counter, request))
    if options.fault == "kill-agent":

        def refuses_all():
            answers = []
            for of, counter in enumerate(COUNTERS):
                answers.append(call(instances[victim].address, "POST", path_of(counter, of)))
                owner = ask(asked, f"/v1/where/{counter}").get("owner")
                # The next owner acts as well, so the journal shows whether both do.
                if owner and owner["participant"] != victim:
                    call(owner["address"], "POST", path_of(counter, of))
            return all(answer is not None and answer[0] != 200 for answer in answers)

        # Its permission may outlive the requests above. Then it refuses, and others own its counters.
        until("the end of the permission of a service without an agent", refuses_all)
        owner_of = lambda counter: (ask(asked, f"/v1/where/{counter}").get("owner") or {}).get("participant", victim)
        until("another owner", lambda: all(owner_of(counter) != victim for counter in COUNTERS))
    if options.fault in ("pause-service", "pause-both"):
        # The agent wakes later: until then the service has only its clock to notice that its permission has ended.
        instances[victim].process.send_signal(signal.SIGCONT)
        for sent in waiting:
            with sent:
                answer = sent.recv(64)
                if not answer or (b" 200 " in answer and options.fault == "pause-both"):
                    sys.exit(f"error: the woken process answers {answer!r}")
        instances[victim].agent_process.send_signal(signal.SIGCONT)
        until("a share for the woken process", lambda: all(has_share(instance) for instance in instances.values()))
    data = Path(directory.name)
    is_python = options.service == "python"
    counted, epochs, journal = read_database(data / "counters.sqlite") if is_python else read_logs(data / "logs")
    late, shared = overlaps(journal)
    print(f"requests: {options.requests}, attempts: {attempts}, counted: {counted}")
    print(f"rows of the journal: {len(journal)}, after a later epoch: {late}, epochs of two processes: {shared}")
    print(f"longest wait for an owner: {longest:.2f} s")
    print("epochs in the database: " + ", ".join(f"{partition}: {epoch}" for partition, epoch in epochs))
finally:
    for instance in instances.values():
        instance.stop()
if counted != options.requests or len(journal) < options.requests:
    sys.exit("error: a request was lost or counted twice")
sys.exit("error: a partition had two owners at a time" if late or shared else 0)
