"""Decides whether an answer is right, and says why where it is not."""

from autograder.notebook import open_module

__all__ = ["open_module"]
