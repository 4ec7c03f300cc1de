#!/usr/bin/env python3
"""Who may ask a head for what: tokens, a job's own token, browsers, malformed and slow requests."""
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import RAIA, Cluster, wait_for  # noqa: E402
from tap import case, done  # noqa: E402

TOKEN = "a-token-of-the-test"


def ask(c, method, path, headers, body=None):
    """Like request, without the cluster's own token."""
    token, c.token = c.token, None
    try:
        return c.request(method, path, body, headers)
    finally:
        c.token = token


def check_token(c):
    with case("without a token 401, with a wrong one 403, in each of three places the right one is taken"):
        assert ask(c, "GET", "/api/version", {}) == (401, b"Unauthorized: Missing authentication token")
        for headers in [{"Authorization": "Bearer no"}, {"X-Ray-Authorization": "Bearer no"},
                        {"Cookie": "ray-authentication-token=no"}, {"Authorization": TOKEN},
                        {"Authorization": "Bearer no", "X-Ray-Authorization": f"Bearer {TOKEN}"}]:
            assert ask(c, "GET", "/api/version", headers) == (403, b"Forbidden: Invalid authentication token"), headers
        for headers in [{"Authorization": f"Bearer {TOKEN}"}, {"X-Ray-Authorization": f"Bearer {TOKEN}"},
                        {"Cookie": f"ray-authentication-token={TOKEN}"}]:
            assert ask(c, "GET", "/api/version", headers)[0] == 200, headers
    with case("health may be asked without a token, everything else not"):
        assert ask(c, "GET", "/api/gcs_healthz", {}) == (200, b"success")
        for method, path in [("GET", "/api/jobs/"), ("POST", "/api/jobs/"), ("GET", "/api/jobs/x/logs/tail"),
                             ("PUT", "/api/packages/gcs/a.zip"), ("GET", "/api/raia/v1/status"),
                             ("GET", "/api/raia/v1/agents"), ("GET", "/api/raia/v1/packages/a.zip")]:
            assert ask(c, method, path, {})[0] == 401, (method, path)
    with case("an agent with the wrong token is refused at once and told why"):
        started = time.monotonic()
        got = subprocess.run([RAIA, "start", "--address", c.address, "--name", "stranger", "--block"],
                             env={**c.env, "RAIA_TOKEN": "no"}, capture_output=True, text=True, timeout=20)
        assert got.returncode != 0 and "RAIA_TOKEN" in got.stderr and time.monotonic() - started < 5, got


def check_job_token(c):
    with case("a job's token is good for that job's groups alone, while it lives"):
        job = c.submit("echo T=$RAIA_JOB_TOKEN; sleep 30")
        wait_for("token", lambda: "\nT=" in c.logs(job))
        token = c.logs(job).rsplit("T=", 1)[1].split()[0]
        mine = {"Authorization": f"Bearer {token}"}
        assert ask(c, "GET", "/api/jobs/", mine)[0] == 403
        assert ask(c, "POST", "/api/raia/v1/jobs/other/events", mine, {"event": "x"})[0] == 403
        assert ask(c, "POST", f"/api/raia/v1/jobs/{job}/events", mine, {"event": "x"})[0] == 200
        assert ask(c, "POST", "/api/raia/v1/groups", {"Authorization": f"Bearer {TOKEN}"},
                   {"workers": 1, "argv": ["true"]})[0] in (401, 403)
        c.call("POST", f"/api/jobs/{job}/stop")
        c.wait_status(job)
        assert ask(c, "POST", f"/api/raia/v1/jobs/{job}/events", mine, {"event": "x"})[0] == 403


def check_browsers(c):
    with case("what looks like a browser may read and nothing else"):
        own = {"Authorization": f"Bearer {TOKEN}"}
        for mark in [{"User-Agent": "Mozilla/5.0"}, {"Origin": "http://evil"}, {"Referer": "http://evil/"},
                     {"Sec-Fetch-Mode": "no-cors"}]:
            for method, path in [("POST", "/api/jobs/"), ("DELETE", "/api/jobs/x"), ("PUT", "/api/packages/gcs/a.zip")]:
                assert ask(c, method, path, {**own, **mark}, {"entrypoint": "true"})[0] == 405, (mark, method)
            assert ask(c, "GET", "/api/version", {**own, **mark})[0] == 200
        assert c.call("GET", "/api/jobs/") == [j for j in c.call("GET", "/api/jobs/") if j["entrypoint"] != "true"]


def raw(c, data, seconds=5):
    with socket.create_connection(("127.0.0.1", c.port), timeout=seconds) as s:
        s.sendall(data)
        answer = b""
        try:
            while part := s.recv(65536):
                answer += part
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


def check_framing(c):
    auth = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    with case("requests that two servers could read differently are refused"):
        for lines in ["Content-Length: 3\r\nContent-Length: 4\r\n", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                      "Content-Length: -1\r\n", "Content-Length: 3x\r\n", "Transfer-Encoding: gzip, chunked\r\n"]:
            got = raw(c, f"POST /api/jobs/ HTTP/1.1\r\n{auth}{lines}\r\nabc".encode())
            assert got.startswith(b"HTTP/1.1 4") or got == b"", (lines, got[:100])
    with case("a body beyond the limit is refused before it is sent, and the limit is named"):
        got = raw(c, f"POST /api/jobs/ HTTP/1.1\r\n{auth}Content-Length: 999999999\r\n\r\n".encode())
        assert b" 413 " in got and b"the limit is" in got, got[:300]
    with case("garbage gets no more than its connection closed; the head goes on"):
        for data in [b"\0" * 1000, b"GET " + b"/" * 20000 + b" HTTP/1.1\r\n\r\n", os.urandom(4096), b"\r\n\r\n",
                     b"GET /api/jobs/%zz HTTP/1.1\r\n" + auth.encode() + b"\r\n"]:
            got = raw(c, data, 2)
            assert got == b"" or got.startswith(b"HTTP/1."), got[:100]
        assert c.call("GET", "/api/version")["version"] == "4"
    with case("a client that sends nothing keeps nobody else waiting"):
        idle = [socket.create_connection(("127.0.0.1", c.port)) for _ in range(200)]
        started = time.monotonic()
        assert c.call("GET", "/api/version") and time.monotonic() - started < 2
        for s in idle:
            s.close()


with Cluster(nodes=1, workers=1, token=TOKEN) as cluster:
    check_token(cluster)
    check_job_token(cluster)
    check_browsers(cluster)
    check_framing(cluster)
done()
