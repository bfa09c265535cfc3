"""One run as one HTML page that needs nothing else, and is a function of the run's files alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.figures.numbers import NONE, format_duration, format_number, format_percent, round_up
from fastadmm.files.atomic import shown, write_whole
from fastadmm.judging.judgement import event_in
from fastadmm.privacy.published import KEPT_BACK, is_private
from fastadmm.reports.committee import coefficient_section, limits, table_of
from fastadmm.reports.judgement import class_table, judgement_section, plain_value
from fastadmm.reports.plots import INSTALL_HINT, calibration_plot, history_plots, metric_label
from fastadmm.reports.records import RunRecords, damaged, published, read_records

#: A number of the page: its label, itself, and a note below it.
Item = tuple[str, str, str]


def write_report(run_dir: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run, finished or not."""
    return write_records(read_records(run_dir), Path(run_dir) / "report.html" if out is None else Path(out))


def write_records(records: RunRecords, target: Path) -> Path:
    """Write the report of what a run, or the fit of an estimator, left."""
    if target.suffix.lower() not in (".html", ".htm"):
        # Also keeps `-o RUN/rounds.jsonl` from destroying the run.
        raise ConfigError(f"{shown(target)}: a report is an HTML page; choose a name that ends in .html")
    with damaged(records.path, "a file in it is not what its command wrote"):
        write_page(target, "report.html.j2", _context(published(records)))
    return target


def write_page(target: Path, template: str, context: dict[str, Any]) -> None:
    """Fill a template of this package into a page."""
    try:
        import jinja2
    except ImportError as error:
        raise ConfigError(INSTALL_HINT) from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fastadmm.reports", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format_number, "percent": format_percent}
    environment.filters |= {"duration": format_duration, "up": round_up, "told": told}
    # A file may hold half a surrogate pair (JSON's \ud800), which has no UTF-8.
    page = environment.get_template(template).render(context).encode("utf-8", "replace")
    write_whole(target, page, shared=True)


def _context(records: RunRecords) -> dict[str, Any]:
    """What the template is filled with: numbers, and the tables and figures made of them."""
    facts, result = _facts(records), records.result or {}
    parties, data, made = _parties(records), records.config.get("data"), records.path / "result.json"
    private = is_private(records.privacy, records.config)
    with damaged(records.path / "evaluation.json", "evaluate again"):
        judged = _judged(records.evaluation, result)
    with damaged(
        records.path / "path.json", "delete it and result.json, and 'fastadmm resume' makes them again"
    ):
        path = _path(records.path_table)
    return judged | {
        "title": records.path.resolve().name,
        "facts": facts,
        "bound": _bound(facts),
        "said": records.said,
        "day": f"{datetime.fromtimestamp(made.stat().st_mtime, UTC):%Y-%m-%d}" if made.is_file() else "",
        "data": Path(data).name if isinstance(data, str) else "",
        "result": result,
        "n_parties": len(parties["rows"]),
        "n_columns": _n_columns(result),
        "most_rounds": _setting(records.config, "rounds"),
        "lam": _lambda(result, facts),
        "exchanges": _exchanges(result, facts),
        "message": KEPT_BACK if private else str(result.get("message") or ""),
        "private": private,
        "plots": history_plots(records.history, facts["target"]),
        "parties": parties,
        "coefficients": None if private else coefficient_section(records),
        "limits": limits(records),
        "path": path,
        "worth": _worth(records),
        "privacy": records.privacy,
        "comparison": _comparison(result),
        "config": records.config,
        "environment": records.environment,
    }


def _judged(evaluation: dict[str, Any] | None, result: dict[str, Any]) -> dict[str, Any]:
    """What an evaluation says of the model, and class 1, which training rows may tell as well."""
    calibration = (evaluation or {}).get("metrics", {}).get("calibration")
    return {
        "measured": [*_class_of(result, evaluation), *_metric(evaluation)],
        "evaluation": _evaluation(evaluation),
        "calibration": calibration_plot(calibration) if calibration else None,
        "judgement": None if evaluation is None else judgement_section(evaluation),
    }


def _path(table: dict[str, Any] | None) -> dict[str, Any] | None:
    """The values of a regularisation path; None for another run."""
    if table is None:
        return None
    with_folds = table.get("rule") is not None
    rows = [
        row | {f"test {key}": value for key, value in (row.get("test") or {}).items()}
        for row in table["values"]
    ]
    rows[table["chosen"]]["chosen"] = "chosen"
    names = {"lambda": "λ"} | (
        {"held_out_loss": "held-out loss", "standard_error": "standard error"} if with_folds else {}
    )
    names |= {
        "objective": "objective",
        "gap": "relative gap",
        "nonzero": "weights not zero",
        "rounds": "rounds",
    }
    names |= {
        f"test {key}": f"test {metric_label(key)}" for row in table["values"] for key in row.get("test") or {}
    }
    names |= {"chosen": ""} if with_folds else {}
    said = (
        f"Chosen by rule {table['rule']}; the rest of this page is about that fit."
        if with_folds
        else "Without folds nothing chooses; the rest of this page is about the fit of the smallest value."
    )
    return table_of(names, rows, [said])


def _worth(records: RunRecords) -> dict[str, Any] | None:
    """What each party adds; None where it was not measured."""
    worth = records.worth
    if worth is None:
        return None
    names = {"name": "party", "alone": "alone", "without": "without it", "adds_alone": "adds alone"}
    names |= {"shapley": "Shapley value", "adds_last": "adds last"}
    nobody, everyone = (format_number(worth.of(k), 5, zeros=True) for k in (0, worth.everyone))
    line = f"Test {metric_label(worth.metric)} of nobody (intercept only): {nobody}; of all: {everyone}."
    return table_of(names, worth.table(), [line, *([f"{worth.reason}."] if worth.reason else [])])


