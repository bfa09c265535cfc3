"""How a party answers: every call of its family is a method of the same name."""

from __future__ import annotations

from typing import Any

from fastadmm.conversation.calls import CALLS
from fastadmm.errors import FormatError

__all__ = ["Answering"]


class Answering:
    """A party, wherever its driver is.

    Attributes
    ----------
    family : str
        Which calls of :data:`fastadmm.conversation.calls.CALLS` it answers.
    """

    family: str

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer one call.

        Parameters
        ----------
        name : str
            Of the call.
        arguments : dict
            Arrays and scalars.

        Returns
        -------
        dict
            Arrays and scalars; empty where the table says that the call has no answer.

        Raises
        ------
        FormatError
            The call is none of this family, or its arguments are not for this party in this state.
        """
        if name not in CALLS or self.family not in CALLS[name].families:
            raise FormatError(f"call {name[:80]!r} is unknown here")
        return getattr(self, name)(**arguments) or {}
