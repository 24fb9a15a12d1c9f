import os

import numpy as np
import pandas as pd

# The points of a line, with noise, and how far it has been fitted to them: what takes long to
# get to elsewhere.
random = np.random.default_rng(7)
points = pd.DataFrame({"x": random.uniform(-1, 1, 100_000)})
points["y"] = 3 * points.x - 2 + random.normal(0, 0.1, len(points))
slope, offset, steps = 0.0, 0.0, 0


def fit(rate, times):
    "Takes steps of gradient descent."
    global slope, offset, steps
    for _ in range(times):
        wrong = slope * points.x + offset - points.y
        slope -= rate * 2 * (wrong * points.x).mean()
        offset -= rate * 2 * wrong.mean()
        steps += 1


def state():
    "Tells what the variables are, and of which process."
    error = ((slope * points.x + offset - points.y) ** 2).mean()
    return {"kernel": os.getpid(), "points": len(points), "steps": steps, "error": float(error)}


fit(0.1, 10)
