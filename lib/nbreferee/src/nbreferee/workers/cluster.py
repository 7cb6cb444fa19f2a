"""Grading processes on many machines, by way of dask.distributed, over TLS.

The scheduler hands messages to workers. A worker never runs a student's code itself: it starts a zygote with its own
sandbox, and a pool around it, when the first message comes. A machine that is lost costs nothing but time: another
takes its messages. Whoever holds a certificate of the cluster can make the workers run anything, so keep its key as
you keep the gradebook.
"""

import platform
import threading
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

from .fingerprint import FingerprintError, fingerprint
from .message import one_line
from .pool import GRACE_S, GraderFailed, Local, Pool, PoolError, quietly, settle

__all__ = ["Cluster"]

START_S = 30.0


class Cluster(Pool):
    """The workers of a dask scheduler, as a pool with the same methods as `nbreferee.workers.pool.Local`.

    Parameters
    ----------
    address : of the scheduler, such as ``tls://10.0.0.1:8786``.
    make_zygote : as for `nbreferee.workers.pool.Local`: a function of a module that the workers have too, or a
        ``functools.partial`` of one.
    tls_ca, tls_cert, tls_key : files in PEM form: the authority that signed everybody's certificate, this side's own
        certificate and its key.
    packages : modules besides NumPy and PyTorch that must be the same everywhere; see
        `nbreferee.workers.fingerprint`.
    grace_s : seconds beyond a job's own limit.
    start_s : how long to wait for the scheduler, and for a first worker.

    Raises
    ------
    PoolError : a file is missing, no scheduler answers, there is no worker, or a worker has other versions; the text is
        one line that names the cure.

    Examples
    --------
    with Cluster("tls://10.0.0.1:8786", Zygote, tls_ca="ca.pem", tls_cert="me.pem", tls_key="me-key.pem") as pool:
        reply = pool.submit(message, timeout_s=120).result()
    """

    def __init__(
        self,
        address: str,
        make_zygote,
        *,
        tls_ca: Path | str,
        tls_cert: Path | str,
        tls_key: Path | str,
        packages: tuple = (),
        grace_s: float = GRACE_S,
        start_s: float = START_S,
    ):
        try:
            from distributed import Client, Security
            from distributed.protocol.pickle import dumps
        except ImportError:
            raise PoolError("dask.distributed is not installed; give: pip install distributed") from None
        if not str(address).startswith("tls://"):
            raise PoolError(f"the address {address} is not encrypted; give one that begins with tls://")
        for what, path in (("authority", tls_ca), ("certificate", tls_cert), ("key", tls_key)):
            if not Path(path).is_file():
                raise PoolError(f"there is no file {path} with the {what}; make one, or name the right file")
        security = Security(
            require_encryption=True,
            tls_ca_file=str(tls_ca),
            tls_client_cert=str(tls_cert),
            tls_client_key=str(tls_key),
        )
        self._recipe, self._packages, self._grace_s = dumps(make_zygote), tuple(packages), grace_s
        self._client, self._waiting, self._lock, self._closed = None, {}, threading.Lock(), False
        try:
            self._expected = _expect(self._packages)
            self._client = Client(address, security=security, set_as_default=False, timeout=start_s)
            self._wait_for_worker(address, start_s)
            self._compare()
        except PoolError:
            self.close()
            raise
        except FingerprintError as error:
            raise PoolError(str(error)) from None
        except Exception as error:
            self.close()
            raise PoolError(
                f"no scheduler at {address} accepts us ({one_line(error)}); start one with: dask scheduler "
                "--tls-ca-file … --tls-cert … --tls-key …, and use certificates of the same authority"
            ) from None

    def _wait_for_worker(self, address, start_s):
        try:
            self._client.wait_for_workers(1, timeout=start_s)
        except TimeoutError:
            raise PoolError(
                f"the scheduler at {address} has no workers; start some with: dask worker {address} …"
            ) from None

    def _compare(self):
        """Refuse a cluster of which a worker would grade with other versions."""
        there = self._client.run(_versions, self._packages, on_error="return")
        for worker, versions in sorted(there.items()):
            if isinstance(versions, BaseException):
                raise PoolError(f"the worker {worker} lacks something: {one_line(versions)}; install it there")
            if difference := _difference(self._expected, versions):
                raise PoolError(f"the worker {worker} has {difference}; install the same versions everywhere")

    @property
    def workers(self) -> int:
        """How many submissions run at a time."""
        return max(1, sum(self._client.nthreads().values()))

    def submit(self, message: bytes, timeout_s: float) -> Future:
        """Hand a message to a worker; see `nbreferee.workers.pool.Local.submit`.

        Parameters
        ----------
        message : see `nbreferee.workers.message.write_request`.
        timeout_s : what the job may take by its own limits.

        Returns
        -------
        Future of the answer's bytes. If a machine is lost, another takes the message, as often as the scheduler's
        setting ``allowed-failures`` says (3); then it raises GraderFailed. It raises PoolError if a worker cannot start
        a grading process.
        """
        if self._closed:
            raise PoolError("the pool is closed")
        out = Future()
        out.set_running_or_notify_cancel()
        task = self._client.submit(
            _on_worker, message, timeout_s, self._recipe, self._grace_s, self._packages, self._expected, pure=False
        )
        with self._lock:
            self._waiting[task.key] = task
        task.add_done_callback(lambda task: self._done(task, out))
        return out

    def _done(self, task, out):
        with self._lock:
            self._waiting.pop(task.key, None)
        try:
            answer = task.result()
            if type(answer) is not bytes:
                raise GraderFailed(f"a worker answered with {type(answer).__name__} instead of bytes")
        except (GraderFailed, PoolError) as error:
            settle(out, error=error)
        except CancelledError:
            settle(out, error=GraderFailed("the grading was stopped; give the command again"))
        except Exception as error:
            name = type(error).__name__
            why = "the machines that ran it died, one after the other" if name == "KilledWorker" else one_line(error)
            settle(out, error=GraderFailed(f"no answer came from the cluster: {why}"))
        else:
            settle(out, answer)
        finally:
            task.release()

    def close(self) -> None:
        """Cancel what is under way and leave the cluster, which goes on without us; a second call does nothing."""
        self._closed = True
        client, self._client = self._client, None
        if client is None:
            return
        with self._lock:
            waiting = list(self._waiting.values())
        if waiting:
            quietly(lambda: client.cancel(waiting, force=True))
        quietly(client.close)


