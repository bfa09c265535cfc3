"""Synthetic tables, as the tutorials use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


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
    tables = {"bank": (bank, ",", "utf-8"), "shop": (shop, ",", "utf-8")}
    # The last row, with the new city, is in both.
    return _written(directory, tables, rng, n_samples, total, 0.05, total - 1)


def _written(
    directory: str | Path,
    tables: Mapping[str, Any],  # columns, separator and encoding
    rng: np.random.Generator,
    n_samples: int,
    total: int,
    lost: float,  # share of the rows that a table lacks
    kept: int = -1,  # a row that none lacks
) -> list[Path]:
    """Write the first rows of each table, and the others to ``new-...csv``, in any order."""
    written = []
    for prefix, first, last in (("", 0, n_samples), ("new-", n_samples, total)):
        for name, (columns, separator, encoding) in tables.items():
            rows = first + rng.permutation(last - first)
            rows = rows[(rng.random(len(rows)) > lost) | (rows == kept)]
            lines = [columns, *([values[i] for values in columns.values()] for i in rows.tolist())]
            path = Path(directory) / f"{prefix}{name}.csv"
            text = "".join(separator.join(map(str, line)) + "\n" for line in lines)
            path.write_bytes(text.encode(encoding))
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
    marks = str.maketrans(",.", ".,")
    amounts = np.where(unknown[0], "k.A.", [f"{amount:,.2f} €".translate(marks) for amount in income])
    shares = np.where(unknown[1], "-", [f"{100 * share:.1f}%" for share in returns])
    days = ["{2}.{1}.{0}".format(*str(day).split("-")) for day in joined]
    bank = {"cust_no": ids, "default": default, "age": age, "income": amounts, "joined": days, "city": city}
    shop = {"customer": ids, "orders": orders, "returned": shares, "last_order": last, "segment": segment}
    tables = {"bank": (bank, ";", "cp1252"), "shop": (shop, ",", "utf-8")}
    return _written(directory, tables, rng, n_samples, total, 0.04)


#: What one may know of the tutorial's columns without having seen a row.
DESCRIPTION = """\
[columns]
age = {type = "number", low = 18, high = 100}
income = {type = "number", low = 0, high = 60000, fill = 20000}
city = {type = "category", levels = ["Lyon", "Porto", "Turin"]}
orders = {type = "number", low = 0, high = 12}
late_payments = {type = "number", low = 0, high = 6}
segment = {type = "category", levels = ["new", "regular", "gold"]}
"""


def write_description(path: str | Path) -> None:
    """Write a public description of the tables of :func:`write_tables`."""
    Path(path).write_text(DESCRIPTION, encoding="utf-8")
