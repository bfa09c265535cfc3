"""The scoring service, called in this process: no port, no network."""

import asyncio
import csv
import io
import json
import socket
from typing import Any

import numpy as np
import pytest
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.errors import FastadmmError
from fastadmm.runs.service import listen, make_app, open_service

from run_tools import refuses, run

pytest.importorskip("fastapi")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two tables with marks, dates and categories, and a model of them."""
    home = tmp_path_factory.mktemp("serve")
    rng = np.random.default_rng(2)
    n = 60
    y, x = rng.integers(0, 2, n), rng.normal(2000, 700, n).round(2)
    income = [f"{v:,.2f} €".replace(",", "_").replace(".", ",").replace("_", ".") for v in x]
    bank = [f"{i};{'yes' if y[i] else 'no'};{income[i]};{2001 + i % 20}-03-0{1 + i % 9}\n" for i in range(n)]
    shop = [f"{i},{rng.normal():.3f},{rng.choice(['a', 'b'])}\n" for i in range(n)]
    (home / "bank.csv").write_text("id;default;income;joined\n" + "".join(bank), encoding="utf-8")
    (home / "shop.csv").write_text("id,spent,kind\n" + "".join(shop))
    convert_tables(home / "bank.csv", [home / "shop.csv"], home / "p", id="id", label="default",
                   names="bank,shop", types=["joined=days"], missing="mean", standardize=True)  # fmt: skip
    assert not run("train", home / "p", "-q", "-o", home / "run")
    return home


def ask(app, method, path, document=None, raw=b""):
    """Status and answer of one request."""
    body = json.dumps(document).encode() if document is not None else raw
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": [(b"content-type", b"application/json")],
        "scheme": "http", "server": ("test", 80), "client": ("test", 1), "root_path": "",
    }  # fmt: skip
    parts = [body[k : k + 4096] for k in range(0, max(len(body), 1), 4096)]
    messages = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(text) if text.startswith(b"{") else text


def rows(path, separator, *columns):
    with path.open(encoding="utf-8") as file:
        return [{c: row[c] for c in columns} for row in csv.DictReader(file, delimiter=separator)]


def predicted(home, capsys):
    capsys.readouterr()
    assert not run("predict", home / "run", home / "bank.csv", home / "shop.csv", "--id", "id")
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_answers_are_those_of_predict(home, capsys):
    bank, shop = (
        rows(home / "bank.csv", ";", "income", "joined"),
        rows(home / "shop.csv", ",", "spent", "kind"),
    )
    ids = [row["id"] for row in rows(home / "bank.csv", ";", "id")]
    whole = make_app(open_service(home / "run", None, False, 100))
    status, answer = ask(whole, "POST", "/predict", {"rows": [a | b for a, b in zip(bank, shop)], "ids": ids})
    assert status == 200
    expected = predicted(home, capsys)
    assert len(expected) == 60
    said = [{key: value if key in ("id", "label") else repr(value) for key, value in row.items()}
            for row in answer["predictions"]]  # fmt: skip
    assert said == expected
    # Each party by itself, from its own file, and the sum by somebody without weights.
    parts = []
    for name, own in (("shop", shop), ("bank", bank)):
        service = make_app(open_service(home / f"run/model/{name}.h5", None, False, 100))
        status, part = ask(service, "POST", "/contribution", {"rows": own, "ids": ids})
        assert (status, part["party"]) == (200, name)
        parts.append(part)
    total = make_app(open_service(home / "run", None, True, 100))
    status, combined = ask(total, "POST", "/combine", {"contributions": parts})
    assert (status, combined["predictions"]) == (200, answer["predictions"])
    # One row: sums may be in another order.
    status, single = ask(whole, "POST", "/predict", {"row": bank[7] | shop[7]})
    assert single["predictions"][0]["score"] == pytest.approx(answer["predictions"][7]["score"], rel=1e-13)


def test_what_it_says_and_reads(home):
    service = make_app(open_service(home / "run", "bank", False, 100))
    day = "2020-01-31"
    cells = ["1.234,00 €", 1234, 1234.0, "1,5", 1.5, "0,0000001", 1e-7, "1.234.567,125", 1234567.125]
    _, answer = ask(service, "POST", "/contribution", {"rows": [{"income": c, "joined": day} for c in cells]})
    found = answer["contribution"]
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4] != found[0]
    assert found[5] == found[6]
    assert found[7] == found[8]
    _, answer = ask(service, "POST", "/contribution", {"row": {"income": None, "joined": day}})
    assert answer["notes"] == ["request: column 'income': 1 missing cells filled"]
    # It says what it is.
    app = make_app(open_service(home / "run", "bank", False, 5))
    status, health = ask(app, "GET", "/health")
    assert status == 200
    assert (health["status"], health["parties"], health["columns"]) == ("ok", ["bank"], ["income", "joined"])
    assert "classes" not in health
    _, described = ask(app, "GET", "/openapi.json")
    assert set(described["paths"]) == {"/health", "/contribution"}
    assert set(make_app(open_service(home / "run", None, True, 5)).openapi()["paths"]) == {
        "/health",
        "/combine",
    }


GOOD = {"income": "1,5", "joined": "2020-01-31"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"rows": [GOOD, GOOD | {"incom": 1}]}, "row 2: unknown column 'incom'; did you mean 'income'?"),
        ({"rows": [{"income": "1,5"}]}, "row 1: no column 'joined'; null means missing"),
        ({"rows": [GOOD | {"income": "1.5.2"}]}, "row 1, column 'income': '1.5.2' is not a number"),
        ({"rows": [GOOD | {"income": [1]}]}, "row 1, column 'income': a list or an object"),
        ({"rows": [GOOD] * 6}, "6 rows, but at most 5 fit"),
        ({"rows": []}, "a list with one row at least"),
        ({"rows": [GOOD], "row": GOOD}, "either 'rows', a list, or 'row'"),
        ({"rows": [GOOD], "ids": []}, "'ids': one for each row"),
        ({"rows": [5]}, "row 1: is no object"),
        ({"cells": []}, "unknown key 'cells'"),
        ([], "a JSON object is needed"),
    ],
)
def test_mistakes_in_requests_are_one_line(home, document, message):
    app = make_app(open_service(home / "run", "bank", False, 5))
    status, answer = ask(app, "POST", "/contribution", document)
    assert status == 422
    assert message in answer["error"]
    assert "\n" not in answer["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"party": "telco"}, "party 'telco': the model has bank, shop"),
        ({"model_id": "x"}, "made with another model"),
        ({"contribution": [1.0, None]}, "finite numbers, one for each row"),
        ({"contribution": [1.0]}, "'ids': one for each row"),
        ({"ids": [5, 6]}, "other rows, or another order, than request: contribution of bank"),
        ({"party": "bank"}, "a second contribution of bank"),
    ],
)
def test_contributions_have_to_belong_together(home, change, message):
    service = open_service(home / "run", None, True, 5)
    first = {"party": "bank", "model_id": service.model_id, "ids": [1, 2], "contribution": [0.5, 1.0]}
    app = make_app(service)
    status, answer = ask(
        app, "POST", "/combine", {"contributions": [first, first | {"party": "shop"} | change]}
    )
    assert (status, message in answer["error"]) == (422, True)
    status, answer = ask(app, "POST", "/combine", {"contributions": [first]})
    assert "no contribution of shop" in answer["error"]


def test_mistakes_at_the_start_are_one_line(home, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run("serve", home / "run", "--port", taken.getsockname()[1]) == 5
    assert "Address already in use; choose another --address or --port" in capsys.readouterr().err
    for line in (["p"], ["bank.csv"], ["run", "--party", "telco"], ["run", "--combine", "--party", "bank"],
                 ["run", "--max-rows", "0"], ["run", "--address", "192.0.2.1"]):  # fmt: skip
        assert run("serve", home / line[0], "--port", 0, *line[1:]) > 1
        err = capsys.readouterr().err
        assert len([text for text in err.splitlines() if text.startswith("fastadmm: error: ")]) == 1
    listen("127.0.0.1", 0).close()
    refuses(FastadmmError, "", open_service, home / "run/model/labels.h5", None, False, 5)
