"""One run as one HTML page that needs nothing else, and is a function of the run's files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.figures import numbers
from fastadmm.figures.numbers import format_number, metric_label, plain_value, round_up
from fastadmm.files.atomic import shown, write_whole
from fastadmm.files.seal import damaged
from fastadmm.judging.judgement import event_in
from fastadmm.privacy.published import KEPT_BACK, is_private
from fastadmm.reports import plots
from fastadmm.reports.records import RunRecords, published, read_records
from fastadmm.runs.export import read_coefficients
from fastadmm.store.model import open_shared_part

#: A number of the page: its label, itself, and a note below it.
Item = tuple[str, str, str]

_CLAIMS = ("gap", "gap_absolute", "gap_within")


def write_report(run_dir: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run, finished or not."""
    return write_records(read_records(run_dir), Path(run_dir) / "report.html" if out is None else Path(out))


def write_records(records: RunRecords, target: Path) -> Path:
    """Write the report of what a run, or the fit of an estimator, left."""
    if target.suffix.lower() not in (".html", ".htm"):
        # Also keeps `-o RUN/rounds.jsonl` from destroying the run.
        raise ConfigError(f"{shown(target)}: a report is an HTML page; choose a name that ends in .html")
    try:
        import jinja2
    except ImportError as error:
        raise ConfigError(plots.INSTALL_HINT) from error
    loader, strict = jinja2.PackageLoader("fastadmm.reports", "."), jinja2.StrictUndefined
    how: Any = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, undefined=strict, **how)
    environment.filters |= {"number": format_number, "percent": numbers.format_percent, "up": round_up}
    environment.filters |= {"duration": numbers.format_duration, "told": numbers.told}
    with damaged(records.path, "a file in it is not what its command wrote"):
        page = environment.get_template("report.html.j2").render(_context(published(records)))
        # A file may hold half a surrogate pair (JSON's \ud800), which has no UTF-8.
        write_whole(target, page.encode("utf-8", "replace"), shared=True)
    return target


def _context(records: RunRecords) -> dict[str, Any]:
    """What the template is filled with: numbers, and the tables and figures made of them."""
    facts, result, evaluation = _facts(records), records.result or {}, records.evaluation
    parties, data = result.get("parties") or [], records.config.get("data")
    made = records.path / "result.json"
    private, compared = is_private(records.privacy, records.config), result.get("comparison")
    compared = compared if isinstance(compared, dict) else {}  # with a model without privacy
    with damaged(records.path / "evaluation.json", "evaluate again"):
        judged = _judged(evaluation, result)
    return judged | {
        "title": records.path.resolve().name,
        "facts": facts,
        "bound": _bound(facts),
        "records": records,
        "day": f"{datetime.fromtimestamp(made.stat().st_mtime, UTC):%Y-%m-%d}" if made.is_file() else "",
        "data": Path(data).name if isinstance(data, str) else "",
        "result": result,
        "n_parties": len(parties),
        "n_columns": sum(_of_parties(parties, "n_features", all_of_them=True)),
        "most_rounds": _setting(records.config, "rounds"),
        "lam": "of each party" if _of_parties(parties, "lambda") else format_number(facts["lam"]),
        "exchanges": _exchanges(result, parties, facts["n_samples"]),
        "message": KEPT_BACK if private else str(result.get("message") or ""),
        "private": private,
        "plots": plots.history_plots(records.history, facts["target"]),
        "parties": party_section(parties),
        "coefficients": None if private else coefficient_section(records),
        "limits": limits(records),
        "worth": worth_section(records),
        "comparison": [str(line) for key in ("lines", "warnings") for line in compared.get(key) or []],
    }


