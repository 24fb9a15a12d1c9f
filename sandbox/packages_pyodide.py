"""Installs the wheels in a directory, sys.argv[1], where Python runs in WebAssembly."""
import importlib.metadata
import json
import os
import re
import shutil
import site
import sys
import zipfile


class Refused(Exception):
    """A wheel has content that it may not have."""


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def place(name, data):
    """Returns where a file of a wheel goes; None for a script, a header or other data."""
    parts = name.split("/")
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise Refused("its file %.200r would lie outside" % name)
    if parts[0] == data:
        if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
            return None
        parts = parts[2:]
    return os.path.join(site.USER_SITE, *parts)


def remove(name):
    """Removes a package that is there in another version."""
    for found in importlib.metadata.distributions(path=[site.USER_SITE]):
        if normalized(found.metadata["Name"] or "") != name:
            continue
        directories = set()
        for file in found.files or []:
            try:
                path = place(str(file), None)
                os.unlink(path)
            except (Refused, OSError):
                continue  # it belongs to others, or was removed
            directories.add(os.path.dirname(path))
        for directory in sorted(directories, reverse=True):
            shutil.rmtree(os.path.join(directory, "__pycache__"), ignore_errors=True)
            while directory != site.USER_SITE:
                try:
                    os.rmdir(directory)
                except OSError:
                    break
                directory = os.path.dirname(directory)


def unpack(path):
    with zipfile.ZipFile(path) as wheel:
        files = [info for info in wheel.infolist() if not info.is_dir()]
        described = {info.filename.split("/")[0] for info in files if re.fullmatch(r"[^/]+\.dist-info/(METADATA|WHEEL|RECORD)", info.filename)}
        if len(described) != 1:
            raise Refused("it has %d directories .dist-info, and a wheel has one" % len(described))
        (about,) = described
        stem = about.removesuffix(".dist-info")
        places = [(info, place(info.filename, stem + ".data")) for info in files]
        remove(normalized(stem.split("-")[0]))
        # The package's metadata comes last: an incomplete package is not listed.
        for info, to in sorted(places, key=lambda one: one[0].filename.startswith(about + "/")):
            if to is None:
                continue
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with wheel.open(info) as source, open(to, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)


def main(directory):
    os.makedirs(site.USER_SITE, exist_ok=True)
    for name in sorted(os.listdir(directory)):
        try:
            unpack(os.path.join(directory, name))
        except Exception as error:  # a damaged one raises anything
            return "%s: %s" % (name, str(error) or type(error).__name__)
    importlib.invalidate_caches()
    return ""


print(json.dumps({"error": main(sys.argv[1])}))
