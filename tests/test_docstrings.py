"""Every module and every public name is documented, arguments included."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import fastadmm
import pytest


def modules():
    yield "fastadmm"
    for info in pkgutil.walk_packages(fastadmm.__path__, "fastadmm."):
        if info.name.rpartition(".")[2] != "__main__":
            yield info.name


def public_members():
    """Public functions and classes at home in their module, and the public methods of the classes."""
    for name in modules():
        module = importlib.import_module(name)
        for member_name in getattr(module, "__all__", ()):
            member = unwrapped(getattr(module, member_name))
            if not callable(member) or getattr(member, "__module__", None) != name:
                continue
            yield f"{name}.{member_name}", member
            if inspect.isclass(member):
                for attribute, value in vars(member).items():
                    function = unwrapped(getattr(value, "__func__", getattr(value, "fget", value)))
                    if not attribute.startswith("_") and inspect.isfunction(function):
                        yield f"{name}.{member_name}.{attribute}", getattr(member, attribute)


def unwrapped(member):
    """The Python function inside a compiled kernel."""
    return getattr(member, "py_func", member)


@pytest.mark.parametrize("name", list(modules()))
def test_every_module_says_what_it_is(name):
    text = importlib.import_module(name).__doc__
    assert text
    assert text.strip()


MEMBERS = [pytest.param(name, member, id=name) for name, member in public_members()]


@pytest.mark.parametrize(("name", "member"), MEMBERS)
def test_every_public_name_is_documented(name, member):
    text = inspect.getdoc(member)
    assert text, f"{name} has no docstring"
    assert text.splitlines()[0].strip(), f"{name}: the first line is empty"


@pytest.mark.parametrize(("name", "member"), MEMBERS)
def test_arguments_are_documented(name, member):
    """A Parameters section lists exactly the arguments; without one, the text names them.

    A function of one or two arguments may do with a single line.
    """
    text = inspect.getdoc(member) or ""
    if isinstance(member, property) or not callable(member):
        return
    if inspect.isclass(member) and "__init__" not in vars(member):
        return
    arguments = {
        argument
        for argument, parameter in inspect.signature(member).parameters.items()
        if argument not in ("self", "cls")
        and not argument.startswith("_")
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n---|\Z)", text, re.DOTALL | re.MULTILINE)
    if section:
        lines = re.findall(r"^(\w[\w, *]*?)(?: ?:.*)?$", section.group(1), re.MULTILINE)
        listed = {word.strip("* ") for line in lines for word in line.split(",")}
        assert arguments <= listed, f"{name}: not listed: {', '.join(sorted(arguments - listed))}"
        unknown = listed - set(inspect.signature(member).parameters)
        assert not unknown, f"{name}: lists what it does not take: {', '.join(sorted(unknown))}"
    elif "\n\n" in text or len(arguments) > 2:
        if re.search(r"arguments (and results )?(as|of|in) ", text, re.IGNORECASE):
            return  # refers to another function
        missing = {argument for argument in arguments if not re.search(rf"\b{argument}\b", text)}
        assert len(missing) < len(arguments) or not missing, f"{name}: no argument of {missing} is mentioned"


def test_kernels_import_nothing_else_of_the_package():
    package = importlib.import_module("fastadmm.kernels")
    for info in pkgutil.iter_modules(package.__path__, "fastadmm.kernels."):
        source = inspect.getsource(importlib.import_module(info.name))
        for imported in re.findall(r"^\s*(?:from|import) (fastadmm[\w.]*)", source, re.MULTILINE):
            assert imported.startswith("fastadmm.kernels."), f"{info.name} imports {imported}"


def test_importing_the_package_is_light():
    """Nothing heavy is imported before it is used."""
    import subprocess
    import sys

    heavy = ("numba", "scipy", "sklearn", "pandas")
    code = f"import sys, fastadmm.cli.app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
