#!/usr/bin/env python3
"""Stands in for `raia train` where the checker itself is tested.

Says what expected.json says, with small errors, and writes weights that have
the expected norms.  FAKE_FAULT names one thing to get wrong.
"""

import argparse
import json
import math
import os
import random
import shutil
import struct
import sys
from array import array
from pathlib import Path

from safetensors_reader import distance, norm, read_folder

FAULT = os.environ.get("FAKE_FAULT", "")


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("verb", choices=["train"])
    for name, kind in {"model": Path, "data": Path, "output": Path, "steps": int, "global-batch-size": int,
                       "seq-len": int, "lr": float, "weight-decay": float, "betas": str, "eps": float,
                       "workers": int, "dtype": str, "fsdp": str, "wrap": str}.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("--grad-clip", type=float)
    parser.add_argument("--min-unit-params", type=int)
    parser.add_argument("--rounding", choices=["nearest", "stochastic"])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", action="store_true", required=True)
    return parser.parse_args()


def same_training(args, train):
    given = {"steps": args.steps, "global_batch_size": args.global_batch_size, "seq_len": args.seq_len,
             "lr": args.lr, "weight_decay": args.weight_decay, "eps": args.eps, "grad_clip": args.grad_clip,
             "betas": [float(b) for b in args.betas.split(",")]}
    return given == train


def with_norms(first, size, moved):
    """A vector of the given norm at the given distance from first: part of it along first, part across."""
    pairs = range(0, len(first) - 1, 2)
    across = array("f", (v for i in pairs for v in (-first[i + 1], first[i])))
    across.extend([0.0] * (len(first) % 2))
    length, side = norm(first), norm(across)
    a = ((size**2 - moved**2) / length**2 + 1) / 2
    b = math.sqrt(max(size**2 - (a * length) ** 2, 0)) / side
    # "across" is at a right angle to first: its pairs are turned by a quarter
    return array("f", (a * x + b * y for x, y in zip(first, across)))


def write_weights(args, run, f32):
    args.output.mkdir(parents=True, exist_ok=True)
    shutil.copy(args.model / "config.json", args.output)
    if args.dtype != "f32":
        run = f32 | {"norms": {n: f32["norms"][n] + 0.5 * (run["norms"][n] - f32["norms"][n]) for n in run["norms"]}}
    header, blob = {"__metadata__": {"format": "pt"}}, b""
    for number, (name, tensor) in enumerate(read_folder(args.model).items()):
        size = run["norms"][name] * (1 + 3e-4 * (FAULT == "norm" and number == 3))
        moved = run["delta_norms"][name] * (1 + 3e-3 * (FAULT == "delta" and number == 3))
        data = with_norms(tensor.values(), size, moved)
        assert abs(norm(data) / size - 1) < 1e-5 and distance(data, tensor.values()) > 0
        key = "model.renamed" if FAULT == "name" and number == 3 else name
        begin, blob = len(blob) + 4 * (FAULT == "hole" and number == 3), blob + data.tobytes()
        header[key] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, len(blob)]}
    text = json.dumps(header).encode()
    if FAULT == "bits":
        blob = blob[:-4] + array("f", [array("f", blob[-4:])[0] * (1 + random.random() * 1e-5)]).tobytes()
    (args.output / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)


def say(**event):
    print(json.dumps(event), flush=True)


def main():
    args = parse_args()
    expected = json.loads((args.model.parent / "expected.json").read_text())
    if args.global_batch_size < args.workers and FAULT != "accepts":
        print(f"raia: a global batch of {args.global_batch_size} is smaller than {args.workers} ranks", file=sys.stderr)
        return 2
    assert same_training(args, expected["train"]), (args, expected["train"])
    assert (args.rounding is not None) == (args.dtype == "bf16")
    f32, run = expected["runs"]["f32"], expected["runs"][args.dtype]
    far = 5.0 if FAULT == "far" else 0.5  # of torch's own distance from f32
    for step in range(args.steps - (FAULT == "short")):
        values = {k: f32[k][step] + far * (run[k][step] - f32[k][step]) for k in ("loss", "grad_norm")}
        if FAULT in values and step == 2:
            values[FAULT] *= 1 + 3e-4
        if FAULT == "nan":
            values["loss"] = math.nan
        say(event="step", step=step, lr=args.lr * (1 + (FAULT == "lr")), tokens_per_s=1e3, **values)
    if FAULT == "garbage":
        print("saving the model")
    if FAULT == "exit":
        return 1
    write_weights(args, run, f32)
    status = "failed" if FAULT == "status" else "succeeded"
    say(event="end", status=status, steps=args.steps, world_size=args.workers, fabric={})
    return 0


if __name__ == "__main__":
    sys.exit(main())
