"""What crosses the boundary: everything that may comes back as it was; everything else is a ProtocolError, before it is read."""

import contextlib
import io
import json
import random
import struct

import numpy as np
import pytest
import torch

from autograder.sandbox import wire
from autograder.sandbox.observe import Failure, Observation, Value


def back(message):
    """The message after one crossing."""
    return wire.read(io.BytesIO(wire.pack(message)))


def frame(header, data=b""):
    """A frame with that header: JSON of it, unless it is bytes."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(header)) + header + data


def one_array(data=b"", **changes):
    """A frame with one array of two float32, but for the changes of its entry."""
    entry = {"kind": "Tensor", "dtype": "float32", "shape": [2], "order": [0], **changes}
    return frame({"message": {"$array": 0}, "arrays": [entry]}, data or struct.pack("<2f", 1.0, 2.0))


def refused(data):
    with pytest.raises(wire.ProtocolError) as caught:
        wire.read(io.BytesIO(data))
    return str(caught.value)


@pytest.mark.parametrize("name", wire.DTYPES)
def test_every_dtype_comes_back(name):
    dtype = wire.DTYPES[name]
    tensor = torch.tensor([[0, 1, 1], [1, 0, 5]]).to(dtype)
    if dtype.is_floating_point:
        tensor[0] = torch.tensor([float("nan"), float("-inf"), -0.0])
    other = back({"x": tensor})["x"]
    assert type(other) is torch.Tensor and other.dtype == dtype and other.shape == tensor.shape
    assert torch.equal(other.contiguous().view(torch.uint8), tensor.view(torch.uint8))  # bit for bit, NaN and -0 too


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64, *"efd"])
def test_numpy_arrays_come_back_as_numpy_arrays(dtype):
    array = np.array([[1, 0, 3], [0, 5, 6]]).astype(dtype)
    other = back([array])[0]
    assert type(other) is np.ndarray and other.dtype == array.dtype and np.array_equal(other, array)
    other[0, 0] = 0  # an answer may write into what it is given, and find out that it should not


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 4)])
def test_no_axes_and_no_elements_come_back(shape):
    tensor = torch.arange(int(np.prod(shape))).reshape(shape)
    other, array = back([tensor, tensor.double().numpy()])
    assert other.shape == shape and torch.equal(other, tensor)
    assert type(array) is np.ndarray and array.shape == shape and array.dtype == np.float64


def test_a_layout_that_is_not_contiguous_is_kept():
    base = torch.arange(24.0).reshape(2, 3, 4)
    for tensor in (base, base.mT, base.permute(2, 0, 1), base.permute(1, 2, 0)):
        other = back(tensor)
        assert torch.equal(other, tensor) and other.stride() == tensor.stride()
        array = back(tensor.numpy())
        assert np.array_equal(array, tensor.numpy()) and array.strides == tensor.numpy().strides


def test_an_order_need_not_be_given_and_fields_that_hold_nothing_need_not_come():
    assert b"order" not in wire.pack(torch.zeros(2, 3)) and b"order" in wire.pack(torch.zeros(2, 3).T)
    for failure in (None, Failure("NotImplementedError", ""), Failure("ValueError", "no", 3, "raise ValueError('no')", "cell 2")):
        seen = Observation({"output": Value("str", text="''"), "returned": Value("Thing")}, failure, "" if failure else "printed")
        assert b'""' not in wire.pack(seen) and Observation.from_fields(back(seen)) == seen


def test_a_slice_and_an_expanded_tensor_come_back_with_their_numbers():
    base = torch.arange(24.0).reshape(4, 6)
    for tensor in (base[::2, 1::2], base[0].expand(3, 6), base.t()[1:3]):
        assert torch.equal(back(tensor), tensor)
        assert np.array_equal(back(tensor.numpy()), tensor.numpy())


def test_what_needs_a_gradient_crosses_without_it():
    weight = torch.nn.Parameter(torch.ones(2, 3))
    other = back(weight * 2)
    assert not other.requires_grad and torch.equal(other, torch.full((2, 3), 2.0))


def test_a_tree_comes_back_in_its_order_and_with_all_kinds():
    tree = {"b": [1, -2.5, True, None, "é\ud800\n", {"x": torch.ones(2)}], "a": {"y": [np.zeros(1), []], "z": {}}, "1": 2**70}
    other = back(tree)
    assert list(other) == ["b", "a", "1"] and list(other["a"]) == ["y", "z"]
    assert other["b"][:5] == tree["b"][:5] and other["b"][2] is True and other["1"] == 2**70
    assert torch.equal(other["b"][5]["x"], torch.ones(2)) and np.array_equal(other["a"]["y"][0], np.zeros(1))


def test_a_dataclass_crosses_as_its_fields():
    observation = Observation({"output": Value("ndarray", "float64", "cpu", np.eye(2))}, None, "printed")
    other = Observation.from_fields(back(observation))
    assert other.printed == "printed" and other.failure is None
    assert np.array_equal(other.values["output"].array, np.eye(2)) and other.values["output"].kind == "ndarray"


def test_frames_follow_each_other_and_then_end():
    stream = io.BytesIO(wire.pack({"n": 1}) + wire.pack({"x": torch.ones(3)}) + wire.pack([]))
    assert wire.read(stream) == {"n": 1}
    assert torch.equal(wire.read(stream)["x"], torch.ones(3))
    assert wire.read(stream) == [] and wire.read(stream) is None


TEXTS = ["[" * 10_000, "\x1b[31m" * 10_000, '{"a": "\\"[{' * 5_000, "é\ud800" * 10 * wire.LONG_TEXT, "x" * 5 * 2**20]


@pytest.mark.parametrize("text", TEXTS, ids=["brackets", "colours", "JSON", "not ASCII", "long"])
def test_a_text_of_any_length_crosses_whatever_brackets_it_holds(text):
    """A notebook with tracebacks in colour, or with megabytes of outputs, is such a text."""
    assert back({"notebook": text, "short": "["}) == {"notebook": text, "short": "["}


class Watched(io.BytesIO):
    """A stream that knows how much it was asked for at most."""

    asked = 0

    def read(self, size=-1):
        self.asked = max(self.asked, size)
        return super().read(size)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">I", wire.MAX_HEADER + 1), "longer than"),
        (struct.pack(">I", 2**32 - 1), "longer than"),
        (one_array(shape=[wire.MAX_ARRAYS // 4 + 1]), "are more than"),
        (one_array(shape=[wire.MAX_ARRAYS, wire.MAX_ARRAYS], order=[0, 1]), "are more than"),
        (one_array(shape=[2**70]), "not a shape"),
        (one_array(shape=[1] * 17, order=list(range(17))), "not a shape"),
        (frame({"message": 0, "arrays": [{"kind": "Tensor", "dtype": "uint8", "shape": [2**27], "order": [0]}] * 3}), "are more than"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_read(data, words):
    stream = Watched(data)
    with pytest.raises(wire.ProtocolError, match=words):
        wire.read(stream)
    assert stream.asked < len(data) + 4  # it never asked for what was promised


def test_the_largest_header_is_still_read():
    header = b'{"arrays": [], "message": 7}'
    assert wire.read(io.BytesIO(frame(header + b" " * (wire.MAX_HEADER - len(header))))) == 7


MALFORMED = {
    "negative shape": one_array(shape=[-2]),
    "two negatives": one_array(shape=[-1, -2], order=[0, 1]),
    "a shape of floats": one_array(shape=[2.0]),
    "a shape of booleans": one_array(shape=[True, True], order=[0, 1]),
    "a shape of strings": one_array(shape=["2"]),
    "a shape that is a number": one_array(shape=2),
    "a shape that is null": one_array(shape=None),
    "a shape that is an object": one_array(b"1234", shape={"2": 2}),
    "an unknown dtype": one_array(dtype="object"),
    "a complex dtype": one_array(dtype="complex64"),
    "a dtype that is a list": one_array(dtype=["float32"]),
    "no dtype": frame({"message": 0, "arrays": [{"kind": "Tensor", "shape": [1], "order": [0]}]}, b"1234"),
    "an array of numpy that numpy has not": one_array(b"1234", kind="ndarray", dtype="bfloat16"),
    "an order too short": one_array(order=[]),
    "an order too long": one_array(order=[0, 1]),
    "an order with the same axis twice": one_array(shape=[1, 2], order=[0, 0]),
    "an order of other axes": one_array(order=[1]),
    "a negative axis": one_array(order=[-1]),
    "an order that is null": one_array(order=None),
    "an order of mixed types": one_array(shape=[1, 2], order=["0", 1]),
    "no array of that number": frame({"message": {"$array": 0}, "arrays": []}),
    "an array by name": frame({"message": {"$array": "x"}, "arrays": []}),
    "an array by fraction": frame({"message": {"$array": 0.5}, "arrays": []}),
    "text that is not UTF-8": one_array(b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe", kind="text"),
    "arrays that are an object": frame({"message": 0, "arrays": {"a": 1}}),
    "arrays that are null": frame({"message": 0, "arrays": None}),
    "no arrays": frame({"message": 0}),
    "no message": frame({"arrays": []}),
    "a list": frame([1, 2]),
    "null": frame(None),
    "a number": frame(5),
    "no header": frame(b""),
    "not JSON": frame(b"{'message': 0}"),
    "not UTF-8": frame(b'{"message": "\xff", "arrays": []}'),
    "UTF-16": frame('{"message": 0, "arrays": []}'.encode("utf-16")),
    "a pickle": frame(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94."),
    "too many digits": frame(b'{"message": ' + b"9" * 10_000 + b', "arrays": []}'),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_malformed_is_refused(what):
    refused(MALFORMED[what])


@pytest.mark.parametrize("what", [what for what in MALFORMED if "negative" in what and "axis" not in what])
def test_a_negative_size_is_refused_as_such_and_not_left_to_torch(what):
    """torch takes -1 as "the rest", and two negatives have a positive product."""
    assert "not a shape" in refused(MALFORMED[what])


def test_an_array_that_is_read_right_is_the_base_of_those_that_are_refused():
    assert torch.equal(wire.read(io.BytesIO(one_array())), torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("depth", [wire.MAX_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_deep_nesting_is_refused(depth, opening, closing):
    header = '{"arrays": [], "message": %s0%s}' % (opening * depth, closing * depth)
    refused(frame(header.encode()))
    refused(frame(f'{{"message": 0, "arrays": {opening * depth}{closing * depth}}}'.encode()))


def test_moderate_nesting_is_read():
    tree = 0
    for _ in range(wire.MAX_DEPTH):
        tree = [tree]
    assert back(tree) == tree


def test_a_frame_cut_short_anywhere_is_refused():
    data = wire.pack({"x": torch.arange(3.0), "y": ["a", np.zeros(2, bool)]})
    for length in range(1, len(data)):
        refused(data[:length])


SEEN = Observation(
    {"output": Value("Tensor", "float64", "cpu", np.arange(6.0).reshape(2, 3)), "n": Value("int", text="3")}, Failure("E", "no")
)
BASES = [
    wire.pack(SEEN),
    wire.pack({"probe": "call", "inputs": {"x": torch.ones(2, 3, dtype=torch.bool).mT, "*masks": [np.zeros(0), None]}, "options": {}}),
    one_array(shape=[1, 2], order=[1, 0]),
]


PIECES = [b"0", b"9" * 20, b"-", b"null", b"[", b"{", b'"', b"1e999", b"NaN", b"true", b",", b"\x00"]
JUNK = [None, True, -1, 0, 3, 1.5, 2**40, 2**70, "", "float32", "int64", "bool", "ndarray", "text",
        [], [0], [-1], [2, 3], {}, {"$array": 0}, {"$array": -9}]  # fmt: skip


def mutated(data, chance):
    """The frame with a few bytes changed, left out, put in or moved; half of the time its length is made right again."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, kind = chance.randrange(len(changed)), chance.randrange(4)
        if kind == 0:
            changed[place] = chance.randrange(256)
        elif kind == 1:
            del changed[place : place + chance.randint(1, 8)]
        elif kind == 2:
            changed[place:place] = chance.choice(PIECES)
        else:
            other = chance.randrange(len(changed))
            changed[place : place + 4], changed[other : other + 4] = changed[other : other + 4], changed[place : place + 4]
        changed = changed or bytearray(b"\x00")
    if chance.random() < 0.5:
        end = changed.rfind(b"}") + 1
        changed[:4] = struct.pack(">I", max(0, end - 4))
    return bytes(changed)


