reminded = []
for one in found:
    if "question" in one["labels"]:
        try:
            comment(one["number"], "Has this been answered? Then please close it.")
            reminded.append(one["number"])
        except comment.Error as refusal:
            print(f"#{one['number']}: {refusal}")
final_answer({"open": len(found), "reminded": reminded})
