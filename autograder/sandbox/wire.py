"""What crosses the boundary to an untrusted process: JSON and raw arrays, bounded before they are read.

A frame is the length of its header (4 bytes, big endian), the header (JSON: the message, with
{"$array": i} in the place of array i, and the list of arrays, each with the order of its axes in memory
unless that is theirs), then the arrays' bytes one after another. Of a dataclass, fields that hold nothing are left out.
A long text (a whole notebook) travels as an array of its UTF-8 bytes, so that headers stay short.
"""

import dataclasses
import json
import math
import struct

import numpy as np
import torch

_PLAIN = {int, float, bool, type(None)}
_LEAVES = {*_PLAIN, str}  # of a message that is read
MAX_HEADER = 4 * 2**20  # bytes
MAX_ARRAYS = 256 * 2**20  # bytes, all arrays of a frame together
MAX_DEPTH = 64  # of a message
LONG_TEXT = 2**16  # characters
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                  torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
}  # fmt: skip
NUMPY = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}  # to ask each array for its dtype's name takes long


class ProtocolError(Exception):
    """What arrived is not a frame: too large, cut short, or not what it says it is."""


def pack(message):
    """A frame from a tree of dicts, lists, strings, numbers, None, torch tensors, numpy arrays, and dataclasses (as dicts)."""
    arrays, chunks = [], []

    def encode(node):
        if isinstance(node, str):
            return node if len(node) <= LONG_TEXT else add("text", np.frombuffer(node.encode("utf-8", "surrogatepass"), np.uint8))
        if isinstance(node, np.ndarray) and node.dtype in NUMPY:
            return add("ndarray", node)
        if isinstance(node, (torch.Tensor, np.ndarray)):
            return add_tensor("Tensor" if isinstance(node, torch.Tensor) else "ndarray", torch.as_tensor(node).detach().cpu())
        if isinstance(node, dict):
            return {str(key): value if type(value) in _PLAIN else encode(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [value if type(value) in _PLAIN else encode(value) for value in node]
        if dataclasses.is_dataclass(node):
            return {key: encode(value) for key, value in vars(node).items() if value is not None and not (type(value) is str and not value)}
        return node

    def add(kind, array):
        order = _order(array.strides) if not array.flags.c_contiguous else None
        stored = array if order is None else array.transpose(order)
        return note(kind, NUMPY[array.dtype], stored, order, stored.tobytes())

    def add_tensor(kind, tensor):
        order = _order(tensor.stride()) if not tensor.is_contiguous() else None
        stored = (tensor if order is None else tensor.permute(order)).contiguous()
        data = stored.flatten().view(torch.uint8).numpy().tobytes() if stored.numel() else b""
        return note(kind, str(tensor.dtype).removeprefix("torch."), stored, order, data)

    def note(kind, dtype, stored, order, data):
        arrays.append({"kind": kind, "dtype": dtype, "shape": list(stored.shape)} | ({"order": order} if order else {}))
        chunks.append(data)
        return {"$array": len(arrays) - 1}

    header = json.dumps({"message": encode(message), "arrays": arrays}).encode()
    return b"".join([struct.pack(">I", len(header)), header, *chunks])


def _order(strides):
    """Of the axes, the one with the largest stride first: written in this order, an array's layout in memory is kept."""
    return sorted(range(len(strides)), key=lambda axis: -strides[axis])


def read(stream):
    """The message of the next frame of a binary stream; None at its end. Raises ProtocolError."""
    prefix = stream.read(4)
    if not prefix:
        return None
    try:
        (length,) = struct.unpack(">I", prefix)
        if length > MAX_HEADER:
            raise ProtocolError(f"a header of {length} bytes is longer than {MAX_HEADER}")
        header = json.loads(_exactly(stream, length).decode())
        sizes = [_size(entry) for entry in header["arrays"]]
        if sum(sizes) > MAX_ARRAYS:
            raise ProtocolError(f"arrays of {sum(sizes)} bytes are more than {MAX_ARRAYS}")
        arrays = [_array(entry, _exactly(stream, size)) for entry, size in zip(header["arrays"], sizes)]
        return _decode(header["message"], arrays)
    except (ValueError, KeyError, TypeError, IndexError, RuntimeError, struct.error) as error:  # json's RecursionError among them
        raise ProtocolError(f"not a frame: {error}") from error


def _exactly(stream, size):
    data = stream.read(size)
    if len(data) != size:
        raise ProtocolError(f"{size} bytes were promised, {len(data)} came")
    return data


def _size(entry):
    shape = entry["shape"]
    if len(shape) > 16 or not all(type(n) is int and 0 <= n <= MAX_ARRAYS for n in shape):
        raise ProtocolError(f"not a shape: {str(shape)[:80]}")
    return math.prod(shape) * DTYPES[entry["dtype"]].itemsize


def _array(entry, data):
    dtype, shape, order = DTYPES[entry["dtype"]], entry["shape"], entry.get("order", ())
    if "order" in entry and sorted(order) != list(range(len(shape))):
        raise ProtocolError(f"not an order of axes: {str(order)[:80]}")
    if entry["kind"] == "text":
        return data.decode("utf-8", "surrogatepass")
    if dtype == torch.bool and data.translate(None, b"\0\1"):
        raise ProtocolError("a bool that is neither 0 nor 1")
    back = [order.index(axis) for axis in range(len(order))]
    if entry["kind"] == "ndarray" and dtype != torch.bfloat16:
        array = np.frombuffer(bytearray(data), entry["dtype"]).reshape(shape)
        return array.transpose(back) if back else array
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    tensor = tensor.permute(back) if back else tensor
    return tensor.numpy() if entry["kind"] == "ndarray" else tensor


def _decode(node, arrays, depth=0):
    if depth >= MAX_DEPTH:
        raise ProtocolError(f"a message nested deeper than {MAX_DEPTH}")
    if type(node) is dict:
        if len(node) == 1 and "$array" in node:
            return arrays[node["$array"]]
        return {key: value if type(value) in _LEAVES else _decode(value, arrays, depth + 1) for key, value in node.items()}
    if type(node) is list:
        return [value if type(value) in _LEAVES else _decode(value, arrays, depth + 1) for value in node]
    return node
