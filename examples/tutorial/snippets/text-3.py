counts = Counter(w for w in words if len(w) > 3)
frequent = sorted(counts, key=lambda w: (-counts[w], w))[:3]
final_answer({"words": len(words), "sentences": len(sentences), "frequent": frequent})
