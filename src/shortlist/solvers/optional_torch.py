"""PyTorch if it is installed, else None."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

try:
    torch: Any = import_module("torch")
except ModuleNotFoundError:  # reported by `torch_half_step.DeviceSolver`
    torch = None

Tensor: TypeAlias = Any  # torch.Tensor; torch may not be there to name it
