"""A notebook as a set of definitions: finds the statements on which a name depends, and runs only those.

Training loops, plots and calls that a name does not depend on are never run. A statement that fails is passed over:
the name may not need it, and when it does, its own error says more.
"""

import __future__

import ast
import builtins
import dataclasses
import functools
import json
import linecache
import re
import symtable

MAX_CODE = 300_000  # characters of code in a notebook; reading much more of it would take minutes
_FAR_DOWN = 1_000  # lines; before that it is quicker to compile blank lines than to count on
_MAX_KEPT = 4_000  # characters of a cell that is kept once it has been read: in a class, most cells are the same in all notebooks


class UnreadableNotebook(Exception):
    """The file holds no notebook; the message is a sentence for its author."""


@dataclasses.dataclass
class Statement:
    """One top-level statement of a notebook."""

    node: ast.stmt
    line: int  # of its cell, from 1
    source: str
    binds: set[str]  # names that it defines, or changes
    uses: set[str]  # global names that it refers to, at once or when called
    calls: set[str]  # names whose methods it calls: that changes them, unless they are modules
    cell: str = ""  # the file name under which it is compiled: what a traceback shows


@dataclasses.dataclass
class Notebook:
    """The statements of a notebook, in order, and the cells that could not be read as Python."""

    statements: list[Statement]
    broken: dict[str, SyntaxError]  # by cell
    sources: dict[str, str]  # the text of each cell
    texts: dict[str, str]  # the text of each cell that could be read, as Python
    carried: dict[str, tuple[str, str]]  # names that `parts.load` gives, each with the module and its name there

    def slice(self, name):
        """The statements on which `name` depends, in notebook order."""
        wanted, seen, chosen = [name, "*"], set(), set()  # what a star import binds can't be known: all of them come along
        while wanted:
            bound = wanted.pop()
            if bound not in seen:
                seen.add(bound)
                more = self._binding.get(bound, set()) - chosen
                chosen |= more
                wanted += set().union(*(self.statements[index].uses for index in more))
        return [self.statements[index] for index in sorted(chosen)]

    @functools.cached_property
    def _binding(self):
        """{name: numbers of the statements that bind it}."""
        binding = {}
        for index, statement in enumerate(self.statements):
            for bound in statement.binds:
                binding.setdefault(bound, set()).add(index)
        return binding

    def source(self, name):
        """The text of what `name` depends on."""
        return "\n\n".join(statement.source for statement in self.slice(name))

    def program(self, name):
        """What `run` needs to define `name`: a tree of texts and numbers."""
        return {"statements": [[each.cell, each.line, each.source] for each in self.slice(name)], "flags": self._flags()}

    def _flags(self):
        """The compiler's flags of all `from __future__ import …`, which hold for the rest of a notebook."""
        imports = (each.node for each in self.statements if isinstance(each.node, ast.ImportFrom) and each.node.module == "__future__")
        features = {alias.name for node in imports for alias in node.names} & set(__future__.all_feature_names)
        return sum(getattr(__future__, feature).compiler_flag for feature in features)


def quote_from(texts):
    """Have tracebacks show the lines of these cells. texts: {cell: its text}"""
    for cell, text in texts.items():
        lines = [line + "\n" for line in text.split("\n")]  # where Python ends a line; str.splitlines ends one at a form feed too
        linecache.cache[cell] = (len(text), None, lines, cell)


def run(program, given=()):
    """Run the statements of a program; returns its namespace, and the errors of statements that failed.

    given: names and values that take the place of the notebook's own definitions
    """
    given = dict(given)
    namespace, errors = {"__name__": "__main__", "__builtins__": builtins, **given}, []
    for cell, line, source in program["statements"]:
        try:
            exec(_compiled(cell, line, source, program["flags"]), namespace)
        except (Exception, SystemExit) as error:
            errors.append(error)
        namespace.update(given)
    return namespace, errors


@functools.lru_cache(maxsize=256)
def _compiled(cell, line, source, flags):
    """The code of a statement; what several answers rest on is compiled once."""
    if line < _FAR_DOWN:
        return compile("\n" * (line - 1) + source, cell, "exec", flags, dont_inherit=True)
    tree = ast.increment_lineno(ast.parse(source, cell), line - 1)
    return compile(tree, cell, "exec", flags, dont_inherit=True)


def read(notebook):
    """The cells of a notebook that hold code. Raises UnreadableNotebook.

    notebook: its JSON, or the tree that this holds
    """
    document = _document(notebook) if isinstance(notebook, str) else notebook
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        raise UnreadableNotebook("The file is JSON but not a notebook: it has no list of cells. Was another file saved under its name?")
    sources = []
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            source = "".join(map(str, source)) if isinstance(source, list) else str(source)
            sources.append((f"cell {number}", source))
    return sources


def _document(text):
    if not text.strip():
        raise UnreadableNotebook("The file is empty. Save the notebook in Jupyter, then check it again.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableNotebook(
            f"The file is not complete JSON ({error}), so it was cut short or edited by hand. "
            "Open it in Jupyter; if it does not open, take the last good copy."
        ) from error


