import importlib.util, json, os, sys

base = getattr(sys, "_base_executable", None) or sys.executable
prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
print(json.dumps({
    "executable": sys.executable,
    "real": os.path.realpath(sys.executable),
    "base": base,
    "prefixes": sorted({os.path.abspath(p) for p in prefixes}),
    "version": sys.version_info[:3],
    "modules": [m for m in sys.argv[1:] if importlib.util.find_spec(m)],
}))
