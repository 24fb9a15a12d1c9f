import re
from collections import Counter

words = re.findall(r"[a-z']+", article.lower())
sentences = [s for s in re.split(r"[.!?]\s*", article) if s]
print(len(words), "words in", len(sentences), "sentences")
Counter(w for w in words if len(w) > 3).most_common(5)