def parse(notebook):
    """The Notebook that is in a file's text, or in the tree that this holds. Raises UnreadableNotebook."""
    statements, broken, sources, texts, carried, left = [], {}, dict(read(notebook)), {}, {}, MAX_CODE
    for cell, source in sources.items():
        if len(source) > left:
            broken[cell] = SyntaxError(f"with it, the notebook has more than {MAX_CODE} characters of code", (cell, 1, 1, ""))
            continue
        left -= len(source)
        found = read_cell(source)
        if found.error:
            broken[cell] = found.error
        texts[cell] = found.text
        carried |= found.carried
        statements += [dataclasses.replace(each, cell=cell) for each in found.statements]
    modules = {name for statement in statements if isinstance(statement.node, (ast.Import, ast.ImportFrom)) for name in statement.binds}
    for statement in statements:  # `torch.manual_seed(0)`, `plt.show()`: no definition depends on it
        statement.binds = statement.binds | (statement.calls - modules)
    return Notebook(statements, broken, sources, texts, carried)


@dataclasses.dataclass(frozen=True)
class Cell:
    """The code of one cell."""

    text: str  # as Python
    statements: tuple[Statement, ...] = ()
    carried: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    error: SyntaxError | None = None  # why all of it, or a statement of it, could not be read


def read_cell(source):
    """The Cell that a text is; it is shared, and to be left as it is."""
    return (_kept_cell if len(source) <= _MAX_KEPT else _cell)(source)


def _cell(source):
    try:
        python, tree = _python(source)
    except _UNREADABLE as error:
        return Cell(source, error=_syntax_error(error))
    statements, carried, broken = [], {}, None
    encoded = [(line + "\n").encode() for line in python.split("\n")]
    for node in tree.body:
        if loaded := _carried(node):
            carried |= loaded
        elif "get_ipython" not in python or not _is_magic(node):
            try:
                statements.append(_statement(node, encoded))
            except _UNREADABLE as error:  # well-formed, but not at the top level: `nonlocal x`
                broken = _syntax_error(error)
    return Cell(python, tuple(statements), carried, broken)


_kept_cell = functools.lru_cache(maxsize=256)(_cell)


_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what a parser raises: null bytes, nesting too deep


def _syntax_error(error):
    if isinstance(error, SyntaxError) and error.lineno:
        return error
    return SyntaxError(str(error) or "it is nested too deeply", ("", 1, 1, ""))


def _python(source):
    """A cell as Python, and its tree; what is Python as it stands has no magics, and need not be searched for them."""
    try:
        python = re.sub(r"\r\n?", "\n", source)
        return python, ast.parse(python)
    except _UNREADABLE:
        python = re.sub(r"\r\n?", "\n", _without_magics(source))
        return python, ast.parse(python)


_TIMING = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit")  # their cells hold ordinary code


def _without_magics(source):
    lines = source.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].lstrip().startswith("%%"):
        if lines[first].split()[0] not in _TIMING:
            return ""
        lines[first] = ""
        return _without_magics("\n".join(lines))
    from IPython.core.inputtransformer2 import TransformerManager  # takes a while to import, and most cells have no magics

    # a new one each time: it keeps state from a cell that it could not read
    return TransformerManager().transform_cell(source)


def _carried(node):
    """{name: (module, its name there)} of a statement like `a, b = parts.load("module", "a", "b")`; empty for any other."""
    match node:
        case ast.Assign([target], ast.Call(ast.Attribute(ast.Name("parts"), "load"), [module, *names])):
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            constants = [each.value for each in (module, *names) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if len(constants) == len(names) + 1 == len(targets) + 1 and all(isinstance(each, ast.Name) for each in targets):
                return {each.id: (constants[0], name) for each, name in zip(targets, constants[1:])}
    return {}


def _is_magic(node):
    return any(isinstance(child, ast.Name) and child.id == "get_ipython" for child in ast.walk(node))


def _statement(node, lines):
    """lines: of its cell, in UTF-8, in which the compiler counts columns"""
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    first = min([node.lineno, *decorators])
    own = lines[first - 1 : node.end_lineno]
    own[-1] = own[-1][: node.end_col_offset]
    if not decorators:
        own[0] = own[0][node.col_offset :]
    source = b"".join(own).decode()
    uses, binds = globals_of(node, source)
    changed, calls = _changed(node)
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        binds.add("*")
    return Statement(node, first, source, binds | changed, uses, calls)


def globals_of(node, source=""):
    """The global names that a statement refers to, and those that it binds, by the compiler's own symbol table.

    source: its text, where that is at hand
    """
    top = symtable.symtable(source or ast.unparse(node), "statement", "exec")
    uses, binds, tables = set(), set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            is_global = table is top or symbol.is_global()
            # in a class, `f = staticmethod(f)` binds a name of the class and refers to the global one
            if (is_global or table.get_type() == "class") and symbol.is_referenced():
                uses.add(symbol.get_name())
            if is_global and (symbol.is_assigned() or symbol.is_imported()):
                binds.add(symbol.get_name())
    return uses, binds


def _changed(node):
    """Names that a statement changes without binding them: by `x[0] = 1`, `x.a += 1`, `del x[0]`; and by calls, `x.append(1)`."""
    targets, called, nodes = [], [], [node]
    while nodes:
        child = nodes.pop()
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue  # inside a definition nothing happens yet
        if isinstance(child, (ast.Assign, ast.Delete)):
            targets += child.targets
        elif isinstance(child, (ast.AugAssign, ast.AnnAssign)):
            targets.append(child.target)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            called.append(child.value.func)
        nodes += ast.iter_child_nodes(child)
    return _roots(targets), _roots(called)


def _roots(nodes):
    return {_root(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript))} - {""}


def _root(node):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
