#!/usr/bin/env python3
"""CPU training: raia and PyTorch in turn in one run, tokens/s and their ratio.

  bench/train_cpu.py                              both shapes, f32 and bf16, all peers found
  bench/train_cpu.py --preset small --dtype f32 --rounds 5
  bench/train_cpu.py --peers-only                 without raia
  bench/train_cpu.py --check                      exit 1 when a ratio is under its bar

The peers are Debian's torch (/usr/bin/python3 with python3-torch; install
libopenblas0-openmp too, without it that peer is held back and no fair bar) and
whatever the Python in the environment's PEER_PYTHON imports, for instance

  python3 -m venv /tmp/v && /tmp/v/bin/pip install torch && export PEER_PYTHON=/tmp/v/bin/python

raia is build/raia, or the environment's RAIA.  It runs as shipped; each peer
gets the settings that are fair to it (peer_torch_train.py --help).  In each
round each of them runs once on the same shape with as many threads as there
are cores; the figures are medians over the rounds, a ratio is the median of
the rounds' own ratios.  Only Python's own library is needed to run this.
"""

import argparse
import glob
import json
import math
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

from peer_torch_train import PRESETS

HERE = Path(__file__).resolve().parent
PEER_TRIM = str(1 << 34)
NO_TORCH = 69
BARS = {("newest", "f32"): 1.2, ("debian", "f32"): 1.5, ("newest", "bf16"): 1.2}
GEMM_BARS = {"f32": 0.75, "bf16": 0.60}


class Broken(Exception):
    pass


def say(text):
    print(f"train_cpu: {text}", file=sys.stderr, flush=True)


# ---- the peers -------------------------------------------------------------------------------


def find_peers(args):
    """label -> (python, environment)."""
    peers = {}
    newest = os.environ.get("PEER_PYTHON")
    if newest:
        peers["newest"] = (newest, peer_env(args, []))
    else:
        say("PEER_PYTHON is not set: no newest torch to compare with")
    if os.path.exists("/usr/bin/python3"):
        openmp = glob.glob("/usr/lib/*/openblas-openmp")
        if not openmp:
            say("libopenblas0-openmp is not installed: Debian's torch is held back, its bar is not the fair one")
        peers["debian"] = ("/usr/bin/python3", peer_env(args, openmp))
    return peers


def peer_env(args, libraries):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "OMP_", "MALLOC_", "GLIBC_TUN"))}
    env |= {"OMP_NUM_THREADS": str(args.threads), "OPENBLAS_NUM_THREADS": str(args.threads),
            "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": PEER_TRIM}
    if libraries:
        env["LD_LIBRARY_PATH"] = ":".join([*libraries, *filter(None, [env.get("LD_LIBRARY_PATH")])])
    return env


