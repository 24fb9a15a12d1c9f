package main

import "github.com/e2bctl/e2bctl/examples/codeagent/loop"

// roles contains each agent's scripted answers to the task fibonacci. The programmer makes a
// mistake at first, and corrects it.
var roles = loop.Script{
	managerRole: {
		`number = programmer("Compute the 20th Fibonacci number as an int. The first and the second are 1.")
print(number)`,
		`verdict = checker(f"Is {number} the 20th Fibonacci number, when the first and the second are 1?")
verdict`,
		`assert verdict["right"], verdict["why"]
final_answer(number)`,
	},
	programmerRole: {
		`def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + c
    return a
fibonacci(20)`,
		`def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
fibonacci(20)`,
		`final_answer(fibonacci(20))`,
	},
	checkerRole: {
		`import math
golden = (1 + math.sqrt(5)) / 2
computed = round(golden ** 20 / math.sqrt(5))
computed`,
		`final_answer({"right": computed == 6765, "why": f"Binet's formula gives {computed}."})`,
	},
}
