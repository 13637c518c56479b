"""Names that an answer may not call, found in its syntax tree. It can be evaded, so it is a rule and not a guard."""

import ast


def broken(source, forbidden):
    """The forbidden names that a source uses: `F.softmax`, `from … import softmax`, `getattr(F, "softmax")`, and `solutions`."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {part for alias in node.names for part in alias.name.split(".")}
            found |= set((getattr(node, "module", None) or "").split("."))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return sorted(found & {*forbidden, "solutions"})