def _judged(evaluation: dict[str, Any] | None, result: dict[str, Any]) -> dict[str, Any]:
    """What an evaluation says of the model, and class 1, which training rows may tell as well."""
    measured = _class_of(result, evaluation or {})
    if evaluation is None:
        return {"measured": measured, **dict.fromkeys(("evaluation", "calibration", "judgement"))}
    metrics, ranking = evaluation["metrics"], evaluation.get("ranking") or {}
    for name in [name for name in ("auc", "r2", "d2") if _real(metrics.get(name))][:1]:
        ends = ranking.get("auc_interval") if name == "auc" else None
        note = f"95 %: {ends[0]:.3f} to {ends[1]:.3f}" if ends else "evaluated"
        measured.append((metric_label(name), f"{metrics[name]:.3f}", note))
    plain = {metric_label(name): value for name, value in metrics.items() if plain_value(value)}
    calibration = metrics.get("calibration")
    return {
        "measured": measured,
        "evaluation": {
            "data": str(evaluation.get("data") or ""),
            "classes": class_table(metrics.get("classes")),
            "header": ["metric", "this model"],
            "rows": [[name, format_number(value, 5, zeros=True)] for name, value in plain.items()],
        },
        "calibration": plots.calibration_plot(calibration) if calibration else None,
        "judgement": judgement_section(evaluation),
    }


# --- what the run says -------------------------------------------------------------------------


def _facts(records: RunRecords) -> dict[str, Any]:
    """Headline numbers: from the result where there is one, else from the last logged round."""
    result, history, said = dict(records.result or {}), records.history, records.said
    statement = result.get("certificate") if said is not None and said.claim else None
    if statement is not None:
        result |= {key: statement.get(key) for key in ("objective", "gap", "gap_absolute")}
        result["gap_within"] = (statement.get("within") or {}).get("gap")
    logged: dict[str, Any] = {}
    if len(history):
        logged = {name: float(column[-1]) for name, column in history.series.items()}
        logged["rounds"] = int(history.round[-1])
    if said is not None and (said.refused or said.claim):
        logged |= dict.fromkeys(_CLAIMS)  # those of a round are not of these weights

    def value(name: str, asked: float | None = None) -> float | None:
        # A diverged run has an infinite objective; an older finite one would mislead.
        known = (one for one in (result.get(name), logged.get(name), asked) if one is not None)
        found = next(known, None)
        return found if _real(found) else None

    names = ("rounds", "seconds", "objective", "stationarity", "n_samples", *_CLAIMS)
    found: dict[str, Any] = {name: value(name) for name in names}
    # A problem that is not convex has no duality gap, and records its stationarity.
    convex = found["stationarity"] is None
    return {
        **found,
        "convex": convex,
        "status": result.get("status"),
        "lam": value("lambda", _setting(records.config, "lambda")),
        "target": _setting(records.config, "gap" if convex else "stationarity"),
        "claim": "" if said is None else said.claim,
    }


def _setting(config: dict[str, Any], name: str) -> float | None:
    """A number of the configuration."""
    return config[name] if _real(config.get(name)) else None


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _bound(facts: dict[str, Any]) -> str:
    """How far the objective is above the best possible at most; empty where nothing is proved."""
    objective, gap, absolute = facts["objective"], facts["gap"], facts["gap_absolute"]
    if objective is not None and absolute is not None and absolute >= 0:
        # objective <= best + gap, and best >= objective - gap.
        best = objective - absolute
        return numbers.format_percent(absolute / best) if best > 0 else format_number(round_up(absolute))
    return numbers.format_percent(gap) if gap is not None and gap >= 0 else ""


def _class_of(result: dict[str, Any], evaluation: dict[str, Any]) -> list[Item]:
    """Class 1 and how frequent it is, in training rows, else in those of the evaluation."""
    rows = result.get("class_rows")
    if isinstance(rows, dict) and len(rows) == 2 and all(map(_real, rows.values())):
        name, count = list(rows.items())[1]
        return [("Class 1", name, f"{100.0 * count / (sum(rows.values()) or 1):.3g} % of rows")]
    event, share = event_in(evaluation)
    return [("Class 1", event, f"{100.0 * share:.3g} % of evaluated rows")] if event else []


def _of_parties(parties: list[dict[str, Any]], key: str, *, all_of_them: bool = False) -> list[float]:
    """Numbers under a key of the parties, of those that have one; none where all of them should."""
    values = [party[key] for party in parties if _real(party.get(key))]
    return [] if all_of_them and len(values) < len(parties) else values


