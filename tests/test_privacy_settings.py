"""Settings, statement and ledger."""

import copy
import json
import math
import pickle
import tomllib
from dataclasses import replace

import pytest
import tomli_w
from fastadmm import ADMMSharingClassifier
from fastadmm.errors import ConfigError, FormatError, PrivacyBudgetError
from fastadmm.privacy.accounting import gdp_of, zcdp_budget
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.statement import PartyGuarantee, PrivacyStatement, no_privacy, state
from fastadmm.runs.config import make_config, read_config
from fastadmm.settings.privacy import MODES, Privacy, settings_of_modes
from fastadmm.settings.setting import settings_of
from sklearn.base import clone

from run_tools import refuses

SEEN = {"coordinator": "noisy messages"}


def test_files_and_settings_are_all_or_nothing(tmp_path):
    settings = Privacy(mode="message", epsilon=2.0, rounds=3, message_clip=None, target_clip=None)
    back = Privacy.from_dict(tomllib.loads(tomli_w.dumps(settings.to_dict())), "run.toml: privacy")
    assert back == settings
    assert back.clip_of_targets == settings.ball
    assert Privacy.from_dict(Privacy().to_dict()) == Privacy()
    for key in ("eps", "cls", "values"):
        with pytest.raises(ConfigError, match=rf"run\.toml: privacy: unknown key '{key}'"):
            Privacy.from_dict({key: 1}, "run.toml: privacy")
    ledger = Ledger(tmp_path / "l")
    mu = gdp_of(1.0, 1e-5)
    pair = [Charge("run", "a", "a", "m", gdp=mu / 2), Charge("run", "b", "b", "m", gdp=2 * mu)]
    refuses(PrivacyBudgetError, "", ledger.charge_all, pair, 1.0, 1e-5)
    assert ledger.charges == Ledger(tmp_path / "l").charges == []
    # A setting whose documentation names one mode belongs to it.
    for key, setting in settings_of_modes().items():
        having = [mode for mode, own in OWN.items() if key in own]
        assert [mode for mode in MODES if f"(`{mode}`)" in setting.doc] == having * (len(having) == 1), key


def party(name, epsilon, **more):
    return PartyGuarantee(name, "gaussian message", "T2", 2.0, 7.46, 1, gdp_of(epsilon, 1e-5), **more)


def test_statements_compose_and_say_why_nothing_is_proved():
    settings = Privacy(mode="message", epsilon=1.0, label_epsilon=0.5)
    made = state(settings, [party("a", 1.0), party("b", 1.0)], SEEN)
    assert made.epsilon == pytest.approx(1.0, rel=1e-12)
    assert made.joint_epsilon == pytest.approx(1.465, abs=6e-4)
    assert made.joint_epsilon < made.person_epsilon < made.joint_epsilon + 0.5
    assert made.label_epsilon == 0.5
    assert "T2: sensitivity 2" in dict(made.table())["a"]
    assert "epsilon = 1 at delta = 1e-05" in made.one_line()
    assert "\n" not in made.one_line()
    assert PrivacyStatement.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False))) == made
    # Unproved statements say infinity and why.
    plain = no_privacy(["a", "b"])
    assert not plain.is_private
    assert plain.one_line().startswith("privacy: epsilon = infinity (messages are exact")
    assert PrivacyStatement.from_json(json.loads(json.dumps(plain.to_json(), allow_nan=False))) == plain
    seeded = state(Privacy(mode="message", epsilon=1.0, sampler="insecure_test"), [party("a", 1.0)], SEEN)
    assert seeded.epsilon == seeded.joint_epsilon == math.inf
    assert "seeded" in seeded.reason
    unlabelled = state(Privacy(mode="message", epsilon=1.0), [party("a", 1.0)], SEEN)
    assert unlabelled.person_epsilon == unlabelled.label_epsilon == math.inf
    assert unlabelled.epsilon < 1.0 + 1e-9
    broken = state(Privacy(mode="message", epsilon=1.0), [party("a", 1.0, reason="no proof")], SEEN)
    assert broken.epsilon == math.inf
    assert broken.reason == "no proof"


