import sys

from words import count

for word, n in count(sys.stdin.read()):
    print(n, word)
