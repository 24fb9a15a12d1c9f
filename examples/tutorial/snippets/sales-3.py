best = int(figures.argmax())
result["best"] = months[best]
result["share"] = float(figures[best] / figures.sum())
final_answer(result)
