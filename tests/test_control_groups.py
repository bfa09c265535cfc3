"""Quotas of processor time, as containers, systemd and Slurm set them for a group of processes."""

import math

import pytest
from fastadmm.engine import engine
from fastadmm.engine.free_cores import core_limit


@pytest.mark.parametrize(("version", "kinds"), [(1, "cpu"), (1, "cpu,cpuacct"), (2, "")])
def test_quotas_of_a_group_and_of_those_that_it_is_in(tmp_path, version, kinds):
    root, own = tmp_path / "root", tmp_path / "cgroup"
    place = root / kinds

    def group(path, quota, period=100_000):
        (place / path).mkdir(parents=True, exist_ok=True)
        if version == 2:
            (place / path / "cpu.max").write_text(f"{quota} {period}\n")
        else:
            (place / path / "cpu.cfs_quota_us").write_text(f"{'-1' if quota == 'max' else quota}\n")
            (place / path / "cpu.cfs_period_us").write_text(f"{period}\n")

    assert core_limit(root, own) == math.inf
    own.write_text(f"4:memory:/m\n3:{kinds}:/a/b\n" + ("0::/\n" if version == 1 else ""))
    assert core_limit(root, own) == math.inf
    group("a/b", "max")
    assert core_limit(root, own) == math.inf
    group("a", "450000", 50_000)
    assert core_limit(root, own) == 9
    group("a/b", "250000")
    assert core_limit(root, own) == 3
    group("", "1000")  # as a container sees its own group
    assert core_limit(root, own) == 1
    own.write_text(f"3:{kinds}:/../elsewhere\n")
    assert core_limit(root, own) == 1


def test_threads_keep_to_a_quota(monkeypatch):
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("joblib.cpu_count", lambda: 16)
    engine._cores.cache_clear()
    monkeypatch.setattr(engine, "core_limit", lambda: 6)
    try:
        assert engine.default_threads() == 6
        assert engine.default_threads(4) == 1
    finally:
        engine._cores.cache_clear()
