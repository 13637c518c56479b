"""The process in which an untrusted answer runs: answers requests on its standard streams until they close.

Requests, one frame each (see `wire`), and their replies:
    {"notebook": text}                            {}
    {"define": name, "given": {name: source}}     {"defined": bool, "failure": fields of a Failure, or null}
    {"probe": name, "inputs": …, "options": …}    fields of an Observation, of the name defined last
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
    notebook, target = None, None
    while (request := wire.read(requests)) is not None:
        if "notebook" in request:
            notebook, reply = loader.parse(request["notebook"]), {}
        elif "define" in request:
            target, reply = _define(notebook, request["define"], request["given"])
        else:
            reply = observe.observe(request["probe"], target, request["inputs"], request["options"])
        replies.write(wire.pack(wire.fields(reply)))
        replies.flush()


def _define(notebook, name, given):
    replacements = {}
    for key, source in given.items():
        namespace = {"np": np, "math": math, "torch": torch, "nn": torch.nn}
        exec(source, namespace)
        replacements[key] = namespace[key]
    with observe.standard_state():
        namespace, errors = notebook.load(name, replacements)
    failure = observe.failure(errors[-1]) if errors else None
    return namespace.get(name), {"defined": name in namespace, "failure": failure}
