"""cluster: a head and agents of a test's own, and what tests do with them. Standard library only."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile


RAIA = os.environ["RAIA"]
TERMINAL = ("STOPPED", "SUCCEEDED", "FAILED")


def wait_for(what, condition, seconds=10):
    """The first true answer of condition(); AssertionError naming WHAT when it does not come."""
    end = time.monotonic() + seconds
    while True:
        got = condition()
        if got:
            return got
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def processes(mark):
    """Pids of live processes whose command line or environment holds MARK."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (p / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z" or int(p.name) == os.getpid():
                continue
            if mark.encode() in (p / "cmdline").read_bytes() or mark.encode() in (p / "environ").read_bytes():
                found.append(int(p.name))
    return found


def command_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


class Cluster:
    """with Cluster(nodes=2, workers=2) as c: …  Everything ends and is checked to be gone at the end."""

    def __init__(self, nodes=1, workers=1, token=None, env=None, head_args=(), agent_args=()):
        self.state = tempfile.mkdtemp(prefix="raia-test-")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAIA_")) or k == "RAIA_SOURCE"}
        self.env = {**clean, "RAIA_STATE": self.state, **({"RAIA_TOKEN": token} if token else {}), **(env or {})}
        self.token = token
        self.nodes, self.workers = nodes, workers
        self.head_args, self.agent_args = head_args, agent_args
        self.children = {}

    def start(self, name, *args):
        log = open(f"{self.state}/{name}.out", "ab")
        self.children[name] = subprocess.Popen([RAIA, "start", *map(str, args), "--block"], env=self.env, stdout=log,
                                               stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        return self.children[name]

    def start_head(self, port=0):
        child = self.start("head", "--head", "--port", port, "--expected-workers", self.nodes * self.workers,
                           *self.head_args)
        row = pathlib.Path(self.state, "head.json")

        def there():
            assert child.poll() is None, "head: " + self.output("head")
            with contextlib.suppress(OSError, ValueError):
                got = json.loads(row.read_text())
                return got["pid"] == child.pid and got["address"]
        self.address = wait_for("head", there)
        self.port = int(self.address.rsplit(":", 1)[1])

    def start_agent(self, name):
        self.start(name, "--address", self.address, "--name", name, "--workers", self.workers, *self.agent_args)

    def output(self, name):
        return pathlib.Path(f"{self.state}/{name}.out").read_text(errors="replace")

    def __enter__(self):
        try:
            self.start_head()
            for i in range(self.nodes):
                self.start_agent(f"node-{i}")
            self.await_nodes(self.nodes)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def await_nodes(self, count, seconds=10):
        return wait_for(f"{count} nodes", lambda: len(self.call("GET", "/api/raia/v1/status")["nodes"]) == count,
                        seconds)

    def kill(self, name, how=signal.SIGKILL):
        self.children[name].send_signal(how)
        self.children[name].wait(20)

    def __exit__(self, kind, value, trace):
        for name in sorted(self.children, reverse=True):  # nodes before the head
            if self.children[name].poll() is None:
                self.children[name].terminate()
        late = []
        for name, child in self.children.items():
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                late.append(name)
                child.kill()
                child.wait()
        mark = f"RAIA_STATE={self.state}"
        left = [f"{p}: {command_of(p)}" for p in processes(mark)]
        if kind is not None:
            for name in self.children:
                print("".join(f"# {name}: {line}\n" for line in self.output(name).splitlines()[-15:]), end="")
        for p in processes(mark):
            os.kill(p, signal.SIGKILL)
        folders = [p.name for p in pathlib.Path(self.state).glob("agent-*") if p.is_dir()]
        shutil.rmtree(self.state, ignore_errors=True)
        if kind is None:
            assert not late, f"did not end within 15 s of TERM: {late}"
            assert not left, f"left running: {left}"
            lost = [f for f in folders if self.children.get(f[6:]) is not None
                    and self.children[f[6:]].returncode == 0]
            assert not lost, f"folders left by agents that ended well: {lost}"

    # ---- requests ----

    def request(self, method, path, body=None, headers=None, raw=None):
        """(status, body bytes)"""
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        auth = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.address + path, method=method, data=data,
                                         headers={**auth, **(headers or {})})
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def call(self, method, path, body=None):
        status, text = self.request(method, path, body)
        assert status == 200, f"{method} {path}: {status} {text!r}"
        return json.loads(text) if text else None

    # ---- jobs ----

    def submit(self, entrypoint, **members):
        return self.call("POST", "/api/jobs/", {"entrypoint": entrypoint, **members})["submission_id"]

    def job(self, job):
        return self.call("GET", f"/api/jobs/{job}")

    def logs(self, job):
        return self.call("GET", f"/api/jobs/{job}/logs")["logs"]

    def wait_status(self, job, *wanted, seconds=20):
        """Job details once its status is one of WANTED (any end when none is given)."""
        def there():
            got = self.job(job)
            return got if got["status"] in (wanted or TERMINAL) else None
        return wait_for(f"job {job} {wanted or 'ended'}", there, seconds)

    def run(self, entrypoint, seconds=20, **members):
        job = self.submit(entrypoint, **members)
        return self.wait_status(job, seconds=seconds), self.logs(job)

    def cli(self, *args, timeout=60, **more):
        env = {**self.env, **more.pop("env", {})}
        return subprocess.run([RAIA, *map(str, args)], env=env, capture_output=True, text=True, timeout=timeout,
                              **more)

    def put_package(self, name, files):
        """Uploads a zip of FILES {name: text or (text, mode)} as package NAME."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            for path, content in files.items():
                text, mode = content if isinstance(content, tuple) else (content, 0o644)
                info = zipfile.ZipInfo(path)
                info.external_attr = (0o100000 | mode) << 16
                z.writestr(info, text)
        status, text = self.request("PUT", f"/api/packages/gcs/{name}", raw=out.getvalue())
        assert status == 200, text
        return f"gcs://{name}"

    def tail(self, job, seconds=20):
        """Follows a job's log: yields text frames, ends with the close code (an int)."""
        host = f"127.0.0.1:{self.port}"
        auth = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as s:
            s.sendall((f"GET /api/jobs/{job}/logs/tail HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                       f"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{auth}"
                       "Sec-WebSocket-Version: 13\r\n\r\n").encode())
            stream = s.makefile("rb")
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = stream.read(1)
                assert byte, head
                head += byte
            assert head.startswith(b"HTTP/1.1 101"), head
            assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head
            while True:
                first = stream.read(2)
                if len(first) < 2:
                    yield 1006
                    return
                opcode, size = first[0] & 15, first[1] & 127
                assert first[0] & 128 and not first[1] & 128, "fragmented or masked frame"
                if size == 126:
                    size = int.from_bytes(stream.read(2), "big")
                elif size == 127:
                    size = int.from_bytes(stream.read(8), "big")
                data = stream.read(size)
                if opcode == 8:
                    yield int.from_bytes(data[:2], "big")
                    return
                if opcode == 1:
                    yield data.decode()
                elif opcode == 9:  # answered: an unanswered ping ends the connection
                    mask = b"\0\0\0\0"
                    s.sendall(bytes([0x8A, 0x80 | len(data)]) + mask + data)
