import statistics

result = {
    "mean": round(float(np.mean(figures)), 2),
    "median": statistics.median(sales),
    "deviation": round(statistics.stdev(sales), 2),
    "growth": round(float(figures[-1] / figures[0] - 1), 4),
}
result