def _exchanges(result: dict[str, Any], parties: list[dict[str, Any]], n: float | None) -> list[Item]:
    """What the run's exchanges would cost between organisations, where that was counted."""
    values = _of_parties(parties, "bytes")
    if not values or not n or not _real(result.get("exchanges")):
        return []
    note = f"as between organisations: {format_number(round(max(values) / n))} bytes a row"
    return [("Exchanges", format_number(result["exchanges"]), note)]


# --- tables -------------------------------------------------------------------------------------------------


#: Coefficients of each party that are shown.
LARGEST = 15


def _cell(value: Any) -> str:
    return format_number(value) if value is None or isinstance(value, float) else str(value)


def _number(value: Any, *, zeros: bool = False) -> str:
    """A number, or none: whatever else a file may hold there is not shown."""
    return format_number(value if plain_value(value) else None, zeros=zeros)


def table_of(
    names: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]],
    notes: Iterable[str] = (),
    title: str = "",
    cell: Callable[[Any], str] = _cell,
) -> dict[str, Any]:
    """A table of the page: those values of the records that any of them has, under their names."""
    rows = list(rows)
    kept = {key: name for key, name in names.items() if any(key in row for row in rows)}
    cells = [[cell(row.get(key)) for key in kept] for row in rows]
    return {"title": title, "header": list(kept.values()), "rows": cells, "notes": list(notes)}


# --- what the model says ------------------------------------------------------------------------------------


def coefficient_section(records: RunRecords) -> dict[str, Any] | None:
    """Coefficients with their errors, or the largest of each party; None where the files are elsewhere."""
    names = {"party": "party", "feature": "feature", "class": "class", "weight": "weight"}
    if records.inference is not None:
        with damaged(records.path / "inference.json", "run 'fastadmm infer' again"):
            found = records.inference
            names |= {"standard_error": "standard error", "p_value": "p", "low": "from", "high": "to"}
            notes = [f"from and to: {100 * found['level']:g} % interval", *map(str, found["notes"])]
            return table_of(names | {"ratio": found["ratio"]}, found["weights"], notes)
    model = records.path / "model"
    if not (model / "model.toml").exists():
        return None
    shared, directory = open_shared_part(model)
    if any(not (directory / f"{name}.h5").exists() for name in shared.names):
        return None
    every = read_coefficients(model)
    largest = every.largest(LARGEST).rows()
    names |= {"weight": "raw column", "scaled_weight": "scaled column", "ratio": every.ratio}
    names |= {"reference": "compared with", "ratio_to_reference": f"{every.ratio} to it"}
    left = len(every.rows()) - len(largest)
    more = [f"{left} more with smaller weights: fastadmm coefficients RUN -o FILE.csv"] if left else []
    notes = [*every.notes, *more, "standard errors: fastadmm infer RUN, then the report again"]
    return table_of({key: name for key, name in names.items() if key in every.columns}, largest, notes)


def limits(records: RunRecords) -> list[str]:
    """What the model does not know, as far as the records tell."""
    config, evaluation = records.config, records.evaluation
    said = [
        "It is linear: columns add up, without interactions or bends that were not made columns.",
        "Weights are associations in these rows, not effects of changing a column.",
        "The certificate is about the rows it was trained on, not about new ones.",
    ]
    if config.get("class_weight") is not None:
        said.append("Rows were weighted by class: probabilities are not the rates of unweighted rows.")
    if evaluation is None:
        return [*said, "It was not evaluated: nothing here says how it does on other rows."]
    if evaluation.get("data") == Path(str(config.get("data"))).name:
        said.append("It was evaluated on the rows it was trained on: on others it does worse.")
    event, _ = event_in(evaluation)
    if event and not sum(row[1] for row in evaluation["confusion"]["matrix"]):
        said.append(f"No row is predicted as {event} at this threshold: read scores, not labels.")
    return said


def worth_section(records: RunRecords) -> dict[str, Any] | None:
    """What each party adds; None where it was not measured."""
    worth = records.worth
    if worth is None:
        return None
    names = {"name": "party", "alone": "alone", "without": "without it", "adds_alone": "adds alone"}
    names |= {"shapley": "Shapley value", "adds_last": "adds last"}
    nobody, everyone = (format_number(worth.of(k), 5, zeros=True) for k in (0, worth.everyone))
    line = f"Test {metric_label(worth.metric)} of nobody (intercept only): {nobody}; of all: {everyone}."
    return table_of(names, worth.table(), [line, *([f"{worth.reason}."] if worth.reason else [])])


