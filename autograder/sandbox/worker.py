"""The process in which an untrusted answer runs: answers requests on its standard streams until they close.

Requests, one frame each (see `wire`), and their replies:
    {"texts": {cell: text}}                                  {}
    {"define": name, "program": …, "given": {name: source}}  {}
    {"probe": name, "inputs": …, "options": …}               fields of an Observation, of the name defined last
"""

import math
import os

import numpy as np
import torch

from . import loader, observe, wire


def serve():
    """Answer requests until standard input closes."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what an answer prints must not get among the frames
        os.dup2(silence, descriptor)
    torch.set_num_threads(1)
    target, failure = None, None
    while (request := wire.read(requests)) is not None:
        reply = {}
        if "texts" in request:
            loader.quote_from(request["texts"])
        elif "define" in request:
            target, failure = _define(request["define"], request["program"], request["given"])
        elif failure:
            reply = observe.Observation(failure=failure)
        else:
            torch.set_default_device(None)
            observe.set_standard_state()
            reply = observe.observe_in(request["probe"], target, request["inputs"], request["options"])
        replies.write(wire.pack(reply))
        replies.flush()


def _define(name, program, given):
    """(what is defined under that name, None), or (None, why there is nothing)."""
    replacements = {}
    for key, source in given.items():
        namespace = {"np": np, "math": math, "torch": torch, "nn": torch.nn}
        exec(source, namespace)
        replacements[key] = namespace[key]
    observe.set_standard_state()
    namespace, errors = loader.run(program, replacements)
    if name in namespace:
        return namespace[name], None
    missing = observe.Failure("NameError", f"{name} is not defined once the notebook's definitions have run.")
    return None, observe.failure(errors[-1]) if errors else missing
