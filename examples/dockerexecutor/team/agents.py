"""A manager and its helper: their loops, and the code that they run, all in one process.

Nothing separates them from that code: that is what the container is for. Only the model is
elsewhere: ask is a function of the program outside, which has the key.
"""

import contextlib
import io
import re
import sys
import traceback

MAX_STEPS = 8
RULES = """You solve a task by writing Python, a block between ```python and ``` in each
answer. You are shown what it prints. Variables stay. Call final_answer(value) when you know
it. tabulate is installed."""
MANAGER = """You lead. helper(task) has another agent solve a part of the task and returns its
answer; tell it all that it has to know. """
HELPER = "You help with a part of a task. "


class Answer(BaseException):
    """Ends code that has the answer, whatever exceptions it catches."""


def final_answer(value):
    raise Answer(value)


def work(name, instructions, task, ask, tools):
    """The loop of one agent."""
    messages = [{"role": "system", "content": instructions + RULES}, {"role": "user", "content": task}]
    variables = {"final_answer": final_answer, **tools}
    for step in range(1, MAX_STEPS + 1):
        content = ask(messages)
        code = "\n".join(re.findall(r"```python\n(.*?)```", content, re.DOTALL))
        print(f"{name}: step {step}\n{code.strip()}")
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, variables)
        except Answer as answer:
            return answer.args[0]
        except Exception:
            traceback.print_exc(file=printed)
        observation = printed.getvalue()[-5000:] or "(no output)\n"
        print(observation, end="")
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": observation}]
    raise RuntimeError(f"{name} has no answer after {MAX_STEPS} steps")


def solve(task, ask):
    """The answer of the team."""

    shown = sys.stdout  # the manager's code, which calls the helper, prints elsewhere

    def helper(part):
        with contextlib.redirect_stdout(shown):
            return work("helper", HELPER, part, ask, {})

    return work("manager", MANAGER, task, ask, {"helper": helper})
