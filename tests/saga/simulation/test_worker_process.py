"""Worker processes have one thread each; the environment of their parent stays as it is."""

from __future__ import annotations

import os

import torch

from saga.simulation.worker_process import ONE_THREAD, run_task, worker_pool


def _state_of_a_worker() -> tuple[dict[str, str | None], int]:
    return {name: os.environ.get(name) for name in ONE_THREAD}, torch.get_num_threads()


def test_workers_have_one_thread_and_their_parent_keeps_its_environment() -> None:
    """Threads that look up an address read the environment; a change then ends the process."""
    before = os.environ.copy()
    with worker_pool(1, _state_of_a_worker) as pool:
        state = pool.submit(run_task)
        assert os.environ == before
        assert state.result() == (ONE_THREAD, 1)
    assert os.environ == before
