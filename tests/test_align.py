"""Alignment: the same rows and digest on one machine and by private set intersection; the data of FATE."""

import json
import os

import numpy as np
import pytest
from fastadmm.data_tools import alignment as psi
from fastadmm.data_tools.alignment import canonical_order, file_ids, read_alignment, write_alignment
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.synthetic import write_tables
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.digest import row_digest
from fastadmm.store.partition import merge_partitions
from hypothesis import given, settings
from hypothesis import strategies as st

from run_tools import refuses, run


@pytest.fixture
def bank(tmp_path):
    write_tables(tmp_path, n_samples=120)
    return tmp_path


def ids_of(path, duplicates="refuse"):
    return file_ids(path, "id", duplicates=duplicates)


@given(st.sets(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1), st.randoms())
@settings(max_examples=50, deadline=None)
def test_canonical_order_of_numbers(ids, random):
    shuffled = [str(i) for i in ids]
    random.shuffle(shuffled)
    found = canonical_order(shuffled)
    assert found.ids.tolist() == sorted(ids)
    assert found.digest == row_digest(np.array(sorted(ids), dtype=np.int64))


def test_alignment_file_round_trip_and_damage(tmp_path):
    path = tmp_path / "rows.json"
    for ids in (["10", "9", "-3"], ["b", "a", "007"]):
        write_alignment(path, canonical_order(ids), force=True)
        assert read_alignment(path).ids.tolist() == canonical_order(ids).ids.tolist()
    record = json.loads(path.read_text())
    for change, message in (
        ({"ids": ["a", "007", "b"]}, "do not agree"),
        ({"ids": ["a", "a"]}, "do not agree"),
        ({"ids": [1, True]}, "do not agree"),
        ({"ids": 7}, "do not agree"),
        ({"ids": ["\ud800"]}, "do not agree"),
        ({"version": "9"}, "version '9'"),
        ({"format": "x"}, "not an alignment"),
    ):
        path.write_text(json.dumps(record | change))
        refuses(FormatError, message, read_alignment, path)
    path.write_bytes(b"\xff\x00")
    refuses(FormatError, "not an alignment", read_alignment, path)


def test_private_and_trusted_give_the_same_bytes(bank, capsys):
    pytest.importorskip("nacl", reason='needs pynacl: pip install "fastadmm[psi]"')
    d = bank
    guest, host = d / "bank.csv", d / "shop.csv"
    assert not run("align", "--guest", guest, "--host", host, "--id", "id", "-o", d / "trusted.json")
    assert not run("align", "psi-request", guest, "--id", "id", "-o", d / "q", "--secret", d / "key")
    assert not run("align", "psi-respond", host, "--id", "id", "--request", d / "q", "-o", d / "r")
    assert not run(
        "align", "psi-finish", guest, "--id", "id", "--secret", d / "key", "--response", d / "r",
        "-o", d / "private.json",
    )  # fmt: skip
    assert (d / "trusted.json").read_bytes() == (d / "private.json").read_bytes()
    assert os.stat(d / "key").st_mode & 0o077 == 0
    # What is sent are points of a curve, blinded by a key of this request alone.
    psi.psi_request(ids_of(guest), d / "q2", d / "key2")
    sent = [set(psi._points((d / name).read_bytes().partition(b"\n")[2])) for name in ("q", "q2")]
    assert all(map(psi.library().crypto_core_ed25519_is_valid_point, sent[0] | sent[1]))
    assert len(sent[0]) == len(ids_of(guest))
    assert not sent[0] & sent[1]
    # Partners of two versions find nothing if an id becomes another point.
    pinned = "5decbae59f128df6fce2e0a97666f74c027a2f0d057754add1b1f111b66b3e24"
    assert psi._blinded(["7"], b"\x01" + bytes(31)).hex() == pinned
    options = {"id": "id", "missing": "median", "alignment": d / "private.json", "standardize": True}
    with pytest.raises(ConfigError, match="--parties: is for one source"):
        convert_tables(guest, [], d / "g.parts", label="default", parties=2, **options)
    convert_tables(guest, [], d / "g.parts", label="default", **options)
    convert_tables(None, [host], d / "h.parts", task="classification", **options)
    merged = merge_partitions([d / "g.parts", d / "h.parts"], d / "merged.parts")
    whole = convert_tables(
        guest, [host], d / "whole.parts", label="default", **{**options, "alignment": None}
    )
    assert merged.row_digest == whole.row_digest == read_alignment(d / "trusted.json").digest
    for file in os.listdir(d / "whole.parts"):
        assert (d / "whole.parts" / file).read_bytes() == (d / "merged.parts" / file).read_bytes()
    capsys.readouterr()


def test_mistakes_of_private_intersection(bank, monkeypatch):
    pytest.importorskip("nacl", reason='needs pynacl: pip install "fastadmm[psi]"')
    d = bank
    guest, host = ids_of(d / "bank.csv"), ids_of(d / "shop.csv")
    psi.psi_request(guest, d / "q", d / "key")
    psi.psi_respond(host, d / "q", d / "r")
    psi.psi_request(guest, d / "q2", d / "key2")

    def refused(kind, message, call, *arguments):
        before = sorted(os.listdir(d))
        with pytest.raises(kind, match=message) as caught:
            call(*arguments)
        assert "\n" not in str(caught.value)
        assert sorted(os.listdir(d)) == before

    refused(InputError, "answers another request", psi.psi_finish, guest, d / "key2", [d / "r"])
    refused(InputError, "ids are not those of the request", psi.psi_finish, host, d / "key", [d / "r"])
    refused(InputError, "given twice", psi.psi_finish, guest, d / "key", [d / "r", d / "r"])
    refused(FormatError, "not a response, as", psi.psi_finish, guest, d / "key", [d / "q"])
    refused(FormatError, "not a request, as", psi.psi_respond, host, d / "shop.csv", d / "x")
    raw = (d / "q").read_bytes()
    (d / "q").write_bytes(raw[:-9])
    refused(FormatError, "damaged or cut short", psi.psi_respond, host, d / "q", d / "x")
    head, _, body = raw.partition(b"\n")
    # No point, the neutral one, one of order two: a key would show in its multiples.
    for point in (b"\x01" * 32, b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"):
        told = json.dumps(json.loads(head) | {"sha256": psi._hash(point + body[32:])}).encode()
        (d / "q").write_bytes(told + b"\n" + point + body[32:])
        refused(FormatError, "damaged or cut short", psi.psi_respond, host, d / "q", d / "x")
    write_alignment(d / "alone.json", canonical_order(["nobody"]))
    with pytest.raises(InputError, match=r"1 ids of the alignment are not in it \('nobody'\)"):
        convert_tables(
            d / "bank.csv", [], d / "p", id="id", label="default", missing="mean", alignment=d / "alone.json"
        )
    monkeypatch.setitem(__import__("sys").modules, "nacl", None)
    refused(ConfigError, r"pip install 'fastadmm\[psi\]'", psi.psi_respond, host, d / "q2", d / "x")


def test_merge_refuses_what_does_not_belong_together(bank):
    d = bank
    options = {"id": "id", "missing": "median"}
    convert_tables(d / "bank.csv", [], d / "g", label="default", **options)
    convert_tables(None, [d / "shop.csv"], d / "h", task="classification", **options)
    for sources, message in (
        ([d / "g", d / "h"], "align the files by id and convert again"),
        ([d / "g", d / "g"], "has labels, and so has"),
        ([d / "h", d / "h"], "party 'host' is also in"),
    ):
        refuses(InputError, message, merge_partitions, sources, d / "m")
        assert not (d / "m").exists()
