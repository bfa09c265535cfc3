"""The part of a report's evaluation beyond its metrics: ROC, lift, confusion."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.figures.numbers import NONE, format_number
from fastadmm.reports.plots import DASHED, SERIES_COLOURS, Plot, safe_label, unit_square


def judgement_section(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Figures, tables and notes of an evaluation."""
    ranking = evaluation.get("ranking")
    plots, tables, notes = [], [], [str(note) for note in evaluation.get("notes", [])]
    if ranking is not None:
        plots.append(_roc(ranking))
        tables.append(_group_table(ranking))
    if evaluation.get("confusion") is not None:
        tables.append(confusion_table(evaluation["confusion"]))
    return {"plots": plots, "tables": tables, "notes": notes}


def _roc(ranking: dict[str, Any]) -> Plot:
    curves, ks, at = ranking["curves"], ranking["ks"], ranking["ks_score"]
    false, true = (np.r_[0.0, curves[f"{name}_positive_rate"]] for name in ("false", "true"))
    best = int(np.argmax(np.abs(true - false)))
    interval = ranking.get("auc_interval")
    area = "" if interval is None else f" AUC: {interval[0]:.3f} to {interval[1]:.3f} (95 % interval)."
    area += f" The average precision is {ranking['average_precision']:.3f}."

    def draw(ax: Any) -> None:
        unit_square(ax, "false positive rate", "true positive rate", "chance")
        ax.plot(false, true, color=SERIES_COLOURS[0], label="model")
        ax.plot(
            [false[best]] * 2,
            [false[best], true[best]],
            color=SERIES_COLOURS[1],
            linestyle=DASHED,
            label="KS",
        )
        ax.legend(loc="lower right")

    said = f"The KS distance is {ks:.3f}, at score {at:.4g}.{area}"
    return Plot("ROC", f"Each point is a threshold. {said}", lambda figure: draw(figure.add_subplot()))


#: What a group of the lift table holds.
_GROUP = ("lowest_score", "rate", "lift", "gain", "cumulative_lift")


def _group_table(ranking: dict[str, Any]) -> dict[str, Any]:
    header = ["rows", "lowest score", "rate", "lift", "gain", "lift so far"]
    rows = [
        [f"{100 * row['share']:.3g} %", *(format_number(row[name], 4, zeros=True) for name in _GROUP)]
        for row in ranking["groups"]
    ]
    return {"title": "Tenths of the rows, highest scores first", "header": header, "rows": rows}


def plain_value(value: Any) -> bool:
    """Whether a metric is one number, or none."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def class_table(classes: Any) -> dict[str, Any] | None:
    """Weight and metrics of each class of a multinomial model."""
    if not isinstance(classes, list) or not all(isinstance(row, dict) for row in classes):
        return None
    names = ("weight", "precision", "recall", "auc")
    numbers = ([row.get(n) if plain_value(row.get(n)) else None for n in names] for row in classes)
    cells = ([format_number(number, 4) for number in own] for own in numbers)
    header = ["class", *("AUC" if name == "auc" else name for name in names)]
    rows = [[str(row.get("name")), *own] for row, own in zip(classes, cells)]
    return {"title": "Classes", "header": header, "rows": rows}


def confusion_table(confusion: dict[str, Any]) -> dict[str, Any]:
    """Rows by true and predicted class, and what follows from them of two."""
    names = [safe_label(str(name)) for name in confusion["classes"]]
    threshold = confusion.get("threshold")
    title = "True and predicted classes" + ("" if threshold is None else f", threshold {threshold:g}")
    rows = [
        [name, *(f"{value:,.8g}" for value in row)]
        for name, row in zip(names, confusion["matrix"], strict=True)
    ]
    for name in ("precision", "recall", "specificity", "f1"):
        if name in confusion:
            value = confusion[name]
            text = format_number(value, 4, zeros=True) if isinstance(value, int | float) else NONE
            rows.append([name, text, *[""] * (len(names) - 1)])
    return {"title": title, "header": ["true", *(f"predicted {name}" for name in names)], "rows": rows}
