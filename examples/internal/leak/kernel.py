# Looks for a secret in a kernel, as code in it can: in its environment, its history
# and its variables. The secret is given masked: see sandbox.py.
def _search(masked, mask):
    import gc, os

    # The texts are masked, not the secret unmasked: from then on it would be here.
    guises = [bytes.fromhex(guise) for guise in masked]
    table = bytes(b ^ mask for b in range(256))
    history = get_ipython().history_manager
    places = {
        "environment": repr(dict(os.environ)),
        "In": repr(In) + repr(Out),
        "history": repr([history.input_hist_raw, history.input_hist_parsed, history.output_hist, list(history.search("*"))]),
        "variables": repr(globals()),
        "objects": repr([x for o in gc.get_objects() for x in gc.get_referents(o) if type(x) in (str, bytes)]),
    }
    found = []
    for place, text in places.items():
        text = text.encode("utf-8", "backslashreplace").translate(table)
        if any(guise in text for guise in guises):
            found.append(place)
    return {"pid": os.getpid(), "found": found}