def test_costs_of_mixed_and_endless_charges():
    mu = math.sqrt(2 * zcdp_budget(1.0, 1e-5))
    made = state(
        Privacy(mode="message", epsilon=1.0, sampler="discrete"),
        [PartyGuarantee("a", "gaussian message", gdp=mu)],
        SEEN,
    )
    assert made.epsilon == pytest.approx(1.0, rel=1e-8)
    # Endless costs are refused.
    for cost in ({"gdp": math.inf}, {"pure": math.nan}, {"rho": math.inf}):
        with pytest.raises(PrivacyBudgetError, match="not finite"):
            Ledger().charge(Charge("r", "d", "p", "m", **cost), 1.0, 1e-5)
    ledger = Ledger()
    ledger.charge(Charge("r", "d", "p", "model", gdp=0.1), 2.0, 1e-5)
    ledger.charge(Charge("r", "d", "p", "bits", pure=0.8), 2.0, 1e-5)
    account = Account("d", "p")
    exact = ledger.spent(account).epsilon(1e-5)
    ledger.charge(Charge("r", "d", "p", "discrete", rho=0.01), 5.0, 1e-5)
    assert ledger.spent(account).epsilon(1e-5) > exact


@pytest.mark.parametrize("values", [None, {}, {"mode": "none"}, {"parties": 3}, [1]])
def test_a_damaged_statement_is_an_error(values):
    refuses(FormatError, "run: not a privacy statement", PrivacyStatement.from_json, values, "run")


ALLOWED = {mode: {} if mode == "none" else {"epsilon": 1.0} for mode in MODES}
OWN = {mode: settings_of(type(Privacy(mode=mode, **given))) for mode, given in ALLOWED.items()}


@pytest.mark.parametrize("mode", MODES)
def test_settings_of_another_mode_are_refused(mode):
    """In Python and from TOML, the default, too; objects have no such attribute."""
    others = settings_of_modes().keys() - OWN[mode].keys()
    assert len(others) == {"none": 17, "fusion": 4, "message": 4}[mode]
    settings = Privacy(mode=mode, **ALLOWED[mode])
    assert not [name for name in others if hasattr(settings, name) or name in settings.to_dict()]
    for name in others:
        for value in (settings_of_modes()[name].default, 3.0):
            given = {"mode": mode, **ALLOWED[mode], name: value}
            refuses(ConfigError, f"^{name}: mode '{mode}' .*mode '(fusion|message)'", Privacy, **given)
            refuses(ConfigError, f"^{name}: mode '{mode}' ", settings.with_, **{name: value})
            with pytest.raises(ConfigError, match=f"^privacy: {name}: mode '{mode}' "):
                Privacy.from_dict({"mode": mode, **ALLOWED[mode], name: "none" if value is None else value})


MESSAGE = Privacy(mode="message", epsilon=2.0, ball=3.0, message_clip=None)


@pytest.mark.parametrize("settings", [Privacy(), MESSAGE, Privacy("fusion", 1.0, label_party="bank")])
def test_settings_are_of_their_modes_class_however_they_are_made(settings):
    kind = type(settings)
    same = [
        kind(**{name: getattr(settings, name) for name in settings_of(kind)}),
        eval(repr(settings), {"Privacy": Privacy}),
        Privacy.from_dict(tomllib.loads(tomli_w.dumps(settings.to_dict()))),
        pickle.loads(pickle.dumps(settings)),
        copy.copy(settings),
        copy.deepcopy(settings),
        replace(settings),
        settings.with_(),
        clone(ADMMSharingClassifier(privacy=settings)).get_params()["privacy"],
    ]
    assert all(type(one) is kind and one == settings and hash(one) == hash(settings) for one in same)
    assert settings not in {Privacy(mode="message", epsilon=9.0), Privacy(mode="fusion", epsilon=9.0)}
    with pytest.raises(ConfigError, match="unknown key 'epsilom'; did you mean 'epsilon'"):
        Privacy(mode=settings.mode, epsilom=1.0)
    other = next(mode for mode in MODES if mode != settings.mode)
    refuses(ConfigError, f"mode: these settings are of mode '{settings.mode}'", settings.with_, mode=other)


def test_runs_of_older_versions_are_read(tmp_path):
    """Their files hold the defaults of the other mode; what a person writes does not."""
    table = {"mode": "fusion", "epsilon": 1.0, "rounds": 1, "message_clip": 2.0, "slack": 1e-6}
    values = {"data": "a.parts", "privacy": table, "provenance": {}}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(values))
    assert read_config(tmp_path / "run.toml")["privacy"] == {"mode": "fusion", "epsilon": 1.0}
    (tmp_path / "odd.toml").write_text(tomli_w.dumps({**values, "privacy": {"mode": [1]}}))
    assert read_config(tmp_path / "odd.toml")["privacy"] == {"mode": [1]}
    del values["provenance"]
    (tmp_path / "own.toml").write_text(tomli_w.dumps(values))
    with pytest.raises(ConfigError, match="rounds: mode 'fusion' has none"):
        make_config(read_config(tmp_path / "own.toml"))
