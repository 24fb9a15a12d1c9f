from collections import Counter

found, page = [], 1
while batch := issues(page):
    found += batch
    page += 1
Counter(label for one in found for label in one["labels"]).most_common()