def rewritten(data, chance):
    """The frame with one place of its header's JSON taken out, or replaced by something else that is JSON."""
    (length,) = struct.unpack(">I", data[:4])
    header = json.loads(data[4 : 4 + length])
    change_one_place(header, chance, JUNK)
    return frame(header, data[4 + length :])


def change_one_place(tree, chance, junk):
    """Take one thing out of a tree of dicts and lists, or put something else in its place."""
    places, nodes = [], [tree]
    while nodes:
        node = nodes.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
        places += [(node, key) for key in keys]
        nodes += [node[key] for key in keys]
    node, key = chance.choice(places)
    if chance.random() < 0.2:
        del node[key]
    else:
        node[key] = chance.choice(junk)


@pytest.mark.parametrize("change", [mutated, rewritten])
def test_thousands_of_mutated_frames_are_read_or_refused(change):
    """Never another exception, and never more than came."""
    chance, refusals, readings = random.Random(0), 0, 0
    for _ in range(6_000):
        data = change(chance.choice(BASES), chance)
        try:
            message = wire.read(io.BytesIO(data))
        except wire.ProtocolError:
            refusals += 1
            continue
        readings += 1
        assert len(wire.pack(message)) < 10_000  # it holds what crossed, and not what was promised
    assert refusals > 1_000 and readings > 100  # both happen, so the mutations are neither too mild nor too wild


def test_what_is_no_observation_is_refused():
    chance, whole = random.Random(2), 0
    for tree in (None, 1, "x", [], {}, torch.ones(2, 1), torch.tensor(1.0), np.ones(3)):
        with pytest.raises(wire.ProtocolError):
            Observation.from_fields(tree)
    for _ in range(3_000):
        tree = back(SEEN)
        change_one_place(tree, chance, [*JUNK, torch.ones(2, 1), torch.tensor(0.0), np.ones(3), np.zeros(0), np.array(1)])
        with contextlib.suppress(wire.ProtocolError):
            whole += isinstance(Observation.from_fields(tree), Observation)
    assert 100 < whole < 2_900


def test_random_bytes_are_refused():
    chance = random.Random(1)
    for _ in range(2_000):
        size = chance.randint(1, 60)
        refused(struct.pack(">I", size) + chance.randbytes(size))
