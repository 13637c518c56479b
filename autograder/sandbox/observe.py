"""Running a probe on an answer, and writing down what was seen: plain values that can cross a boundary."""

import contextlib
import dataclasses
import io
import linecache
import os
import sys
import sysconfig
import traceback
import warnings

import numpy as np
import torch

from . import probes, wire

_NOT_FIELDS = (TypeError, KeyError, AttributeError, IndexError, ValueError, RuntimeError)  # the last three: a tensor for a dict
MAX_TEXT = 2_000  # characters kept of anything that an answer says


@dataclasses.dataclass
class Value:
    """One thing that a probe saw."""

    kind: str  # "Tensor", "ndarray", or the name of another type
    dtype: str = ""
    device: str = ""
    array: np.ndarray | None = None  # the numbers; half precision is widened to float32
    text: str = ""  # what is not numbers, as text

    @classmethod
    def from_fields(cls, tree):
        """A value from the tree that `wire.fields` made of it. Raises ProtocolError, or TypeError."""
        value = cls(**tree)
        value.kind, value.dtype = _bounded(value.kind), _bounded(value.dtype)
        value.device, value.text = _bounded(value.device), _bounded(value.text)
        if value.array is not None and type(value.array) is not np.ndarray:
            raise wire.ProtocolError("an observation holds text and arrays, this one something else")
        stored = {"float16": "float32", "bfloat16": "float32"}.get(value.dtype, value.dtype)
        if not value.kind or (value.array is not None and wire.NUMPY.get(value.array.dtype) != stored):
            raise wire.ProtocolError("a value is not of the type that it is said to be")
        return value


def _bounded(text):
    if type(text) is not str:
        raise wire.ProtocolError(f"there is a {type(text).__name__} where text belongs")
    return text[:MAX_TEXT]


@dataclasses.dataclass
class Failure:
    """An exception, and the line of the learner that it came from."""

    type: str
    message: str = ""
    line: int = 0  # counted from 1 in its cell; 0 = not known
    source: str = ""
    cell: str = ""

    @classmethod
    def from_fields(cls, tree):
        """A failure, or None, from the tree that `wire.fields` made of it. Raises ProtocolError."""
        if tree is None:
            return None
        try:
            failure = cls(**tree)
            for name in ("type", "message", "source", "cell"):
                setattr(failure, name, _bounded(getattr(failure, name)))
        except _NOT_FIELDS as error:
            raise wire.ProtocolError(f"not a failure: {error}") from error
        if type(failure.line) is not int:
            raise wire.ProtocolError("a failure holds text and a line number, this one something else")
        return failure


@dataclasses.dataclass
class Observation:
    """All that one probe of one case saw."""

    values: dict[str, Value] = dataclasses.field(default_factory=dict)
    failure: Failure | None = None
    printed: str = ""

    @classmethod
    def from_fields(cls, tree):
        """An observation from the tree that `wire.fields` made of it. Raises ProtocolError."""
        try:
            if type(tree) is not dict:
                raise TypeError(f"it is a {type(tree).__name__}")
            values = {name: Value.from_fields(value) for name, value in tree["values"].items()}
            return cls(values, Failure.from_fields(tree.get("failure")), _bounded(tree.get("printed", "")))
        except _NOT_FIELDS as error:
            raise wire.ProtocolError(f"not an observation: {error}") from error


def observe(probe, target, inputs, options):
    """Drive `target` with the probe of that name and return the Observation; no exception of the answer gets out."""
    with standard_state():
        return observe_in(probe, target, inputs, options)


def observe_in(probe, target, inputs, options):
    """The same in the state that is there."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            seen = probes.find(probe)(target, inputs, **options)
        return Observation({name: _value(thing) for name, thing in seen.items()}, None, printed.getvalue()[:MAX_TEXT])
    except (Exception, SystemExit) as error:
        return Observation({}, failure(error), printed.getvalue()[:MAX_TEXT])


def failure(error):
    """The Failure that an exception is, at the deepest line that is the learner's own."""
    where = {}
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _LIBRARY, _PACKAGES, "<")):
            source = linecache.getline(name, line, frame.f_globals).strip()  # of this frame alone: to read torch's files takes long
            where = {"line": line or 0, "source": source[:MAX_TEXT], "cell": os.path.basename(name)}
    if isinstance(error, SyntaxError):
        where = {"line": error.lineno or 0, "source": (error.text or "").strip()[:MAX_TEXT], "cell": os.path.basename(error.filename or "")}
        return Failure(type(error).__name__, str(error.msg)[:MAX_TEXT], **where)
    try:
        message = str(error)
    except Exception:
        message = "(its message could not be printed)"
    out_of_memory = isinstance(error, MemoryError) or "can't allocate memory" in message  # numpy's, torch's
    return Failure("OutOfMemory" if out_of_memory else type(error).__name__, message[:MAX_TEXT], **where)


_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = sysconfig.get_paths()["stdlib"]
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))  # a virtual environment's, whoever started this process


@contextlib.contextmanager
def standard_state():
    """The same global state for every answer, whatever the notebook did to it; put back afterwards."""
    dtype, grad, numpy_errors = torch.get_default_dtype(), torch.is_grad_enabled(), np.geterr()
    torch_state, numpy_state, limit = torch.get_rng_state(), np.random.get_state(), sys.getrecursionlimit()
    on_cpu = contextlib.nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")  # it slows every call
    try:
        with warnings.catch_warnings(), on_cpu:
            set_standard_state()
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        np.seterr(**numpy_errors)
        sys.setrecursionlimit(limit)


def set_standard_state():
    """Set it for good: in a process of the answer's own, to put it back for every probe would take as long as many an answer."""
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.default_generator.manual_seed(0)
    np.random.seed(0)
    np.seterr(all="ignore")
    sys.setrecursionlimit(_RECURSION_LIMIT)


_RECURSION_LIMIT = sys.getrecursionlimit()


def _value(thing):
    if isinstance(thing, torch.Tensor):
        tensor = thing.detach().cpu()
        if tensor.dtype in (torch.float16, torch.bfloat16):
            tensor = tensor.float()
        array = None if tensor.is_complex() else tensor.numpy().copy()
        return Value("Tensor", str(thing.dtype).removeprefix("torch."), thing.device.type, array)
    if isinstance(thing, (np.ndarray, np.generic)):
        numbers = thing.dtype.kind in "fiub" and thing.dtype.itemsize <= 8
        array = np.array(thing, np.float32 if thing.dtype == np.float16 else thing.dtype) if numbers else None
        return Value("ndarray" if isinstance(thing, np.ndarray) else type(thing).__name__, str(thing.dtype), "cpu", array)
    return Value(type(thing).__name__, text=_text(thing))


def _text(thing):
    try:
        return repr(thing)[:MAX_TEXT]
    except Exception:
        return "(could not be printed)"
