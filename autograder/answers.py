"""Where an answer runs: in this process (the learner's kernel), or in a process of its own. Both are observed alike."""

import contextlib
import importlib
import inspect
import types

from autograder import mutants
from autograder.process import Ended, Process
from autograder.sandbox.observe import Failure, Observation


class KernelAnswer:
    """A function or class that lives in this process."""

    def __init__(self, target):
        self._target = target
        self._reached = _reached(target)
        self.calls = set(self._reached) - {target.__name__}

    def source(self):
        """The text of the answer and of the learner's functions that it calls."""
        texts = []
        for function in self._reached.values():
            with contextlib.suppress(OSError, TypeError):
                texts.append(inspect.getsource(function))
        return "\n\n".join(texts)

    def observe(self, exercise, cases, given=()):
        """The observations of the cases; `given` exercises are answered by their references."""
        with _replaced(self._target, given):
            return list(exercise.observe(self._target, cases))


class NotebookAnswer:
    """A name in a notebook, run in a process that does not outlive its first unanswered request."""

    def __init__(self, workers, notebook, name):
        self._workers, self._notebook, self._name = workers, notebook, name
        statements = notebook.slice(name)
        self.calls = set().union(*(statement.uses for statement in statements)) - {name}
        self.exists = any(name in statement.binds for statement in statements)

    def source(self):
        """The text of the statements on which the answer depends."""
        return self._notebook.source(self._name)

    def observe(self, exercise, cases, given=()):
        """The observations of the cases; `given` exercises are answered by their references."""
        observed = []
        try:
            worker = self._workers.get()
            references = {other.name: other.reference for other in given} | self._carried()
            defined, failure = worker.define(self._name, {name: mutants.source(reference) for name, reference in references.items()})
            if not defined:
                failure = failure or Failure("NameError", f"{self._name} is not defined once the notebook's definitions have run.")
                return [Observation(failure=failure)] * len(cases)
            for case in cases:
                observed.append(worker.observe(exercise.probe, case.inputs, {**exercise.options, **case.options}))
        except Ended as ended:
            self._workers.discard()
            observed += [Observation(failure=ended.failure)] * (len(cases) - len(observed))
        return observed

    def _carried(self):
        """The references of what the notebook takes from earlier modules: graded alone, it stands on these."""
        found = {}
        for name in self.calls & set(self._notebook.carried):
            with contextlib.suppress(ImportError, AttributeError):  # no such part: it stays undefined, and its own error says so
                found[name] = getattr(importlib.import_module(f"solutions.{self._notebook.carried[name]}"), name)
        return found


class Workers:
    """One worker process at a time, with the notebook open in it; a context manager."""

    def __init__(self, text):
        self._text, self._worker = text, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.discard()

    def get(self):
        """The worker, started where there is none."""
        if self._worker is None:
            self._worker = Process()
            self._worker.open(self._text)
        return self._worker

    def discard(self):
        """End the worker; the next `get` starts another."""
        if self._worker is not None:
            self._worker.__exit__()
            self._worker = None


def _codes(target):
    """The code objects of a function, or of a class's own methods."""
    functions = [target] if not inspect.isclass(target) else [value for value in vars(target).values() if callable(value)]
    codes = [function.__code__ for function in map(inspect.unwrap, functions) if isinstance(function, types.FunctionType)]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        yield code


def _globals(target):
    functions = [target] if not inspect.isclass(target) else list(vars(target).values())
    return next((inspect.unwrap(f).__globals__ for f in functions if isinstance(inspect.unwrap(f), types.FunctionType)), {})


def _reached(target):
    """{name: function or class} of the target and all that it calls, as long as it stands beside the target."""
    namespace, reached, wanted = _globals(target), {}, [target]
    while wanted:
        found = wanted.pop()
        reached[found.__name__] = found
        for name in {name for code in _codes(found) for name in code.co_names}:
            value = namespace.get(name)
            is_own = inspect.isclass(value) or isinstance(value, types.FunctionType)
            if is_own and value.__module__ == target.__module__ and value.__name__ not in reached:
                wanted.append(value)
    return reached


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
