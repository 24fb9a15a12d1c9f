"""A code agent: it asks a model for Python, runs that, and shows the model the
result, until there is an answer. It reads the task from its standard input.

Nothing separates it from the code that it runs: that is what the sandbox is for.
"""

import contextlib
import io
import json
import os
import re
import sys
import traceback
import urllib.request

MAX_STEPS = 8
# Answers that are written down, for a run without a model.
SCRIPT = json.loads(os.environ.get("SCRIPT", "[]"))
PROMPT = """You solve a task by writing Python, a block between ```python and ``` in
each answer. You are shown what it prints. Variables stay. Call final_answer(value)
when you know it.%s"""
HELPER = """ helper(task) has another agent solve a part of the task and returns its
answer; tell it all that it has to know."""


class Answer(BaseException):
    """Ends code that has the answer, whatever exceptions it catches."""


def final_answer(value):
    raise Answer(value)


def ask(messages):
    if SCRIPT:
        return "```python\n" + SCRIPT.pop(0) + "\n```"
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except OSError as e:
        sys.exit(f"the model gives no answer: {e}")


def solve(name, task, prompt, tools):
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": task}]
    variables = {"final_answer": final_answer, **tools}
    for step in range(1, MAX_STEPS + 1):
        content = ask(messages)
        code = "\n".join(re.findall(r"```python\n(.*?)```", content, re.DOTALL))
        print(f"--- {name}, step {step}\n{code}", file=sys.stderr)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, variables)
        except Answer as answer:
            return answer.args[0]
        except Exception:
            traceback.print_exc(file=printed)
        observation = printed.getvalue()[-5000:] or "(no output)\n"
        print(observation, end="", file=sys.stderr)
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": observation}]
    sys.exit(f"{name} has no answer after {MAX_STEPS} steps")


def helper(task):
    return solve("helper", task, PROMPT % "", {})


print(solve("manager", sys.stdin.read(), PROMPT % HELPER, {"helper": helper}))
