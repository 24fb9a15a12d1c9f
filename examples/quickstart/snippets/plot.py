import matplotlib.pyplot as plt

imported = dict.fromkeys(rank, 0)
for p in packages:
    for name in p["imports"]:
        if name in imported:
            imported[name] += 1
figure, axes = plt.subplots(figsize=(9, 5))
axes.scatter(
    [p["lines"] for p in packages],
    [imported[p["name"]] + 0.7 for p in packages],
    s=[20 + 4000 * rank[p["name"]] for p in packages],
    alpha=0.4,
)
for p in packages:
    if p["name"] in top:
        axes.annotate(p["name"], (p["lines"], imported[p["name"]] + 0.7))
axes.set(xscale="log", yscale="log", xlabel="lines of Go", ylabel="packages that import it")
axes.set_title("Go's standard library: size, use and rank")
plt.show()
