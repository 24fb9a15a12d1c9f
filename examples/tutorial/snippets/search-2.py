def find(numbers, target):
    low, high, comparisons = 0, len(numbers), 0
    while low < high:
        middle = (low + high) // 2
        comparisons += 1
        if numbers[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low, comparisons

for n in (numbers[0], numbers[-1], target):
    index, comparisons = find(numbers, n)
    print(n, "is at", index, "after", comparisons, "comparisons")
    assert numbers[index] == n
