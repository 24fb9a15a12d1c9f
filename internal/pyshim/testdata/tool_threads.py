# Calls tools from many threads, with a host that answers in any order, in parts and late.
# Prints each failure, then "done".
import asyncio
import json
import os
import random
import sys
import threading
import time

codec = sys.modules["_e2bctl_codec"]
tools = sys.modules["_e2bctl_tools"]
tools.PART = 40  # so that nearly all questions have several parts
PATIENCE = 60
sys.setswitchinterval(1e-6)  # so that threads meet in all places


class Host:
    """Checks each question, and answers some of the calls that wait."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.busy = threading.Lock()
        self.asked, self.waiting = {}, {}
        self.parts, self.rest, self.numbers = [], [], []

    def ask(self, prompt):
        if not self.busy.acquire(blocking=False):
            print("two questions at a time")
        try:
            return self.reply(prompt[len(tools.PREFIX) :])
        finally:
            self.busy.release()

    def reply(self, text):
        digits = len(text) - len(text.lstrip("0123456789"))
        number, kind, part = int(text[:digits]), text[digits], text[digits + 1 :]
        if self.parts or self.rest:
            if number != self.numbers[-1]:
                print("a part of question %d in question %d" % (number, self.numbers[-1]))
        elif self.numbers and number <= self.numbers[-1]:
            print("question %d after question %d" % (number, self.numbers[-1]))
        else:
            self.numbers.append(number)
        if kind == "?":
            return self.rest.pop(0)
        if len(part) > tools.PART:
            print("a part of %d characters" % len(part))
        self.parts.append(part)
        if kind == "+":
            return ""
        head, *documents = "".join(self.parts).split("\n")
        self.parts = []
        head = json.loads(head)
        if len(documents) != len(head["calls"]):
            print("%d calls with %d documents" % (len(head["calls"]), len(documents)))
        if set(head["waiting"]) - set(self.waiting):
            print("nobody can wait for %s" % head["waiting"])
        self.waiting = {id: self.waiting[id] for id in head["waiting"]}
        for (id, name), document in zip(head["calls"], documents):
            if id in self.asked:
                print("call %d is asked for again" % id)
            self.asked[id] = name
            self.waiting[id] = codec.decode(document.encode())
        ready = self.random.sample(sorted(self.waiting), self.random.randrange(len(self.waiting) + 1))
        answer = [json.dumps([[id, "ok"] for id in ready])] + [codec.encode({"got": self.waiting[id]}).decode() for id in ready]
        for id in ready:
            del self.waiting[id]
        answer = "\n".join(answer)
        pieces = [answer[i : i + 30] for i in range(0, len(answer), 30)]
        self.rest = ["+" + piece for piece in pieces[:-1]] + ["." + pieces[-1]]
        return self.rest.pop(0)


def together(functions):
    """Runs functions in threads, and returns what each returned or raised."""
    outcomes = [None] * len(functions)

    def one(i):
        try:
            outcomes[i] = functions[i]()
        except BaseException as error:
            outcomes[i] = error

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            print("a call has no answer")
            sys.stdout.flush()
            os._exit(0)
    return outcomes


# Each thread gets the answers to its own calls, each call is asked for once, and nobody waits
# for ever.
for number in range(5):
    host = Host(number)
    bridge = tools._Bridge(host.ask)
    start = threading.Barrier(12)

    def caller(thread):
        def calls():
            start.wait()
            return [bridge.call("tool", {"thread": thread, "call": i}) for i in range(10)]

        return calls

    for thread, answers in enumerate(together([caller(thread) for thread in range(12)])):
        want = [{"got": {"thread": thread, "call": i}} for i in range(10)]
        if answers != want:
            print("thread %d got %r" % (thread, answers))
    if sorted(host.asked) != list(range(1, 121)) or bridge.calls or bridge.leader is not None:
        print("calls %s were asked for, and %s are left" % (sorted(host.asked), bridge.calls))

# Coroutines get theirs, too.
host = Host(9)
bridge = tools._Bridge(host.ask)
function = tools._function(bridge, {"name": "tool", "doc": "", "signature": "tool(i)", "returns": "int", "parameters": [{"name": "i", "type": "int", "required": True}]})


async def gather():
    return await asyncio.wait_for(asyncio.gather(*(function.aio(i) for i in range(30))), PATIENCE)


if asyncio.run(gather()) != [{"got": {"i": i}} for i in range(30)]:
    print("coroutines got the answers of others")
bridge._pool.shutdown()

tools.PART = 1 << 20


class Failing:
    """Lets three calls come together, fails once, and then answers all, also the one that was
    given up."""

    def __init__(self, error):
        self.error, self.heads = error, []

    def ask(self, prompt):
        head = json.loads(prompt[prompt.index(".") + 1 :].split("\n")[0])
        self.heads.append(head)
        if isinstance(self.error, NotImplementedError):
            raise self.error
        if len(self.heads) == 1:
            while len(bridge.calls) < 3:
                time.sleep(0.001)
            raise self.error
        ids = sorted({1, 2, 3, *head["waiting"]})
        return ".%s\n%s" % (json.dumps([[id, "ok"] for id in ids]), "\n".join(codec.encode({"answered": id}).decode() for id in ids))


for error in KeyboardInterrupt(), MemoryError(), EOFError(), NotImplementedError():
    host = Failing(error)
    bridge = tools._Bridge(host.ask)
    outcomes = together([lambda i=i: bridge.call("tool", {"call": i}) for i in range(3)])
    leader = host.heads[0]["calls"][0][0]
    kinds = sorted(type(outcome).__name__ for outcome in outcomes)
    if isinstance(error, (KeyboardInterrupt, MemoryError)):
        # It leaves its place to another, and the host hears no more of it.
        if kinds != sorted([type(error).__name__, "dict", "dict"]):
            print("after %r of one: %r" % (error, outcomes))
        if any(leader in [id for id, _ in head["calls"]] + head["waiting"] for head in host.heads[1:]):
            print("after %r the host is still asked for it: %s" % (error, host.heads))
    elif isinstance(error, EOFError) and "dict" not in kinds and kinds != ["ToolError"] * 3:
        print("after %r: %r" % (error, outcomes))
    if isinstance(error, NotImplementedError) and (kinds != ["ToolError"] * 3 or bridge.refused != ["tool"] * 3):
        print("between steps: %r, and kept are %s" % (outcomes, bridge.refused))
    if bridge.calls or bridge.leader is not None:
        print("after %r %s are left, and the leader %s" % (error, bridge.calls, bridge.leader))

# A call that is answered returns at once, while the thread that asks goes on.
returned = threading.Event()


def ask(prompt):
    head = json.loads(prompt[prompt.index(".") + 1 :].split("\n")[0])
    seen.update((id, None) for id, _ in head["calls"])
    while len(bridge.calls) < 2 and not returned.is_set():
        time.sleep(0.001)
    mine = bridge.leader.id
    if len(seen) == 2 and not returned.is_set():
        if other := [id for id in head["waiting"] + [id for id, _ in head["calls"]] if id != mine]:
            return '.[[%d, "ok"]]\n%s' % (other[0], codec.encode(None).decode())
        if not returned.wait(PATIENCE):
            print("a call that was answered did not return")
            returned.set()
    if returned.is_set():
        return '.[[%d, "ok"]]\n%s' % (mine, codec.encode(None).decode())
    return ".[]"


def two():
    bridge.call("tool", {})
    returned.set()


seen = {}
bridge = tools._Bridge(ask)
together([two, two])

# Nobody asks for a run that is closed, nor in another process.
for attribute, wrong in ("open", False), ("pid", 0):
    bridge = tools._Bridge(lambda prompt: print("it asked"))
    setattr(bridge, attribute, wrong)
    for outcome in together([lambda: bridge.call("tool", {})] * 3):
        if not isinstance(outcome, tools.ToolError) or outcome.type != "Unreachable" or outcome.tool != "tool":
            print("with %s %s: %r" % (attribute, wrong, outcome))
    if bridge.calls or bridge.leader is not None:
        print("with %s %s %s are left" % (attribute, wrong, bridge.calls))
print("done")
