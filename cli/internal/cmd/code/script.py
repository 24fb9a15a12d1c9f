def _e2bctl_begin(arguments):
    """Makes the code that follows the program that python3 would run."""
    import atexit
    import sys
    import threading
    import warnings

    global __file__
    __file__, sys.argv = arguments[0], arguments
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)  # IPython's advice to who types
    before = frozenset(threading.enumerate())
    functions = (atexit.register, atexit.unregister)
    handlers = []

    def register(function, *positional, **named):
        handlers.append((function, positional, named))
        return function

    def unregister(function):
        handlers[:] = [handler for handler in handlers if handler[0] != function]
        functions[1](function)

    def end(last, exits):
        """Returns the status of the program. What the last one of its kernel left
        behind ends with it, as python3 ends it; the kernel has handlers of its own."""
        atexit.register, atexit.unregister = functions
        if last:
            for function in reversed(getattr(threading, "_threading_atexits", ())):
                function()
            for thread in threading.enumerate():
                if thread not in before and not thread.daemon:
                    thread.join()
        while handlers:
            function, positional, named = handlers.pop()
            try:
                function(*positional, **named)
            except Exception:
                sys.excepthook(*sys.exc_info())
        code = getattr(getattr(sys, "last_value", None), "code", None) if exits else None
        if code is None or isinstance(code, int):
            return (code or 0) & 255
        print(code, file=sys.stderr)
        return 1

    atexit.register, atexit.unregister = register, unregister
    sys.modules[__name__ + "._e2bctl_end"] = end


