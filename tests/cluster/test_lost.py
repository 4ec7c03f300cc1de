#!/usr/bin/env python3
"""What happens when parts of a cluster die: the cause is told, the rest ends, nothing stays behind."""
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import RAIA, Cluster, command_of, processes, wait_for  # noqa: E402
from tap import case, done  # noqa: E402

WORK = "setsid sleep 4731 & sleep 4732"


def supervisors(c):
    return [p for p in processes(f"RAIA_STATE={c.state}") if command_of(p).startswith("raia supervise")]


def busy(c, **members):
    job = c.submit(WORK, **members)
    wait_for("its processes", lambda: len(processes("sleep\0" "473")) == 2)
    return job


def none_left(seconds=5):
    wait_for("no process of the job", lambda: not processes("sleep\0" "473"), seconds)


def check_supervisor(c):
    with case("a killed supervisor fails its job, names the node, and its processes go with it"):
        job = busy(c)
        [pid] = supervisors(c)
        os.kill(pid, signal.SIGKILL)
        none_left()
        details = c.wait_status(job, seconds=5)
        assert details["status"] == "FAILED" and "supervisor was killed" in details["message"], details
        assert "node-" in details["message"]
    with case("the node takes jobs again"):
        assert c.run("true")[0]["status"] == "SUCCEEDED"


def check_agent(c):
    with case("a killed agent: its job fails within 5 s with the node's name, nothing of it is left"):
        job = busy(c)
        node = next(n["name"] for n in c.call("GET", "/api/raia/v1/status")["nodes"] if n["entrypoints"] == 1)
        started = time.monotonic()
        c.kill(node)
        details = c.wait_status(job, seconds=5)
        none_left(5 - (time.monotonic() - started))
        assert details["status"] == "FAILED" and node in details["message"], details
        assert details["error_type"] == "JOB_SUPERVISOR_ACTOR_DIED"
        assert f"raia: {details['message']}" in c.logs(job)
        c.start_agent(node)
        c.await_nodes(2)
    with case("an agent that is told to stop ends its jobs in order first"):
        job = busy(c)
        node = next(n["name"] for n in c.call("GET", "/api/raia/v1/status")["nodes"] if n["entrypoints"] == 1)
        c.kill(node, signal.SIGTERM)
        assert c.children[node].returncode == 0, c.output(node)
        none_left(0.1)
        assert c.wait_status(job, seconds=5)["status"] == "FAILED"
        c.start_agent(node)
        c.await_nodes(2)
    with case("an agent that was suspended for a moment goes on where it was"):
        job = c.submit("for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.2; done")
        c.wait_status(job, "RUNNING")
        node = next(n["name"] for n in c.call("GET", "/api/raia/v1/status")["nodes"] if n["entrypoints"] == 1)
        c.children[node].send_signal(signal.SIGSTOP)
        time.sleep(0.8)
        c.children[node].send_signal(signal.SIGCONT)
        assert c.wait_status(job)["status"] == "SUCCEEDED" and "8\n9\n" in c.logs(job)
    with case("a second node of the same name is refused, by name"):
        got = subprocess.run([RAIA, "start", "--address", c.address, "--name", "node-0", "--block"], env=c.env,
                             capture_output=True, text=True, timeout=20)
        assert got.returncode != 0 and "node-0 runs here already" in got.stderr, got


def check_head(c):
    with case("a killed head: the jobs' processes end within 5 s; its record says so afterwards; nodes come back"):
        job = busy(c)
        logs = c.logs(job)
        port = c.port
        c.kill("head")
        none_left(5)
        c.start_head(port)
        c.await_nodes(2)
        details = c.job(job)
        assert details["status"] == "FAILED" and "head" in details["message"], details
        assert c.logs(job).startswith(logs)
        assert c.run("echo again")[0]["status"] == "SUCCEEDED"
    with case("a head that is told to stop ends within 5 s and keeps its records"):
        done_before = c.submit("true")
        c.wait_status(done_before)
        port = c.port
        started = time.monotonic()
        c.kill("head", signal.SIGTERM)
        assert c.children["head"].returncode == 0 and time.monotonic() - started < 5
        c.start_head(port)
        c.await_nodes(2)
        assert c.job(done_before)["status"] == "SUCCEEDED"
    with case("a head on a port that is in use says so and names it"):
        got = subprocess.run([RAIA, "start", "--head", "--port", str(c.port), "--block"],
                             env={**c.env, "RAIA_STATE": c.state + "/other"}, capture_output=True, text=True, timeout=20)
        assert got.returncode != 0 and str(c.port) in got.stderr, got


def check_no_head():
    with case("an agent that finds no head within its bound says where it looked"):
        with Cluster(nodes=0) as c:
            c.kill("head")
            started = time.monotonic()
            got = subprocess.run([RAIA, "start", "--address", c.address, "--name", "alone", "--block"], env=c.env,
                                 capture_output=True, text=True, timeout=30)
            assert got.returncode != 0 and c.address in got.stderr, got
            assert time.monotonic() - started < 25
            assert not list(pathlib.Path(c.state).glob("agent-*")), list(pathlib.Path(c.state).iterdir())


with Cluster(nodes=2, workers=1) as cluster:
    check_supervisor(cluster)
    check_agent(cluster)
    check_head(cluster)
check_no_head()
done()
