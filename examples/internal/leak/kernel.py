def _places(secret):
    shell = get_ipython()
    history = [list(shell.history_manager.get_range(raw=raw, output=True)) for raw in (True, False)]
    everything = {"history": (history, In, Out), "variables": dict(shell.user_ns), "environment": dict(__import__("os").environ)}
    return [place for place, content in everything.items() if secret in repr(content)]


_places(bytes(0xFF ^ byte for byte in bytes.fromhex("%s")).decode())
