"""What nbgrader needs to know about this course; run its commands from the folder of this file."""

from autograder import converter

c = get_config()  # noqa: F821 (traitlets puts it there)

c.CourseDirectory.course_id = "attention"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "lesson.md", "*.py"]

c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\nraise NotImplementedError()"}
c.HTMLExporter.sanitize_html = True  # a learner's HTML would otherwise run with the instructor's rights
c.HTMLExporter.filters = {"clean_html": "autograder.safe_html.clean", "markdown2html": "autograder.safe_html.markdown"}
c.ExecutePreprocessor.timeout = 600  # seconds a cell: the demos train small models
converter.install(c)  # grades as `python -m autograder check` does; without this line, nbgrader executes notebooks in a kernel
