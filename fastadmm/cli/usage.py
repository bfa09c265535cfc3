"""What to say about a command line that is wrong: one line, with what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

from fastadmm.cli.options import given, in_a_file, is_number, seconds_of
from fastadmm.errors import ConfigError
from fastadmm.other_names import KEYS, choose_instead, near_key

#: Our options for names elsewhere that are no keys of a configuration.
_OPTIONS: dict[str, str] = {
    **dict.fromkeys(("output", "output_dir", "outdir", "run", "save", "model"), "--out"),
    **dict.fromkeys(("overwrite", "replace", "f", "y_", "yes"), "--force"),
    **dict.fromkeys(("silent", "s"), "--quiet"),
    **dict.fromkeys(("target", "y", "label_column", "labels", "outcome", "class"), "--label"),
    **dict.fromkeys(("sep", "delimiter", "d"), "--separator"),
    **dict.fromkeys(("scale", "scaler", "standardise", "zscore"), "--standardize"),
    **dict.fromkeys(("key", "index", "on", "join", "by"), "--id"),
    **dict.fromkeys(("n_parties", "num_parties", "clients", "m"), "--parties"),
    **dict.fromkeys(("split", "features_split", "widths"), "--columns"),
    **dict.fromkeys(("table", "tables"), "--guest and --host"),
    **dict.fromkeys(("impute", "fillna", "na", "fill"), "--missing"),
    **dict.fromkeys(("l1", "lasso"), "--regularizer l1"),
    **dict.fromkeys(("l2", "ridge"), "--regularizer l2"),
    **dict.fromkeys(("elastic_net", "elasticnet"), "--regularizer elastic_net"),
    **dict.fromkeys(("no_bias", "no_fit_intercept"), "--no-intercept"),
    **dict.fromkeys(("plan", "dry", "n"), "--dry-run"),
    "checkpoint": "--warm-start",
}

#: What other programs have options for, and we have nothing.
_NOTHING: dict[str, str] = {
    **dict.fromkeys(
        ("gpu", "cuda", "device"), "everything runs on processor cores; --threads says on how many"
    ),
    **dict.fromkeys(("lr", "learning_rate", "step_size", "eta"), "rounds have no step size to choose"),
    **dict.fromkeys(("batch_size", "batch", "minibatch"), "a round uses all rows"),
}

#: Commands for what other programs call them.
_COMMANDS: dict[str, str] = {
    **dict.fromkeys(("fit", "run", "learn", "start"), "train"),
    **dict.fromkeys(("continue", "restart", "resume-run"), "resume"),
    **dict.fromkeys(("split", "import-data", "prepare", "load", "preprocess"), "convert"),
    **dict.fromkeys(("show", "info", "describe", "ls", "cat", "view"), "inspect"),
    **dict.fromkeys(("test", "score", "eval", "metrics", "validate"), "evaluate"),
    **dict.fromkeys(("plot", "html"), "report"),
    **dict.fromkeys(("check", "prove", "certify"), "verify"),
    **dict.fromkeys(("diff",), "compare"),
    **dict.fromkeys(("summary", "pvalues", "coef", "coefficients"), "infer"),
    **dict.fromkeys(("example", "quickstart", "tutorial"), "demo"),
    **dict.fromkeys(("psi", "join", "match"), "align"),
    **dict.fromkeys(("shapley", "value"), "worth"),
    **dict.fromkeys(("client", "site"), "party"),
    **dict.fromkeys(("server",), "coordinator"),
    **dict.fromkeys(("dp", "budget", "epsilon"), "privacy"),
    **dict.fromkeys(("save", "dump", "onnx"), "export"),
    **dict.fromkeys(("compile",), "warmup"),
    "version": "--version",
    "help": "--help",
}


def usage_line(
    error: Any, argv: list[str], groups: Iterable[str] = (), program: Callable[[], Any] = lambda: None
) -> str:
    """One sentence about an error of usage."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    message = str(error.format_message()).removesuffix(".")
    words = str(getattr(context, "command_path", "fastadmm")).split()
    path = " ".join(["fastadmm", *words[1:]])
    if type(error).__name__ == "NoSuchOption" and option and context is not None:
        if line := _option(context, str(option), argv, program):
            return line
        message = f"No such option: {option}"  # without the library's guesses
    elif message.startswith("No such command") and context is not None:
        name = message.split("'")[1]
        message = f"No such command '{name}'"  # without the library's guess
        if near := _near(name, _COMMANDS, context.command.commands):
            return f"{message}; did you mean '{path} {near}'?"
    elif message.startswith("Got unexpected extra argument") and path == "fastadmm convert":
        message = (  # as from a shell that has expanded the pattern
            "one SOURCE, but there are more: quote a pattern of parts ('parts/*.csv'), or give a table per "
            "party with --guest and --host"
        )
    elif message.startswith("Got unexpected extra argument") and (line := _extra(context, message, argv)):
        message = line
    elif message.endswith("requires an argument") and argv:  # the library does not say of which command
        names = list(takewhile(lambda word: not word.startswith("-"), argv))
        path = " ".join(["fastadmm", *names[: 2 if names[:1] and names[0] in groups else 1]])
        message = message.replace("an argument", "a value")
    elif context is not None and (wrong := re.match("Invalid value for '(-[^' ]+)", message)):
        reason = _reason(context, wrong[1], argv, message)
        message = f"{wrong[1]}: {reason}" if reason else message.replace(" Value error,", "")
    return f"{message}; see '{path} --help'"


