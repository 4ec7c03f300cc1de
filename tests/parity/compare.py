#!/usr/bin/env python3
"""Does `raia train` compute what transformers and torch.optim.AdamW compute?

Runs raia on the fixtures (tests/fixtures/README.md) over world sizes, FSDP
strategies and wrap policies, and compares each step's loss and gradient norm
and the final weights with theirs.  Prints TAP; exits 1 when a test fails.

  tests/parity/compare.py build/raia            the quick selection, under a minute
  tests/parity/compare.py build/raia --all      the whole matrix
  tests/parity/compare.py build/raia --match qwen3 --match W=8      tests whose names hold all of these
  tests/parity/compare.py build/raia --all --list

The program may be given by the environment's RAIA instead.  What follows a
bare -- is added to each command: a cluster's address, say.
Python's own library is all that it needs.
"""

import argparse
import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from safetensors_reader import BadFile, distance, norm, read_folder

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
WORLDS = (1, 2, 3, 4, 8)
STRATEGIES = ("full", "grad", "none")
POLICIES = ("block", "size:2000", "size:12000", "size:100000000")
LOW = (("bf16", "nearest"), ("bf16", "stochastic"), ("mixed", None))

# f32: what the project promises, and for the updates what it implies.  torch summing in another order differs
# from itself by less than 1e-5 in each case (expected.json's "noise"), so this is not luck.
F32_LIMITS = {"loss": 1e-4, "grad_norm": 1e-4, "norms": 1e-4, "delta_norms": 1e-3}

# bf16 and mixed: raia's error against torch's f32 run may not exceed the error of torch's own run of that kind.
# One number's error is one draw of rounding noise and may be nearly zero by luck, so errors are root mean squares
# over a run's steps (losses, gradient norms) or tensors (final norms), and the bound is the larger of torch's two
# draws (its two attentions).  Six steps of one run are still few: those two draws, alike in quality, differ from
# each other by up to a factor of 2 in the losses.  Hence a slack for a single run; over all runs of a kind luck
# evens out, and the mean ratio (geometric) has none.  Both can be met: an AdamW with f32 arithmetic over bf16 state,
# tried in torch on all cases, has mean ratios of 0.35 to 0.85, stochastic rounding the smaller ones; its worst
# single ratio is 1.86 (a gradient norm under stochastic rounding).
ONE_RUN_SLACK = 2.0
ALL_RUNS_LIMIT = 1.0
POOL_NEEDS = 6  # runs, for the mean to mean something
LOW_METRICS = ("loss", "grad_norm", "norms")
FLOOR = 2.0**-17  # an error under a hundredth of bf16's step counts as that: quotients of nothings say nothing

RUN_LIMIT_S = 300


@dataclass(frozen=True)
class Test:
    case: str
    dtype: str
    rounding: str | None
    world: int
    fsdp: str
    wrap: str
    kind: str = "parity"  # or "refused" (more ranks than samples), or "bits" (twice the same)

    @property
    def name(self):
        rounding = f" {self.rounding}" if self.rounding else ""
        kind = {"parity": "", "refused": ": refused, too few samples", "bits": ": twice the same bits"}[self.kind]
        return f"{self.case} {self.dtype}{rounding} W={self.world} {self.fsdp} {self.wrap}{kind}"


class Failure(Exception):
    """A test's verdict, one reason a line."""


# ---- which tests -----------------------------------------------------------------------------


def load_cases():
    return {p.parent.name: json.loads(p.read_text()) for p in sorted(FIXTURES.glob("*/expected.json"))}


def all_tests(cases):
    tests = []
    for n, (name, case) in enumerate(cases.items()):
        worlds = [w for w in WORLDS if w <= case["train"]["global_batch_size"]]
        for world in worlds:
            for fsdp in STRATEGIES:
                tests += [Test(name, "f32", None, world, fsdp, wrap) for wrap in POLICIES]
            for k, (dtype, rounding) in enumerate(LOW):
                pick = n + world + k
                tests.append(Test(name, dtype, rounding, world, STRATEGIES[pick % 3], POLICIES[pick % 4]))
        tests += [Test(name, "f32", None, w, "full", "block", "refused") for w in WORLDS if w not in worlds]
        for dtype, rounding in (("f32", None), *LOW):
            tests.append(Test(name, dtype, rounding, worlds[-1], "full", "size:2000", "bits"))
    return tests


