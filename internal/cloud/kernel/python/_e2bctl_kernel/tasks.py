"""Coroutines of cells."""
import asyncio


def run_task(loop, coroutine, cancelling=lambda: None):
    """Runs a cell's coroutine and returns its result. If it is interrupted, cancelling
    is called and then the coroutine is cancelled, because it must not go on in the next
    cell that awaits. If it handles the cancellation and returns, that is its result."""
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt as error:
        interrupt = error.with_traceback(None)
    if not task.done():
        cancelling()
        task.cancel()
        loop.run_until_complete(asyncio.wait([task], timeout=1))
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
    raise interrupt
