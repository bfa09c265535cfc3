"""What documentation is asked for: exported names and kernels whole, commands with help, else a sentence."""

import importlib
import inspect
import pkgutil
import re

import fastadmm
import typer
from fastadmm.cli.app import _command

SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n---|\Z)", re.DOTALL | re.MULTILINE)


def modules():
    yield "fastadmm"
    for info in pkgutil.walk_packages(fastadmm.__path__, "fastadmm."):
        if info.name.rpartition(".")[2] != "__main__":
            yield info.name


def public_members(names):
    """Public functions and classes at home in their modules, and the public methods of the classes.

    Of kernels, all without an underscore are; of other modules, those that they list.
    """
    for name in names:
        module = importlib.import_module(name)
        bare = [member for member in vars(module) if not member.startswith("_")]
        for member_name in bare if name.startswith("fastadmm.kernels.") else getattr(module, "__all__", ()):
            member = unwrapped(getattr(module, member_name))
            if callable(member) and getattr(member, "__module__", None) == name:
                yield from with_methods(f"{name}.{member_name}", member)


def exported():
    """What ``fastadmm`` exports, with the public methods, those of its own base classes included."""
    for name in fastadmm.__all__:
        member = getattr(fastadmm, name)
        for base in member.__mro__ if inspect.isclass(member) else [member]:
            if base.__module__.startswith("fastadmm"):
                found = with_methods(f"fastadmm.{name}", base)
                yield from found if base is member else list(found)[1:]  # a base's arguments are the class's


def kernels():
    return public_members(name for name in modules() if name.startswith("fastadmm.kernels."))


def with_methods(name, member):
    yield name, member
    if inspect.isclass(member):
        for attribute, value in vars(member).items():
            function = unwrapped(getattr(value, "__func__", getattr(value, "fget", value)))
            if not attribute.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{attribute}", getattr(member, attribute)


def unwrapped(member):
    """The Python function inside a compiled kernel."""
    return getattr(member, "py_func", member)


def test_modules_and_their_public_names_say_what_they_are():
    """Every fault at once: one test per module costs more than looking at it."""
    names = list(modules())
    faults = [f"{name} has no docstring" for name in names if not importlib.import_module(name).__doc__]
    faults += [fault for name, member in public_members(names) for fault in faults_of_text(name, member)]
    assert not faults, "\n".join(faults)


def test_exported_names_and_kernels_document_their_arguments():
    faults = [
        fault for name, member in (*exported(), *kernels()) for fault in faults_of_arguments(name, member)
    ]
    assert not faults, "\n".join(faults)


def test_the_arrays_of_kernels_have_shapes():
    faults = [fault for name, member in kernels() for fault in faults_of_shapes(name, member)]
    assert not faults, "\n".join(faults)


def test_commands_and_their_options_have_help():
    def commands(command, name):
        yield name, command
        for sub, child in getattr(command, "commands", {}).items():
            yield from commands(child, f"{name} {sub}")

    top = _command()
    assert isinstance(typer.Context(top), typer.Context)
    found = list(commands(top, "fastadmm"))
    assert len(found) > 40
    faults = [name for name, command in found if not (command.help or "").strip()]
    faults += [
        f"{name}: {parameter.name}"
        for name, command in found
        for parameter in command.params
        if not (getattr(parameter, "help", None) or "").strip()
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

    def shapeless(first, second):
        """Do something. Shapes: third (N,).

        Parameters
        ----------
        first : ndarray
        second : ndarray of shape (N,)
        """

    def silent(first): ...

    assert list(faults_of_arguments("bad", bad))
    assert len(list(faults_of_arguments("worse", worse))) == 2
    assert [fault.split()[1] for fault in faults_of_shapes("shapeless", shapeless)] == ["shape", "no"]
    assert list(faults_of_text("silent", silent))
    assert sum(1 for _ in kernels()) > 100
    assert sum(1 for _ in exported()) > 30


def faults_of_text(name, member):
    text = inspect.getdoc(member)
    if not text:
        yield f"{name} has no docstring"
    elif not text.splitlines()[0].strip():
        yield f"{name}: the first line is empty"


def faults_of_shapes(name, member):
    """Arrays of a Parameters section whose shape is not told there, and shapes of what is no argument."""
    told = re.search(r"Shapes: (.+?)\.(?=\s|$)", inspect.getdoc(member) or "", re.DOTALL)
    for entry in told.group(1).split(";") if told else []:
        names = set(re.findall(r"\w+", entry.partition("(")[0])) - {"each", "of"}
        if unknown := names - set(inspect.signature(member).parameters):
            yield f"{name}: shape of {', '.join(unknown)}, which it does not take"
    section = SECTION.search(inspect.getdoc(member) or "")
    entries = re.split(r"^(?=\w)", section.group(1), flags=re.MULTILINE) if section else []
    for entry in entries:
        names, _, kind = entry.partition(" : ")
        if re.match(r"ndarray|array", kind) and not re.search(r"shape|as (of|in)|\(.*,", kind, re.IGNORECASE):
            yield f"{name}: no shape of {names}"


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
    section = SECTION.search(text)
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
