import numpy as np

figures = np.array(sales)
print(f"{len(figures)} months, from {figures.min()} to {figures.max()}")
print("mean", np.mean(figure))
