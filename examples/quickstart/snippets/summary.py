# packages came from Go: a list of dicts. intcomma is from the installed package.
try:
    from humanize import intcomma
except ImportError:
    from quickstart_numbers import intcomma
from collections import Counter
from statistics import median

lines = [p["lines"] for p in packages]
print(f"{intcomma(sum(lines))} lines in {intcomma(sum(p['files'] for p in packages))} files")
imported = Counter(name for p in packages for name in p["imports"])
summary = {
    "packages": len(packages),
    "lines": sum(lines),
    "median": float(median(lines)),
    "most_imported": [{"name": name, "count": count} for name, count in imported.most_common(3)],
}
