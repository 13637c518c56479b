"""What runs where the answer runs: in the learner's kernel, or in a process of its own.

Nothing in this package imports the reference, the exercises or their mistakes; it imports only the
standard library, numpy and torch; and where a cell has magics, IPython's cell transformer.
"""
