"""Every error a user can cause, each with its exit code.

A user's mistake never shows a traceback: the command line prints ``str(error)``
as one line and exits with :attr:`FastadmmError.exit_code`. The table in
``docs/cli.md`` documents the numbers; a test keeps the two equal.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    INTERNAL = 1  # a defect of fastadmm itself
    USAGE = 2  # unknown command, option or malformed option value
    INPUT = 3  # the data are wrong: NaN, labels, shapes, indices, broken text
    FORMAT = 4  # a fastadmm file is damaged, of another kind or of an unknown version
    CONFIG = 5  # a configuration key or a combination of settings is wrong
    STORAGE = 6  # cannot read or write: missing path, permission, disk full
    NOT_CONVERGED = 7  # no certificate: a limit or rounding came first, or a written claim does not hold
    DIVERGED = 8  # the iterates diverge
    PRIVACY = 9  # the privacy budget does not allow it, or an audit refuted a claim
    CONTRADICTION = 10  # the proof contradicts itself: a defect of fastadmm or of the machine; please report
    WAITING = 11  # parties elsewhere have not approved what was asked yet; the same command goes on
    INTERRUPTED = 130  # Ctrl-C; the run can be resumed


class FastadmmError(Exception):
    """Base class: a message of one line and an exit code."""

    exit_code: ExitCode = ExitCode.INTERNAL
    #: Why a party does not answer a request: a code of :mod:`fastadmm.between.schema`; empty elsewhere.
    refusal: str = ""


class InputError(FastadmmError, ValueError):
    """The user's data are wrong; the message names file, place and remedy."""

    exit_code = ExitCode.INPUT


class WaitingError(FastadmmError, RuntimeError):
    """Owners of data elsewhere have not approved what was asked; not an error of anybody."""

    exit_code = ExitCode.WAITING


class FormatError(FastadmmError, ValueError):
    """A fastadmm file is damaged, truncated, of another kind or version."""

    exit_code = ExitCode.FORMAT


class ConfigError(FastadmmError, ValueError):
    """A setting is unknown, out of range, or does not go with another."""

    exit_code = ExitCode.CONFIG


class StorageError(FastadmmError, OSError):
    """A path cannot be read or written."""

    exit_code = ExitCode.STORAGE


class DivergenceError(FastadmmError, RuntimeError):
    """The iterates of a scheme without a guarantee grow without bound."""

    exit_code = ExitCode.DIVERGED


class PrivacyWarning(UserWarning):
    """A private fit whose account is not kept, or whose weights its epsilon does not cover."""


class PrivacyBudgetError(FastadmmError, RuntimeError):
    """A release would exceed the privacy budget, or nothing is proved for it; it was not made."""

    exit_code = ExitCode.PRIVACY
