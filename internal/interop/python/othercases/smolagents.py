import asyncio
import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import PIL.Image
import smolagents
from smolagents import tool
from smolagents.models import ChatMessage, MessageRole


ONE = ThreadPoolExecutor(1)


async def alone(call, *arguments, **options):
    """Calls smolagents in one thread: it parses code, which CPython 3.11 cannot do
    in several threads at once."""
    return await asyncio.get_running_loop().run_in_executor(ONE, partial(call, *arguments, **options))


class Scripted(smolagents.Model):
    """A model with scripted answers: each is the code of one step."""

    def __init__(self):
        super().__init__(model_id="scripted")
        self.script, self.asked = [], []

    def generate(self, messages, **_):
        self.asked.append(messages)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go on.\n<code>\n{self.script.pop(0)}\n</code>")


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers.

    Args:
        a: one
        b: the other
    """
    return a * b


class Agent:
    """An agent whose code runs in a sandbox of its own."""

    imports = []

    @classmethod
    async def create(cls, **options):
        self = cls()
        self.model = Scripted()
        self.agent = await alone(
            smolagents.CodeAgent,
            tools=[multiply],
            model=self.model,
            additional_authorized_imports=cls.imports,
            executor_type="e2b",
            executor_kwargs=options,
            verbosity_level=smolagents.LogLevel.OFF,
        )
        return self

    @property
    def executor(self):
        return self.agent.python_executor

    async def run(self, *script, **state):
        """Runs the steps and returns the final answer."""
        self.model.script = list(script)
        return await alone(self.agent.run, "the task", additional_args=state)

    async def call(self, code):
        return await alone(self.executor, code)

    @property
    def steps(self):
        return [step for step in self.agent.memory.steps if isinstance(step, smolagents.ActionStep)]

    async def kill(self):
        await alone(self.agent.cleanup)


def runs_an_agent(body):
    body.kind = Agent
    return case(body)


@runs_an_agent
async def steps_share_state_and_end_with_an_answer(agent):
    answer = await agent.run(
        "import numpy as np\nproduct = multiply(6, factor)\nprint('product', product)",
        "mean = float(np.mean([product, product + 2]))\nmean",
        "import os\nfinal_answer({'mean': mean, 'items': (product, {1, 2}), 'greeting': os.environ['GREETING']})",
        factor=7,
    )
    same(answer, {"mean": 43.0, "items": (42, {1, 2}), "greeting": "hello"})
    first, second, _ = agent.steps
    assert "product 42" in first.observations, first.observations
    assert "43.0" in second.observations, second.observations


@runs_an_agent
async def a_failing_step_is_shown_to_the_model(agent):
    answer = await agent.run("print('before')\n1/0", "final_answer('recovered')")
    same(answer, "recovered")
    error = str(agent.steps[0].error)
    for part in ("before", "ZeroDivisionError", "division by zero", "Traceback"):
        assert part in error, error
    assert "\x1b" not in error, error


@runs_an_agent
async def pictures_go_both_ways(agent):
    picture = PIL.Image.new("RGB", (3, 2), "red")
    answer = await agent.run(
        "turned = picture.rotate(90, expand=True)\nturned",
        "final_answer(turned)",
        picture=picture,
    )
    same((agent.steps[0].action_output.size, answer.to_raw().size, answer.to_raw().getpixel((0, 0))), ((2, 3), (2, 3), (255, 0, 0)))


@runs_an_agent
async def values_of_every_kind_are_outputs(agent):
    for code, want in (
        ("None", None),
        ("'text'", "text"),
        ("[1, {'a': None}]", [1, {"a": None}]),
        ("from IPython.display import HTML\nHTML('<b>x</b>')", "<b>x</b>"),
        ("import pandas as pd\npd.DataFrame({'a': [1, 2]})", {"a": [1, 2]}),
    ):
        output = await agent.call(code)
        same((output.output, output.is_final_answer), (want, False))
    output = await agent.call("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.gcf()")
    assert output.output.width > 100, output


class Importing(Agent):
    """Installs the packages that it may import, as every such agent does."""

    imports = ["numpy"]


async def packages_are_installed(agent):
    assert "numpy" in agent.executor.installed_packages, agent.executor.installed_packages
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("extra_of_interop.py", "answer = 42\n")
        archive.writestr("extra_of_interop-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: extra-of-interop\nVersion: 1\n")
        archive.writestr("extra_of_interop-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("extra_of_interop-1.dist-info/RECORD", "")
    path = "/tmp/extra_of_interop-1-py3-none-any.whl"
    await alone(agent.executor.sandbox.files.write, path, wheel.getvalue())
    await alone(agent.executor.install_packages, [path])
    same(await agent.run("import extra_of_interop\nfinal_answer(extra_of_interop.answer)"), 42)


packages_are_installed.kind = Importing
case(packages_are_installed)


@runs_an_agent
async def cleaning_up_kills_the_sandbox(agent):
    sandbox = agent.executor.sandbox
    same(await agent.run("final_answer(1)"), 1)
    same(await alone(sandbox.is_running), True)
    await agent.kill()
    same(await alone(sandbox.is_running), False)
