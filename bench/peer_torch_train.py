#!/usr/bin/env python3
"""The peer of `raia train` on CPUs: the same decoder, trained by PyTorch.

Runs forward, backward and AdamW of a Llama-shaped model with random weights on
random tokens and prints one JSON object: the median tokens/s with its split.
It needs torch alone, from 1.13 (Debian 12) to the newest.  With --hf the model
is transformers' own LlamaForCausalLM instead of the one written here.

What the fair bar is.  A peer is timed as its best user would run it, by these
settings of the environment, which bench/train_cpu.py gives it:

  OPENBLAS_CORETYPE       unset: a preset (say Haswell) halves OpenBLAS
  MALLOC_MMAP_MAX_=0      glibc keeps large blocks; without it, each step maps
  MALLOC_TRIM_THRESHOLD_  and faults in its temporaries anew; a large threshold
                          keeps the heap from being given back in between
  OMP_NUM_THREADS and     the threads given; Debian's torch wants OpenBLAS's
  OPENBLAS_NUM_THREADS    OpenMP build (libopenblas0-openmp, before the others
                          in LD_LIBRARY_PATH), or libgomp's threads fight it

Within torch the fastest of its own ways is taken: the fused AdamW and
scaled_dot_product_attention where the version has them.  --compile adds
torch.compile (it needs a C++ compiler).  In bf16 weights, gradients and the
optimizer's state are all bf16, as in raia's --dtype bf16; --autocast keeps
them in f32 and computes in bf16, which is the peer of --dtype mixed.
"""

import argparse
import inspect
import json
import os
import resource
import statistics
import sys
import time

PRESETS = {
    "135m": {
        "hidden": 576, "ffn": 1536, "layers": 30, "heads": 9, "kv_heads": 3,
        "vocab": 49152, "theta": 100000.0, "eps": 1e-5, "batch": 2, "seq": 256,
    },
    "small": {
        "hidden": 256, "ffn": 768, "layers": 6, "heads": 8, "kv_heads": 4,
        "vocab": 8192, "theta": 10000.0, "eps": 1e-5, "batch": 4, "seq": 128,
    },
}


def build_plain(torch, shape):
    """The decoder in torch alone, step for step what transformers computes."""
    nn, functional = torch.nn, torch.nn.functional
    head_dim = shape["hidden"] // shape["heads"]
    has_sdpa = hasattr(functional, "scaled_dot_product_attention")
    gqa = has_sdpa and "enable_gqa" in (functional.scaled_dot_product_attention.__doc__ or "")

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(shape["hidden"]))

        def forward(self, x):
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + shape["eps"])
            return self.weight * y.to(x.dtype)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def attend(q, k, v):
        group = shape["heads"] // shape["kv_heads"]
        if gqa:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if has_sdpa:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        length = q.shape[2]
        mask = torch.full((length, length), float("-inf"), dtype=q.dtype).triu(1)
        scores = q @ k.transpose(2, 3) * head_dim**-0.5 + mask
        return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v

    def linear(fan_in, fan_out):
        return nn.Linear(fan_in, fan_out, bias=False)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            h, ffn, kv = shape["hidden"], shape["ffn"], shape["kv_heads"] * head_dim
            self.norm1, self.norm2 = Norm(), Norm()
            self.q, self.k, self.v, self.o = linear(h, h), linear(h, kv), linear(h, kv), linear(h, h)
            self.gate, self.up, self.down = linear(h, ffn), linear(h, ffn), linear(ffn, h)

        def forward(self, x, cos, sin):
            batch, length, hidden = x.shape

            def heads(y):
                return y.view(batch, length, -1, head_dim).transpose(1, 2)

            n = self.norm1(x)
            q, k, v = heads(self.q(n)), heads(self.k(n)), heads(self.v(n))
            a = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
            x = x + self.o(a.transpose(1, 2).reshape(batch, length, hidden))
            n = self.norm2(x)
            return x + self.down(functional.silu(self.gate(n)) * self.up(n))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(shape["vocab"], shape["hidden"])
            self.layers = nn.ModuleList(Layer() for _ in range(shape["layers"]))
            self.norm = Norm()
            self.inv_freq = shape["theta"] ** (-torch.arange(0, head_dim, 2).float() / head_dim)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens):
            x = self.embed(tokens)
            angle = torch.outer(torch.arange(tokens.shape[1]).float(), self.inv_freq)
            angle = torch.cat((angle, angle), -1)
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            for layer in self.layers:
                x = layer(x, cos, sin)
            return functional.linear(self.norm(x), self.embed.weight)  # tied

    return Decoder()