def party_section(parties: list[dict[str, Any]]) -> dict[str, Any]:
    """Name, columns, norm of the weights, λ of its own and file of each party, once a run has ended."""
    names = {"name": "party", "n_features": "columns", "weight_norm": "norm of the weights", "lambda": "λ"}
    names = {key: name for key, name in names.items() if any(party.get(key) for party in parties)}
    return table_of(names | {"file": "model file"}, parties)


# --- what other rows say of it ------------------------------------------------------------------------------


def judgement_section(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Figures, tables and notes of an evaluation beyond its metrics: ROC, lift, confusion."""
    ranking, confusion = evaluation.get("ranking"), evaluation.get("confusion")
    tables = [] if ranking is None else [_group_table(ranking)]
    return {
        "plots": [] if ranking is None else [_roc(ranking)],
        "tables": tables if confusion is None else [*tables, confusion_table(confusion)],
        "notes": [str(note) for note in evaluation.get("notes", [])],
    }


def _roc(ranking: dict[str, Any]) -> plots.Plot:
    curves, interval = ranking["curves"], ranking.get("auc_interval")
    false, true = (np.r_[0.0, curves[f"{name}_positive_rate"]] for name in ("false", "true"))
    best = int(np.argmax(np.abs(true - false)))
    area = "" if interval is None else f" AUC: {interval[0]:.3f} to {interval[1]:.3f} (95 % interval)."

    def draw(figure: Any) -> None:
        ax = figure.add_subplot()
        plots.unit_square(ax, "false positive rate", "true positive rate", "chance")
        ax.plot(false, true, color=plots.SERIES_COLOURS[0], label="model")
        ends = [false[best]] * 2, [false[best], true[best]]
        ax.plot(*ends, color=plots.SERIES_COLOURS[1], linestyle=plots.DASHED, label="KS")
        ax.legend(loc="lower right")

    said = f"The KS distance is {ranking['ks']:.3f}, at score {ranking['ks_score']:.4g}.{area}"
    said += f" The average precision is {ranking['average_precision']:.3f}."
    return plots.Plot("ROC", f"Each point is a threshold. {said}", draw)


def _group_table(ranking: dict[str, Any]) -> dict[str, Any]:
    names = {"share": "rows", "lowest_score": "lowest score", "rate": "rate", "lift": "lift", "gain": "gain"}
    rows = [{**row, "share": f"{100 * row['share']:.3g} %"} for row in ranking["groups"]]
    names |= {"cumulative_lift": "lift so far"}
    title = "Tenths of the rows, highest scores first"
    return table_of(
        names, rows, title=title, cell=lambda v: v if isinstance(v, str) else _number(v, zeros=True)
    )


def class_table(classes: Any) -> dict[str, Any] | None:
    """Weight and metrics of each class of a multinomial model."""
    if not isinstance(classes, list) or not all(isinstance(row, dict) for row in classes):
        return None
    names = {"name": "class", "weight": "weight", "precision": "precision", "recall": "recall", "auc": "AUC"}
    rows = [{key: row.get(key) for key in names} | {"name": str(row.get("name"))} for row in classes]
    return table_of(names, rows, title="Classes", cell=lambda v: v if isinstance(v, str) else _number(v))


def confusion_table(confusion: dict[str, Any]) -> dict[str, Any]:
    """Rows by true and predicted class, and what follows from them of two."""
    names = [numbers.safe_label(str(name)) for name in confusion["classes"]]
    threshold = confusion.get("threshold")
    title = "True and predicted classes" + ("" if threshold is None else f", threshold {threshold:g}")
    rows = [
        [n, *(f"{value:,.8g}" for value in own)] for n, own in zip(names, confusion["matrix"], strict=True)
    ]
    for name in ("precision", "recall", "specificity", "f1"):
        if name in confusion:
            rows.append([name, _number(confusion[name], zeros=True), *[""] * (len(names) - 1)])
    return {"title": title, "header": ["true", *(f"predicted {name}" for name in names)], "rows": rows}
