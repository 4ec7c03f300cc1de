#!/usr/bin/env python3
"""The Ray Jobs REST API as its clients see it, and what a job's processes get."""
import json
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import Cluster, processes, wait_for  # noqa: E402
from tap import case, done  # noqa: E402

KEYS = ["type", "job_id", "submission_id", "driver_info", "status", "entrypoint", "message", "error_type",
        "start_time", "end_time", "metadata", "runtime_env", "driver_agent_http_address", "driver_node_id",
        "driver_exit_code"]


def check_contract(c):
    with case("version names the API, a Ray version that clients accept, and raia"):
        got = c.call("GET", "/api/version")
        assert got["version"] == "4" and got["ray_commit"].startswith("raia-"), got
        assert tuple(map(int, got["ray_version"].split("."))) >= (2, 8), got
    with case("a job that succeeds has every key of the contract, in order, and its exit code"):
        details, logs = c.run("echo hello; echo world >&2", metadata={"a": "b"})
        assert list(details)[:len(KEYS)] == KEYS, list(details)
        assert details["status"] == "SUCCEEDED" and details["driver_exit_code"] == 0, details
        assert details["metadata"] == {"a": "b"} and details["message"] == "Job finished successfully."
        assert details["start_time"] <= details["end_time"] <= time.time() * 1000 + 1000
        assert "hello\n" in logs and "world\n" in logs and logs.count("echo hello") == 1, logs
        assert details["submission_id"].startswith("raysubmit_") and len(details["submission_id"]) == 26
    with case("a job that fails says its exit code and its last lines"):
        details, _ = c.run("for i in 1 2 3; do echo line $i; done; exit 7")
        assert details["status"] == "FAILED" and details["driver_exit_code"] == 7, details
        assert "failed with exit code 7" in details["message"] and "line 3" in details["message"]
        assert details["error_type"] == "JOB_ENTRYPOINT_COMMAND_ERROR"
    with case("a job that is killed says by which signal"):
        details, _ = c.run("kill -9 $$")
        assert details["status"] == "FAILED" and "signal 9" in details["message"], details
    with case("an id is taken as given, with any characters, and only once"):
        name = "my job/é?%20"
        c.submit("true", submission_id=name)
        path = "/api/jobs/my%20job%2F%C3%A9%3F%2520"
        wait_for("it ends", lambda: c.call("GET", path)["status"] == "SUCCEEDED")
        status, text = c.request("POST", "/api/jobs/", {"entrypoint": "true", "submission_id": name})
        assert status == 500 and b"already exists. Please use a different submission_id." in text, text
        assert c.call("DELETE", path) == {"deleted": True}
        assert c.request("GET", path)[0] == 404
    with case("a request that is wrong gets 400 and is told which member"):
        for body, word in [({}, b"entrypoint"), ({"entrypoint": 3}, b"'entrypoint'"),
                           ({"entrypoint": "true", "nope": 1}, b"unexpected keyword argument 'nope'"),
                           ({"entrypoint": "true", "metadata": {"a": 1}}, b"metadata"),
                           ({"entrypoint": "true", "runtime_env": []}, b"runtime_env"),
                           ({"entrypoint": "true", "runtime_env": {"pip": ["x"]}}, b"'pip' is not supported")]:
            status, text = c.request("POST", "/api/jobs/", body)
            assert status in (400, 501) and word in text, (body, status, text)
        assert c.request("POST", "/api/jobs/", {"entrypoint": "true", "metadata": None})[0] == 200
    with case("broken JSON, an unknown route and an unknown job are refused with text"):
        status, _ = c.request("POST", "/api/jobs/", raw=b"{", headers={"Content-Type": "application/json"})
        assert 400 <= status <= 500, status
        assert c.request("GET", "/nope")[0] == 404
        for method, suffix in [("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("GET", "/logs")]:
            status, text = c.request(method, "/api/jobs/none" + suffix)
            assert status == 404 and b"Job none does not exist" in text, (method, suffix, text)
    with case("a job that runs is not deleted; stopping an ended one changes nothing"):
        job = c.submit("sleep 60")
        c.wait_status(job, "RUNNING")
        status, text = c.request("DELETE", f"/api/jobs/{job}")
        assert status == 500 and b"non-terminal state RUNNING" in text, text
        assert c.call("POST", f"/api/jobs/{job}/stop") == {"stopped": True}
        details = c.wait_status(job)
        assert details["status"] == "STOPPED" and details["driver_exit_code"] is None, details
        assert c.call("POST", f"/api/jobs/{job}/stop") == {"stopped": False}
        assert c.job(job) == details
    with case("the list holds all jobs, with and without the slash"):
        ids = [j["submission_id"] for j in c.call("GET", "/api/jobs/")]
        assert len(ids) == len(set(ids)) > 4
        assert c.call("GET", "/api/jobs") == c.call("GET", "/api/jobs/")


def check_environment(c):
    with case("a job's processes know their job, its head and its token, and nothing secret"):
        _, logs = c.run("env", metadata={"job_name": "mine", "raia.require_fabric": "tcp"},
                        runtime_env={"env_vars": {"SPOKEN": "a b=c"}})
        env = dict(line.split("=", 1) for line in logs.splitlines() if "=" in line)
        config = json.loads(env["RAY_JOB_CONFIG_JSON_ENV_VAR"])
        assert config["metadata"]["job_name"] == "mine" and config["metadata"]["job_submission_id"], config
        assert env["SPOKEN"] == "a b=c" and env["RAIA_REQUIRE_FABRIC"] == "tcp"
        assert env["RAIA_ADDRESS"] == c.address and len(env["RAIA_JOB_TOKEN"]) == 64
        assert "RAIA_TOKEN" not in env and env["PYTHONUNBUFFERED"] == "1"
    with case("output that is no UTF-8, has no line end or very long lines stays readable"):
        details, logs = c.run(r"printf 'bad \377\n'; head -c 200000 /dev/zero | tr '\0' x; echo; printf end")
        assert details["status"] == "SUCCEEDED"
        assert "bad \ufffd\n" in logs and logs.endswith("end\n"), logs[-100:]
        assert logs.count("x") >= 200000 and max(map(len, logs.splitlines())) <= 65536


def check_packages(c):
    with case("a package is absent until it was uploaded, and is then found"):
        assert c.request("GET", "/api/packages/gcs/_ray_pkg_1.zip")[0] == 404
        c.put_package("_ray_pkg_1.zip", {"a.txt": "A", "sub/run.sh": ("#!/bin/sh\ncat a.txt; pwd\n", 0o755)})
        assert c.request("GET", "/api/packages/gcs/_ray_pkg_1.zip") == (200, b"")
    with case("working_dir: the job starts in the unpacked folder, modes kept, first in PYTHONPATH"):
        details, logs = c.run("sub/run.sh; echo; echo P=$PYTHONPATH; test -O a.txt",
                              runtime_env={"working_dir": "gcs://_ray_pkg_1.zip", "env_vars": {"PYTHONPATH": "/x"}})
        assert details["status"] == "SUCCEEDED", (details, logs)
        path = logs.rsplit("P=", 1)[1].splitlines()[0]
        assert path.endswith("/work:/x") and path.startswith(c.state), (path, logs)
        assert f"\nA{path[:-3]}\n" in logs, logs
        wait_for("its folder goes", lambda: not os.path.exists(path.split(":")[0]))
    with case("py_modules come in PYTHONPATH behind working_dir"):
        c.put_package("_ray_pkg_2.zip", {"mod/__init__.py": "word = 'from a module'"})
        details, logs = c.run("python3 -c 'import mod; print(mod.word)'",
                              runtime_env={"working_dir": "gcs://_ray_pkg_1.zip", "py_modules": ["gcs://_ray_pkg_2.zip"]})
        assert "from a module" in logs, (details, logs)
    with case("a package that is missing or no zip fails the job and says so"):
        details, _ = c.run("true", runtime_env={"working_dir": "gcs://_ray_pkg_9.zip"})
        assert details["status"] == "FAILED" and details["error_type"] == "RUNTIME_ENV_SETUP_FAILURE", details
        assert "_ray_pkg_9.zip" in details["message"], details
        assert c.request("PUT", "/api/packages/gcs/_ray_pkg_3.zip", raw=b"no zip at all")[0] == 200
        details, _ = c.run("true", runtime_env={"working_dir": "gcs://_ray_pkg_3.zip"})
        assert details["status"] == "FAILED" and "_ray_pkg_3.zip" in details["message"], details
    with case("a zip that would leave its folder fails the job, and nothing is written outside"):
        c.put_package("_ray_pkg_4.zip", {"../../escaped": "x", "a": "b"})
        details, _ = c.run("true", runtime_env={"working_dir": "gcs://_ray_pkg_4.zip"})
        assert details["status"] == "FAILED", details
        assert not list(pathlib.Path(c.state).rglob("escaped"))
    with case("names that are paths, and other protocols, are refused"):
        for path in ["gcs/..%2Fx.zip", "gcs/.hidden.zip", "gcs/x.tar", "s3/x.zip"]:
            assert c.request("PUT", "/api/packages/" + path, raw=b"x")[0] in (400, 404, 500), path


def check_tail(c):
    with case("a tail sends what was and what comes, in whole lines, and closes with 1000 after the end"):
        job = c.submit("for i in 1 2 3; do echo line $i; sleep 0.2; done")
        frames = list(c.tail(job))
        assert frames[-1] == 1000, frames[-1]
        assert "".join(frames[:-1]) == c.logs(job) and len(frames) > 3
        assert all(f.endswith("\n") for f in frames[:-1])
        assert c.job(job)["status"] == "SUCCEEDED"
    with case("a tail of an ended job gives the whole log at once"):
        job = c.submit("seq 1 50000")
        c.wait_status(job)
        frames = list(c.tail(job))
        assert frames[-1] == 1000 and "".join(frames[:-1]) == c.logs(job)
        assert max(map(len, frames[:-1])) < 4 << 20
    with case("many readers of a busy job all get the same text"):
        job = c.submit("seq 1 100000")
        texts = []
        readers = [threading.Thread(target=lambda: texts.append("".join(list(c.tail(job))[:-1]))) for _ in range(8)]
        for r in readers:
            r.start()
        for r in readers:
            r.join(30)
        assert len(texts) == 8 and len(set(texts)) == 1 and "\n100000\n" in texts[0]


def check_stop(c):
    with case("stopping leaves no process: detached, orphaned, with an empty environment, deaf to TERM"):
        job = c.submit("setsid sh -c 'env -i sleep 4711 & wait' & (sleep 4712 &) ; trap '' TERM; echo up; "
                       "while :; do sleep 4713; done", submission_id="stubborn")
        wait_for("it is up", lambda: "up" in c.logs(job))
        wait_for("all run", lambda: len(processes("sleep\0" "471")) == 3)
        c.call("POST", "/api/jobs/stubborn/stop")
        details = c.wait_status(job)
        assert details["status"] == "STOPPED", details
        assert not processes("sleep\0" "471"), [open(f"/proc/{p}/cmdline").read() for p in processes("sleep\0" "471")]
    with case("what an entrypoint leaves running ends with it"):
        details, _ = c.run("sleep 4721 & setsid sleep 4722 & echo started")
        assert details["status"] == "SUCCEEDED" and not processes("sleep\0" "472")
    with case("a program that ends in order on TERM may do so"):
        job = c.submit("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        wait_for("up", lambda: "up\n" in c.logs(job))
        c.call("POST", f"/api/jobs/{job}/stop")
        c.wait_status(job, "STOPPED")
        assert "bye\n" in c.logs(job)


with Cluster(nodes=1, workers=2) as cluster:
    check_contract(cluster)
    check_environment(cluster)
    check_packages(cluster)
    check_tail(cluster)
    check_stop(cluster)
with case("the cluster ended in order"):
    pass
done()
