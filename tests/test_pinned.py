"""What a release is made with is named by what it is, not by a name that may mean something else tomorrow."""

import re
from pathlib import Path

import pytest

GITHUB = Path(__file__).resolve().parents[1] / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_a_commit_with_its_version(path):
    text = path.read_text(encoding="utf-8")
    assert pytest.importorskip("yaml").safe_load(text)["jobs"]
    used = re.findall(r"uses:\s*(.*)", text)
    assert used
    for text in used:
        assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", text), text


def test_actions_have_one_version_and_files_a_licence():
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    found = dict(re.findall(r"uses: (\S+)@(\S+ # \S+)", text))
    assert set(re.findall(r"uses: (\S+)@(\S+ # \S+)", text)) == set(found.items())
    # Releases install what has a hash.
    text = (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*)", text)
    assert installs
    for arguments in installs:
        found = re.fullmatch(r"--require-hashes --only-binary :all: -r \.github/(\w+\.txt)", arguments)
        assert found is not None, arguments
        assert (GITHUB / found[1]).exists()
    assert "python -m build --no-isolation" in text  # its backend is of the lock too
    # Every file has its licence.
    root = GITHUB.parent
    every = re.findall(r"(?m)^(?:path|SPDX-License-Identifier) = .*", (root / "REUSE.toml").read_text())
    assert every == ['path = "**"', 'SPDX-License-Identifier = "Apache-2.0"']
    assert (root / "LICENSES" / "Apache-2.0.txt").read_bytes() == (root / "LICENSE").read_bytes()


@pytest.mark.parametrize(
    ("name", "needed"), [("release.txt", {"build", "setuptools", "twine"}), ("uv.txt", {"uv"})]
)
def test_every_requirement_has_its_hashes_and_no_registry_is_named(name, needed):
    text = (GITHUB / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z])", re.sub(r"(?m)^#.*\n", "", text).strip())
    pattern = r"[\w.-]+==[\w.]+(?: ;[^\n]*)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+"
    for entry in entries:
        assert re.fullmatch(pattern, entry), entry
    assert needed <= {entry.partition("=")[0] for entry in entries}
    assert not re.search(r"://|index-url|find-links|trusted-host", text)
