"""What to say about a command line that is wrong: one line, with what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from fastadmm.cli.options import given, in_a_file
from fastadmm.other_names import KEYS, near_key

#: Our options for names elsewhere that are no keys of a configuration.
_OPTIONS: dict[str, str] = {
    **dict.fromkeys(("output", "output_dir", "outdir", "run", "save", "model"), "--out"),
    **dict.fromkeys(("overwrite", "replace", "f", "yes"), "--force"),
    **dict.fromkeys(("silent", "s"), "--quiet"),
    **dict.fromkeys(("target", "y", "labels", "outcome", "class"), "--label"),
    **dict.fromkeys(("sep", "delimiter", "d"), "--separator"),
    **dict.fromkeys(("key", "index", "on", "join"), "--id"),
    **dict.fromkeys(("plan", "dry", "n"), "--dry-run"),
    "pooled": "--scheme pooled",
    "host": "--address",
    "reference": "--baseline",
    "digits": "--decimals",
}

#: Commands for what other programs call them.
_COMMANDS: dict[str, str] = {
    **dict.fromkeys(("fit", "run", "start"), "train"),
    **dict.fromkeys(("continue", "restart"), "resume"),
    **dict.fromkeys(("split", "prepare", "load"), "convert"),
    **dict.fromkeys(("show", "info", "describe", "ls"), "inspect"),
    **dict.fromkeys(("test", "score", "metrics"), "evaluate"),
    **dict.fromkeys(("check", "prove"), "verify"),
    **dict.fromkeys(("summary", "coef"), "coefficients"),
    **dict.fromkeys(("psi", "join", "match"), "align"),
    **dict.fromkeys(("client", "site"), "party"),
    **dict.fromkeys(("save", "onnx"), "export"),
    "server": "coordinator",
    "version": "--version",
    "help": "--help",
}


#: What the library calls numbers, and what we call them.
_NUMBERS = {"integer": "a whole number", "number": "a number", "float": "a number"}


def usage_line(error: Any, argv: list[str], groups: Iterable[str]) -> str:
    """One sentence about an error of usage."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    message = str(error.format_message()).removesuffix(".")
    words = str(getattr(context, "command_path", "fastadmm")).split()
    path = " ".join(["fastadmm", *words[1:]])
    if type(error).__name__ == "NoSuchOption" and option and context is not None:
        if line := _option(context, str(option), argv):
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
    elif message.endswith("requires an argument") and argv:  # the library does not say of which command
        names = list(takewhile(lambda word: not word.startswith("-"), argv))
        path = " ".join(["fastadmm", *names[: 2 if names[:1] and names[0] in groups else 1]])
        message = message.replace("an argument", "a value")
    elif wrong := re.match("Invalid value for '(-[^' ]+)[^:]*:(?: Value error,)? ", message):
        # What the library says of numbers depends on its version; some do not name what was given.
        reason, value = message[wrong.end() :], repr(given(wrong[1], argv))
        kind = next((said for word, said in _NUMBERS.items() if f"valid {word}" in reason), "")
        message = f"{wrong[1]}: {f'{value} is not {kind}' if kind else reason.replace('Input', value)}"
    return f"{message}; see '{path} --help'"


def _near(name: str, others: dict[str, str], known: Iterable[str]) -> str:
    names = list(known)
    ours = others.get(name.lower().replace("_", "-"), "")
    if ours in names or ours.startswith("-"):
        return ours
    return next(iter(difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.7)), "")


def _option(context: Any, option: str, argv: list[str]) -> str:
    """What was meant by an option that the command does not have; empty where nothing is near."""
    names = {name for known in context.command.params for name in (*known.opts, *known.secondary_opts)}
    plain = option.strip("-").lower().replace("-", "_")
    if _OPTIONS.get(plain, "").partition(" ")[0] in names:
        return f"No such option: {option}; did you mean {_OPTIONS[plain]}?"
    keys = {name.strip("-").replace("-", "_"): name for name in names if name.startswith("--")}
    if KEYS.get(plain, ("",))[0] not in keys and (line := in_a_file(context, option, argv)):
        return line
    key, note = near_key(plain, keys)
    if context.parent is None:
        return f"No such option: {option}; options of a command come after it: 'fastadmm COMMAND {option}'"
    return f"No such option: {option}; did you mean {keys[key]}?{f' {note}' if note else ''}" if key else ""
