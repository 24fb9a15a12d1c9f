import contextlib
import re


@contextlib.contextmanager
def refused(what):
    """Expects the local cloud to refuse, by name, what it does not have."""
    try:
        yield
    except Exception as error:
        assert re.search(f"not supported by this local cloud: .*{what}", str(error)), error
        return
    raise AssertionError(f"{what} was not refused")


@case
async def building_templates(_):
    with refused("building templates"):
        await Template.build(Template().from_base_image(), "mine", cpu_count=1, memory_mb=512)
