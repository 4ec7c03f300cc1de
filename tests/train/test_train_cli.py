#!/usr/bin/env python3
"""raia train as scripts use it: its output, its repeatability, and what it says when something is wrong."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import case, done, ok  # noqa: E402

RAIA = os.environ["RAIA"]


def run(*args, env=None, timeout=60):
    return subprocess.run([RAIA, *map(str, args)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})})


def train(model, *args, env=None):
    return run("train", "--model", model, *args, env=env)


def tokens(path, values):
    path.write_bytes(struct.pack(f"<{len(values)}I", *values))
    return path


def ranks_of(marker):
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if marker in (p / "cmdline").read_bytes().decode(errors="replace") and \
                    b"RAIA_RANK=" in (p / "environ").read_bytes():
                found.append(int(p.name))
        except OSError:
            pass
    return found


def rank_of(pid):
    for item in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if item.startswith(b"RAIA_RANK="):
            return int(item.split(b"=")[1])
    return -1


def make_model(tmp):
    made = run("model", "init", "--preset", "tiny", tmp / "m")
    assert made.returncode == 0, made.stderr
    return tmp / "m"


def check_output(tmp):
    model = make_model(tmp)
    got = train(model, "--steps", 3, "--batch-size", 2, "--seq-len", 16, "--workers", 2, "--json",
                "--output", tmp / "out")
    lines = [json.loads(line) for line in got.stdout.splitlines()]
    ok("stdout holds one object a step, then the end", [x["event"] for x in lines] == ["step"] * 3 + ["end"], got.stderr)
    ok("a step has its number, loss, norm, rate and speed", all(
        {"step", "loss", "grad_norm", "lr", "tokens_per_s"} <= set(x) for x in lines[:3]))
    ok("the end says how it went", lines[-1]["status"] == "succeeded" and lines[-1]["steps"] == 3 and
       lines[-1]["world_size"] == 2 and lines[-1]["fabric"]["status"] == "pass", lines[-1])
    again = train(tmp / "out", "--steps", 1, "--batch-size", 2, "--seq-len", 16, "--workers", 3)
    ok("what was written can be trained on", again.returncode == 0, again.stderr)
    taken = train(model, "--steps", 1, "--batch-size", 2, "--workers", 1, "--output", tmp / "out")
    ok("an output folder that holds a model is not overwritten", taken.returncode != 0 and
       str(tmp / "out") in taken.stderr, taken.stderr)


def check_bits(tmp):
    model = make_model(tmp)
    for name, dtype, workers in ("f32 on 3 ranks", "f32", 3), ("bf16 on 2 ranks", "bf16", 2), ("mixed on 4", "mixed", 4):
        bits = []
        for i in range(2):
            out = tmp / f"{dtype}{i}"
            got = train(model, "--steps", 3, "--global-batch-size", 5, "--seq-len", 24, "--workers", workers,
                        "--dtype", dtype, "--output", out, "--json")
            losses = [x["loss"] for x in map(json.loads, got.stdout.splitlines()) if x["event"] == "step"]
            bits.append((losses, (out / "model.safetensors").read_bytes()))
        ok(f"the same run twice gives the same bits: {name}", bits[0] == bits[1] and len(bits[0][0]) == 3)


def refused(name, got, code, *words):
    ok(f"{name} is refused by name", got.returncode == code and all(w in got.stderr for w in words),
       f"exit {got.returncode}: {got.stderr}")


def check_refusals(tmp):
    model = make_model(tmp)
    quick = ("--steps", 1, "--batch-size", 1, "--seq-len", 16)
    refused("a missing model", train(tmp / "none", *quick), 4, "none")
    refused("no model", run("train", "--steps", 1), 2, "--model")
    refused("a missing data file", train(model, "--data", tmp / "none.bin", *quick), 4, "none.bin")
    refused("too little data", train(model, "--data", tokens(tmp / "few.bin", [1] * 8), *quick), 2, "few.bin")
    refused("a token beyond the vocabulary", train(model, "--data", tokens(tmp / "big.bin", [1] * 9 + [70000] + [1] * 6),
                                                   *quick), 5, "70000")
    refused("a batch smaller than the ranks", train(model, "--steps", 1, "--global-batch-size", 2, "--seq-len", 16,
                                                    "--workers", 3), 2, "batch")
    refused("an unknown provider", train(model, *quick, "--workers", 2, "--fabric", "pigeon"), 2, "pigeon")
    refused("a fabric that did not carry the bytes", train(model, *quick, "--workers", 2, "--require-fabric", "efa"), 3,
            "efa", "shm")
    refused("a report file in no folder", train(model, *quick, "--report-file", tmp / "no" / "r"), 7, "no/r")
    shard = model / "model.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    refused("a truncated weight file", train(model, *quick, "--workers", 2), 5, "model.safetensors")
    shard.write_bytes(whole)
    config = json.loads((model / "config.json").read_text())
    del config["hidden_size"]
    (model / "config.json").write_text(json.dumps(config))
    refused("a config without a field", train(model, *quick), 5, "hidden_size")


def check_loss_of_a_rank(tmp):
    model = make_model(tmp)
    for how in signal.SIGKILL, signal.SIGABRT, signal.SIGSTOP:
        args = ["train", "--model", model, "--steps", "1000000", "--batch-size", "1", "--seq-len", "16",
                "--workers", "4", "--timeout", "3"]
        driver = subprocess.Popen([RAIA, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 20
        while len(ranks_of(str(model))) < 4 and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.3)
        victim = next(p for p in ranks_of(str(model)) if rank_of(p) == 2)
        start = time.monotonic()
        os.kill(victim, how)
        text = driver.communicate(timeout=30)[1]
        took = time.monotonic() - start
        bound = 5 if how != signal.SIGSTOP else 10
        ok(f"a rank lost by {how.name} is named and ends the run", driver.returncode not in (0, None) and
           "rank 2" in text.splitlines()[-1] and took < bound, f"exit {driver.returncode} after {took:.1f} s: {text[-600:]}")
        ok(f"nothing is left after {how.name}", not ranks_of(str(model)))


def check_interrupt(tmp):
    model = make_model(tmp)
    driver = subprocess.Popen([RAIA, "train", "--model", str(model), "--steps", "1000000", "--batch-size", "1",
                               "--workers", "3", "--output", str(tmp / "out")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    while len(ranks_of(str(model))) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.3)
    driver.send_signal(signal.SIGINT)
    text = driver.communicate(timeout=30)[1]
    ok("an interrupt ends the run as stopped", driver.returncode == 12 and "signal 2" in text, text[-600:])
    ok("an interrupt leaves no rank and no folder", not ranks_of(str(model)) and not list(tmp.glob("out*")))


for check in check_output, check_bits, check_refusals, check_loss_of_a_rank, check_interrupt:
    with tempfile.TemporaryDirectory(prefix="raia-train-") as folder:
        with case(check.__name__):
            check(pathlib.Path(folder))
done()
