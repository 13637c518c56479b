"""The reference implementation: a small transformer library that the course builds, one file a module."""
