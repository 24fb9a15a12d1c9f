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
async def building_templates_with_the_logins_of_other_services(_):
    template = Template().from_aws_registry("one.two/image", access_key_id="id", secret_access_key="key", region="eu")
    with refused("fromImageRegistry of type aws: use type registry"):
        await Template.build(template, "mine", cpu_count=1, memory_mb=512)
