"""A fixture of pytest: def test(e2b_cloud) runs with the SDKs of E2B on a cloud of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import Cloud, local_cloud


@pytest.fixture(scope="session")
def e2b_cloud() -> Iterator[Cloud]:
    """The local cloud of this run of pytest, which the SDKs of E2B use. It ends with the run."""
    with local_cloud() as cloud:
        yield cloud
