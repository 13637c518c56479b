"""Names that an answer may not call, found in its syntax tree. It can be evaded, so it is a rule and not a guard."""

import ast
import functools


def broken(source, forbidden):
    """The forbidden names that a source uses: `F.softmax`, `from … import softmax`, `getattr(F, "softmax")`, and `solutions`."""
    found = set()
    for node in _nodes(source):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {part for alias in node.names for part in alias.name.split(".")}
            found |= set((getattr(node, "module", None) or "").split("."))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return sorted(found & {*forbidden, "solutions"})


@functools.lru_cache(maxsize=64)
def _nodes(source):
    """All nodes of a source's tree; none where it can't be read."""
    try:
        return list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return []


_INDIRECT = {
    "eval", "exec", "compile", "__import__", "importlib", "import_module", "globals", "locals", "vars", "__dict__", "__builtins__",
    "builtins", "__getattribute__", "__getattr__", "attrgetter", "methodcaller", "_C", "ops", "modules", "gc", "ctypes", "pickle",
    "_getframe", "inspect", "*",
}  # fmt: skip


def indirect(source):
    """Names by which a source could call what `broken` does not see: `eval`, `torch.ops`, `getattr` of a computed name, `import *`."""
    nodes = _nodes(source)
    found = {node.id for node in nodes if isinstance(node, ast.Name)} | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {part for alias in node.names for part in alias.name.split(".")} | {*(getattr(node, "module", None) or "").split(".")}
    computed = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
        and not all(isinstance(argument, ast.Constant) for argument in node.args[1:2])
        for node in nodes
    )  # fmt: skip
    return sorted(found & _INDIRECT | ({"getattr"} if computed else set()))