def quick_tests(cases):
    """Each case, world size, strategy, policy and precision, no longer in all combinations."""
    tests = []
    for n, (name, case) in enumerate(cases.items()):
        worlds = [w for w in WORLDS if w <= case["train"]["global_batch_size"]]
        for k in range(3):
            world = worlds[(n + 2 * k) % len(worlds)]
            tests.append(Test(name, "f32", None, world, STRATEGIES[(n + k) % 3], POLICIES[(n + k) % 4]))
        for k, (dtype, rounding) in enumerate(LOW):
            pick = n + k + 1
            tests.append(Test(name, dtype, rounding, worlds[pick % len(worlds)], STRATEGIES[n % 3], POLICIES[pick % 4]))
        tests += [Test(name, "f32", None, w, "full", "block", "refused") for w in WORLDS if w not in worlds]
    first = next(iter(cases))
    tests.append(Test(first, "f32", None, 4, "full", "size:2000", "bits"))
    tests.append(Test(first, "bf16", "stochastic", 3, "grad", "block", "bits"))
    return tests


# ---- running raia ----------------------------------------------------------------------------


def command_of(program, test, train, out, extra):
    folder = FIXTURES / test.case
    command = [
        program, "train", "--model", folder / "model", "--data", folder / "tokens.bin",
        "--steps", train["steps"], "--global-batch-size", train["global_batch_size"], "--seq-len", train["seq_len"],
        "--lr", train["lr"], "--weight-decay", train["weight_decay"],
        "--betas", ",".join(str(b) for b in train["betas"]), "--eps", train["eps"],
        "--dtype", test.dtype, "--workers", test.world, "--fsdp", test.fsdp, "--output", out, "--json",
    ]
    if train["grad_clip"]:
        command += ["--grad-clip", train["grad_clip"]]
    if test.rounding:
        command += ["--rounding", test.rounding, "--seed", 1]
    policy, _, least = test.wrap.partition(":")
    command += ["--wrap", policy] + (["--min-unit-params", least] if least else [])
    return [str(part) for part in command + extra]


