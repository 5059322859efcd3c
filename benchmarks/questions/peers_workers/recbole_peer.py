"""RecBole: BPR, the model that its `run_recbole.py` takes when none is named; it has no ALS.

Its package must be held back by `numpy<2`, `pandas<3`, `scipy<1.14` and `setuptools<81`, and needs
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 to read the checkpoint that it wrote.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peer_data import CUT, DIM, THREADS, BasePeer, Data
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed
from recbole.utils.case_study import full_sort_topk

SETUP: dict[str, Any] = {
    "benchmark_filename": ["train", "valid", "test"],
    "load_col": {"inter": ["user_id", "item_id"]},
    "use_gpu": False,
    "show_progress": False,
    "state": "ERROR",
    # The default of 4,096 is a number of user-item pairs and evaluates user by user; results do not depend on it.
    "eval_batch_size": 256 * 20_000,
}


class Peer(BasePeer):
    packages = ("recbole", "pandas")
    _trainer: Any = None
    _parts: Any = None
    _epochs = 0

    def epoch(self) -> dict[str, Any]:
        if self._trainer is None:
            torch.set_num_threads(THREADS)
            self._trainer, self._parts = self._ready("speed", self.speed, {"embedding_size": DIM})
        began = time.perf_counter()
        self._trainer._train_epoch(self._parts[0], self._epochs, show_progress=False)
        self._epochs += 1
        return {"seconds": time.perf_counter() - began}

    def prepare_evaluation(self) -> dict[str, Any]:
        torch.set_num_threads(THREADS)
        settings = {"embedding_size": DIM, "metrics": ["Recall", "NDCG"], "topk": [CUT], "valid_metric": f"NDCG@{CUT}"}
        self._trainer, self._parts = self._ready("speed", self.speed, settings)
        model, dataset = self._trainer.model, self._parts[0].dataset
        for weights, field, factors in (
            (model.user_embedding.weight, dataset.uid_field, self.speed.factors[0]),
            (model.item_embedding.weight, dataset.iid_field, self.speed.factors[1]),
        ):
            weights.data[1:] = torch.from_numpy(factors[codes(dataset, field)])
        return {}

    def evaluate(self) -> dict[str, Any]:
        began = time.perf_counter()
        values = self._trainer.evaluate(self._parts[2], load_best_model=False, show_progress=False)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "metrics": {name.partition("@")[0]: float(value) for name, value in values.items()}}

    def recommend(self, name: str) -> dict[str, Any]:
        """All defaults: up to 300 epochs, stopped early on a tenth of the training pairs."""
        torch.set_num_threads(THREADS)
        data = self.retail
        trainer, (train, valid, test) = self._ready("retail", data, {}, held=0.1)
        trainer.fit(train, valid, saved=True, show_progress=False)
        trainer.resume_checkpoint(trainer.saved_model_file)
        dataset = train.dataset
        users = dataset.token2id(dataset.uid_field, [str(user) for user in data.users])
        items = full_sort_topk(users, trainer.model, test, CUT)[1].numpy()
        lists = dataset.id2token(dataset.iid_field, items).astype(np.int64)
        return self.write_lists(name, lists) | {"epochs": trainer.start_epoch}

    def _ready(self, name: str, data: Data, settings: dict[str, Any], held: float = 0.0) -> tuple[Any, Any]:
        """Trainer of a fresh model, and the three parts of the data."""
        write_files(self.folder / name, data, held)
        places = {"data_path": str(self.folder), "checkpoint_dir": str(self.folder / "saved")}
        config = Config(model="BPR", dataset=name, config_dict=SETUP | places | settings)
        init_seed(config["seed"], config["reproducibility"])
        parts = data_preparation(config, create_dataset(config))
        model = get_model(config["model"])(config, parts[0]._dataset).to(config["device"])
        return get_trainer(config["MODEL_TYPE"], config["model"])(config, model), parts


def write_files(folder: Path, data: Data, held: float) -> None:
    """RecBole's files of pairs. Without a share to hold out, the validation part is the test part."""
    folder.mkdir(exist_ok=True)
    train, test = (np.column_stack([pairs.row, pairs.col]) for pairs in (data.train.tocoo(), data.test.tocoo()))
    out = np.random.default_rng(0).random(len(train)) < held
    valid = train[out] if held else test
    for part, pairs in (("train", train[~out]), ("valid", valid), ("test", test)):
        file = folder / f"{folder.name}.{part}.inter"
        np.savetxt(file, pairs, "%d", delimiter="\t", header="user_id:token\titem_id:token", comments="")


def codes(dataset: Any, field: str) -> np.ndarray:
    """Our codes in the order of RecBole's own, without its padding."""
    return dataset.field2id_token[field][1:].astype(np.int64)