def _comparison(result: dict[str, Any]) -> list[str]:
    """What was said of a private model beside one without privacy."""
    found = result.get("comparison")
    lines = (found.get(key) or [] for key in ("lines", "warnings")) if isinstance(found, dict) else ()
    return [str(line) for own in lines for line in own]


# --- what the run says -------------------------------------------------------------------------


def _facts(records: RunRecords) -> dict[str, Any]:
    """Headline numbers: from the result where there is one, else from the last logged round."""
    result, history, said = dict(records.result or {}), records.history, records.said
    statement = result.get("certificate") if said is not None and said.claim else None
    if statement is not None:
        result |= {key: statement.get(key) for key in ("objective", "gap", "gap_absolute")}
        result["gap_within"] = (statement.get("within") or {}).get("gap")
    logged: dict[str, float] = {}
    if len(history):
        logged = {name: float(column[-1]) for name, column in history.series.items()}
        logged["rounds"] = int(history.round[-1])

    claims = ("gap", "gap_absolute", "gap_within")

    def value(name: str, asked: float | None = None) -> float | None:
        if name in claims and said is not None and (said.refused or said.claim) and result.get(name) is None:
            return None  # that of a round is not of these weights
        for candidate in (result.get(name), logged.get(name), asked):
            if _real(candidate):
                return candidate
            if candidate is not None:
                # A diverged run has an infinite objective; an older finite one would mislead.
                return None
        return None

    names = ("rounds", "seconds", "objective", "stationarity", "n_samples", *claims)
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
        return format_percent(absolute / best) if best > 0 else format_number(round_up(absolute))
    return format_percent(gap) if gap is not None and gap >= 0 else ""


def _class_of(result: dict[str, Any], evaluation: dict[str, Any] | None) -> list[Item]:
    """Class 1 and how frequent it is, in training rows, else in those of the evaluation."""
    rows = result.get("class_rows")
    if isinstance(rows, dict) and len(rows) == 2 and all(map(_real, rows.values())):
        name, count = list(rows.items())[1]
        return [("Class 1", name, f"{100.0 * count / (sum(rows.values()) or 1):.3g} % of rows")]
    event, share = event_in(evaluation or {})
    return [("Class 1", event, f"{100.0 * share:.3g} % of evaluated rows")] if event else []


def _metric(evaluation: dict[str, Any] | None) -> list[Item]:
    """AUC with its interval, or R², of the evaluation."""
    metrics = (evaluation or {}).get("metrics", {})
    found = [name for name in ("auc", "r2", "d2") if _real(metrics.get(name))][:1]
    ends = ((evaluation or {}).get("ranking") or {}).get("auc_interval")
    note = f"95 %: {ends[0]:.3f} to {ends[1]:.3f}" if found == ["auc"] and ends else "evaluated"
    return [(metric_label(name), f"{metrics[name]:.3f}", note) for name in found]


def _of_parties(result: dict[str, Any], key: str) -> list[float]:
    """Numbers under a key of the parties, of those that have one."""
    values = (party.get(key) for party in result.get("parties") or [])
    return [value for value in values if _real(value)]


def _lambda(result: dict[str, Any], facts: dict[str, Any]) -> Item:
    """λ, or from the smallest to the largest where parties have their own."""
    values = _of_parties(result, "lambda")
    if not values:
        return "λ", format_number(facts["lam"]), "per mean loss"
    ends = dict.fromkeys(format_number(value) for value in (min(values), max(values)))
    return "λ of each party", " to ".join(ends), "per mean loss"


def _exchanges(result: dict[str, Any], facts: dict[str, Any]) -> list[Item]:
    """What the run's exchanges would cost between organisations, where that was counted."""
    values, n = _of_parties(result, "bytes"), facts["n_samples"]
    if not values or not n or not _real(result.get("exchanges")):
        return []
    note = f"as between organisations: {format_number(round(max(values) / n))} bytes a row"
    return [("Exchanges", format_number(result["exchanges"]), note)]


def _n_columns(result: dict[str, Any]) -> float:
    """Columns of all parties; 0 where not all of them say."""
    widths = _of_parties(result, "n_features")
    return sum(widths) if len(widths) == len(result.get("parties") or []) else 0


def _parties(records: RunRecords) -> dict[str, Any]:
    """Name, columns, norm of the weights, λ of its own and file of each party, once a run has ended."""
    rows = (records.result or {}).get("parties") or []
    names = {"name": "party", "n_features": "columns", "weight_norm": "norm of the weights", "lambda": "λ"}
    names |= {"file": "model file"}
    return table_of({key: n for key, n in names.items() if any(row.get(key) for row in rows)}, rows, [])


def _evaluation(evaluation: dict[str, Any] | None) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    metrics = evaluation["metrics"]
    rows = [
        [metric_label(name), format_number(value, 5, zeros=True)]
        for name, value in metrics.items()
        if plain_value(value)
    ]
    return {
        "data": str(evaluation.get("data") or ""),
        "classes": class_table(metrics.get("classes")),
        "header": ["metric", "this model"],
        "rows": rows,
    }


def told(value: Any) -> str:
    """A setting as the reader would write it."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value)) or NONE
    if isinstance(value, dict):
        return ", ".join(f"{key} = {told(item)}" for key, item in value.items()) or NONE
    return str(value)
