"""Which file of a submission is the notebook: looks into its folders and zips, follows no link, unpacks nothing to disk."""

import dataclasses
import hashlib
import io
import json
import os
import stat
import time
import zipfile

from autograder import cells, repair, report
from autograder.repair import NotGradable
from autograder.verdict import CanNotCheck

MAX_FILES, MAX_DEPTH, MAX_NOTEBOOKS = 2_000, 8, 20  # looked at, in one submission
MAX_ZIPS = 2  # one within the other
_LEFT_OUT = {".ipynb_checkpoints", "__MACOSX", ".git"}


@dataclasses.dataclass
class _Found:
    name: str  # its path, as the submission has it
    modified: float  # seconds since 1970
    data: bytes


class _Search:
    """The notebooks of one submission, and what else is there, in words."""

    def __init__(self):
        self.notebooks, self.others, self.refused = [], [], []
        self.left, self.room = MAX_FILES, repair.MAX_BYTES  # files that may still be looked at, bytes that may still be read

    def folder(self, path, within="", depth=0):
        """Search a folder."""
        try:
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.refused.append(f"{within or 'the folder'} can't be read ({error.strerror})")
            return
        for entry in found:
            name, mode = within + _shown(entry.name), entry.stat(follow_symlinks=False).st_mode
            self.left -= 1
            if self.left < 0 or entry.name in _LEFT_OUT:
                continue
            if stat.S_ISDIR(mode):
                if depth < MAX_DEPTH:
                    self.folder(entry.path, f"{name}/", depth + 1)
            elif not stat.S_ISREG(mode):
                self.refused.append(f"{name} is a link, not a file" if stat.S_ISLNK(mode) else f"{name} is no ordinary file")
            elif _wanted(entry.name):
                self.file(entry.path, name)
            else:
                self.others.append(name)

    def file(self, path, name):
        """Take a notebook or look into a zip, if it is an ordinary file that nobody else shares."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            self.refused.append(f"{name} can't be read ({error.strerror})")
            return
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                self.refused.append(f"{name} is a hard link to a file elsewhere")
            else:
                self.take(name, status.st_mtime, file)

    def take(self, name, modified, file, zips=0):
        """Read a notebook, or search a zip, where there is room for it."""
        data = file.read(self.room + 1)
        if len(data) > self.room:
            self.refused.append(f"{name} is too large (more than {repair.MAX_BYTES // 10**6} MB in all)")
            return
        self.room -= len(data)
        if name.lower().endswith(".zip"):
            self.zip(name, data, zips + 1)
        elif len(self.notebooks) < MAX_NOTEBOOKS:
            self.notebooks.append(_Found(name, modified, data))

    def zip(self, name, data, zips):
        """Search a zip, in memory."""
        if zips > MAX_ZIPS:
            self.refused.append(f"{name} lies in more than {MAX_ZIPS} zips")
            return
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for entry in archive.infolist():
                    self.left -= 1
                    parts = entry.filename.split("/")
                    if self.left < 0 or entry.is_dir() or _LEFT_OUT & set(parts) or not _wanted(parts[-1]):
                        continue
                    inner = f"{name}/{_shown(entry.filename)}"
                    if ".." in parts or entry.filename.startswith("/") or stat.S_ISLNK(entry.external_attr >> 16):
                        self.refused.append(f"{inner} is a link or leads out of the zip")
                    else:
                        with archive.open(entry) as file:
                            self.take(inner, time.mktime((*entry.date_time, 0, 0, -1)), file, zips)
        except Exception as error:  # zipfile raises nearly anything on what is broken or locked
            self.refused.append(f"{name} can't be unpacked ({error})")


def _shown(name):
    """A name from outside, as it may stand in a log and on a page."""
    return " ".join(report.printable(name).split())


def _wanted(name):
    return not name.startswith("._") and (".ipynb" in name.lower() or name.lower().endswith(".zip"))


def given_out(path, module):
    """The learner's notebook of a module (a tree), without answers: an instructor may have tried it out where it lies.

    Raises CanNotCheck where it is not there.
    """
    if not os.path.exists(path):
        raise CanNotCheck(f"There is no {path}: run `nbgrader generate_assignment {module.folder}` first.")
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        if exercise := module.exercise(cell["metadata"].get("nbgrader", {}).get("grade_id")):
            cell["source"] = cells.stub(exercise.reference)
    return notebook


def digest(path):
    """A digest of all that matters of a submission, which changes when that does."""
    search, found = _search(path), hashlib.sha256()
    for notebook in search.notebooks:
        found.update(f"{notebook.name}\0{len(notebook.data)}\0".encode(errors="replace") + notebook.data)
    found.update(repr((search.others, search.refused)).encode(errors="replace"))
    return found.hexdigest()


def _search(path):
    search = _Search()
    if os.path.isdir(path) and not os.path.islink(path):
        search.folder(path)
    else:
        search.file(path, _shown(os.path.basename(path)))
    return search


def repaired(path, module, master):
    """The Repaired notebook of a submission, a folder or a file: of several, one with answers, then that of its name, then the newest.

    module, master: as `repair.repair` takes them. Raises NotGradable.
    """
    search = _search(path)
    expected = f"{module.slug}.ipynb"
    search.notebooks.sort(key=lambda found: (found.name != expected, -found.modified))
    good, bad = [], []
    for found in search.notebooks:
        try:
            good.append((found, repair.repair(found.data, module, master)))
        except NotGradable as error:
            bad.append((found, error))
    if good:
        good.sort(key=lambda pair: not pair[1].answered)
        found, result = good[0]
        others = [other.name for other in search.notebooks if other is not found]
        notes = [f"The notebook was handed in as {found.name}."] if found.name != expected else []
        notes += [f"There were other notebooks, which were not graded: {', '.join(others)}."] if others else []
        notes += [f"Not looked at: {'; '.join(search.refused)}."] if search.refused else []
        return dataclasses.replace(result, repairs=(*notes, *result.repairs))
    if bad:
        found, error = bad[0]
        raise NotGradable(f"{found.name}: {error}", error.learner)
    things = search.refused + [f"only {', '.join(search.others[:5])}"] * bool(search.others) or ["it is empty"]
    raise NotGradable(
        f"There is no notebook in the submission: {'; '.join(things)}.",
        f"No notebook arrived. Hand in {expected} itself, as you saved it in Jupyter.",
    )
