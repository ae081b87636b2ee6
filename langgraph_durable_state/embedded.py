"""A real Postgres and a real Valkey from wheels, for a laptop, the demo and the tests.

Any number of processes may open one directory at once: the first starts the servers, the others
join them, the last to close stops them. Who is there is not written down but locked: every handle
holds a shared lock on the file `users`, and the kernel drops the lock of a process that dies in
any way. So a dead process neither keeps the servers running nor is mistaken for the last one.
Starting and stopping happen under an exclusive lock on the file `door`.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ._accounts import SYSTEM_USER, closed_to_postgres, our_users, user_name
from ._servers import Postgres, Valkey, end, fits_sockets, postgres_binaries, require_wheels
from .errors import UsageError

if TYPE_CHECKING:
    import psutil

__all__ = ["Handle", "Servers", "start"]

_ELSEWHERE = "give another path"

_ADVICE = {
    errno.EEXIST: "a file is in the way of a directory; move it, or give another path",
    errno.ENOTDIR: "a file is in the way of a directory; move it, or give another path",
    errno.EISDIR: "a directory is in the way of a file; move it, or give another path",
    errno.EACCES: "let this user read and write there, or give another path",
    errno.EPERM: "let this user read and write there, or give another path",
    errno.EROFS: "give a path on a disk that can be written to",
    errno.ENOSPC: "free some space, or give a path on another disk",
    errno.EDQUOT: "free some space, or give a path on another disk",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ENOLCK: "give a path on a local disk, which has file locks",
}
"""What to do about an error of the operating system."""


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
    process left running are joined. Data is opened by the user that made it, not by another.

    Run as root, it changes the system in two ways, because Postgres refuses to run as root. Neither
    is undone at the end, and nothing of the kind happens for any other user:

    - Postgres runs as the user `embedded_postgres`, who owns `path/postgres` and `path/run`. If
      there is no such user, `useradd --system` makes one, without a home or a shell.
    - That user must be able to reach the data and the wheel's programs. Of the directories above
      these, each that it cannot pass through gets `chmod o+x`: then every user can pass through
      it, not list it. That concerns directories of root only; usually there is none, or `/root`.

    Args:
        path: a directory, made if need be. It may be relative, long, and contain spaces.

    Returns:
        A handle; close it, or use it in a `with`. At the end of the process it closes by itself.

    Raises:
        UsageError: the wheels are not installed, or have no server for this platform; or `path` is
            a URL or a file, belongs to somebody else, cannot be written to, is on a full disk, or
            holds the data of another major version of Postgres.
        UnavailableError: a server did not start; the message holds what it said.
    """
    # A Path has made one slash of a URL's two. One letter before the colon would be a drive.
    if re.match(r"[A-Za-z][\w+.-]+:/", os.fspath(path)):
        raise UsageError(
            f"{path} is a URL, and embedded servers need a directory for their data;"
            " to use servers that run already: DurableSaver(postgres, redis)"
        )
    require_wheels()
    with _explained(path):
        home = _resolved(path)
        _require_ours(home)
        home.mkdir(parents=True, exist_ok=True)
        return Handle(home)


@contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, _ELSEWHERE)
        where = f"{error.filename}: " if error.filename else ""
        raise UsageError(
            f"embedded servers cannot use {os.fspath(path)!r}"
            f" as user {user_name(os.geteuid())}: {where}{error.strerror or error}; {advice}"
        ) from error


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except RuntimeError as error:  # "~somebody" who does not exist; before 3.13 a loop of links
        raise UsageError(f"{os.fspath(path)!r} leads nowhere: {error}; {_ELSEWHERE}") from error


def _require_ours(home: Path) -> None:
    """Raise `UsageError`, before anything is changed, if this is for another user to open."""
    owner = _owner(home)
    if owner is not None and owner not in our_users():
        name = user_name(owner)
        raise UsageError(
            f"{home} belongs to user {name}; run as {'root' if name == SYSTEM_USER else name}"
        )
    for path in (home / "postgres", postgres_binaries() / "postgres"):
        closed_to_postgres(path)


def _owner(home: Path) -> int | None:
    """Who made the servers' data, None if there is none. An empty directory may be anybody's."""
    for name in ("door", "users", "postgres", "valkey"):
        try:
            return (home / name).lstat().st_uid
        except FileNotFoundError:
            continue
    return None


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
