# Writes to report.json which files pip would install for the list full.txt, without
# loading the 450 MB of them. For that pip is first asked without hashes; where it
# then takes a file that is not in the list, it is asked again with hashes, and loads
# the file to compare them.
import json
import re
import subprocess
import sys

listed = open("full.txt").read()


def resolve(requirements, *options):
    with open("requirements.txt", "w") as f:
        f.write(requirements)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:",
         "--report", "report.json", "-r", "requirements.txt", *options], check=True)
    return json.load(open("report.json"))["install"]


def sha256(package):
    return package["download_info"]["archive_info"]["hashes"]["sha256"]


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


packages = resolve(re.sub(r" \\\n|    --hash=.*\n", "\n", listed))
others = {normal(p["metadata"]["name"]) for p in packages if "sha256:" + sha256(p) not in listed}
again = "".join(entry[0] for entry in re.finditer(r"(?m)^([\w.-]+)==.*(?:\n    --hash=.*)+\n", listed) if normal(entry[1]) in others)
if again:
    packages = [p for p in packages if normal(p["metadata"]["name"]) not in others] + resolve(again, "--no-deps", "--require-hashes")
with open("report.json", "w") as f:
    json.dump([{"name": p["metadata"]["name"], "version": p["metadata"]["version"], "sha256": sha256(p)} for p in packages], f, indent=1)