def build_hf(torch, shape):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"], vocab_size=shape["vocab"],
        rms_norm_eps=shape["eps"], rope_theta=shape["theta"],
        tie_word_embeddings=True, attn_implementation="sdpa", use_cache=False,
    )
    model = LlamaForCausalLM(config)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, tokens):
            return self.inner(input_ids=tokens).logits

    return Logits()


def build_optimizer(torch, params, lr):
    """The fastest AdamW that this torch has on CPUs: in 1.13 the plain one."""
    known = inspect.signature(torch.optim.AdamW.__init__).parameters
    if "fused" in known:
        try:
            return torch.optim.AdamW(params, lr=lr, fused=True), "fused"
        except RuntimeError:
            pass  # an early torch has it for CUDA alone
    return torch.optim.AdamW(params, lr=lr), "plain"


def train(torch, args, shape):
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = (build_hf if args.hf else build_plain)(torch, shape)
    whole_bf16 = args.dtype == "bf16" and not args.autocast
    if whole_bf16:
        model = model.to(torch.bfloat16)
    params = list(model.parameters())
    optimizer, kind = build_optimizer(torch, params, args.lr)
    run = torch.compile(model) if args.compile else model
    batch, seq = args.batch or shape["batch"], args.seq or shape["seq"]
    times, losses = [], []
    for step in range(args.warmup + args.steps):
        tokens = torch.randint(shape["vocab"], (batch, seq))
        t0 = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.autocast):
            logits = run(tokens)
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().reshape(-1, shape["vocab"]), tokens[:, 1:].reshape(-1)
        )
        losses.append(float(loss.detach()))
        t1 = time.perf_counter()
        del logits
        loss.backward()
        t2 = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not args.keep_grads)
        t3 = time.perf_counter()
        if step >= args.warmup:
            times.append((t1 - t0, t2 - t1, t3 - t2, t3 - t0))
    forward, backward, opt, whole = (statistics.median(c) * 1e3 for c in zip(*times))
    return {
        "peer": "torch", "version": torch.__version__, "preset": args.preset,
        "model": "transformers" if args.hf else "plain",
        "dtype": args.dtype, "autocast": args.autocast, "compile": args.compile, "adamw": kind,
        "threads": args.threads, "batch": batch, "seq": seq, "steps": args.steps,
        "params": sum(p.numel() for p in params),
        "tokens_per_s": round(batch * seq / whole * 1e3, 2),
        "tokens_per_s_best": round(batch * seq / min(t[3] for t in times), 2),
        "step_ms": round(whole, 2), "fwd_ms": round(forward, 2),
        "bwd_ms": round(backward, 2), "opt_ms": round(opt, 2),
        "loss_first": losses[0], "loss_last": losses[-1],
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "env": {k: v for k, v in os.environ.items() if k.startswith(("OMP_", "OPENBLAS_", "MALLOC_", "KMP_"))},
    }


def gemm(torch, args):
    """The machine's matmul rate in the dtype: the median of the shapes that a training step is made of."""
    torch.set_num_threads(args.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    rates = []
    for m, n, k in ((1024, 1536, 576), (1024, 576, 1536), (2048, 8960, 1536)):
        a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
        times = []
        for _ in range(12):
            t0 = time.perf_counter()
            a @ b.t()
            times.append(time.perf_counter() - t0)
        rates.append(2e-9 * m * n * k / statistics.median(times[2:]))
    return {"peer": "torch", "version": torch.__version__, "dtype": args.dtype, "threads": args.threads,
            "gemm_gflops": round(statistics.median(rates), 1)}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="135m")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--autocast", action="store_true", help="f32 weights, bf16 compute")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=8, help="steps timed")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--batch", type=int, help="instead of the preset's")
    parser.add_argument("--seq", type=int, help="instead of the preset's")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hf", action="store_true", help="transformers' model")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--keep-grads", action="store_true", help="zero the gradients in place")
    parser.add_argument("--gemm", action="store_true", help="measure the matmul rate instead")
    args = parser.parse_args()
    if args.autocast:
        args.dtype = "bf16"
    return args


def main():
    args = parse_args()
    try:
        import torch
    except ImportError as e:
        print(f"peer_torch_train: {sys.executable} has no torch: {e}", file=sys.stderr)
        return 69
    result = gemm(torch, args) if args.gemm else train(torch, args, PRESETS[args.preset])
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
