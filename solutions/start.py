"""The warm-up: a softmax in numpy, one shape at a time."""

import numpy as np


def softmax(x, dim):
    """Turn the numbers along axis `dim` into positive weights that sum to 1.

    Each number is replaced by its exponential, divided by the sum of the exponentials along `dim`.

    x: (...) numpy array of floats, any number of axes
    dim: the axis along which the weights sum to 1
    returns: (...) array of the shape and dtype of x

    >>> softmax(np.array([0.0, np.log(3.0)]), 0)
    array([0.25, 0.75])
    """
    e = np.exp(x - x.max(axis=dim, keepdims=True))  # the largest exponent is 0: nothing overflows
    return e / e.sum(axis=dim, keepdims=True)
