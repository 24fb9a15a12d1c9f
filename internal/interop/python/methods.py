"""Prints the public methods of the installed SDKs, one a line: those of the exports of
the packages, and of the classes that these lead to. An asynchronous class has the name
of the blocking one."""

import inspect
import typing

import e2b
import e2b_code_interpreter


def is_ours(value):
    return inspect.isclass(value) and value.__module__.startswith("e2b") and not issubclass(value, BaseException)


def classes_in(annotation):
    """Yields the SDK's classes that an annotation names."""
    if is_ours(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from classes_in(argument)


def results(function):
    """Yields the SDK's classes that a function returns, in any of its forms."""
    forms = [function]
    if hasattr(typing, "get_overloads"):  # Python 3.11
        forms += typing.get_overloads(inspect.unwrap(function))
    for form in forms:
        try:
            yield from classes_in(typing.get_type_hints(form).get("return"))
        except NameError:
            pass  # it names what is imported for type checkers only


def main():
    found, seen, ahead = set(), set(), []
    for package in (e2b, e2b_code_interpreter):
        for name, value in vars(package).items():
            if is_ours(value):
                ahead.append(value)
            elif inspect.isfunction(value) and value.__module__.startswith("e2b"):
                found.add(name)
    while ahead:
        kind = ahead.pop()
        if kind in seen:
            continue
        seen.add(kind)
        for name in dir(kind):
            owner = next((base for base in kind.__mro__ if name in vars(base)), object)
            if name.startswith("_") or not owner.__module__.startswith("e2b"):
                continue
            value = getattr(kind, name)
            if isinstance(value, property):
                ahead.extend(results(value.fget))
            elif inspect.isroutine(value) and not inspect.ismemberdescriptor(value):
                ahead.extend(results(value))
                found.add(f"{kind.__name__.removeprefix('Async')}.{name}")
    print("\n".join(sorted(found)))


main()
