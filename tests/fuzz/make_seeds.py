#!/usr/bin/env python3
"""Makes the seeds of control, data, json, link, package and text again (those of config and safetensors were kept from
runs). Inputs that once broke something are added beside them by hand."""
import io
import json
import pathlib
import stat
import struct
import zipfile

SEEDS = pathlib.Path(__file__).parent / "seeds"


def write(target, name, data):
    (SEEDS / target).mkdir(parents=True, exist_ok=True)
    (SEEDS / target / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def control():
    def frame(side, kind, body, status=0, number=7):
        return side + struct.pack("<IHHQ", len(body), kind, status, number) + body
    rank, server, key = b"\0", b"\1", b"node/0"
    prefix = struct.pack("<H", len(key)) + key
    bodies = {"hello": (1, b"raiactl1" + struct.pack("<I", 3) + b"secret"), "put": (2, prefix + b"value"),
              "get": (3, key), "peek": (4, key), "gather": (5, key), "event": (6, b'{"event":"x"}'),
              "chunk": (7, struct.pack("<H", 13) + b"dir/model.bin" + struct.pack("<Q", 4096) + b"bytes"), "bye": (8, b""),
              "chunk-escape": (7, struct.pack("<H", 9) + b"../etc/pw" + struct.pack("<Q", 1 << 63) + b"x")}
    for name, (kind, body) in bodies.items():
        write("control", name, frame(rank, kind, body))
    write("control", "reply", frame(server, 9, b"text", status=9))
    write("control", "abort", frame(server, 10, b"reason"))


def package():
    def zipped(entries, method=zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for name, data, mode in entries:
                info = zipfile.ZipInfo(name)
                info.external_attr = mode << 16
                info.compress_type = method
                z.writestr(info, data)
        return out.getvalue()
    plain, link = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
    sets = {"two": [("a.txt", "hello", plain), ("d/b.txt", "x" * 300, stat.S_IFREG | 0o755)],
            "folder": [("d/", "", stat.S_IFDIR | 0o755), ("d/e/f/g", "y", plain)], "empty-set": [],
            "escape": [("../out", "x", plain)], "absolute": [("/dev/shm/out", "x", plain)],
            "link": [("l", "/etc", link), ("l/passwd", "x", plain)], "setuid": [("s", "x", stat.S_IFREG | 0o6755)],
            "twice": [("a", "1", plain), ("b", "2", plain), ("./a", "3", plain)], "bomb": [("z", b"\0" * (2 << 20), plain)],
            "device": [("dev", "", stat.S_IFCHR | 0o666)], "names": [("ä/ö", "x", plain), ("a\\b", "y", plain)],
            "many": [(f"f{i}", "", plain) for i in range(80)]}
    for name, entries in sets.items():
        write("package", name, zipped(entries))
    write("package", "stored", zipped(sets["two"], zipfile.ZIP_STORED))
    write("package", "nothing", b"")


def link():
    def text(**members):
        return struct.pack("<BH", 1, len(json.dumps(members))) + json.dumps(members).encode()

    def log(seq, proc, lines):
        body = struct.pack("<QQ", seq, proc) + lines
        return struct.pack("<BH", 0, len(body)) + body
    write("link", "messages", text(type="start", seq=1, x=[1, 2]) + text(type="stop", seq=2) + text(type="stop", seq=2))
    write("link", "logs", log(1, 5, b"a line\n") + log(2, 5, b"another\nand one\n"))
    write("link", "acks", text(type="ack", seen=2) + text(type="ack", seen=3) + text(type="ack", seen=1))
    write("link", "never-sent", text(type="ack", seen=4))
    write("link", "gap", text(type="x", seq=1) + text(type="x", seq=3))
    write("link", "short", struct.pack("<BH", 0, 3) + b"abc")


def text():
    write("text", "escapes", "a%20b%2Fc%00d%zz%")
    write("text", "utf8", "grüße 漢字 \U0001f600".encode() + b"\xff\xc0\x80\xed\xa0\x80\xe2\x82")
    write("text", "package", "gcs://_ray_pkg_0123456789abcdef.zip")
    write("text", "address", "[fe80::1]:6379")
    write("text", "host", "head.example:8265")
    write("text", "no-host", ":8")
    write("text", "key", "dGhlIHNhbXBsZSBub25jZQ==")
    write("text", "numbers", "-12e3")
    write("text", "size", "64K")
    write("text", "ignore", "src/build/x.o\n*.o\n!keep.o\n/build/\n**/x/**/y\na[!b-d]?\\*\n# note\n[")
    write("text", "stars", "a" * 60 + "\n" + "*a" * 28 + "b")


def data():
    write("data", "tokens", struct.pack("<21I", *range(21)))
    write("data", "beyond", struct.pack("<8I", 1, 2, 299, 300, 2 ** 32 - 1, 0, 0, 0))
    write("data", "odd", b"\1\0\0\0\2\0\0")
    write("data", "text", "What holds for one holds for all.\n" * 3)
    write("data", "none", b"")


def json_texts():
    write("json", "object", '{"a": 1, "b": "text", "c": 2.5, "d": true, "e": null, "f": [1, {"g": -9223372036854775808}]}')
    write("json", "numbers", '{"big": 9223372036854775807, "huge": 1e308, "over": 1e400, "wide": 92233720368547758080}')
    write("json", "twice", '{"a": 1, "a": 2}')
    write("json", "deep", "[" * 70 + "]" * 70)
    write("json", "escapes", '{"\\u0000": "\\ud83d\\ude00", "\\ud800": ""}')
    write("json", "array", "[1, 2]")
    write("json", "trailing", "{} {}")


def evidence():
    def rank(number, node, after, provider="net", fabric="tcp", device=None, extra=0):
        sent, port = (4000000 if after else 0), f"eth{node}"
        counted = 1000 + (sent + sent // 20 + extra if after else 0)
        return {"rank": number, "node": node, "host": f"h{node}", "netns": f"n{node}", "boot_id": f"b{node}",
                "seconds": 10.5 + after, "fabric": fabric, "provider": provider, "version": "1.17",
                "endpoints": [{"interface": port, "address": f"10.0.0.{node + 1}"} if device is None else {"device": device}],
                "sent": {str(1 - node): sent}, "received": {str(1 - node): sent}, "messages": {str(1 - node): 40 * after},
                "control": {"interface": port, "bytes": 500 * after},
                "interfaces": [{"name": port, "driver": "veth", "tx": counted, "rx": counted}],
                "efa": [] if device is None else [{"device": device, "driver": "efa", "tx": counted, "rx": counted}]}

    def both(name, require=None, ranks=((0, 0), (1, 1)), **how):
        sides = {side: [rank(r, n, after, **how) for r, n in ranks] for after, side in enumerate(("before", "after"))}
        write("evidence", name, json.dumps({**sides, "require": require}))
    both("two-nodes", "tcp")
    both("two-by-two", None, ((0, 0), (1, 0), (2, 1), (3, 1)))
    both("one-node", "shm", ((0, 0), (1, 0)), provider="shm", fabric="shm")
    both("efa", "efa", provider="efa", fabric="efa", device="efa_0")
    both("other", "pigeon")
    both("foreign", "tcp", extra=10 ** 9)
    write("evidence", "lost", json.dumps({"before": [rank(0, 0, 0), None], "after": [rank(0, 0, 1), None]}))
    write("evidence", "empty", '{"before": [], "after": []}')


for make in evidence, control, package, link, text, data, json_texts:
    make()
