"""Loading of saved models of every kind."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

from shortlist.errors import StorageError
from shortlist.recommenders.checkpoint import SUFFIX
from shortlist.recommenders.registry import REGISTRY, restored
from shortlist.storage import load_model


def load(path: str | PathLike[str], *, verify: bool = False) -> Any:
    """Load a model that `save` wrote.

    The model does not need the data it was fitted on. Loading never executes code from the files.

    Loading takes milliseconds: arrays and ids are read-only views of the files, and processes that load the same model
    share its memory. The model stays valid when another one is saved to the same path. Never change a file in place:
    replace the whole directory.

    Args:
        path: the directory of the model.
        verify: check everything now: checksums, ids and all numbers, which reads the whole model once. Without it,
            indices are checked when they are first used, and a damaged file may give wrong answers.
    """
    stored = load_model(path, verify=verify)
    if (name := stored.kind.removesuffix(SUFFIX)) != stored.kind and name in REGISTRY:
        raise StorageError(
            f"{path} contains a checkpoint of a fit of {name}, not a model; resume it with {name}(…).fit(interactions, "
            "checkpoint=…) and save the result"
        )
    if stored.kind == "TwoStage":
        from shortlist.reranking import two_stage_storage  # two stages are rare, and take long to import

        return two_stage_storage.restored(stored, path, verify=verify)
    return restored(stored, path, verify=verify)


def convert(path: str | PathLike[str], target: str | PathLike[str]) -> None:
    """Rewrite a saved model in the present format, so that it loads fast; check everything while reading it.

    Args:
        path: the directory of the model; it does not change.
        target: a path that does not exist yet.
    """
    if os.path.lexists(target):
        raise StorageError(f"'{target}' already exists; choose another path for the converted model")
    load(path, verify=True).save(target)
