"""A real Postgres and a real Valkey from wheels, for a laptop, the demo and the tests.

Any number of processes may open one directory at once: the first starts the servers, the others
join them, the last to close stops them. Who is there is not written down but locked: every handle
holds a shared lock on the file `users`, and the kernel drops the lock of a process that dies in
any way. So a dead process neither keeps the servers running nor is mistaken for the last one.
Starting and stopping happen under an exclusive lock on the file `door`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ._servers import Postgres, Valkey, end, fits_sockets, require_wheels

if TYPE_CHECKING:
    import psutil

__all__ = ["Handle", "Servers", "start"]


@dataclass(frozen=True)
class Servers:
    """Where a pair of servers is reached.

    Attributes:
        postgres: a `postgresql://` URL.
        redis: a `unix://` URL, as redis-py reads it.
    """

    postgres: str
    redis: str


def start(path: str | os.PathLike[str]) -> Handle:
    """Open the servers that keep their data under `path`, starting them if nobody has.

    Data is in `path/postgres` and `path/valkey`; both survive a restart. Servers that a killed
    process left running are joined. As root, Postgres runs under an account of its own, and other
    users gain the right to pass through (not to list) the directories above `path`.

    Args:
        path: a directory, made if need be. It may be relative, long, and contain spaces.

    Returns:
        A handle; close it, or use it in a `with`. At the end of the process it closes by itself.

    Raises:
        UsageError: the wheels are not installed, or have no server for this platform.
        UnavailableError: a server did not start; the message holds the end of its log.
    """
    require_wheels()
    home = Path(path).expanduser().resolve()
    home.mkdir(parents=True, exist_ok=True)
    return Handle(home)


class Handle:
    """One user's hold on a pair of servers; they run at least until it is closed.

    It belongs to the process that opened it. A forked child opens the path for itself.

    Attributes:
        servers: both URLs.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._owner = os.getpid()
        self._closed = False
        self._processes: list[psutil.Process | None] = []
        with ExitStack() as files:
            self._door = files.enter_context(_file(home / "door"))
            self._users = files.enter_context(_file(home / "users"))
            with _locked(self._door):
                # It never waits: the exclusive lock is only ever held behind the same door.
                fcntl.flock(self._users, fcntl.LOCK_SH)
                try:
                    self.servers = self._start()
                except BaseException:
                    self._leave()
                    raise
            self._files = files.pop_all()
        atexit.register(self.close)

    @property
    def postgres(self) -> str:
        """URL of the Postgres server."""
        return self.servers.postgres

    @property
    def redis(self) -> str:
        """URL of the Valkey server."""
        return self.servers.redis

    def close(self) -> None:
        """Let go of the servers, and stop them if nobody else holds them. Closing twice is fine."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        atexit.unregister(self.close)
        with self._files, _locked(self._door):
            self._leave()

    def _start(self) -> Servers:
        sockets = _sockets(self._home)
        postgres = Postgres(self._home / "postgres", sockets)
        valkey = Valkey(self._home / "valkey", sockets)
        for server in (postgres, valkey):
            if not server.answers():
                server.stop()  # what runs but does not answer, say because its socket was deleted
                server.start()
            self._processes.append(server.process())
        return Servers(postgres=postgres.url, redis=valkey.url)

    def _leave(self) -> None:
        # Unlocked by name, not by closing alone: a child being forked just now has a copy.
        fcntl.flock(self._users, fcntl.LOCK_UN)
        if _try_lock(self._users):
            self._stop()

    def _stop(self) -> None:
        sign = signal.SIGINT
        if _is_at(self._door, self._home / "door"):
            _stop_servers(self._home)
        elif self._home.exists():
            # The directory was deleted and made anew. A server that ends in order would now remove
            # the sockets and pid files of its successor.
            sign = signal.SIGKILL
        for process in self._processes:
            end(process, sign)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _stop_servers(home: Path) -> None:
    run = home / "run"
    for server in (Valkey(home / "valkey", run), Postgres(home / "postgres", run)):
        server.stop()
    if run.is_symlink():
        shutil.rmtree(run.resolve(), ignore_errors=True)
        run.unlink()


def _sockets(home: Path) -> Path:
    """The directory for sockets: `run`, or where it leads to if its own path is unfit for them.

    Everyone finds it through `run`, whatever their own directory for temporary files is.
    """
    run = home / "run"
    if fits_sockets(run):
        run.mkdir(mode=0o700, exist_ok=True)
        return run
    if run.is_symlink() and run.is_dir():
        return run.resolve()
    _remove(run)
    short = Path(tempfile.mkdtemp(prefix="durable-state-")).resolve()
    run.symlink_to(short)
    return short


def _remove(run: Path) -> None:
    if run.is_symlink():
        run.unlink()
    elif run.exists():
        shutil.rmtree(run)


@contextmanager
def _file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _locked(door: int) -> Iterator[None]:
    fcntl.flock(door, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(door, fcntl.LOCK_UN)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _try_lock(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
