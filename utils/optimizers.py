"""The optimizer with which the module gpt trains on Shakespeare: two in one."""

import torch


class MuonAndAdam:
    """Muon (Jordan et al. 2024) for the matrices of the blocks, AdamW for all other parameters.

    Muon makes the update of a matrix orthogonal, so that all its directions move by the same amount. On small models it
    needs about a third fewer steps than AdamW. Here it takes AdamW's learning rates.
    """

    def __init__(self, model, weight_decay=0.1):
        """model: its matrices whose names begin with "blocks" go to Muon."""
        matrices = [parameter for name, parameter in model.named_parameters() if name.startswith("blocks") and parameter.dim() == 2]
        others = [parameter for name, parameter in model.named_parameters() if not (name.startswith("blocks") and parameter.dim() == 2)]
        self._parts = (
            torch.optim.Muon(matrices, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, betas=(0.9, 0.99), weight_decay=weight_decay, fused=True),
        )
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def zero_grad(self):
        """Forget all gradients."""
        for part in self._parts:
            part.zero_grad()

    def step(self):
        """Move all parameters."""
        for part in self._parts:
            part.step()
