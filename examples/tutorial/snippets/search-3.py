index, comparisons = find(numbers, target)
final_answer({"index": index, "comparisons": comparisons})
