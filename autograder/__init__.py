"""Decides whether an answer is right, and says why where it is not."""

__all__ = ["open_module"]


def __getattr__(name):
    """`open_module`, imported with torch and all when it is asked for: nbgrader's other commands need neither."""
    if name != "open_module":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autograder.notebook import open_module

    return open_module
