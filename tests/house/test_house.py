#!/usr/bin/env python3
"""The house's rules: who may include whom, how long things are, how they are laid out."""
import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import done, ok, skip  # noqa: E402

SOURCE = pathlib.Path(os.environ["RAIA_SOURCE"])
FOLDERS = "include", "src", "tests", "examples", "bench", "scripts"

# A room may include rooms of the floors below its own.
FLOORS = [
    {"base"},
    {"fabric", "tensor"},
    {"kernels"},  # the implementations of tensor's table
    {"comm", "model"},
    {"launch", "shard", "data", "storage"},
    {"train", "cluster", "doctor", "plan"},
    {"cli"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
# A room shows ROOM/ROOM.h to all above it, and these to the rooms named.
SHOWN = {
    "tensor/scalar.h": {"kernels", "model"},
    "tensor/backend.h": {"kernels"},
    "cluster/client.h": {"cli"},
}
# The lowest room that knows a public header; types.h is everyone's.
PUBLIC = {"raia/types.h": "base", "raia/model.h": "model", "raia/comm.h": "comm", "raia/raia.h": "train"}

MOST_FILE, MOST_FUNCTION = 500, 60
# What was longer when the rule came, and by how much. This list only shrinks.
LONGER_FILES = {}
LONGER_FUNCTIONS = {"bench/peer_torch_train.py:build_plain": 78}
# Files whose layout waits until nobody is in the middle of changing them.
UNFORMATTED = {"src/cluster/groups.c", "src/cluster/job_run.c", "src/cluster/nodes.c"}


def files(*suffixes):
    found = [p for folder in FOLDERS for p in (SOURCE / folder).rglob("*") if p.suffix in suffixes]
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def name(path):
    return str(path.relative_to(SOURCE))


def includes(path):
    return re.findall(r'^\s*#\s*include\s+(["<])([^">]+)[">]', path.read_text(), re.MULTILINE)


def wrong_include(room, quote, header):
    """Why a file of ROOM may not include HEADER; None when it may."""
    if header in PUBLIC:
        lowest = FLOOR[PUBLIC[header]]
        return f"{header} is above {room}" if FLOOR[room] < lowest or (
            FLOOR[room] == lowest and room != PUBLIC[header] and header == "raia/raia.h") else None
    if quote == "<":
        return None
    other, _, rest = header.partition("/")
    if rest == "" or other not in FLOOR:
        return f'"{header}" names no room; write "ROOM/FILE.h"'
    if other == room:
        return None
    if FLOOR[other] >= FLOOR[room]:
        return f"{header}: {room} does not stand above {other}"
    if header != f"{other}/{other}.h" and room not in SHOWN.get(header, ()):
        return f"{header} is private to {other}"
    return None


def check_layers():
    wrong, rooms = [], set()
    for path in files(".c", ".h"):
        parts = path.relative_to(SOURCE).parts
        if parts[0] == "include":
            wrong += [f"{name(path)}: a public header includes \"{h}\"" for q, h in includes(path)
                      if q == '"' or (h.startswith("raia/") and h not in PUBLIC)]
        if parts[0] == "examples":
            wrong += [f"{name(path)}: an example includes \"{h}\"" for q, h in includes(path) if q == '"']
        if parts[0] != "src":
            continue
        rooms.add(parts[1])
        if parts[1] not in FLOOR:
            wrong.append(f"{name(path)}: {parts[1]} is no room of the map")
            continue
        wrong += [f"{name(path)}: {why}" for why in (wrong_include(parts[1], *i) for i in includes(path)) if why]
    ok("includes point down the map, and into a room's own header only", not wrong and len(rooms) > 8, "\n".join(wrong))


def check_the_layer_check():
    cases = [("base", '"', "fabric/fabric.h"), ("model", '"', "comm/comm.h"), ("train", '"', "cluster/cluster.h"),
             ("shard", '"', "model/st_priv.h"), ("cluster", "<", "raia/raia.h"), ("tensor", '"', "kernels/cpu/cpu.h"),
             ("cli", '"', "cli.h"), ("base", "<", "raia/comm.h")]
    ok("an upward, a sideways, a private and a nameless include would each be caught",
       all(wrong_include(*case) for case in cases), [c for c in cases if not wrong_include(*c)])
    fine = [("cli", '"', "train/train.h"), ("train", "<", "raia/raia.h"), ("shard", '"', "shard/shard_priv.h")]
    ok("a downward include is none of them", not any(wrong_include(*case) for case in fine))


def c_functions(lines):
    """(name, lines from its first line to its last) of each function; the layout puts its braces in column 0."""
    start = 0
    for number, line in enumerate(lines):
        if line == "{":
            first = number - 1
            while first > 0 and lines[first - 1] and lines[first - 1][-1] not in ";}/\\" and lines[first - 1][0] != "#":
                first -= 1
            found = re.search(r"(\w+)\(", " ".join(lines[first:number]))
            start = (first, found.group(1) if found else "?")
        elif line == "}" and start:
            yield start[1], number - start[0] + 1
            start = 0


def functions(path):
    text = path.read_text()
    if path.suffix == ".py":
        return [(n.name, n.end_lineno - n.lineno + 1) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    return c_functions(text.splitlines())


def check_length(what, lengths, most, exceptions):
    longer = {k: n for k, n in lengths.items() if n > most}
    wrong = [f"{k}: {n} lines, {exceptions.get(k, most)} are possible" for k, n in longer.items()
             if n > exceptions.get(k, most)]
    spare = [f"{k} has {lengths.get(k, 0)} lines now: lower or remove its exception" for k, n in exceptions.items()
             if lengths.get(k, 0) < n]
    ok(f"no {what} has more than {most} lines", not wrong and len(lengths) > 50, "\n".join(wrong))
    ok(f"no exception for a {what} is larger than needed", not spare, "\n".join(spare))


def check_lengths():
    paths = files(".c", ".h", ".py")
    check_length("file", {name(p): len(p.read_text().splitlines()) for p in paths}, MOST_FILE, LONGER_FILES)
    lengths = {}
    for key, n in ((f"{name(p)}:{f}", n) for p in paths for f, n in functions(p)):
        lengths[key] = max(n, lengths.get(key, 0))
    check_length("function", lengths, MOST_FUNCTION, LONGER_FUNCTIONS)
    sample = ["static int", "f(int a,", "  int b)", "{", "    return a;", "}", "", "int g(void)", "{", "}"]
    ok("a function is measured from its first line to its last", list(c_functions(sample)) == [("f", 6), ("g", 3)],
       list(c_functions(sample)))


def check_exit_codes():
    header = (SOURCE / "include/raia/types.h").read_text()
    codes = re.findall(r'X\((\w+), (\d+), "([^"]*)"\)', header.split("typedef enum raia_status")[0])
    rows = re.findall(r"^\| (\d+) \| `RAIA_(\w+)` \| (.*) \|$", (SOURCE / "docs/exit-codes.md").read_text(), re.MULTILINE)
    ok("docs/exit-codes.md lists the statuses as the header has them", len(codes) > 10 and
       [(name, code, text) for code, name, text in rows] == codes, (codes, rows))


def check_links():
    wrong = []
    for page in [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]:
        text = page.read_text()
        wrong += [f"{name(page)}: {t}" for t in re.findall(r"\]\(([^)#:]+)\)", text) if not (page.parent / t).exists()]
        paths = re.findall(r"`((?:src|tests|include|examples|docs|scripts)/[\w./-]+)`", text)
        wrong += [f"{name(page)}: {t}" for t in paths if "NAME" not in t and not (SOURCE / t).exists()]
    ok("the files that the documents name exist", not wrong, "\n".join(wrong))


def check_format():
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if program is None:
        skip("sources are laid out by .clang-format", "no clang-format here; scripts/setup installs it")
        return
    paths = [p for p in files(".c", ".h") if name(p) not in UNFORMATTED]
    got = subprocess.run([program, "--dry-run", *map(str, paths)], capture_output=True, text=True, timeout=120, cwd=SOURCE)
    wrong = sorted(set(re.findall(r"^(.+?):\d+:\d+: ", got.stderr, re.MULTILINE)))
    ok("sources are laid out by .clang-format", got.returncode == 0 and not wrong, "\n".join(
        [f"run clang-format -i {os.path.relpath(p, SOURCE)}" for p in wrong]) or got.stderr)


check_layers()
check_the_layer_check()
check_lengths()
check_exit_codes()
check_links()
check_format()
done()
