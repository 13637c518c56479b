"""The cell in which an exercise is answered, made from the source of its reference."""

import ast
import inspect
import re
import textwrap

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def solution(reference):
    """The reference's source, its bodies (docstrings aside) marked as nbgrader's solution regions."""
    source = textwrap.dedent(inspect.getsource(reference))
    lines = source.splitlines()
    for function in reversed(_functions(ast.parse(source).body[0])):
        start = function.body[1].lineno if ast.get_docstring(function) else function.body[0].lineno
        indent = " " * function.body[0].col_offset
        lines.insert(function.end_lineno, indent + END)
        lines.insert(start - 1, indent + BEGIN)
    return "\n".join(lines)


def stub(reference):
    """What the learner finds: every solution region replaced as nbgrader replaces it."""
    return re.sub(rf"( *){BEGIN}.*?{END}", r"\1# YOUR CODE HERE\n\1raise NotImplementedError()", solution(reference), flags=re.DOTALL)


def is_stub(node):
    """Whether a definition is still as it was given out: nothing in its functions but `raise NotImplementedError()`."""
    if isinstance(node, ast.ClassDef):
        functions = _functions(node)
        return bool(functions) and all(map(is_stub, functions))
    if not isinstance(node, ast.FunctionDef):
        return False
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])


def _functions(node):
    if isinstance(node, ast.FunctionDef):
        return [node]
    return [child for child in node.body if isinstance(child, ast.FunctionDef)]
