def find(numbers, target):
    low, high, comparisons = 0, len(numbers), 0
    while low < high:
        middle = (low + high) // 2
        comparisons += 1
        if numbers[middle] <= target:
            low = middle
        else:
            high = middle
    return low, comparisons

find(numbers, target)
