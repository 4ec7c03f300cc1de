#!/usr/bin/env python3
"""libraia as its users meet it: installed, found by pkg-config, linked by the example, trained with."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import case, done, ok  # noqa: E402

RAIA = os.environ["RAIA"]
SOURCE = pathlib.Path(os.environ["RAIA_SOURCE"])
BUILD = pathlib.Path(RAIA).parent


def out(*command, **options):
    got = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **options)
    assert got.returncode == 0, f"{command}: {got.stdout}{got.stderr}"
    return got.stdout


def install(tmp):
    out("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", tmp / "root")
    (folder,) = {p.parent for p in (tmp / "root").rglob("raia.pc")}
    return folder.parent, {**os.environ, "PKG_CONFIG_PATH": str(folder), "PKG_CONFIG_SYSROOT_DIR": str(tmp / "root"),
                           "LD_LIBRARY_PATH": str(folder.parent)}


def declared(prefix):
    headers = list(prefix.rglob("include/raia/*.h"))
    text = "".join(h.read_text() for h in headers)
    return {h.name for h in headers}, set(re.findall(r"\b(raia_\w+)\(", re.sub(
        r"(?m)^#define.*(\\\n.*)*", "", "\n".join(re.findall(r"RAIA_API[^;]*;", text)))))


def names(*command):
    return {line.split()[2].split("@")[0] for line in out("nm", *command).splitlines() if len(line.split()) == 3}


def check_names(tmp, lib):
    headers, functions = declared(tmp / "root")
    ok("the four public headers are installed, no other", headers == {"raia.h", "comm.h", "model.h", "types.h"}, headers)
    shared = names("-D", "--defined-only", lib / "libraia.so")
    static = names("-g", "--defined-only", lib / "libraia.a")
    ok("the shared library shows what the headers declare, and nothing else", shared == functions and len(shared) > 30,
       shared ^ functions)
    ok("so does the static one", static == functions, static ^ functions)
    needed = out("readelf", "-d", lib / "libraia.so")
    needs = set(re.findall(r"NEEDED.*\[(\w+)", needed))
    ok("it needs nothing of the control plane", needs <= {"libjansson", "libcurl", "libm", "libc", "ld"}, needs)


def losses(lines):
    return [(x.get("loss"), x.get("eval_loss"), x.get("grad_norm")) for x in map(json.loads, lines.splitlines())
            if x["event"] in ("step", "report")]


def train_by(program, tmp, env, *args):
    report = tmp / "report"
    out(program, "--model", tmp / "m", *args, "--report-file", report, env=env)
    return report.read_text()


def check_same_path(tmp, lib, env):
    example = shutil.copytree(SOURCE / "examples/fsdp-llm", tmp / "example")
    out("make", "-C", example, "CFLAGS=-Wall -Wextra -Werror", env=env)
    ok("the example's Makefile has two lines", len((example / "Makefile").read_text().splitlines()) == 2)
    out(RAIA, "model", "init", "--preset", "tiny", tmp / "m")
    (tmp / "text").write_text("what holds for one holds for all of them. " * 40)
    for dtype in "f32", "bf16":
        args = ("--dtype", dtype, "--data", tmp / "text", "--eval-data", tmp / "text", "--steps", 4, "--batch-size", 2,
                "--seq-len", 32, "--lr", 0.01, "--workers", 2)
        lines = train_by(example / "train", tmp, env, *args)
        reference = out(RAIA, "train", "--model", tmp / "m", *args, "--json")
        ok(f"the example has raia train's losses and norms to the bit ({dtype}, 2 ranks)",
           losses(lines) == losses(reference) and len(losses(lines)) == 6, f"{lines}\n{reference}")
        first, *_, last = losses(lines)
        ok(f"and it learns ({dtype})", last[1] < first[1], (first, last))
        end = json.loads(lines.splitlines()[-1])
        ok(f"the report file ends as --json does ({dtype})",
           (end["event"], end["status"], end["world_size"]) == ("end", "succeeded", 2), end)
    static = tmp / "static"
    flags = out("pkg-config", "--cflags", "raia", env=env).split()
    out("cc", "-o", static, example / "train.c", *flags, lib / "libraia.a", "-ljansson", "-lcurl", "-lm", env=env)
    got = train_by(static, tmp, {**env, "LD_LIBRARY_PATH": ""}, *args)
    ok("linked statically, it runs without the library and gives the same", losses(got) == losses(lines))
    bad = subprocess.run([example / "train", "--model", tmp / "none", "--workers", "2"], env=env, capture_output=True,
                         text=True, timeout=60)
    ok("its exit code is raia train's: a missing model", bad.returncode == 4 and "none" in bad.stderr, bad.stderr)


with tempfile.TemporaryDirectory(prefix="raia-lib-") as folder:
    with case("all of it ran"):
        root = pathlib.Path(folder)
        where, environment = install(root)
        check_names(root, where)
        check_same_path(root, where, environment)
done()
