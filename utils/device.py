"""Where the demos of the course train: on a GPU where there is one."""

import torch


def default():
    """The device for training: "cuda" where torch sees a GPU, else "cpu"."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
