"""Loading of saved models of every kind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from typing import Any

from shortlist._checks import flag
from shortlist.errors import StorageError
from shortlist.recommenders.checkpoint import SUFFIX
from shortlist.recommenders.registry import own_classes, restored
from shortlist.storage import load_model


def load(path: str | PathLike[str], *, verify: bool = False, code: Iterable[type] = ()) -> Any:
    """Load a model that `save` wrote.

    The model does not need the data it was fitted on. Loading never executes code from the files.

    Loading takes milliseconds: arrays and ids are read-only views of the files, and processes that load the same model
    share its memory. The model stays valid when another one is saved to the same path. Never change a file in place:
    replace the whole directory.

    Args:
        path: the directory of the model.
        verify: check everything now: checksums, ids and all numbers, which reads the whole model once. Without it,
            indices are checked when they are first used, and a damaged file may give wrong answers.
        code: your own classes of recommenders that the model may be made of. A file never says what is imported.
    """
    code, verify = own_classes(code), flag("verify", verify)
    stored = load_model(path, verify=verify)
    if (name := stored.kind.removesuffix(SUFFIX)) != stored.kind:
        raise StorageError(
            f"{path} contains a checkpoint of a fit of {name}, not a model",
            code="model-missing",
            field="path",
            hint=f"resume it with {name}(…).fit(interactions, checkpoint=…) and save the result",
        )
    if stored.kind == "TwoStage":
        from shortlist.reranking.two_stage import TwoStage  # two stages are rare, and take long to import

        return TwoStage.from_stored(stored, path, verify=verify, code=code)
    return restored(stored, path, verify=verify, code=code)


def convert(path: str | PathLike[str], target: str | PathLike[str], *, code: Iterable[type] = ()) -> None:
    """Rewrite a saved model in the present format, so that it loads fast; check everything while reading it.

    Args:
        path: the directory of the model; it does not change.
        target: a path that does not exist yet.
        code: your own classes that the model may be made of, as in `load`.
    """
    if os.path.lexists(target):
        raise StorageError(
            f"'{target}' already exists",
            code="target-exists",
            field="target",
            hint="choose another path for the converted model",
        )
    load(path, verify=True, code=code).save(target)
