# PageRank over the imports: a package is important if important packages import it.
import time

names = {p["name"] for p in packages}
edges = {p["name"]: [i for i in p["imports"] if i in names] for p in packages}
rank = dict.fromkeys(names, 1 / len(names))
for turn in range(1, 51):
    loose = sum(rank[name] for name in names if not edges[name])
    new = dict.fromkeys(names, (0.15 + 0.85 * loose) / len(names))
    for name, imports in edges.items():
        for other in imports:
            new[other] += 0.85 * rank[name] / len(imports)
    change = sum(abs(new[name] - rank[name]) for name in names)
    rank = new
    if turn % 5 == 0 or change < 1e-6:
        print(f"turn {turn:2}: change {change:.7f}", flush=True)
        time.sleep(0.1)  # so that one can see that output arrives while the code runs
    if change < 1e-6:
        break
top = sorted(rank, key=rank.get, reverse=True)[:5]