def run_peer(peer, args, *options):
    python, env = peer
    command = [python, str(HERE / "peer_torch_train.py"), "--threads", str(args.threads), *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == NO_TORCH:
        return None
    if done.returncode != 0:
        raise Broken(f"{python} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- raia ------------------------------------------------------------------------------------


def tensors_of(shape):
    """name -> shape, in the order of the file."""
    h, ffn, kv = shape["hidden"], shape["ffn"], shape["kv_heads"] * shape["hidden"] // shape["heads"]
    out = {"model.embed_tokens.weight": (shape["vocab"], h), "model.norm.weight": (h,)}
    for n in range(shape["layers"]):
        layer = {"input_layernorm": (h,), "post_attention_layernorm": (h,), "self_attn.q_proj": (h, h),
                 "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, h),
                 "mlp.gate_proj": (ffn, h), "mlp.up_proj": (ffn, h), "mlp.down_proj": (h, ffn)}
        out |= {f"model.layers.{n}.{name}.weight": size for name, size in layer.items()}
    return out


def write_model(folder, shape):
    """A Hugging Face folder with random f32 weights (a block of normal numbers over and over)."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": shape["hidden"], "intermediate_size": shape["ffn"], "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"],
        "vocab_size": shape["vocab"], "rms_norm_eps": shape["eps"], "rope_theta": shape["theta"],
        "hidden_act": "silu", "tie_word_embeddings": True, "max_position_embeddings": 2048,
        "attention_bias": False, "mlp_bias": False, "initializer_range": 0.02,
    }, indent=2) + "\n")
    rng = random.Random(0)
    block = array("f", (rng.gauss(0, 0.02) for _ in range(1 << 16)))
    header, at, tensors = {"__metadata__": {"format": "pt"}}, 0, tensors_of(shape)
    for name, size in tensors.items():
        end = at + 4 * math.prod(size)
        header[name] = {"dtype": "F32", "shape": size, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for size in tensors.values():
            count = math.prod(size)
            values = array("f", [1.0]) * count if len(size) == 1 else (block * (count // len(block) + 1))[:count]
            values.tofile(file)


def make_model(program, preset, folder):
    if preset != "135m":
        return write_model(folder, PRESETS[preset])
    done = subprocess.run([program, "model", "init", "--preset", "smollm2-135m", folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise Broken(f"raia model init failed with {done.returncode}:\n{done.stderr[-2000:]}")


def run_raia(program, args, model, preset, dtype):
    """The median of the tokens/s that the steps after the warm-up report."""
    shape = PRESETS[preset]
    steps, warmup = steps_of(args, preset)
    command = [program, "train", "--model", model, "--data", "random", "--steps", steps + warmup,
               "--global-batch-size", shape["batch"], "--seq-len", shape["seq"], "--lr", "1e-4",
               "--dtype", dtype, "--workers", args.workers, "--json", *args.extra]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Broken(f"raia train failed with {done.returncode}:\n{done.stderr[-2000:]}")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    rates = [e["tokens_per_s"] for e in events if e["event"] == "step"][warmup:]
    if len(rates) != steps:
        raise Broken(f"raia train reported {len(rates)} steps after the warm-up, want {steps}")
    return statistics.median(rates)


def steps_of(args, preset):
    return (args.steps or 6, 2) if preset == "135m" else (args.steps or 30, 5)


# ---- one comparison and the table ------------------------------------------------------------


def compare(args, peers, program, preset, dtype, scratch):
    """label -> tokens/s of each round."""
    rates = {label: [] for label in (["raia"] if program else []) + list(peers)}
    steps, warmup = steps_of(args, preset)
    model = scratch / preset
    if program and not model.exists():
        make_model(program, preset, model)
    for number in range(args.rounds):
        for label, found in rates.items():
            if label == "raia":
                rate = run_raia(program, args, model, preset, dtype)
            else:
                result = run_peer(peers[label], args, "--preset", preset, "--dtype", dtype,
                                  "--steps", str(steps), "--warmup", str(warmup), *args.peer_option)
                rate = result["tokens_per_s"]
            found.append(rate)
            say(f"{preset} {dtype} round {number + 1}/{args.rounds}: {label} {rate:.1f} tokens/s")
    return rates


def flops_per_token(shape):
    """6 for each weight that is multiplied (the tied head once), and causal attention's two products."""
    weights = sum(math.prod(size) for size in tensors_of(shape).values())
    return 6 * weights + 6 * shape["layers"] * shape["hidden"] * shape["seq"]


def report(rates, preset, dtype, versions, gemm):
    """Prints one block of the table; returns its rows."""
    rows = []
    for label, found in rates.items():
        middle = statistics.median(found)
        row = {"preset": preset, "dtype": dtype, "who": label, "version": versions.get(label, ""),
               "tokens_per_s": middle, "min": min(found), "max": max(found),
               "gflops": middle * flops_per_token(PRESETS[preset]) * 1e-9}
        if gemm.get(dtype):
            row["of_gemm"] = row["gflops"] / gemm[dtype]
            if label == "raia":
                row["gemm_bar"] = GEMM_BARS[dtype]
        if label != "raia" and "raia" in rates:
            row["raia_over_it"] = statistics.median(a / b for a, b in zip(rates["raia"], found))
            row["bar"] = BARS.get((label, dtype))
        rows.append(row)
        bar = f" (bar {row['bar']})" if row.get("bar") else ""
        share = f"{row['of_gemm']:6.0%}" if "of_gemm" in row else "     –"
        ratio = f"{row['raia_over_it']:5.2f}{bar}" if "raia_over_it" in row else ""
        print(f"{preset:6} {dtype:5} {label + ' ' + row['version']:24} {middle:9.1f} {row['min']:9.1f} "
              f"{row['max']:9.1f} {row['gflops']:8.0f} {share}  {ratio}", flush=True)
    return rows


def below_bar(row):
    return (row.get("bar") and row["raia_over_it"] < row["bar"]) or (
        row.get("gemm_bar") and row["preset"] == "135m" and row["of_gemm"] < row["gemm_bar"])


# ---- the command -----------------------------------------------------------------------------


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", action="append", choices=sorted(PRESETS))
    parser.add_argument("--dtype", action="append", choices=("f32", "bf16"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps timed in a run (default: 6 for 135m, 30 for small)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="the peers' threads")
    parser.add_argument("--workers", type=int, default=1, help="raia's ranks; they share the cores and the batch")
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument("--peer-option", action="append", default=[], help="for instance --peer-option=--compile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows, once more")
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is under its bar")
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    args = parser.parse_args(argv)
    args.extra = extra  # what follows a bare -- goes to raia train
    return args


def with_torch(args, peers):
    """Leaves out peers that have no torch; also label -> version, dtype -> GFLOP/s of the best peer."""
    versions, gemm = {}, {}
    for label in list(peers):
        for dtype in args.dtype or ("f32", "bf16"):
            found = run_peer(peers[label], args, "--gemm", "--dtype", dtype)
            if found is None:
                say(f"{peers[label][0]} has no torch: left out")
                del peers[label]
                break
            versions[label] = found["version"]
            gemm[dtype] = max(gemm.get(dtype, 0), found["gemm_gflops"])
    return versions, gemm


def main():
    args = parse_args()
    program = None if args.peers_only else os.environ.get("RAIA", str(HERE.parent / "build" / "raia"))
    rows = []
    try:
        if program and not os.access(program, os.X_OK):
            raise Broken(f"no program {program}: build it, or set RAIA")
        peers = find_peers(args)
        versions, gemm = with_torch(args, peers)
        print("matmul of the best peer: " + ", ".join(f"{d} {rate:.0f} GFLOP/s" for d, rate in gemm.items()))
        print(f"{'shape':6} {'dtype':5} {'who':24} {'tokens/s':>9} {'least':>9} {'most':>9} {'GFLOP/s':>8} "
              f"{'of it':>6}  raia over it", flush=True)
        with tempfile.TemporaryDirectory(prefix="raia-bench-") as scratch:
            for preset in args.preset or ("135m", "small"):
                for dtype in args.dtype or ("f32", "bf16"):
                    rates = compare(args, peers, program, preset, dtype, Path(scratch))
                    rows += report(rates, preset, dtype, versions, gemm)
    except (Broken, OSError) as e:
        say(e)
        return 1
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if args.check and any(below_bar(row) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
