"""What a computation costs: its seconds, the memory it keeps for training, and how many of its steps wait for each other."""

import time

import torch


def seconds(function, repeats=5):
    """The time of the fastest of several calls, after one that doesn't count."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def bytes_kept(function):
    """The memory that autograd keeps from a call until the backward pass, in bytes; some input must require a gradient."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function()  # noqa: F841 (while it lives, so does all that is kept for it)
    return sum(kept.values())


def longest_chain(output):
    """How many operations, each of which needs the result of the one before, lead to this tensor."""
    depth, todo = {}, [output.grad_fn]
    while todo:
        needed = [node for node, _ in todo[-1].next_functions if node is not None]
        waiting = [node for node in needed if node not in depth]
        if waiting:
            todo += waiting
        else:
            depth[todo.pop()] = 1 + max((depth[node] for node in needed), default=0)
    return depth[output.grad_fn]
