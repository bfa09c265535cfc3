"""Synthetic vertically split problems with known weights, for tests and benchmarks."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from scipy import sparse

Block: TypeAlias = np.ndarray | sparse.csr_array


def make_vertical_classification(
    n_samples: int,
    widths: Sequence[int],
    density: float = 1.0,
    seed: int = 0,
    *,
    signal: float = 2.0,
    flip: float = 0.0,
    duplicate: bool = False,
) -> tuple[list[Block], np.ndarray, list[np.ndarray]]:
    """Draw a logistic model over split features."""
    generator, blocks, weights = _draw(n_samples, widths, density, seed, duplicate)
    z, weights = _scores(blocks, weights, signal)
    y = (generator.random(n_samples) < 1.0 / (1.0 + np.exp(-z))).astype(np.float64)
    y = np.where(generator.random(n_samples) < flip, 1.0 - y, y)
    if n_samples > 1 and y.min() == y.max():  # tiny samples: keep both classes present
        y[int(np.argmin(z))], y[int(np.argmax(z))] = 0.0, 1.0
    return blocks, y, weights


def make_vertical_regression(
    n_samples: int,
    widths: Sequence[int],
    density: float = 1.0,
    seed: int = 0,
    *,
    signal: float = 2.0,
    noise: float = 0.1,
    duplicate: bool = False,
) -> tuple[list[Block], np.ndarray, list[np.ndarray]]:
    """Draw a linear model over split features."""
    generator, blocks, weights = _draw(n_samples, widths, density, seed, duplicate)
    z, weights = _scores(blocks, weights, signal)
    return blocks, z + noise * generator.standard_normal(n_samples), weights


def _draw(
    n_samples: int, widths: Sequence[int], density: float, seed: int, duplicate: bool
) -> tuple[np.random.Generator, list[Block], list[np.ndarray]]:
    if n_samples < 1 or not widths or min(widths) < 1:
        raise ValueError("at least one sample, one party and one column per party are needed")
    if not 0.0 < density <= 1.0:
        raise ValueError(f"density must be in (0, 1], not {density}")
    if duplicate and len(set(widths)) > 1:
        raise ValueError("duplicate blocks need equal widths")
    generator = np.random.default_rng(seed)
    blocks: list[Block] = []
    for width in widths:
        if duplicate and blocks:
            blocks.append(blocks[0].copy())
            continue
        X = generator.standard_normal((n_samples, width))
        if density < 1.0:
            X[generator.random((n_samples, width)) >= density] = 0.0
        blocks.append(X if density == 1.0 else sparse.csr_array(X))
    return generator, blocks, [generator.standard_normal(width) for width in widths]


def _scores(
    blocks: list[Block], weights: list[np.ndarray], signal: float
) -> tuple[np.ndarray, list[np.ndarray]]:
    z = np.sum([X @ x for X, x in zip(blocks, weights)], axis=0)
    spread = float(np.std(z))
    factor = signal / spread if spread > 0 else 1.0
    return z * factor, [x * factor for x in weights]


def write_tables(directory: str | Path, n_samples: int = 1500, seed: int = 0) -> list[Path]:
    """Write the tutorial's tables: a bank with labels, and a shop, each with ids of its own."""
    rng = np.random.default_rng(seed)
    total = n_samples + 400
    ids = rng.permutation(10 * total)[:total]
    age, income = rng.integers(18, 80, total), rng.lognormal(10.0, 0.5, total)
    city = rng.choice(["Lyon", "Porto", "Turin"], total, p=[0.5, 0.3, 0.2])
    city[total - 1] = "Ghent"
    orders, late = rng.poisson(6.0, total), rng.poisson(1.5, total)
    segment = rng.choice(["new", "regular", "gold"], total)
    z = 0.03 * (45 - age) - np.log(income / 22000) + 0.9 * (late - 1.5) - 0.15 * (orders - 6)
    z += (city == "Porto") * 0.5 - (segment == "gold") * 1.0
    default = np.where(rng.random(total) < 1 / (1 + np.exp(-z)), "yes", "no")
    shown = np.where(rng.random(total) < 0.04, "", np.round(income).astype(int).astype(str))
    bank = {"id": ids, "default": default, "age": age, "income": shown, "city": city}
    shop = {"id": ids, "orders": orders, "late_payments": late, "segment": segment}
    written = []
    for prefix, first, last in (("", 0, n_samples), ("new-", n_samples, total)):
        for name, table in (("bank", bank), ("shop", shop)):
            rows = first + rng.permutation(last - first)
            # The last row, with the new city, is in both.
            kept = rows[(rng.random(len(rows)) > 0.05) | (rows == total - 1)]
            path = Path(directory) / f"{prefix}{name}.csv"
            with open(path, "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(table)
                writer.writerows(zip(*(values[kept].tolist() for values in table.values())))
            written.append(path)
    return written


def write_ugly_tables(directory: str | Path, n_samples: int = 800, seed: int = 0) -> list[Path]:
    """Write tables as people have them: ``bank.csv``, ``shop.csv``, and later customers in ``new-...csv``.

    The bank's have semicolons, Windows' letters, decimal commas, a currency, days before months, and ``k.A.``
    where nothing is known. The shop's have commas, UTF-8, per cent, ISO dates and ``-``. Names of ids and the
    order of rows differ, and some customers are in one table alone.
    """
    rng = np.random.default_rng(seed)
    total = n_samples + n_samples // 2
    ids = rng.permutation(9 * total)[:total] + 10_000
    age, income = rng.integers(18, 80, total), rng.lognormal(8.0, 0.5, total)
    city = rng.choice(["Zürich", "Genève", "Basel"], total, p=[0.5, 0.3, 0.2])
    joined = np.datetime64("2005-01-01") + rng.integers(0, 6500, total)
    returns, orders = rng.beta(2.0, 6.0, total), rng.poisson(6.0, total)
    segment = rng.choice(["new", "regular", "gold"], total)
    last = np.datetime64("2023-01-01") + rng.integers(0, 500, total)
    z = 0.03 * (45 - age) - 1.1 * np.log(income / 3000) + 4.0 * (returns - 0.25) - 0.15 * (orders - 6)
    z += 0.6 * (city == "Basel") - 0.9 * (segment == "gold") - 0.6
    default = np.where(rng.random(total) < 1 / (1 + np.exp(-z)), "yes", "no")
    unknown = rng.random((2, total)) < 0.05
    bank, shop = [], []
    for i in range(total):
        amount = f"{income[i]:,.2f} €".translate(str.maketrans(",.", ".,"))
        day = "{2}.{1}.{0}".format(*str(joined[i]).split("-"))
        bank.append([ids[i], default[i], age[i], "k.A." if unknown[0, i] else amount, day, city[i]])
        share = "-" if unknown[1, i] else f"{100 * returns[i]:.1f}%"
        shop.append([ids[i], orders[i], share, last[i], segment[i]])
    bank_columns = ["cust_no", "default", "age", "income", "joined", "city"]
    shop_columns = ["customer", "orders", "returned", "last_order", "segment"]
    written = []
    for prefix, first, end in (("", 0, n_samples), ("new-", n_samples, total)):
        for name, header, rows, separator, encoding in (
            ("bank", bank_columns, bank, ";", "cp1252"),
            ("shop", shop_columns, shop, ",", "utf-8"),
        ):
            order = first + rng.permutation(end - first)
            lines = [rows[i] for i in order[rng.random(len(order)) > 0.04]]
            path = Path(directory) / f"{prefix}{name}.csv"
            text = "".join(separator.join(map(str, row)) + "\n" for row in [header, *lines])
            path.write_bytes(text.encode(encoding))
            written.append(path)
    return written


#: What one may know of the tutorial's columns without having seen a row.
DESCRIPTION = """\
[columns.age]
type = "number"
low = 18
high = 100

[columns.income]
type = "number"
low = 0
high = 60000
fill = 20000

[columns.city]
type = "category"
levels = ["Lyon", "Porto", "Turin"]

[columns.orders]
type = "number"
low = 0
high = 12

[columns.late_payments]
type = "number"
low = 0
high = 6

[columns.segment]
type = "category"
levels = ["new", "regular", "gold"]
"""


def write_description(path: str | Path) -> None:
    """Write a public description of the tables of :func:`write_tables`."""
    Path(path).write_text(DESCRIPTION, encoding="utf-8")
