"""Two tables as people have them: other separators, marks, dates and missing marks in each."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_ugly_tables(directory: str | Path, n_samples: int = 800, seed: int = 0) -> list[Path]:
    """Write ``bank.csv`` and ``shop.csv``, and ``new-bank.csv`` and ``new-shop.csv`` with later customers.

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
