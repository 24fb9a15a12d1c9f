"""Prints a line of JSON for each request that the newest SDK knows how to make, with every
field of its body and every parameter of its query. Where a field has one of several forms,
a line for each."""

import datetime
import enum
import importlib
import inspect
import io
import json
import pkgutil
import sys
import typing

import e2b.api.client as control
import e2b.volume.client as volume

# The names in paths. The program that runs this has made the volume.
NAMES = {"template_id": "base", "tag": "default", "alias": "base", "hash_": 64 * "0", "volume_id": sys.argv[1]}

SIMPLE = {str: "x", int: 2, bool: True, datetime.datetime: datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)}


def parts(package):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(module.name)


def value(of, models, form):
    """Returns a value of a type, in the form of that number where there are several."""
    arguments = [one for one in typing.get_args(of) if one is not type(None) and one.__name__ != "Unset"]
    if typing.get_origin(of) is typing.Union:
        return value(arguments[min(form, len(arguments) - 1)], models, form)
    if typing.get_origin(of) is list:
        return [value(arguments[0], models, form)]
    if typing.get_origin(of) is dict:
        return {"example.com": value(arguments[1], models, form)}
    if of is typing.Any:
        return {}
    if issubclass(of, enum.Enum):
        return list(of)[0]
    if of in SIMPLE:
        return SIMPLE[of]
    if of.__name__ == "File":
        return of(payload=io.BytesIO())
    fields = typing.get_type_hints(of, localns=models)
    more = fields.pop("additional_properties")
    made = of(**{name: value(hint, models, form) for name, hint in fields.items()})
    if not fields:  # it has the names of its fields from the program
        made.additional_properties = value(more, models, form)
    return made


def requests(module, models):
    """Yields the requests of a module of the SDK, which makes one kind of them."""
    hints = typing.get_type_hints(module._get_kwargs, localns=models)
    hints.pop("return")
    for form in range(8):
        arguments = {name: NAMES.get(name) or value(hint, models, form) for name, hint in hints.items()}
        made = module._get_kwargs(**arguments)
        request = {"method": made["method"].upper(), "path": made["url"], "query": made.get("params") or {}}
        if "json" in made:
            request["body"] = made["json"]
        yield json.dumps(request)


def main():
    lines = []
    for client in (volume, control):  # which deletes the volume, too
        models = vars(importlib.import_module(client.__name__ + ".models"))
        for module in parts(importlib.import_module(client.__name__ + ".api")):
            if hasattr(module, "_get_kwargs") and inspect.isfunction(module._get_kwargs):
                lines += requests(module, models)
    print("\n".join(dict.fromkeys(lines)))


main()
