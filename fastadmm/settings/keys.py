"""Keys of training runs by what is declared of them, for all that compares, repeats or records runs."""

from fastadmm.settings.privacy import settings_of_modes
from fastadmm.settings.run import RunConfig
from fastadmm.settings.setting import settings_of

#: Every setting by key, in the order of the documentation.
SETTINGS = settings_of(RunConfig)

#: Those of the table ``[privacy]``.
PRIVACY = settings_of_modes()

#: Every key, in that order.
KEYS = tuple(SETTINGS)

#: What the weights are penalised and constrained by, besides lambda.
PENALTY = tuple(key for key, setting in SETTINGS.items() if setting.in_model)

#: What is minimised; all other keys only say how, or of which data.
OBJECTIVE = tuple(key for key, setting in SETTINGS.items() if setting.role == "objective")

#: What decides the weights that come out of given data, to the last bit.
DECISIVE = tuple(key for key, setting in SETTINGS.items() if setting.role in ("objective", "method"))

#: Keys whose texts are paths.
PATHS = tuple(key for key, setting in SETTINGS.items() if setting.is_path)

#: What only says when to stop: a resumed run may have others.
LIMITS = tuple(key for key, setting in SETTINGS.items() if setting.is_limit)

#: What decides only where and when a run works, and what it keeps.
UNDECISIVE = tuple(key for key, setting in SETTINGS.items() if setting.role in ("place", "output"))