def _versions(packages):
    """What must be the same on every machine: {name: version}."""
    import distributed

    digest = fingerprint(packages)
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "distributed": distributed.__version__, "code and packages that grade": digest[:16]}


_expect = _versions


def _difference(here, there):
    """The first difference as a phrase, or nothing."""
    return next(
        (f"{name} {there.get(name)}, and not {here[name]}" for name in here if there.get(name) != here[name]), ""
    )


# --- on a worker ---

_making, _pools = threading.Lock(), {}


def _pool_here(recipe, grace_s):
    """The pool of this worker process for a recipe; made when first needed, closed when the worker ends."""
    import atexit
    from pickle import loads

    from distributed import get_worker

    with _making:
        if recipe not in _pools:
            _pools[recipe] = Local(loads(recipe), get_worker().state.nthreads, grace_s=grace_s)
            atexit.register(_pools[recipe].close)
        return _pools[recipe]


def _on_worker(message, timeout_s, recipe, grace_s, packages, expected):
    """In a thread of a worker: hand the message to a grading process of this machine, and wait for its answer."""
    if difference := _difference(expected, _versions(packages)):
        raise PoolError(f"the worker has {difference}; install the same versions everywhere")
    began = time.monotonic()
    answer = _pool_here(recipe, grace_s).submit(message, timeout_s)
    return answer.result(timeout=max(1.0, 2 * (timeout_s + 2 * grace_s) - (time.monotonic() - began)))