def _reason(context: Any, option: str, argv: list[str], message: str) -> str:
    """Why a number is none, or none that is allowed; empty for other options."""
    found = (known for known in context.command.params if option in known.opts)
    known = next(found, None)
    kind = "N" if "integer" in message else "NUMBER" if "number" in message else getattr(known, "metavar", "")
    if known is None or kind not in ("N", "NUMBER"):
        return ""
    value = next(filter(None, (given(name, argv) for name in known.opts)), "")
    what = "a whole number" if kind == "N" else "a number"
    if not is_number(value):
        if option == "--penalty" and value.isidentifier():
            from fastadmm.problem.regularizers import REGULARIZERS

            said = choose_instead("regularizer", value, REGULARIZERS)
            name = said.split("'")[1] if "'" in said else value
            return f"'{value}' is not a number, as the penalty of ADMM is; did you mean --regularizer {name}?"
        if meant := _amount(option, value, kind):
            return f"'{value}' is not {what}; write {meant}"
        point = value.replace(",", ".")
        return f"'{value}' is not {what}" + (
            f"; write {point}" if kind == "NUMBER" and is_number(point) else ""
        )
    if kind == "N" and not re.fullmatch(r"[+-]?\d+", value):
        whole = float(value)
        return f"'{value}' is not {what}" + (f"; write {whole:.0f}" if whole.is_integer() else "")
    ends = re.search(
        r"\[(?:([\d.]+)<=)?x(?:>=([\d.]+)|<=([\d.]+))", (known.get_help_record(context) or ("", ""))[1]
    )
    if ends is None:
        return ""
    low, high = ends[1] or ends[2], ends[3]
    allowed = f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
    return f"{value} is not allowed: it must be {allowed}"


def _amount(option: str, value: str, kind: str) -> str:
    """The number that a share in percent or a time with a unit means; empty for others."""
    if kind == "NUMBER" and value.endswith("%") and is_number(value[:-1]):
        return f"{float(value[:-1]) / 100:g}"
    if option == "--time":
        try:
            return f"{seconds_of(value, option):g}"
        except ConfigError:
            return ""
    return ""


