"""The kinds of party that a run may be opened with, by the family that the call ``start`` names."""

from __future__ import annotations

from fastadmm.conversation.answering import Answering
from fastadmm.parties.classes import ClassDirectionParty, ClassParty
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.face import FaceParty
from fastadmm.parties.face_classes import ClassFaceParty
from fastadmm.parties.log_sum_direction import LogSumDirectionParty
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.parties.proximal import Party

FAMILIES: dict[str, type[Answering]] = {
    kind.family: kind
    for kind in (
        DirectionParty,
        LogSumDirectionParty,
        FaceParty,
        Party,
        ClassDirectionParty,
        ClassParty,
        ClassFaceParty,
        MaskedDirectionParty,
    )
}
