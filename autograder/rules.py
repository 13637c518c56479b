"""Names that an answer may not call, found in its syntax trees. It can be evaded, so it is a rule and not a guard."""

import ast
import weakref

_INDIRECT = {
    "eval", "exec", "compile", "__import__", "importlib", "import_module", "globals", "locals", "vars", "__dict__", "__builtins__",
    "builtins", "__getattribute__", "__getattr__", "attrgetter", "methodcaller", "_C", "ops", "modules", "gc", "ctypes", "pickle",
    "_getframe", "inspect", "*",
}  # fmt: skip
_known = weakref.WeakKeyDictionary()  # {tree: what `_names` says of it}: in a class, most statements are the same in all notebooks


def broken(trees, forbidden):
    """The forbidden names that trees use: `F.softmax`, `from … import softmax`, `getattr(F, "softmax")`, and `solutions`."""
    used = set().union(*(_names(tree)[0] for tree in trees))
    return sorted(used & {*forbidden, "solutions"})


def indirect(trees):
    """Names by which trees could call what `broken` does not see: `eval`, `torch.ops`, `getattr` of a computed name, `import *`."""
    return sorted(set().union(*(_names(tree)[1] for tree in trees)))


def _names(tree):
    """(all names by which a tree could call something outside it, those that are indirect)."""
    if tree not in _known:
        used, variables, computed = set(), set(), False
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                variables.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                used |= {part for alias in node.names for part in alias.name.split(".")}
                used |= set((getattr(node, "module", None) or "").split("."))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
                used |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
                computed |= not all(isinstance(argument, ast.Constant) for argument in node.args[1:2])
        _known[tree] = used, (used | variables) & _INDIRECT | ({"getattr"} if computed else set())
    return _known[tree]
