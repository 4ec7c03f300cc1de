"""raia model init and raia model info, as people and scripts use them."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import case, done, ok, skip  # noqa: E402

RAIA = os.environ.get("RAIA", "raia")


def run(*args, env=None):
    return subprocess.run([RAIA, "model", *map(str, args)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(env or {})})


def header(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), len(data) - 8 - size


def check_init(tmp):
    out = tmp / "tiny"
    made = run("init", "--preset", "tiny", out)
    ok("init of a preset succeeds and says what it made", made.returncode == 0 and "218176 parameters" in made.stdout,
       made.stdout + made.stderr)
    ok("the folder holds config and weights and nothing else",
       sorted(p.name for p in out.iterdir()) == ["config.json", "model.safetensors"])
    entries, size = header(out / "model.safetensors")
    ok("weights are as many bytes as parameters make", size == 218176 * 4 and entries["__metadata__"] == {"format": "pt"})
    first = (out / "model.safetensors").read_bytes()
    again = run("init", "--preset", "tiny", "--workers", "3", tmp / "again")
    ok("the same seed makes the same file with other workers",
       again.returncode == 0 and (tmp / "again" / "model.safetensors").read_bytes() == first)
    ok("a folder that is not empty is refused", run("init", "--preset", "tiny", out).returncode == 2)
    ok("the model there is untouched", (out / "model.safetensors").read_bytes() == first)
    forced = run("init", "--preset", "tiny", "--dtype", "bf16", "--seed", "5", "--force", out)
    ok("--force replaces it", forced.returncode == 0 and header(out / "model.safetensors")[1] == 218176 * 2)
    ok("config.json says the new type", json.loads((out / "config.json").read_text())["torch_dtype"] == "bfloat16")
    copy = run("init", "--config", out / "config.json", tmp / "copy")
    ok("--config takes another model's shape", copy.returncode == 0 and header(tmp / "copy" / "model.safetensors")[1] == size // 2)


def check_refusals(tmp):
    (tmp / "bad.json").write_text('{"model_type": "mamba"}')
    for name, args, code, text in [
        ("no shape", ["init", tmp / "x"], 2, "--preset"),
        ("two shapes", ["init", "--preset", "tiny", "--config", "x", tmp / "x"], 2, "--preset"),
        ("no folder", ["init", "--preset", "tiny"], 2, "folder"),
        ("an unknown preset", ["init", "--preset", "gpt", tmp / "x"], 4, "smollm2-135m"),
        ("an unsupported family", ["init", "--config", tmp / "bad.json", tmp / "x"], 6, "mamba"),
        ("an unknown type", ["init", "--preset", "tiny", "--dtype", "f8", tmp / "x"], 2, "dtype"),
        ("info of nothing", ["info"], 2, "model"),
        ("info of an unknown name", ["info", "no-such"], 4, "no-such"),
    ]:
        got = run(*args, env={"HF_HOME": str(tmp)})
        ok(f"{name} is refused with its exit code and reason", got.returncode == code and text in got.stderr,
           f"{got.returncode} {got.stderr}")
    ok("nothing is left of refused inits", not [p for p in tmp.iterdir() if p.name.startswith("x")])


def check_interrupt(tmp):
    out = tmp / "large"
    p = subprocess.Popen([RAIA, "model", "init", "--preset", "qwen2.5-1.5b", str(out)], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    while not list(tmp.glob("large.tmp-*/*")) and time.monotonic() < end:
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    error = p.communicate(timeout=20)[1]
    ok("an interrupted init ends as stopped", p.returncode == 12 and "stopped" in error, f"{p.returncode} {error}")
    ok("an interrupted init leaves nothing behind", not list(tmp.glob("large*")))


def check_info(tmp):
    got = json.loads(run("info", "qwen2.5-1.5b", "--json").stdout)
    ok("info counts a preset's parameters", got["parameters"] == 1543714304 and got["tensors"] == 338)
    ok("info reckons bytes", got["bytes"]["bf16"] == 2 * 1543714304 and got["training_bytes"] == {
        "bf16": 8 * 1543714304, "f32": 16 * 1543714304, "mixed": 16 * 1543714304})
    size, block = got["units"]["size"], got["units"]["block"]
    for name, units in ("size", size), ("block", block):
        ok(f"units of the {name} policy hold every parameter once", sum(u["parameters"] for u in units) == 1543714304)
    ok("the size policy wraps the embedding, 84 projections and the rest at 10 M",
       sorted(u["parameters"] for u in size) == [13762560] * 84 + [154285568, 233373696])
    ok("the block policy makes a unit of each layer", sum(u["parameters"] == 46797824 for u in block) == 28)
    made = run("init", "--preset", "tiny", tmp / "m")
    got = json.loads(run("info", tmp / "m", "--json", "--wrap", "block").stdout)
    ok("info of a folder reads its files", made.returncode == 0 and got["file_bytes"] == {"F32": 218176 * 4})
    ok("--wrap shows one policy", list(got["units"]) == ["block"])
    text = run("info", tmp / "m")
    ok("info for people says shape, parameters and units", text.returncode == 0 and all(
        word in text.stdout for word in ("qwen2", "218,176", "--wrap size", "--wrap block")), text.stdout + text.stderr)
    with open(tmp / "m" / "model.safetensors", "ab") as f:
        f.write(b"x")
    bad = run("info", tmp / "m")
    ok("info of a damaged file fails and names it", bad.returncode == 5 and "model.safetensors" in bad.stderr, bad.stderr)


if subprocess.run(["test", "-x", RAIA]).returncode != 0:
    skip("raia model", f"no program at {RAIA}")
    done()
for check in check_init, check_refusals, check_interrupt, check_info:
    with tempfile.TemporaryDirectory(prefix="raia-model-") as folder:
        with case(check.__name__):
            check(pathlib.Path(folder))
done()
