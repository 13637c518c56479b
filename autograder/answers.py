"""Where an answer runs: in this process (the learner's kernel), or in a process of its own. Both are observed alike."""

import ast
import contextlib
import functools
import inspect
import textwrap
import types

from autograder import exercises, mutants, process
from autograder.cells import is_stub
from autograder.process import Ended, OwnProcess
from autograder.sandbox.nursery import LATE
from autograder.sandbox.observe import Observation


class KernelAnswer:
    """A function or class that lives in this process."""

    def __init__(self, target):
        self._target = target
        self._reached, self._libraries = _reached(target)
        self.calls = set(self._reached) - {getattr(target, "__name__", "")}
        node = _node(target)
        self.written = node is None or not is_stub(node)

    def trees(self):
        """The answer and the learner's functions that it calls, as Python reads them, with imports for what it calls of libraries."""
        trees = []
        for value in self._libraries.values():  # `sm = torch.softmax` is an import of softmax by another name
            if not str(getattr(value, "__module__", "")).startswith("solutions"):  # the references of earlier modules are given
                trees.append(ast.ImportFrom("library", [ast.alias(str(getattr(value, "__name__", "something")))], 0))
        for value in self._reached.values():
            pieces = [value, *_functions(value)] if inspect.isclass(value) else _functions(value)
            trees += filter(None, map(_node, pieces))
        return trees

    def observe(self, exercise, cases, given=()):
        """The observations of the cases; `given` exercises are answered by their references."""
        with _replaced(self._target, given):
            return list(exercise.observe(self._target, cases))


class NotebookAnswer:
    """A name in a notebook, run in a process that does not outlive its first unanswered request."""

    def __init__(self, workers, notebook, name):
        self._workers, self._notebook, self._name = workers, notebook, name
        self._statements, self._program = notebook.slice(name), notebook.program(name)
        self.calls = set().union(*(statement.uses for statement in self._statements)) - {name}
        binding = [statement.node for statement in self._statements if name in statement.binds]
        self.exists = bool(binding)
        self.written = self.exists and not is_stub(binding[-1])

    def trees(self):
        """The statements on which the answer depends, as Python reads them."""
        return [statement.node for statement in self._statements]

    def observe(self, exercise, cases, given=()):
        """The observations of the cases; `given` exercises are answered by their references."""
        observed = []
        sources = self._carried() | {other.name: mutants.source(other.reference) for other in given}
        try:
            probes = [_probe(exercise, case) for case in cases]
            for observation in self._workers.get().observe(self._name, self._program, probes, sources):
                observed.append(observation)
        except Ended as ended:
            self._workers.discard()
            observed += [Observation(failure=ended.failure)] * (len(cases) - len(observed))
        return observed

    def _carried(self):
        """Sources of the references of what the notebook takes from earlier modules: graded alone, it stands on these."""
        sources = {}
        for bound in self.calls & set(self._notebook.carried):
            module, name = self._notebook.carried[bound]
            with contextlib.suppress(ValueError):  # no such part: it stays undefined, and its own error says so
                sources[bound] = mutants.source(exercises.part(module, name)) + ("" if bound == name else f"\n\n{bound} = {name}")
        return sources


@functools.lru_cache(maxsize=2048)
def _probe(exercise, case):
    """The frame of a case: the same for every notebook of a class."""
    return process.probe(exercise.probe, case.inputs, exercise.options_of(case))


class Workers:
    """One worker process at a time, with the notebook open in it; a context manager.

    names: of what it will be asked for
    nursery: an isolation.Nursery; without one, the processes are not isolated
    """

    def __init__(self, notebook, names, nursery=None):
        self._texts, self._nursery, self._worker = notebook.texts, nursery, None
        sources = [notebook.source(name) for name in names]
        self._late = [word for word in LATE if any(word in source for source in sources)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.discard()

    def get(self):
        """The worker, started where there is none. Raises Ended and InfrastructureError."""
        if self._worker is None:
            self._worker = self._nursery.child(self._late) if self._nursery else OwnProcess()
            self._worker.open(self._texts)
        return self._worker

    def discard(self):
        """End the worker; the next `get` starts another."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def _node(target):
    """The definition of a function or class; None where its text can't be had: made by exec, or a lambda in the middle of a line."""
    with contextlib.suppress(OSError, TypeError, SyntaxError):
        return ast.parse(textwrap.dedent(inspect.getsource(target))).body[0]
    return None


def _functions(target):
    """The functions that are an answer: itself, its class's and own bases' methods, or what a partial holds."""
    if isinstance(target, functools.partial):
        return _functions(target.func)
    if isinstance(target, types.FunctionType):
        return [inspect.unwrap(target)]
    own = [base for base in (target if inspect.isclass(target) else type(target)).__mro__ if base.__module__ == "__main__"]
    own = own or [target if inspect.isclass(target) else type(target)]
    return [inspect.unwrap(value) for base in own for value in vars(base).values() if isinstance(value, types.FunctionType)]


def _names(function):
    """The names that a function's code refers to."""
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        names |= set(code.co_names)
    return names


def _globals(target):
    return next((function.__globals__ for function in _functions(target)), {})


def _reached(target):
    """({name: value} of the target and all that it calls beside it, {name: value} of what it calls of libraries)."""
    namespace, home = _globals(target), _globals(target).get("__name__")
    reached, libraries, wanted = {}, {}, [target]
    while wanted:
        found = wanted.pop()
        reached[getattr(found, "__name__", "")] = found
        for name in set().union(*map(_names, _functions(found))) & set(namespace):
            value = namespace[name]
            if callable(value) and getattr(value, "__module__", None) != home:
                libraries[name] = value
            elif isinstance(value, (type, types.FunctionType)) and value.__name__ not in reached:
                wanted.append(value)
    return reached, libraries


@contextlib.contextmanager
def _replaced(target, given):
    namespace, before = _globals(target), {}
    for exercise in given:
        before[exercise.name] = namespace[exercise.name]
        namespace[exercise.name] = exercise.reference
    try:
        yield
    finally:
        namespace.update(before)
