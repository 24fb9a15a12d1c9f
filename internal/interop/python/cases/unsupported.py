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
async def building_templates_from_other_images(_):
    with refused("the image 'debian:stable'"):
        await Template.build(Template().from_debian_image(), "mine", cpu_count=1, memory_mb=512)