def _extra(context: Any, message: str, argv: list[str]) -> str:
    """What is wrong about words that stand beside an option which does not take them; empty otherwise."""
    words = re.findall(r"\(([^()]*)\)$", message)
    extra = words[0].split()[0] if words else ""
    place = argv.index(extra) if extra in argv else 0
    options = {
        name: known for known in context.command.params for name in (*known.opts, *known.secondary_opts)
    }
    before, second = argv[place - 1] if place else "", argv[place - 2] if place > 1 else ""
    if before in options and options[before].is_flag:
        return f"{before} takes no value: leave {extra!r} out" + _negated(options[before], before, extra)
    if second in options and not before.startswith("-") and not getattr(options[second], "is_flag", True):
        return f"{extra!r} is one word too many: is it of {second} '{before} {extra}'? quote what has spaces"
    return ""


def _negated(parameter: Any, name: str, value: str) -> str:
    """The other form of a flag, for a value that denies it."""
    others = [*parameter.opts, *parameter.secondary_opts]
    other = next((one for one in others if one != name and one.startswith("--no-")), "")
    return f", or write {other}" if other and value.lower() in ("no", "false", "0", "off", "none") else ""


def _elsewhere(option: str, program: Any) -> list[str]:
    """The commands that have an option."""
    commands = getattr(program, "commands", {})
    return [name for name, one in commands.items() if any(option in known.opts for known in one.params)]


def _near(name: str, others: dict[str, str], known: Iterable[str]) -> str:
    names = list(known)
    ours = others.get(name.lower().replace("_", "-"), "")
    if ours in names or ours.startswith("-"):
        return ours
    return next(iter(difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.7)), "")


def _option(context: Any, option: str, argv: list[str], program: Callable[[], Any]) -> str:
    """What was meant by an option that the command does not have; empty where nothing is near."""
    value = given(option, argv)
    names = {name for known in context.command.params for name in (*known.opts, *known.secondary_opts)}
    plain = option.strip("-").lower().replace("-", "_")
    if plain == "version" or (plain == "v" and option == "-v" and context.parent is None):
        return f"No such option: {option}; did you mean 'fastadmm --version'?"
    if plain in ("v", "verbose", "debug", "progress") and "--quiet" in names:
        return f"No such option: {option}; progress is shown unless --quiet is given"
    keys = {name.strip("-").replace("-", "_"): name for name in names if name.startswith("--")}
    meant = _OPTIONS.get(plain, "")
    if meant and meant.split()[0] in names:
        if meant.startswith("--regularizer") and is_number(value):
            meant += f" --lambda {value}"
        return f"No such option: {option}; did you mean {meant}?"
    if KEYS.get(plain, ("",))[0] not in keys and (line := in_a_file(context, option, argv)):
        return line
    if plain == "resume":
        return f"No such option: {option}; did you mean 'fastadmm resume RUN'?"
    if plain in _NOTHING:
        return f"No such option: {option}; {_NOTHING[plain]}"
    key, note = near_key(plain, keys)
    if line := _of_a_run(context, option):
        return line
    there = [] if plain in KEYS else _elsewhere(option, program())
    if there and context.parent is None:
        return f"{option}: options come after the command, as in 'fastadmm COMMAND {option}'"
    if 0 < len(there) <= 3:
        listed = " and ".join(f"'fastadmm {name}'" for name in there)
        return f"No such option: {option}; {listed} {'has' if len(there) == 1 else 'have'} it"
    if key:
        return f"No such option: {option}; did you mean {keys[key]}?{f' {note}' if note else ''}"
    return ""


def _of_a_run(context: Any, option: str) -> str:
    """A sentence saying that a resumed run keeps what it was started with; empty for other commands."""
    if context.command.name != "resume":
        return ""
    from fastadmm.settings.keys import PRIVACY, SETTINGS

    flags = {setting.flag for setting in (*SETTINGS.values(), *PRIVACY.values())}
    if option not in flags:
        return ""
    return f"{option}: a resumed run keeps what it was started with; begin another with 'fastadmm train'"
