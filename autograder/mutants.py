"""The reference with something wrong: its source, and that of the functions it calls, patched and run anew."""

import ast
import functools
import inspect
import linecache
import sys
import textwrap

from autograder.sandbox import loader


def patched(reference, mistakes):
    """The reference with these mistakes in it; None where several touch the same text.

    Raises ValueError where the text of a mistake alone does not occur exactly once.
    """
    sources, namespace = _closure(reference)
    sources = dict(sources)
    for mistake in mistakes:
        at = mistake.at or reference.__name__
        for old, new in mistake.patches:
            if sources.get(at, "").count(old) != 1:
                if len(mistakes) > 1:
                    return None
                raise ValueError(f"the mistake {mistake.id!r} patches {old!r} of {at}, which occurs {sources.get(at, '').count(old)} times")
            sources[at] = sources[at].replace(old, new)
    namespace = dict(namespace)
    for name, source in sources.items():
        exec(_compiled(source, name), namespace)
    return namespace[reference.__name__]


def source(reference):
    """The source of the reference and of all functions of `solutions` that it calls, as one text."""
    return "\n\n".join(_closure(reference)[0].values())


@functools.lru_cache(maxsize=4096)
def _compiled(source, name):
    """The code of a source; of all that a reference reaches, a mistake changes one function, and the rest stays as it is."""
    return compile(source, f"<{name}>", "exec")


@functools.cache
def _closure(reference):
    """({name: source} of the functions of `solutions` that the reference reaches, {name: value} of their modules' globals)."""
    sources, others, wanted = {}, {"__name__": reference.__module__}, [reference]
    while wanted:
        found = wanted.pop()
        linecache.checkcache(inspect.getsourcefile(found))
        text = textwrap.dedent(inspect.getsource(found))
        sources[found.__name__] = text
        module = vars(sys.modules[found.__module__])
        others |= {name: value for name, value in module.items() if not name.startswith("__")}  # a patch may use any of them
        for name in sorted(loader.globals_of(ast.parse(text).body[0])[0] & set(module)):
            value = module[name]
            if getattr(value, "__module__", "").startswith("solutions") and hasattr(value, "__name__") and name not in sources:
                wanted.append(value)
    return sources, others
