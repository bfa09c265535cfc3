"""Every module and every public name is documented, arguments included."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import fastadmm


def modules():
    yield "fastadmm"
    for info in pkgutil.walk_packages(fastadmm.__path__, "fastadmm."):
        if info.name.rpartition(".")[2] != "__main__":
            yield info.name


def public_members(names):
    """Public functions and classes at home in their modules, and the public methods of the classes."""
    for name in names:
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


def test_modules_their_public_names_and_their_arguments_are_documented():
    """Every fault at once: one test per module costs more than looking at it."""
    names = list(modules())
    faults = [
        f"{name} has no docstring"
        for name in names
        if not (importlib.import_module(name).__doc__ or "").strip()
    ]
    faults += [
        fault
        for name, member in public_members(names)
        for fault in (*faults_of_text(name, member), *faults_of_arguments(name, member))
    ]
    assert not faults, "\n".join(faults)


def test_faults_are_found():
    def bad(first, second, third):
        """Do something."""

    def worse(first):
        """Do something.

        Parameters
        ----------
        other : int
        """

    def silent(first): ...

    assert list(faults_of_arguments("bad", bad))
    assert len(list(faults_of_arguments("worse", worse))) == 2
    assert list(faults_of_text("silent", silent))
    assert sum(1 for _ in public_members(modules())) > 1000


def faults_of_text(name, member):
    text = inspect.getdoc(member)
    if not text:
        yield f"{name} has no docstring"
    elif not text.splitlines()[0].strip():
        yield f"{name}: the first line is empty"


def faults_of_arguments(name, member):
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
        if not arguments <= listed:
            yield f"{name}: not listed: {', '.join(sorted(arguments - listed))}"
        if unknown := listed - set(inspect.signature(member).parameters):
            yield f"{name}: lists what it does not take: {', '.join(sorted(unknown))}"
    elif "\n\n" in text or len(arguments) > 2:
        if re.search(r"arguments (and results )?(as|of|in) ", text, re.IGNORECASE):
            return  # refers to another function
        missing = {argument for argument in arguments if not re.search(rf"\b{argument}\b", text)}
        if missing and len(missing) == len(arguments):
            yield f"{name}: no argument of {missing} is mentioned"


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