def run(command):
    """The finished process; what raia says to people is kept for the report of a failure."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Failure(f"not done after {RUN_LIMIT_S} s: {shlex.join(command)}") from None
    except OSError as e:
        raise Failure(f"can't start {command[0]}: {e}") from None


def no_constant(text):
    raise ValueError(f"{text} is no JSON")


def parse_events(text):
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            event = json.loads(line, parse_constant=no_constant)
        except ValueError as e:
            raise Failure(f"stdout line {number} is no JSON object ({e}): {line[:200]}") from None
        if not isinstance(event, dict) or "event" not in event:
            raise Failure(f"stdout line {number} is no event: {line[:200]}")
        events.append(event)
    return events


def check_events(events, test, train):
    """The step events in order, and an end that says what happened."""
    if not events or events[-1]["event"] != "end":
        raise Failure(f"stdout does not end with an end event: {events[-1:]}")
    end = events[-1]
    want = {"status": "succeeded", "steps": train["steps"], "world_size": test.world}
    wrong = {k: end.get(k) for k in want if end.get(k) != want[k]}
    if wrong:
        raise Failure(f"the end event says {wrong}, want {want}")
    steps = [e for e in events if e["event"] == "step"]
    if [e.get("step") for e in steps] != list(range(train["steps"])):
        raise Failure(f"steps reported: {[e.get('step') for e in steps]}, want 0 to {train['steps'] - 1}")
    for event in steps:
        for key in ("loss", "grad_norm", "lr", "tokens_per_s"):
            if not isinstance(event.get(key), (int, float)):
                raise Failure(f"step {event['step']} has no number {key}: {event}")
    return steps


# ---- comparing -------------------------------------------------------------------------------


def relative(got, want):
    return abs(got - want) / max(abs(want), 1e-30)


def read_weights(case, expected, out, with_delta):
    """name -> norm (and norm of final minus initial) of what raia wrote, names and shapes checked."""
    try:
        final = read_folder(out)
        first = read_folder(FIXTURES / case / "model")
    except (OSError, BadFile, ValueError, KeyError) as e:
        raise Failure(f"the output folder can't be read: {e}") from None
    if set(final) != set(expected["norms"]):
        raise Failure(f"tensors missing {sorted(set(expected['norms']) - set(final))}, "
                      f"too many {sorted(set(final) - set(expected['norms']))}")
    norms, deltas = {}, {}
    for name, tensor in final.items():
        if tensor.shape != first[name].shape:
            raise Failure(f"{name} has shape {tensor.shape}, want {first[name].shape}")
        values = tensor.values()
        norms[name] = norm(values)
        if with_delta:
            deltas[name] = distance(values, first[name].values())
    if not (out / "config.json").exists():
        raise Failure("the output folder has no config.json")
    return norms, deltas


def compare_f32(got, want):
    """The worst relative difference of each kind, or a Failure that lists what is too far."""
    reasons, worst = [], {}
    for kind, limit in F32_LIMITS.items():
        keys = want[kind] if isinstance(want[kind], dict) else range(len(want[kind]))
        worst[kind] = 0.0
        for key in keys:
            off = relative(got[kind][key], want[kind][key])
            worst[kind] = max(worst[kind], off)
            if not off <= limit:  # nan is off too
                where = key if isinstance(key, str) else f"step {key}"
                reasons.append(f"{kind} {where}: {got[kind][key]:.9g}, want {want[kind][key]:.9g}, "
                               f"off by {off:.2e}, limit {limit:.0e}")
    if reasons:
        raise Failure("\n".join(reasons[:20] + (["…"] if len(reasons) > 20 else [])))
    return worst


def spread(run_, f32, kind):
    """Root mean square of the relative errors against torch's f32 run."""
    keys = list(f32[kind]) if isinstance(f32[kind], dict) else range(len(f32[kind]))
    total = math.fsum(relative(run_[kind][key], f32[kind][key]) ** 2 for key in keys)
    return max(math.sqrt(total / len(keys)), FLOOR)


def ratios_of(got, runs, dtype):
    """raia's error over torch's own, of each kind."""
    theirs = {kind: max(spread(runs[name], runs["f32"], kind) for name in (dtype, f"{dtype}_sdpa"))
              for kind in LOW_METRICS}
    return {kind: spread(got, runs["f32"], kind) / theirs[kind] for kind in LOW_METRICS}


def train_once(args, test, case, out):
    """Runs raia and returns its numbers in expected.json's form."""
    train = case["train"]
    command = command_of(args.program, test, train, out, args.extra)
    done = run(command)
    tail = "\n".join(done.stderr.splitlines()[-10:])
    try:
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode}")
        steps = check_events(parse_events(done.stdout), test, train)
        off = [s["step"] for s in steps if relative(s["lr"], train["lr"]) > 1e-6]
        if off:
            raise Failure(f"lr differs from {train['lr']} at steps {off}")
        norms, deltas = read_weights(test.case, case["runs"]["f32"], out, test.dtype == "f32")
    except Failure as e:
        raise Failure(f"{e}\n{shlex.join(command)}\n{tail}".strip()) from None
    return {"loss": [s["loss"] for s in steps], "grad_norm": [s["grad_norm"] for s in steps],
            "norms": norms, "delta_norms": deltas}


# ---- the three kinds of test -----------------------------------------------------------------


def test_parity(args, test, case, scratch, pool):
    got = train_once(args, test, case, scratch / "out")
    if test.dtype == "f32":
        worst = compare_f32(got, case["runs"]["f32"])
        return " ".join(f"{kind} {off:.0e}" for kind, off in worst.items())
    ratios = ratios_of(got, case["runs"], test.dtype)
    for kind, ratio in ratios.items():
        pool[test.dtype, test.rounding, kind].append(ratio)
    note = "of torch's error: " + " ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())
    if not all(ratio <= ONE_RUN_SLACK for ratio in ratios.values()):  # nan is too far too
        raise Failure(f"{note}, limit {ONE_RUN_SLACK}")
    return note


