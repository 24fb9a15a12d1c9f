# Looks for a secret in a kernel, as code in it can: in its environment, its history
# and its variables. It comes masked: see search.py.
def _search(masked, mask):
    import gc, os

    guises = [bytes(b ^ mask for b in bytes.fromhex(guise)) for guise in masked]
    own = {id(guise) for guise in guises}
    history = get_ipython().history_manager
    places = {
        "environment": repr(dict(os.environ)),
        "In": repr(In) + repr(Out),
        "history": repr([history.input_hist_raw, history.input_hist_parsed, history.output_hist, list(history.search("*"))]),
        "variables": repr(globals()),
        "objects": repr([x for o in gc.get_objects() for x in gc.get_referents(o) if type(x) in (str, bytes) and id(x) not in own]),
    }
    found = [place for place, text in places.items() if any(guise in text.encode("utf-8", "backslashreplace") for guise in guises)]
    return {"pid": os.getpid(), "found": found}
