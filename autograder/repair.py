"""From the bytes of a submitted notebook to one that can be graded: the learner's answers, and nbgrader's cells as they were given out.

Nothing of a submission is believed but the text of its cells. Which of them answers an exercise is seen from the name that it defines.
"""

import ast
import dataclasses
import difflib
import functools
import itertools
import json
import re

from autograder import exercises
from autograder.cells import is_stub
from autograder.sandbox import loader

MAX_BYTES = 200_000_000  # of a notebook; most of it can only be outputs
MAX_CELLS = 2_000
MAX_CELL, MAX_CODE = 100_000, 400_000  # characters in one cell, in all code cells; a module has some 30,000
_BIG_EXTRAS = 5_000_000  # characters
_LISTED = 24  # names in one sentence
_CONFLICT = re.compile(r"^<{7}[^\n]*\n(.*?)(?:^\|{7}[^\n]*\n.*?)?^={7}\r?\n(.*?)^>{7}[^\n]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)


class NotGradable(Exception):
    """There is no answer to be found; one sentence for the instructor (the message), and one for the learner."""

    def __init__(self, instructor, learner):
        super().__init__(instructor)
        self.learner = learner


@dataclasses.dataclass(frozen=True)
class Repaired:
    """A notebook that can be graded, a sentence for each repair, and whether any exercise is answered in it."""

    notebook: dict
    repairs: tuple
    answered: bool


@dataclasses.dataclass(frozen=True, eq=False)
class _Given:
    """A cell as it was given out."""

    kind: str
    source: str
    id: str
    metadata: dict

    @property
    def marks(self):
        """nbgrader's metadata; empty where it has none."""
        return self.metadata.get("nbgrader", {})


@dataclasses.dataclass(eq=False)
class _Cell:
    kind: str  # "code", "markdown" or "raw"
    source: str
    id: str = ""  # as submitted
    marks: dict = dataclasses.field(default_factory=dict)  # nbgrader's metadata, as submitted
    grade_id: str = ""  # of the cell that was given out and that this one is, was, or is a copy of
    given: _Given | None = None  # that cell, once it is settled that this one is it


def repair(data, module, master):
    """The Repaired notebook.

    data: bytes of a submitted file
    module: the Module that it should answer
    master: the notebook that was given out (a tree), whose marked cells count
    Raises NotGradable.
    """
    repairs = []
    text = _text(data, repairs)
    document, cut = _document(text, repairs)
    cells = _cells(document, repairs)
    extra = len(text) - sum(len(cell.source) for cell in cells)
    if extra > _BIG_EXTRAS:
        repairs.append(f"{extra // 10**6} MB of outputs and other things that are no cells were left out.")
    return _Repair(cells, module, master).run(repairs, cut)


def _given(master):
    return [_Given(cell["cell_type"], "".join(cell["source"]), cell["id"], cell["metadata"]) for cell in master["cells"]]


def _text(data, repairs):
    if len(data) > MAX_BYTES:
        raise NotGradable(
            f"The notebook is larger than {MAX_BYTES // 10**6} MB.",
            f"Your notebook is larger than {MAX_BYTES // 10**6} MB. Clear its outputs, save it, and hand it in again.",
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or data[1:200:2].count(0) > len(data[1:200:2]) // 2:
        repairs.append("The file was saved as UTF-16; it was read as that.")
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-16-le", errors="replace")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            repairs.append("The file was not saved as UTF-8; it was read as Windows-1252.")
            text = data.decode("cp1252", errors="replace")
        if text.startswith("\ufeff"):
            repairs.append("The file began with a byte-order mark, which was left out.")
    text = text.removeprefix("\ufeff")
    if "\0" in text and text.strip("\0"):
        repairs.append("Null bytes were left out.")
    text = text.replace("\0", "").strip()
    if not text:
        raise NotGradable(
            "The notebook is an empty file.", "The file that arrived is empty. Save the notebook in Jupyter, and hand it in again."
        )
    return text


def _document(text, repairs):
    """(the JSON of a notebook, a sentence on where it was cut short or "")."""
    decoder = json.JSONDecoder(strict=False)
    try:
        document, end = decoder.raw_decode(text)
        if text[end:].strip():
            repairs.append("The file went on after the end of the notebook; what followed was left out.")
        return document, ""
    except RecursionError:
        raise _unreadable("is nested too deeply to be read") from None
    except ValueError as error:
        where = str(error)
    if _CONFLICT.search(text):
        for half, name in ((r"\1", "upper"), (r"\2", "lower")):
            try:
                document = decoder.decode(_CONFLICT.sub(half, text))
            except (ValueError, RecursionError):
                continue
            repairs.append(f"The file held a merge conflict that nobody had resolved; the {name} version of each place was taken.")
            return document, ""
        raise _unreadable("holds a merge conflict that nobody has resolved, and neither version of it is a notebook")
    return {"cells": _whole_cells(text, decoder)}, where


def _unreadable(what):
    return NotGradable(
        f"The notebook {what}.",
        f"Your notebook {what}. Open it in Jupyter; if it does not open, take the last good copy, and hand that in.",
    )


def _whole_cells(text, decoder):
    """The cells before the place where a file was cut short."""
    start = re.search(r'"cells"\s*:\s*\[', text)
    cells, position = [], start.end() if start else len(text)
    while True:
        position = re.compile(r"[\s,]*").match(text, position).end()
        try:
            cell, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return cells
        cells.append(cell)


def _cells(document, repairs):
    """The _Cells of a notebook's JSON, in whatever format it is."""
    found = document.get("cells") if isinstance(document, dict) else None
    if isinstance(document, dict) and isinstance(document.get("worksheets"), list):
        repairs.append("The notebook was in nbformat 3; it was converted to nbformat 4.")
        found = [cell for sheet in document["worksheets"] if isinstance(sheet, dict) for cell in sheet.get("cells") or []]
    if not isinstance(found, list):
        raise NotGradable(
            "The file is JSON, but no notebook: it has no list of cells.",
            "The file that arrived is no notebook: it has no cells. Was another file saved under its name?",
        )
    if len(found) > MAX_CELLS:
        raise NotGradable(
            f"The notebook has {len(found)} cells, more than {MAX_CELLS}.",
            f"Your notebook has {len(found)} cells. Delete those that you don't need.",
        )
    cells, changed = [_cell(cell) for cell in found if isinstance(cell, dict)], set()
    for cell in cells:
        source = cell.source.replace("\r\n", "\n").replace("\r", "\n")
        if source != cell.source:
            changed.add("Windows line ends were replaced.")
        clean = re.sub("[\0\ud800-\udfff]", lambda found: "" if found[0] == "\0" else "\ufffd", source)
        if clean != source:
            changed.add("Characters that are no text were replaced.")
        if len(clean) > MAX_CELL:
            changed.add(f"A cell of more than {MAX_CELL} characters was left out.")
            clean = ""
        cell.source = clean
    repairs += sorted(changed)
    if (size := sum(len(cell.source) for cell in cells if cell.kind == "code")) > MAX_CODE:
        raise NotGradable(
            f"The notebook holds {size} characters of code, more than {MAX_CODE}.",
            f"Your notebook holds {size} characters of code. Delete the cells that you don't need, and hand it in again.",
        )
    return cells


def _cell(cell):
    source = cell.get("source", cell.get("input", ""))
    source = "".join(map(str, source)) if isinstance(source, list) else str(source)
    kind = cell.get("cell_type") if cell.get("cell_type") in ("code", "raw") else "markdown"
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return _Cell(kind, source, cell["id"] if isinstance(cell.get("id"), str) else "", marks if isinstance(marks, dict) else {})


class _Repair:
    """One notebook on its way from what was submitted to what can be graded."""

    def __init__(self, cells, module, master):
        self.cells, self.module = cells, module
        self.names = [exercise.name for exercise in module.exercises]
        self.master, self.metadata = _given(master), master["metadata"]
        self.marked = {cell.marks["grade_id"]: cell for cell in self.master if cell.marks}
        # examples of the lesson: one may have an exercise's name
        self.demos = {cell.source for cell in self.master if not cell.marks}
        self.done = {}  # {what was done: [the exercises to which]}
        for cell in cells:
            claimed = [id for id in (cell.marks.get("grade_id"), cell.id) if isinstance(id, str)]
            cell.grade_id = next((id for id in claimed if id in self.marked), "")

    def note(self, what, name):
        """Keep for the list of repairs that this was done to that exercise or cell."""
        if name not in self.done.setdefault(what, []):
            self.done[what].append(name)

    def run(self, repairs, cut):
        """The Repaired notebook."""
        if not cut:
            self.refuse_foreign()
        before = {cell.grade_id: cell for cell in reversed(self.cells) if cell.grade_id}
        self.join_split()
        self.revive()
        self.separate()
        self.claim()
        answers = [name for name in self.names if self.owner(name)]
        if cut:
            self.refuse_cut(answers, cut, repairs)
        self.restore_locked(before)
        self.report_marks(before)
        self.restore_deleted()
        self.restore_setup()
        repairs += [f"{what}: {_listed(names)}." for what, names in self.done.items()]
        return Repaired(self.notebook(), tuple(repairs), any(self.real(name) for name in answers))

    def refuse_foreign(self):
        """Raise NotGradable where it is the notebook of another module, or of none."""
        defined = {name for cell in self.cells if cell.source not in self.demos for name in _defined(cell.source)}
        seen = {cell.grade_id for cell in self.cells} | defined
        own, opened = seen & set(self.names), self.opened()
        other = exercises.module(opened) if opened in exercises.NAMES and opened != self.module.name else None
        if other and len(seen & {exercise.name for exercise in other.exercises}) >= len(own):
            raise NotGradable(
                f"It is the notebook of the module {opened}, not of {self.module.name}.",
                f"You handed in the notebook of the module {opened}; this is the assignment {self.module.folder}. "
                f"Hand in {self.module.slug}.ipynb.",
            )
        if not own and opened != self.module.name:
            raise NotGradable(
                f"It is no notebook of the module {self.module.name}: none of its exercises is in it.",
                f"The notebook that arrived holds no exercise of {self.module.folder}. Hand in {self.module.slug}.ipynb.",
            )

    def opened(self):
        """The module that the notebook opens first; "" where it opens none."""
        for cell in self.cells:
            if cell.kind == "code" and (found := re.search(r"^[^#\n]*\bopen_module\(\s*['\"](\w+)['\"]", cell.source, re.MULTILINE)):
                return found[1]
        return ""

    def join_split(self):
        """Join what is Python only together: a function of which the cell was split in the middle."""
        joined = []
        for cell in self.cells:
            above = joined[-1] if joined else None
            indented = cell.source.lstrip("\n")[:1].isspace()  # IPython would take the indent away, and read a method as a function
            if above and above.kind == cell.kind == "code" and (indented or _read(cell.source) is None or _read(above.source) is None):
                together = f"{above.source}\n{cell.source}"
                names = [name for name in self.names if name in _defined(together)]
                if names:
                    self.note("Its cell was split in two; joined again", names[-1])
                    above.source, above.grade_id = together, above.grade_id or cell.grade_id
                    continue
            joined.append(cell)
        self.cells = joined

    def revive(self):
        """Turn cells that hold an answer back into code, where no code answers that exercise."""
        code = [cell for cell in self.cells if cell.kind == "code" and cell.source not in self.demos]
        answered = {name for cell in code for name, stub in _answers(cell.source) if not stub}
        in_code = {cell.grade_id for cell in self.cells if cell.kind == "code"}
        for cell in self.cells:
            if cell.kind != "code" and cell.source not in self.demos:
                names = {name for name, stub in _answers(cell.source) if name in self.names and not stub} - answered
                if cell.grade_id in self.names and cell.grade_id not in in_code | answered:
                    names.add(cell.grade_id)
                if names:
                    cell.kind = "code"
                    for name in sorted(names, key=self.names.index):
                        self.note("Its cell was no code cell; turned back into one", name)

    def separate(self):
        """Cut a cell that answers several exercises into one for each, where it is plain Python."""
        cells = []
        for cell in self.cells:
            answered = [name for name in self.names if name in _defined(cell.source)] if cell.kind == "code" else []
            pieces = _pieces(cell.source, answered) if len(answered) > 1 else []
            if not pieces:
                cells.append(cell)
                continue
            for name in answered:
                self.note("Stood in one cell with other exercises; given a cell of its own", name)
            cells += [_Cell("code", piece, marks=cell.marks) for piece in pieces]
        self.cells = cells

    def claim(self):
        """Settle which cell answers which exercise: the last that defines it, stubs aside; and take out stubs that would hide it."""
        for name in self.names:
            marked = [cell for cell in self.cells if cell.grade_id == name and cell.kind == "code"]
            defining = [cell for cell in self.cells if self.answers(cell, name)]
            real = [cell for cell in defining if not is_stub(_defined(cell.source)[name])]
            broken = [cell for cell in marked if _read(cell.source) is None]
            owner = next((found[-1] for found in (real, broken, marked, defining) if found), None)
            if owner is None:
                continue
            owner.given = owner.given or self.marked[name]
            if len(marked) > 1:
                self.note("Its cell was there more than once; the last answer counts", name)
            for stub in [cell for cell in defining if cell not in (*real, owner)]:
                rest = _without(stub.source, name)
                if rest is None or (rest.strip() and self.cells.index(stub) < self.cells.index(owner)):
                    continue  # other things stand there too, and it hides nothing
                stub.source = rest
                if not rest.strip():
                    self.cells.remove(stub)
                if real and len(marked) < 2:
                    self.note("Answered in another cell than its own; the empty one was left out", name)

        for id, given in self.marked.items():  # what people grade
            found = [cell for cell in self.cells if cell.grade_id == id]
            if found and given.marks["solution"] and id not in self.names:
                found[-1].given, found[-1].kind = given, given.kind

    def answers(self, cell, name):
        """Whether a cell defines the name of an exercise, and is not an example of the lesson that does."""
        return cell.kind == "code" and cell.source not in self.demos and name in _defined(cell.source)

    def owner(self, name):
        """The cell that answers an exercise, or None."""
        given = (cell for cell in self.cells if cell.given is self.marked[name])
        shared = (cell for cell in reversed(self.cells) if self.answers(cell, name))
        return next(itertools.chain(given, shared), None)

    def real(self, name):
        """Whether an exercise is answered, well or badly."""
        node = _defined(self.owner(name).source).get(name)
        return node is None or not is_stub(node)  # None: Python can't read it

    def refuse_cut(self, answers, cut, repairs):
        """Raise NotGradable where answers were lost with the end of the file."""
        lost = [name for name in self.names if name not in answers]
        if lost:
            raise NotGradable(
                f"The file is no complete JSON ({cut}), and these exercises are lost: {_listed(lost)}.",
                f"Your file arrived cut short or damaged: {_listed(lost)} can't be found in it. "
                "Open it in Jupyter, save it, and hand it in again.",
            )
        repairs.append("The file was cut short or damaged; the cells of all exercises were still whole.")

    def restore_locked(self, before):
        """Put every locked cell back as it was given out, below the answer that it is about."""
        locked = {id: cell for id, cell in self.marked.items() if not cell.marks["solution"]}
        for id, given in locked.items():
            found = [cell for cell in self.cells if cell.grade_id == id and not cell.given]
            found = found or [cell for cell in self.cells if cell.source.strip() == given.source.strip() and not cell.given][:1]
            if len(found) != 1:
                self.note("A locked cell was there more than once; put back" if found else "A locked cell was deleted; put back", id)
            for cell in found:
                before.setdefault(id, cell)
                same = cell.source.strip() == given.source.strip() and cell.kind == given.kind
                if not same and any(binds for _, binds in _read(cell.source) or ()):
                    self.note("A locked cell was written in; what it defines was moved to a cell of its own", id)
                    cell.grade_id = ""
                    continue
                self.cells.remove(cell)
                if not same:
                    self.note("A locked cell was changed; put back", id)
        for id, given in locked.items():
            owner = self.owner(id.removeprefix("check-")) if id.removeprefix("check-") in self.names else None
            place = self.cells.index(owner) + 1 if owner else self.place(given)
            self.cells.insert(place, _Cell(given.kind, given.source, grade_id=id, given=given))

    def report_marks(self, before):
        """Note which of nbgrader's marks were lost or edited, and which cells stand elsewhere, where nothing was noted of them yet."""
        noted = {name for names in self.done.values() for name in names}
        for id, given in self.marked.items():
            cell, expected = before.get(id) or (self.owner(id) if id in self.names else None), given.marks
            keys = [key for key in ("grade_id", "grade", "solution", "locked", "points") if key in expected]
            if cell and id not in noted and any(cell.marks.get(key) != expected[key] for key in keys):
                self.note(f"nbgrader's metadata was {'changed' if cell.marks else 'lost'}; put back", id)
        ids = [cell.given.marks["grade_id"] for cell in self.cells if cell.given and cell.given.marks["solution"]]
        order = [id for id in self.marked if id in ids]
        for tag, start, end, _, _ in difflib.SequenceMatcher(None, ids, order, autojunk=False).get_opcodes():
            for id in ids[start:end] if tag in ("delete", "replace") else []:
                if id not in noted:
                    self.note("Stands in another place than it was given out", id)

    def restore_deleted(self):
        """Put back the cells of answers that are not there."""
        for name, given in self.marked.items():
            if given.marks["solution"] and self.owner(name) is None:
                self.note("Deleted; put back, without an answer", name)
                checks = [cell for cell in self.cells if cell.grade_id == f"check-{name}"]
                place = self.cells.index(checks[0]) if checks else self.place(given)
                self.cells.insert(place, _Cell(given.kind, given.source, grade_id=name, given=given))

    def restore_setup(self):
        """Put the module's call of open_module, and imports that answers use, back at the top where they are missing."""
        setup = []
        for cell in self.master:
            if cell.marks:
                break
            if cell.kind == "code" and re.search(r"^(import|from) ", cell.source, re.MULTILINE):
                setup.append(cell)
        used = set().union(*(_uses(cell.source) for cell in self.cells if cell.kind == "code" and cell.source not in self.demos))
        bound = set()
        for cell in self.cells:
            if cell.kind == "code":
                bound |= set().union(*(binds for _, binds in _read(cell.source) or ()))
                if set(self.names) & set(_defined(cell.source)):
                    break  # imports further down come too late for it
        for cell in reversed(setup):
            is_opening = "open_module(" in cell.source
            missing = self.opened() != self.module.name if is_opening else set(_defined(cell.source)) & used - bound
            if missing:
                what = f"open_module({self.module.name!r})" if is_opening else f"the imports of {_listed(sorted(missing))}"
                self.note("Missing at the top; put back", what)
                self.cells.insert(0, _Cell("code", cell.source))

    def place(self, given):
        """Where a cell belongs: below what stands above it in the notebook that was given out."""
        for above in reversed(self.master[: self.master.index(given)]):
            for position, cell in enumerate(self.cells):
                if cell.given is above or cell.source == above.source:
                    return position + 1
        return 0

    def notebook(self):
        """The cells as a notebook, with nothing of the submission in it but their texts; metadata are those that were given out."""
        made, used = [], {cell.given.id for cell in self.cells if cell.given}
        for number, cell in enumerate(self.cells):
            id = cell.given.id if cell.given else cell.id
            if not cell.given and (id in used or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id)):
                id = f"cell-{number}"
            used.add(id)
            outputs = {"execution_count": None, "outputs": []} if cell.kind == "code" else {}
            metadata = cell.given.metadata if cell.given else {}
            made.append({"id": id, "cell_type": cell.kind, "metadata": metadata, "source": cell.source, **outputs})
        return {"nbformat": 4, "nbformat_minor": 5, "metadata": self.metadata, "cells": made}


@functools.lru_cache(maxsize=256)
def _read(source):
    """[(statement, the global names that it binds)] of a cell; None where Python can't read it."""
    cell = loader.read_cell(source)
    return None if cell.error else [(each, loader.globals_of(each.node, each.source)[1]) for each in cell.statements]


@functools.lru_cache(maxsize=256)
def _defined(source):
    """{name: the last statement that binds it} of a cell; shared, and to be left as it is."""
    return {name: each.node for each, binds in _read(source) or () for name in binds}


def _answers(source):
    """[(name, whether it is a stub)] of the functions and classes that a text defines."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [(name, is_stub(node)) for name, node in _defined(source).items() if isinstance(node, definitions)]


def _uses(source):
    return set().union(*(each.uses for each, _ in _read(source) or ()))


def _spans(source):
    """[(first line, last line, names that it defines)] of the statements of plain Python; [] where there are magics."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    starts = [min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) for node in body]
    return [(start, node.end_lineno, loader.globals_of(node)[1]) for start, node in zip(starts, body)]


def _pieces(source, names):
    """The text cut so that each of the names is defined in a piece of its own; [] where it can't be cut."""
    lines, spans = source.split("\n"), _spans(source)
    wanted = [(start, end) for start, end, binds in spans if binds & set(names)]
    if any(one[1] >= other[0] for one, other in itertools.pairwise(wanted)):
        return []  # on one line
    cuts = sorted({0, len(lines), *(start - 1 for start, _ in wanted), *(end for _, end in wanted)})
    pieces = ["\n".join(lines[start:end]).strip("\n") for start, end in itertools.pairwise(cuts)]
    return [piece for piece in pieces if piece.strip()] if wanted else []


def _without(source, name):
    """The text without the statements that define a name; None where it can't be cut."""
    lines, spans = source.split("\n"), _spans(source)
    for start, end, binds in reversed(spans):
        if name in binds:
            del lines[start - 1 : end]
    return "\n".join(lines) if spans else None


def _listed(names):
    shown = ", ".join(names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown
