"""One run as one HTML page that needs nothing else, and is a function of the run's files alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.figures.figure import INSTALL_HINT
from fastadmm.figures.numbers import NONE, format_duration, format_number, format_percent, round_up
from fastadmm.files.atomic import shown, write_whole
from fastadmm.judging.judgement import event_in
from fastadmm.privacy.published import KEPT_BACK, is_private
from fastadmm.reports.bins_plot import bins_plot
from fastadmm.reports.committee import coefficient_section, limits, points_section
from fastadmm.reports.judgement import class_table, judgement_section, plain_value
from fastadmm.reports.plots import calibration_plot, history_plots, metric_label
from fastadmm.reports.records import RunRecords, published, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of the table of parties.
PARTIES = ("party", "columns", "norm of the weights", "λ", "model file")

#: Rounds in the table at the end of the page.
LAST_ROUNDS = 10


def write_report(run_dir: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run, finished or not."""
    return write_records(read_records(run_dir), Path(run_dir) / "report.html" if out is None else Path(out))


def write_records(records: RunRecords, target: Path) -> Path:
    """Write the report of what a run, or the fit of an estimator, left."""
    if target.suffix.lower() not in (".html", ".htm"):
        # Also keeps `-o RUN/rounds.jsonl` from destroying the run.
        raise ConfigError(f"{shown(target)}: a report is an HTML page; choose a name that ends in .html")
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
    # A file may hold half a surrogate pair (JSON's \ud800), which has no UTF-8.
    page = environment.get_template(template).render(context).encode("utf-8", "replace")
    write_whole(target, page, shared=True)


def _context(records: RunRecords) -> dict[str, Any]:
    facts = _facts(records)
    parties = _parties(records)
    names = [party[0] for party in parties]
    evaluation = _evaluation(records.evaluation)
    private = is_private(records.privacy, records.config)
    calibration = (records.evaluation or {}).get("metrics", {}).get("calibration")
    return {
        "title": records.path.resolve().name,
        "badge": dict(zip(("kind", "text", "detail"), _standing(facts))),
        "headline": _headline(records, facts, len(parties)),
        "training": _training(records, facts),
        "about": _about(records, len(parties)),
        "certificate": _certificate(facts, records),
        "message": KEPT_BACK if private else str((records.result or {}).get("message") or ""),
        "private": private,
        "plots": history_plots(records.history, facts.target, names),
        "parties": _party_table(parties),
        "coefficients": None if private else coefficient_section(records),
        "points": points_section(records),
        "bins": None if private else bins_plot(records.path / "model"),
        "limits": limits(records),
        "last_rounds": _last_rounds(records),
        "evaluation": evaluation,
        "calibration": calibration_plot(calibration) if calibration else None,
        "judgement": None if records.evaluation is None else judgement_section(records.evaluation),
        "path": _path(records.path_table),
        "worth": _worth(records),
        "privacy": _privacy(records),
        "config": _groups(records.config),
        "environment": _groups(records.environment),
    }


def _path(table: dict[str, Any] | None) -> dict[str, Any] | None:
    """The values of a regularisation path; None for another run."""
    if table is None:
        return None
    from fastadmm.reports.plots import path_plot

    rows, with_folds = table["values"], table["rule"] is not None
    metrics = list(dict.fromkeys(name for row in rows for name in row.get("test") or {}))
    header = ["λ", *(["held-out loss", "standard error"] if with_folds else [])]
    header += ["objective", "relative gap", "weights not zero", "rounds"]
    header += [f"test {metric_label(name)}" for name in metrics] + ([""] if with_folds else [])
    cells = []
    for k, row in enumerate(rows):
        line = [format_number(row["lambda"], 5)]
        if with_folds:
            line += [format_number(row["held_out_loss"], 6, zeros=True)]
            line += [format_number(row["standard_error"], 3, zeros=True)]
        line += [format_number(row["objective"], 6, zeros=True), format_number(row.get("gap"), 3)]
        line += [format_number(int(row["nonzero"])), format_number(int(row["rounds"]))]
        line += [format_number((row.get("test") or {}).get(name), 5, zeros=True) for name in metrics]
        cells.append(line + (["chosen" if k == table["chosen"] else ""] if with_folds else []))
    said = (
        f"Chosen by rule {table['rule']}; the rest of this page is about that fit."
        if with_folds
        else "Without folds nothing chooses; the rest of this page is about the fit of the smallest value."
    )
    return {"plot": path_plot(table), "header": header, "rows": cells, "notes": [said]}


def _worth(records: RunRecords) -> dict[str, Any] | None:
    """What each party adds; None where it was not measured."""
    worth = records.worth
    if worth is None:
        return None
    from fastadmm.reports.worth_plot import worth_plot

    def number(value: float | None) -> str:
        return format_number(value, 5, zeros=True)

    pooled = (worth.pooled or {}).get("metrics", {}).get(worth.metric)
    return {
        "plot": worth_plot(worth),
        "header": ["party", "alone", "without it", "adds alone", "Shapley value", "adds last"],
        "rows": [
            [
                row["name"] + (" (labels)" if row["label_party"] else ""),
                *(number(row[key]) for key in ("alone", "without", "adds_alone", "shapley", "adds_last")),
            ]
            for row in worth.table()
        ],
        "notes": [
            f"Test {metric_label(worth.metric)} of nobody (intercept only): {number(worth.of(0))}; "
            f"of all: {number(worth.of(worth.everyone))}"
            + ("" if pooled is None else f"; of scikit-learn on all columns in one place: {number(pooled)}")
            + "."
            + (f" {worth.reason}." if worth.reason else "")
        ],
    }


def _privacy(records: RunRecords) -> dict[str, Any] | None:
    """The privacy statement; None for a run older than statements."""
    if records.privacy is None:
        return None
    if not is_private(records.privacy, records.config):
        plain = "No privacy setting: messages are exact functions of the data (docs/privacy.md)."
        return {"line": plain, "groups": [], "comparison": []}
    comparison = (records.result or {}).get("comparison")
    lines = [
        str(line)
        for key in ("lines", "warnings")
        for line in ((comparison or {}).get(key) or [] if isinstance(comparison, dict) else [])
    ]
    return {
        "line": records.privacy.one_line(),
        "groups": [{"name": "", "rows": records.privacy.table()}],
        "comparison": lines,
    }


# --- what the run says -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """Headline numbers: from the result where there is one, else from the last logged round."""

    status: str | None
    rounds: float | None
    seconds: float | None
    objective: float | None
    gap: float | None
    gap_absolute: float | None
    lam: float | None
    n_samples: float | None
    target: float | None
    stationarity: float | None = None
    gap_within: float | None = None
    claim: str = ""

    @property
    def convex(self) -> bool:
        """Whether the problem has a duality gap; one that has not records its stationarity."""
        return self.stationarity is None


def _facts(records: RunRecords) -> _Facts:
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

    def value(name: str, *config_keys: str) -> float | None:
        if name in claims and said is not None and (said.refused or said.claim) and result.get(name) is None:
            return None  # that of a round is not of these weights
        for candidate in (result.get(name), logged.get(name), _setting(records.config, config_keys)):
            if _real(candidate):
                return candidate
            if candidate is not None:
                # A diverged run has an infinite objective; an older finite one would mislead.
                return None
        return None

    found = {name: value(name) for name in ("rounds", "seconds", "objective", "stationarity", *claims)}
    keys = ("gap", "target_gap", "tol") if found["stationarity"] is None else ("stationarity",)
    return _Facts(
        status=result.get("status"),
        lam=value("lambda", "lambda", "lam", "alpha"),
        n_samples=value("n_samples", "n_samples"),
        target=_setting(records.config, keys),
        claim="" if said is None else said.claim,
        **found,
    )


def _setting(config: dict[str, Any], names: tuple[str, ...]) -> float | None:
    """First number under one of the names, at the top of the configuration or in one of its tables."""
    tables = [config, *(table for table in config.values() if isinstance(table, dict))]
    for name in names:
        for table in tables:
            if _real(table.get(name)):
                return table[name]
    return None


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _standing(facts: _Facts) -> tuple[str, str, str]:
    """How a run ended: its kind for the page's colour, in a word, and in a line."""
    if facts.status in (None, "running"):
        return "open", "Not finished", "the run is still going, or was killed"
    if facts.claim == "contradiction":
        return (
            "diverged",
            "Contradiction",
            "the proof contradicts itself: nothing is claimed; please report it",
        )
    if facts.claim == "at_rounding":
        return "stopped", "At rounding", "the rounding of the proof exceeds what was asked"
    if facts.status == "converged" and facts.claim in ("", "certified", "certified_within"):
        if facts.gap_within is not None and facts.claim != "certified":
            return "stopped", "Converged", "the target gap is proved among models of bounded size only"
        if facts.gap is None:
            return "stopped", "Converged", "without a certificate"
        return "certified", "Certified", "the target gap is reached and proved"
    return {
        "stationary": (
            "stopped",
            "Stationary",
            "a local solution of a problem that is not convex; no global optimum is claimed",
        ),
        "diverged": ("diverged", "Diverged", "the iterates grow without bound"),
        "completed": ("stopped", "Completed", "all private rounds; there is no certificate"),
        "max_rounds": ("stopped", "Stopped", "by the limit on rounds"),
        "time_limit": ("stopped", "Stopped", "by the time limit"),
        "early_stopped": ("stopped", "Stopped", "early: held-out rows no longer got better"),
        "at_rounding": ("stopped", "Stopped", "more rounds prove no more"),
        "interrupted": ("stopped", "Stopped", "by the user; the run can be resumed"),
    }.get(facts.status, ("stopped", "Stopped", facts.status))


def _about(records: RunRecords, n_parties: int) -> str:
    """What this page is, for who was only sent the file."""
    who = "one party" if n_parties == 1 else f"{n_parties} parties" if n_parties else "several parties"
    made = records.path / "result.json"
    day = f" on {datetime.fromtimestamp(made.stat().st_mtime, UTC):%Y-%m-%d}" if made.is_file() else ""
    return (
        f"A linear model that fastadmm trained{day} on columns of {who} about the same rows: how well it "
        "does on other rows where that was measured, what it says, what it does not know, how close it is to "
        "the best possible one, and how training went."
    )


def _certificate(facts: _Facts, records: RunRecords) -> str:
    """What the duality gap means, in a few sentences, and how it is checked."""
    if (said := records.said) is None:
        return _meaning(facts)
    line = f"{said.line[0].upper()}{said.line[1:]}."
    if said.refused:
        return line
    if not said.claim:
        return f"{_meaning(facts)} ({line})"
    meaning = _meaning(facts) if said.claim in ("certified", "uncertified") else line
    return f"{meaning} Prove it again: fastadmm verify {records.path.resolve().name}"


def _meaning(facts: _Facts) -> str:
    """What the duality gap means, in one sentence or two."""
    if facts.status == "diverged":
        return (
            "This run diverged: its iterates grow without bound and the model must not be used. "
            "Train again with a scheme that is guaranteed to converge."
        )
    if not facts.convex:
        return (
            "The problem is not convex, so there is no duality gap and no global optimum is claimed: another "
            "model may have a smaller objective. What the run reports is how nearly stationary its model is: "
            "the size of the gradient as a share of that at zero weights."
        )
    if facts.status == "converged" and facts.gap_within is not None:
        return (
            "Nothing bounds the weights, or too little for double precision: a gap is proved only to the "
            "best of the models in which no column contributes more than 1000 standard deviations: the "
            "model's objective is at most "
            f"{format_percent(facts.gap_within)} above that one's. "
            "Of models with larger weights nothing is claimed."
        )
    subject = "the model's objective" if facts.status else "the objective after the last logged round"
    bound = _bound(facts, subject)
    if bound is None:
        return "No duality gap was recorded, so nothing is proved about how good this model is."
    tail = ""
    if facts.status == "converged":
        tail = " This is a proof, not an estimate: no choice of weights can do better than that."
    elif facts.target is not None and facts.gap is not None and facts.gap > facts.target:
        tail = (
            f" The bound is proved, but the run {'stopped' if facts.status else 'has not finished'} "
            f"before the target of {format_number(facts.target)} was reached."
        )
    return bound + tail


def _bound(facts: _Facts, subject: str) -> str | None:
    first = subject[0].upper() + subject[1:]
    if facts.objective is not None and facts.gap_absolute is not None and facts.gap_absolute >= 0:
        # objective <= best + gap, and best >= objective - gap.
        best = facts.objective - facts.gap_absolute
        if best > 0:
            return f"{first} is at most {format_percent(facts.gap_absolute / best)} above the best possible."
        return f"{first} is at most {format_number(round_up(facts.gap_absolute))} above the best possible."
    if facts.gap is not None and facts.gap >= 0:
        return f"{first} is at most {format_percent(facts.gap)} above the best possible."
    return None


def _headline(records: RunRecords, facts: _Facts, n_parties: int) -> list[dict[str, str]]:
    target = "" if facts.target is None else f"target {format_number(facts.target)}"
    result = records.result or {}
    data = records.config.get("data")
    return [
        _item("Rows", format_number(facts.n_samples), Path(data).name if isinstance(data, str) else ""),
        *_class_of(result, records.evaluation),
        *_metric(records.evaluation),
        _item("Parties", format_number(n_parties) if n_parties else NONE, _columns(records)),
        _item("Relative gap", format_number(facts.gap if facts.gap is None else round_up(facts.gap)), target)
        if facts.convex
        else _item("Stationarity", format_number(facts.stationarity, zeros=True), target),
        _lambda(records, facts),
    ]


def _class_of(result: dict[str, Any], evaluation: dict[str, Any] | None) -> list[dict[str, str]]:
    """Class 1 and how frequent it is, in training rows, else in those of the evaluation."""
    rows = result.get("class_rows")
    if isinstance(rows, dict) and len(rows) == 2 and all(map(_real, rows.values())):
        name, count = list(rows.items())[1]
        return [_item("Class 1", name, f"{100.0 * count / (sum(rows.values()) or 1):.3g} % of rows")]
    event, share = event_in(evaluation or {})
    return [_item("Class 1", event, f"{100.0 * share:.3g} % of evaluated rows")] if event else []


def _metric(evaluation: dict[str, Any] | None) -> list[dict[str, str]]:
    """AUC with its interval, or R², of the evaluation."""
    metrics = (evaluation or {}).get("metrics", {})
    found = [name for name in ("auc", "r2", "d2") if _real(metrics.get(name))][:1]
    ends = ((evaluation or {}).get("ranking") or {}).get("auc_interval")
    note = f"95 %: {ends[0]:.3f} to {ends[1]:.3f}" if found == ["auc"] and ends else "evaluated"
    return [_item(metric_label(name), f"{metrics[name]:.3f}", note) for name in found]


def _training(records: RunRecords, facts: _Facts) -> list[dict[str, str]]:
    result, most = records.result or {}, _setting(records.config, ("rounds",))
    limit = "" if most is None else f"at most {format_number(most)}"
    return [
        _item("Objective", format_number(facts.objective, 6), f"mean {result.get('loss') or 'loss'} + λ·R"),
        _item("Rounds", format_number(facts.rounds), f"{result.get('scheme') or ''}, {limit}".strip(", ")),
        *_exchanges(records, facts),
        _item("Time", format_duration(facts.seconds), _per_round(facts)),
    ]


def _item(label: str, text: str, note: str = "") -> dict[str, str]:
    return {"label": label, "value": text, "note": note}


def _lambda(records: RunRecords, facts: _Facts) -> dict[str, str]:
    """λ, or from the smallest to the largest where parties have their own."""
    own = [party.get("lambda") for party in (records.result or {}).get("parties") or []]
    values = [value for value in own if _real(value)]
    if not values:
        return _item("λ", format_number(facts.lam), "per mean loss")
    ends = dict.fromkeys(format_number(value) for value in (min(values), max(values)))
    return _item("λ of each party", " to ".join(ends), "per mean loss")


def _exchanges(records: RunRecords, facts: _Facts) -> list[dict[str, str]]:
    """What the run's exchanges would cost between organisations, where that was counted."""
    result = records.result or {}
    sent = [party.get("bytes") for party in result.get("parties") or []]
    values, n = [value for value in sent if _real(value)], facts.n_samples
    if not values or not n or not _real(result.get("exchanges")):
        return []
    note = f"as between organisations: {format_number(round(max(values) / n))} bytes a row"
    return [_item("Exchanges", format_number(result["exchanges"]), note)]


def _per_round(facts: _Facts) -> str:
    if not facts.rounds or facts.seconds is None:
        return ""
    return f"{format_duration(facts.seconds / facts.rounds)} per round"


def _columns(records: RunRecords) -> str:
    widths = [party.get("n_features") for party in (records.result or {}).get("parties", [])]
    if not widths or not all(_real(width) for width in widths):
        return ""
    return f"{format_number(sum(widths))} columns"


def _parties(records: RunRecords) -> list[list[str]]:
    """Name, columns, norm of the weights, λ of its own and file of each party."""
    norms = records.history.weight_norms
    listed = (records.result or {}).get("parties") or [{}] * norms.shape[1]
    rows = []
    for k in range(max(len(listed), norms.shape[1])):
        party = listed[k] if k < len(listed) else {}
        norm = party.get("weight_norm")
        if norm is None and k < norms.shape[1] and len(norms):
            norm = float(norms[-1, k])
        rows.append(
            [
                str(party.get("name") or f"party {k + 1}"),
                format_number(party.get("n_features")),
                format_number(norm, 5, zeros=True),
                format_number(party["lambda"]) if _real(party.get("lambda")) else NONE,
                str(party.get("file") or NONE),
            ]
        )
    return rows


def _party_table(rows: list[list[str]]) -> dict[str, Any]:
    """Without λ, where no party has its own."""
    kept = [k for k in range(len(PARTIES)) if k != 3 or any(row[3] != NONE for row in rows)]
    cells = [[row[k] for k in kept] for row in rows]
    return {"header": [PARTIES[k] for k in kept], "rows": cells, "notes": []}


def _last_rounds(records: RunRecords) -> dict[str, Any]:
    """The columns that hold at least one number in the last rounds, and those rounds."""
    history = records.history
    tail = slice(max(0, len(history) - LAST_ROUNDS), None)
    labels = {
        "seconds": "seconds",
        "objective": "objective",
        "gap": "relative gap",
        "stationarity": "stationarity",
        "primal_residual": "primal residual",
        "dual_residual": "dual residual",
        "penalty": "penalty",
    }
    columns = [(label, history.series[name][tail]) for name, label in labels.items()]
    columns += [
        (f"test {metric_label(name)}", values[tail]) for name, values in list(history.test.items())[:3]
    ]
    columns = [(label, values) for label, values in columns if not np.isnan(values).all()]
    rows = []
    for k, number in enumerate(history.round[tail]):
        cells = [
            format_number(float(values[k]), 8 if label == "objective" else 4, zeros=label != "penalty")
            for label, values in columns
        ]
        rows.append([format_number(int(number)), *cells])
    logged = f"The last {len(rows)} of {len(history)} logged rounds; rounds.jsonl holds them all."
    notes = [logged] if len(history) > len(rows) else []
    return {"header": ["round", *(label for label, _ in columns)], "rows": rows, "notes": notes}


def _evaluation(evaluation: dict[str, Any] | None) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    models = [("this model", evaluation["metrics"])]
    for k, baseline in enumerate(evaluation.get("baselines") or [], start=1):
        models.append((str(baseline.get("name") or f"baseline {k}"), baseline["metrics"]))

    def scalars(metrics: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in metrics.items() if plain_value(value)}

    names = list(dict.fromkeys(name for _, metrics in models for name in scalars(metrics)))
    return {
        "data": str(evaluation.get("data") or ""),
        "classes": class_table(evaluation["metrics"].get("classes")),
        "header": ["metric", *(model for model, _ in models)],
        "rows": [
            [metric_label(name), *(format_number(metrics.get(name), 5, zeros=True) for _, metrics in models)]
            for name in names
        ],
    }


def _groups(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A nested document as named groups of (key, text) pairs."""
    top = [(key, value) for key, value in document.items() if not isinstance(value, dict)]
    groups = [{"name": "", "rows": [(key, _text(value)) for key, value in top]}] if top else []
    for key, value in document.items():
        if isinstance(value, dict):
            groups.append({"name": key, "rows": list(_flat(value))})
    return [group for group in groups if group["rows"]]


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    """A setting as the reader would write it."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or NONE
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_text(item)}" for key, item in value.items()) or NONE
    return str(value)
