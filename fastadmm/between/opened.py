"""A party's files, opened by their owner: what is wrong with them is said before anybody asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastadmm.conversation.gate import check_features
from fastadmm.engine.engine import Engine
from fastadmm.files.atomic import shown
from fastadmm.store.model import check_same_columns
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.streamed import load_block

__all__ = ["check_opened"]


def check_opened(
    data: PartyData, others: Mapping[str, Path | None], engine: Engine, streamed: bool = False
) -> None:
    """Read all features once, so that no answer can fail by one of them.

    Theorem: ``docs/privacy.md#outcomes-are-public``.
    """
    opened = [data]
    for path in others.values():
        if path is not None:
            other = open_party(path)
            check_same_columns([other], [data], shown(path))
            opened.append(other)
    for each in opened:
        check_features(load_block(each, streamed), shown(each.path), engine)