def test_refused(args, test, case, scratch, pool):
    command = command_of(args.program, test, case["train"], scratch / "out", args.extra)
    done = run(command)
    if done.returncode == 0:
        raise Failure(f"{test.world} ranks trained on {case['train']['global_batch_size']} samples a step: "
                      f"{shlex.join(command)}")
    if done.returncode < 0 or "batch" not in done.stderr:
        raise Failure(f"exit code {done.returncode}, and no word of the batch on stderr: {done.stderr[-500:]}")
    return f"exit code {done.returncode}"


def test_bits(args, test, case, scratch, pool):
    seen = []
    for name in ("one", "two"):
        got = train_once(args, test, case, scratch / name)
        files = sorted((scratch / name).glob("*.safetensors"))
        weights = [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]
        seen.append((got["loss"], got["grad_norm"], weights))
    for what, one, two in zip(("losses", "gradient norms", "weights"), *seen):
        if one != two:
            raise Failure(f"{what} differ between two runs: {one} and {two}")
    return ""


def judge_pool(pool):
    """(name, failure or None) for each precision and kind: no worse than torch on the whole."""
    for (dtype, rounding, kind), ratios in sorted(pool.items(), key=str):
        name = f"{dtype}{' ' + rounding if rounding else ''}, all runs: {kind} no further from f32 than torch's"
        if not ratios:
            yield name, "no run got as far as its numbers"
            continue
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        note = f"{mean:.2f} times over {len(ratios)} runs"
        if len(ratios) < POOL_NEEDS:
            yield f"{name} # SKIP {note}: needs {POOL_NEEDS}", None
        else:
            yield f"{name} # {note}", None if mean <= ALL_RUNS_LIMIT else f"limit {ALL_RUNS_LIMIT}"


# ---- the command -----------------------------------------------------------------------------


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=os.environ.get("RAIA"), help="default: the environment's RAIA")
    parser.add_argument("--quick", action="store_true", help="what happens without --all too")
    parser.add_argument("--all", action="store_true", help="the whole matrix")
    parser.add_argument("--match", action="append", default=[], metavar="TEXT")
    parser.add_argument("--list", action="store_true", help="print the tests' names and stop")
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    args = parser.parse_args(argv)
    args.extra = extra
    if not args.program and not args.list:
        parser.error("which raia? give its path, or set RAIA")
    return args


def main():
    args = parse_args()
    cases = load_cases()
    tests = (all_tests if args.all else quick_tests)(cases)
    tests = [t for t in tests if all(text in t.name for text in args.match)]
    if args.list:
        print("\n".join(t.name for t in tests))
        return 0
    if not tests:
        print("compare: no test has such a name", file=sys.stderr)
        return 2
    kinds = {"parity": test_parity, "refused": test_refused, "bits": test_bits}
    failed = 0
    low = {(t.dtype, t.rounding) for t in tests if t.kind == "parity" and t.dtype != "f32"}
    pool = {(*precision, kind): [] for precision in low for kind in LOW_METRICS}  # each run's error over torch's
    print(f"1..{len(tests) + len(pool)}", flush=True)
    started = time.monotonic()
    for number, test in enumerate(tests, 1):
        with tempfile.TemporaryDirectory(prefix="raia-parity-") as scratch:
            try:
                note = kinds[test.kind](args, test, cases[test.case], Path(scratch), pool)
                print(f"ok {number} - {test.name}" + (f" # {note}" if note else ""), flush=True)
            except Failure as e:
                failed += 1
                print(f"not ok {number} - {test.name}", flush=True)
                print("\n".join(f"# {line}" for line in str(e).splitlines()), flush=True)
    failed += report_pool(pool, len(tests))
    print(f"# {time.monotonic() - started:.0f} s, {failed} failed", flush=True)
    return 1 if failed else 0


def report_pool(pool, number):
    failed = 0
    for number, (name, failure) in enumerate(judge_pool(pool), number + 1):
        failed += failure is not None
        print(f"{'not ok' if failure else 'ok'} {number} - {name}" + (f"\n# {failure}" if failure else ""))
    return failed


if __name__ == "__main__":
    sys.exit(main())
