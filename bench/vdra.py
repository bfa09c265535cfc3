"""Compare standard errors between parties with the published example of R's package vdra.

    Rscript -e 'write.csv(vdra::vdra_data, "vdra.csv", row.names = FALSE)'
    python -P bench/vdra.py vdra.csv

Published: T. Kent and Y. Samizo, vdra 1.0.0 (CRAN, 2021), vignette "An Introduction to the VDRA Package", 5.1
and 5.2: two parties with three and eight columns. All 72 printed numbers agree, digit by digit.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from fastadmm import JointClassifier, JointRegressor
from fastadmm.blocks.block import as_block
from fastadmm.conversation.exchange import converse
from fastadmm.conversation.threads import Threads
from fastadmm.engine.engine import Engine
from fastadmm.inference.between import Asked, InferenceParty, inferring
from fastadmm.problem.problem import make_problem

#: Estimate, standard error and statistic of each column, the intercept last; as printed.
LINEAR = """
-5.779e+00 0.394282 -1.466e+01
2.024e-01 0.020086 1.007e+01
2.626e-01 0.106151 2.474e+00
-1.324e-01 0.096882 -1.367e+00
-1.176e-02 0.021796 -5.394e-01
2.108e+00 0.788397 2.673e+00
1.675e+00 0.740472 2.262e+00
3.641e+00 0.733589 4.964e+00
4.722e+00 0.738904 6.391e+00
4.033e-02 0.746852 5.400e-02
-1.244e+00 0.563097 -2.208e+00
2.284e+01 1.620344 1.409e+01
"""
LOGISTIC = """
-9.409e-01 0.099919 -9.416743
3.772e-02 0.004815 7.833597
3.653e-02 0.025524 1.431209
-4.366e-02 0.023002 -1.898102
-3.459e-03 0.005094 -0.679062
3.164e-01 0.190301 1.662715
4.087e-01 0.176844 2.311323
4.870e-01 0.175991 2.767129
6.556e-01 0.188746 3.473682
-2.440e-01 0.153508 -1.589724
-3.154e-01 0.139085 -2.267681
1.633e+00 0.377311 4.327351
"""


def between(blocks: list[pd.DataFrame], y: np.ndarray, loss: str) -> np.ndarray:
    """Estimates, standard errors and statistics, each party's from its own table."""
    kind = JointClassifier if loss == "logistic" else JointRegressor
    model = kind(alpha=1e-13, tol=1e-13, loss=loss, n_threads=1).fit(blocks, y)
    matrices = [as_block(block.to_numpy()) for block in blocks]
    problem = make_problem(matrices, y, loss=loss, lam=1e-13, names=["dp0", "dp1"])
    with Engine(1) as engine:
        parties = [
            InferenceParty(name, own, x, list(block.columns), np.ones(len(x)), engine)
            for name, own, x, block in zip(problem.names, matrices, model.party_coefs_, blocks)
        ]
        asked = Asked(problem, float(np.ravel(model.intercept_)[0]), "model", 0.95)
        last = converse(inferring(asked, engine), Threads(engine, parties).carry)
    assert last is not None
    tables = [*(party.found.columns for party in parties if party.found is not None), last.columns]
    names = ("weight", "standard_error", "statistic")
    return np.concatenate([np.column_stack([table[name] for name in names]) for table in tables])


def main(path: str) -> int:
    """Exit code 1 where a printed digit differs."""
    data = pd.read_csv(path)
    first = data[["Exposure", "Age", "ComorbidScore"]].astype(float)
    races = pd.get_dummies(data["Race"], dtype=float).drop(columns="Race 0")
    second = pd.concat([data[["NumRx", "BMI_pre"]].astype(float), races], axis=1)
    second["Sex M"] = (data["Sex"] == "M").astype(float)
    wrong = 0
    for loss, target, printed in (("squared", "Change_BMI", LINEAR), ("logistic", "WtLost", LOGISTIC)):
        found = between([first, second], data[target].to_numpy(float), loss)
        for row, line in zip(found, printed.split("\n")[1:], strict=False):
            for value, text in zip(row, line.split(), strict=True):
                digits = len(text.split("e")[0].split(".")[1])
                shown = f"{value:.{digits}{'e' if 'e' in text else 'f'}}"
                same = float(shown) == float(text)
                wrong += not same
                print(loss, text, shown, "" if same else "DIFFERS")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
