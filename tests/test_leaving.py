"""What leaves a run says nothing exact of private data, and nothing that its writer did not prove."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm.errors import FormatError
from fastadmm.rounds.exchange import Request, write_request
from fastadmm.rounds.party_step import party_step
from fastadmm.store import open_partition

from run_tools import write_problem


def test_no_request_writes_what_a_partys_model_says_of_privacy(tmp_path: Path) -> None:
    data = open_partition(write_problem(tmp_path / "a.parts", 40, (3, 2))).parties[0]
    start = {
        "family": "subspace",
        "regularization": 1.0,
        "x_update": "auto",
        "regularizer": "squared_l2",
        "l1_ratio": -1.0,
        "constraint": "none",
        "n_samples": data.n_samples,
        "row_digest": data.row_digest,
        "position": 0,
    }
    requests = {
        "start": [("start", start)],
        "forged": [("finish", {"model_id": "m", "coefficients": np.zeros(0), "privacy": "epsilon = 0"})],
        "finish": [("finish", {"model_id": "m", "coefficients": np.zeros(0)})],
    }
    for number, (name, calls) in enumerate(requests.items()):
        request = Request("run", data.name, min(number, 1), min(number, 1) - 1, calls)
        write_request(tmp_path / f"{name}.h5", request)

    def answer(name: str) -> None:
        party_step(data.path, tmp_path / "state", tmp_path / f"{name}.h5", tmp_path / f"{name}-answer.h5")

    answer("start")
    with pytest.raises(FormatError, match="'finish' with these arguments is unknown"):
        answer("forged")
    answer("finish")
    with h5py.File(tmp_path / "state" / f"{data.name}.h5") as file:
        assert file.attrs["privacy"].startswith("weights: epsilon = infinity")
        assert "epsilon = 0" not in file.attrs["privacy"]
