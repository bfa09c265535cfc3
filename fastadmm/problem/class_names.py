"""Which of two labels is the event, class 1, where their words tell."""

from collections.abc import Sequence
from typing import Any

from fastadmm.errors import ConfigError

#: Words of the same meaning: labels without the event, and with it.
_PLAIN = """
no|non|nein|n|não|nao|nee|nej|nei|ei|nie|ne|hayır|hayir|нет|nem|nu|όχι|否|いいえ|아니요 /
 yes|y|oui|o|ja|j|sí|si|sì|s|sim|kyllä|tak|t|ano|a|evet|e|да|da|igen|i|ναι|是|はい|예
false|f|falsch|unwahr|faux|falso|onwaar|falsk|fałsz|ложь /
 true|t|wahr|richtig|vrai|verdadero|vero|verdadeiro|waar|sann|sand|prawda|истина
negative|negativ|négatif|negativo|negatief|neg|- / positive|positiv|positif|positivo|positief|pos|+
off|aus|inactive|inaktiv|inactif|inactivo / on|an|ein|active|aktiv|actif|activo
absent|none / present
control|controls / case|cases
"""

#: The same where the event is what is feared, and the other label the good one.
_FEARED = """
good|g|gut|bon|bueno|buono|bom|goed|god|bra|dobry|хороший /
 bad|b|schlecht|mauvais|malo|cattivo|mau|slecht|dårlig|dålig|zły|плохой
paid|repaid|current|performing|bezahlt|zurückgezahlt /
 default|defaulted|unpaid|nonperforming|ausfall|ausgefallen|charged off|delinquent
benign|b|harmless|gutartig|harmlos / malignant|m|bösartig
healthy|normal|well|gesund / sick|ill|diseased|disease|abnormal|anomaly|krank|patient
alive|survived|survivor|living|lebend|überlebt / dead|died|deceased|tot|gestorben|verstorben
legitimate|legit|genuine|ham / fraud|fraudulent|betrug|spam|phishing
retained|stayed|stay|active|loyal / churned|churn|left|exited|lost
pass|passed|ok|bestanden / fail|failed|failure|defect|defective|broken|durchgefallen
"""

#: A word after one of these is its contrary.
_NOT = ("no", "not", "non", "none", "nicht", "kein", "keine", "sin", "sans", "without", "ohne")


def event_of(classes: Sequence[str]) -> str | None:
    """The one of two labels that is the event, as ``yes``, ``true``, ``bad`` or what only one of them denies.

    Returns: None where words do not tell.
    """
    return _with(classes, _PLAIN + _FEARED) or _denied(classes)


def good_of(classes: Sequence[str]) -> str | None:
    """The good one of two labels of which the other is feared; None where words do not tell."""
    feared = _with(classes, _FEARED)
    return None if feared is None else classes[feared == classes[0]]


def counted_of(classes: Sequence[Any], positive: Any = None) -> Any:
    """The one of two labels that is counted: ``positive``, else the event, else the last; None of more."""
    if positive is not None:
        if len(classes) != 2 or positive not in classes:
            which = "is none of the labels" if len(classes) == 2 else "needs two labels, and these are"
            raise ConfigError(f"positive: {positive!r} {which} {', '.join(map(repr, classes))}")
        return classes[classes.index(positive)]
    if len(classes) != 2:
        return None
    names = [str(label) for label in classes]
    return classes[names.index(event_of(names) or names[1])]


def sign_of(classes: Sequence[str] | None) -> list[str]:
    """What the sign of a weight means, where there are two labels; else nothing."""
    return [f"a positive weight speaks for {classes[1]!r}, class 1"] if classes and len(classes) == 2 else []


def _with(classes: Sequence[str], pairs: str) -> str | None:
    one, other = (name.strip().casefold() for name in classes)
    for pair in filter(None, pairs.replace(" /\n", " /").splitlines()):
        negative, positive = (words.strip().casefold().split("|") for words in pair.split("/"))
        if one in negative and other in positive:
            return classes[1]
        if other in negative and one in positive:
            return classes[0]
    return None


def _denied(classes: Sequence[str]) -> str | None:
    """The label that the other one denies, as ``no default`` and ``default``."""
    words = [" ".join(name.casefold().replace("_", " ").replace("-", " ").split()) for name in classes]
    for own, other in ((0, 1), (1, 0)):
        first, _, rest = words[other].partition(" ")
        if first in _NOT and rest == words[own]:
            return classes[own]
    return None
