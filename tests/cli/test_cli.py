#!/usr/bin/env python3
"""The program's face: help, version, completion, and what it says to a mistyped command."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import done, ok, skip  # noqa: E402

RAIA = os.environ["RAIA"]


def run(*args):
    return subprocess.run([RAIA, *args], capture_output=True, text=True, timeout=30)


def commands():
    lines = run("--help").stdout.split("commands:\n")[1].split("\n\n")[0].splitlines()
    return [line.strip().split("  ")[0] for line in lines]


version = run("--version")
ok("--version prints one line", version.returncode == 0 and version.stdout.startswith("raia ") and
   version.stdout.count("\n") == 1)
ok("no command is an error with help on stderr", run().returncode == 2 and "usage:" in run().stderr)
for name in commands():
    got = run(*name.split(), "--help")
    ok(f"{name} --help teaches", got.returncode == 0 and f"raia {name}" in got.stdout and "--help" in
       got.stdout, got.stdout + got.stderr)
    ok(f"help {name} says the same", run("help", *name.split()).stdout == got.stdout)
    bad = run(*name.split(), "--no-such-option")
    ok(f"{name} refuses an unknown option by name", bad.returncode == 2 and "no-such-option" in bad.stderr, bad.stderr)
near = run("trian")
ok("a mistyped command gets the nearest one", near.returncode == 2 and '"raia train"' in near.stderr, near.stderr)
near = run("model", "infoo")
ok("a mistyped second word does, too", near.returncode == 2 and '"raia model info"' in near.stderr, near.stderr)
family = run("model")
ok("a family lists its commands", family.returncode == 2 and "model info" in family.stderr, family.stderr)


near = run("help", "trian")
ok("help of a mistyped command gets the nearest one", near.returncode == 2 and '"raia train"' in near.stderr, near.stderr)
family = run("help", "model")
ok("help of a family lists its commands", family.returncode == 0 and "model info" in family.stdout, family.stdout)


def complete(*words):
    script = run("completion", "bash").stdout
    line = " ".join(f"'{w}'" for w in words)
    test = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _raia; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    got = subprocess.run(["bash", "-c", test], capture_output=True, text=True, timeout=30)
    return got.stdout.split()


ok("completion knows the commands", "train" in complete("raia", "tr"))
ok("completion knows second words", complete("raia", "model", "in") == ["init", "info"])
ok("completion knows options", "--require-fabric" in complete("raia", "train", "--req"))
ok("completion knows an option's words", sorted(complete("raia", "train", "--dtype", "")) == ["bf16", "f32", "mixed"])
unknown = run("completion", "ksh")
ok("a shell without completion is named", unknown.returncode == 2 and "ksh" in unknown.stderr)


def complete_fish(line):
    test = f"{run('completion', 'fish').stdout}\ncomplete -C '{line}'"
    got = subprocess.run(["fish", "--no-config", "-c", test], capture_output=True, text=True, timeout=30)
    return {x.split("\t")[0] for x in got.stdout.splitlines()} if got.returncode == 0 else got.stderr


lines = run("completion", "fish").stdout.splitlines()
for name in commands():
    ok(f"fish's script has a line for {name}", any(f"-a {name.split()[-1]} " in x for x in lines))
if shutil.which("fish") is None:
    skip("fish completes commands, second words, options and their words", "no fish here")
else:
    ok("fish completes commands", "train" in complete_fish("raia tr"), complete_fish("raia tr"))
    ok("fish completes second words, and those alone", complete_fish("raia model in") == {"init", "info"},
       complete_fish("raia model in"))
    ok("fish completes options", "--require-fabric" in complete_fish("raia train --req"))
    ok("fish completes an option's words", complete_fish("raia train --dtype ") == {"bf16", "f32", "mixed"},
       complete_fish("raia train --dtype "))
done()
