# Runs with one global, sources: the source of the modules by name, in order.
import sys
import types

for name, source in sources.items():
    if name not in sys.modules:
        module = types.ModuleType(name)
        sys.modules[name] = module
        try:
            exec(compile(source, "<%s>" % name, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
