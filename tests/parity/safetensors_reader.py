"""A small reader of safetensors folders in Python's own library: f32 and bf16 weights."""

import json
import math
import struct
from array import array
from operator import mul

MAX_HEADER = 100_000_000


class BadFile(Exception):
    pass


class Tensor:
    """One tensor's bytes; decoded when asked for."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, shape, data

    def values(self):
        """Its elements as an array of f32."""
        if self.dtype == "F32":
            return array("f", self.data)
        if self.dtype == "BF16":
            halves = array("H", self.data)
            return array("f", array("I", [h << 16 for h in halves]).tobytes())
        raise BadFile(f"dtype {self.dtype} is neither F32 nor BF16")


def read_file(path):
    """name -> Tensor; the rules that a writer can break are checked."""
    raw = path.read_bytes()
    if len(raw) < 8:
        raise BadFile(f"{path}: shorter than 8 bytes")
    (length,) = struct.unpack("<Q", raw[:8])
    if length > MAX_HEADER or 8 + length > len(raw):
        raise BadFile(f"{path}: header of {length} bytes in a file of {len(raw)}")
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    if metadata.get("format") != "pt":
        raise BadFile(f"{path}: metadata has no format pt, which loaders ask for")
    start, at, tensors = 8 + length, 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        size = math.prod(entry["shape"]) * {"F32": 4, "BF16": 2}.get(entry["dtype"], 0)
        if begin != at or end - begin != size:
            raise BadFile(f"{path}: {name} {entry} after byte {at}: a hole, an overlap or a wrong size")
        tensors[name] = Tensor(entry["dtype"], entry["shape"], raw[start + begin:start + end])
        at = end
    if start + at != len(raw):
        raise BadFile(f"{path}: {len(raw) - start - at} bytes behind the last tensor")
    return tensors


def read_folder(folder):
    """All tensors of a model folder, one file or several with an index."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read_file(folder / "model.safetensors")
    where = json.loads(index.read_text())["weight_map"]
    files = {name: read_file(folder / name) for name in sorted(set(where.values()))}
    tensors = {}
    for name, file in where.items():
        if name not in files[file]:
            raise BadFile(f"{index}: {name} is not in {file}")
        tensors[name] = files[file][name]
    held = sum(len(f) for f in files.values())
    if held != len(tensors):
        raise BadFile(f"{index}: lists {len(tensors)} tensors, the files hold {held}")
    return tensors


def norm(values):
    return math.sqrt(math.fsum(map(mul, values, values)))


def distance(a, b):
    return math.sqrt(math.fsum((x - y) * (x - y) for x, y in zip(a, b)))
