"""Batches that are made while the one before is used."""

import concurrent.futures
import multiprocessing
import threading


class LookAhead:
    """Makes the next batches of an epoch in threads or processes.

    A batch must be a function of (epoch, index) and of nothing else; then it
    does not matter who makes it, or when. What was made ahead for an epoch
    that is over is thrown away.

    Keras has such a queue of its own (`workers` of `PyDataset`), which is not
    used here. On PyTorch and JAX, the first `fit` of a compiled model peeks at
    a batch, and what the queue had made by then is put before the first epoch
    (Keras 3.15.1: eleven batches with ten in the queue). From then on, the end
    of every epoch is trained on in the next one.

    Args:
        make: Callable `(epoch, index) -> batch`; for processes one that can be
            pickled.
        workers: How many threads or processes.
        processes: Whether they are processes. They are started afresh
            (spawned), since a fork of a process with a running backend can
            hang; a script needs `if __name__ == "__main__":` then.
        depth: How many batches are made ahead.
    """

    def __init__(self, make, workers, processes=False, depth=10):
        self._make = make
        self._workers = workers
        self._processes = processes
        self._depth = depth
        self._pool = None
        self._pending = {}  # (epoch, index) -> future
        self._lock = threading.Lock()

    def get(self, epoch, index, count):
        """The batch at `index` of `count` in this epoch."""
        with self._lock:
            self._forget(lambda key: key[0] != epoch)
            self._submit(epoch, index)
            for ahead in range(index + 1, min(index + 1 + self._depth, count)):
                if len(self._pending) > self._depth:
                    break
                self._submit(epoch, ahead)
            future = self._pending.pop((epoch, index))
        return future.result()

    def close(self):
        """Throws away what was made ahead and ends the workers."""
        with self._lock:
            self._forget(lambda key: True)
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = None

    def _forget(self, is_over):
        for key in [key for key in self._pending if is_over(key)]:
            self._pending.pop(key).cancel()

    def _submit(self, epoch, index):
        if (epoch, index) in self._pending:
            return
        if self._pool is None:
            self._pool = self._new_pool()
        make = _make_here if self._processes else self._make
        self._pending[epoch, index] = self._pool.submit(make, epoch, index)

    def _new_pool(self):
        if not self._processes:
            return concurrent.futures.ThreadPoolExecutor(self._workers)
        return concurrent.futures.ProcessPoolExecutor(
            self._workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_receive,
            initargs=(self._make,),
        )


def _receive(make):
    """Keeps what a worker process makes batches with."""
    global _received
    _received = make


def _make_here(epoch, index):
    return _received(epoch, index)
