import collections
import re


def count(text):
    """The words of a text, the most frequent first."""
    return collections.Counter(re.findall(r"\w+", text.lower())).most_common()
