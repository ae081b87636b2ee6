"""Real servers that a test may kill, freeze, restart, cut off and set back to an older state.

All listen on 127.0.0.1 only. Every process started here is ended by its id in `close()`, and every
file is below the directory that the caller gives.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import psutil
import psycopg
import pytest
import redis
from redis.crc import key_slot

from langgraph_durable_state import _accounts, _servers

START_SECONDS = 30.0
LOOPBACK = "127.0.0.1"

LOGIN = {"username": "agent", "password": "p@ss/word"}
"""Of the one user who may run scripts on `ValkeySentinels`, and on a cluster that demands it."""

SENTINEL_PASSWORD = "watch/men"

_GIVEN: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that no outgoing connection takes in the meantime.

    Outgoing connections use 32768 and up on Linux, 49152 and up on macOS; a killed server must
    find its port free when it starts again. None is given twice, as a set of servers wants several
    before the first of them listens.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        _GIVEN.add(port)
        return port


def wait_until(
    ready: Callable[[], bool], what: str, *, seconds: float = START_SECONDS, pause: float = 0.01
) -> None:
    """Return once `ready()` holds; `TimeoutError` naming `what` if it does not in time."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {seconds:g} s")
        time.sleep(pause)


def several(*urls: str) -> str:
    """One URL of all these servers, in this order."""
    hosts = ",".join(f"{urlsplit(url).hostname}:{urlsplit(url).port}" for url in urls)
    return f"postgresql://postgres@{hosts}/postgres"


class Server:
    """A server process and its children, which a test treats as badly as it likes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def runs(self) -> bool:
        """Whether it was started and not ended since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Process id of the server (Postgres: of the postmaster). It must be running."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    def start(self) -> Self:
        """Start it, again on the same port and data, and wait until it answers."""
        assert self._process is None, "the server is running already"
        for _ in range(3):  # children of a killed Postgres may hold its memory for a moment
            self._process = self._launch()
            try:
                wait_until(lambda: self._answers() or self._ended(), f"{self.log} says ready")
            except TimeoutError:
                self.kill()
                raise
            if not self._ended():
                return self
            self._process.wait()
            self._process = None
            time.sleep(0.5)
        raise RuntimeError(f"it did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """SIGKILL it and all its children at once, as if the machine lost power."""
        if self._process is None:
            return
        family = self.stop_process()
        for member in family:
            _signal(member, signal.SIGKILL)
        self._process.wait()
        self._process = None
        wait_until(lambda: all(map(_servers.gone, family)), f"the end of {family}")

    def stop(self) -> None:
        """Stop it in order, as a restart for maintenance does."""
        if self._process is None:
            return
        self.continue_process()
        self._process.send_signal(self._polite)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def stop_process(self) -> list[psutil.Process]:
        """SIGSTOP it and its children: connections stay open, nothing is answered."""
        parent = psutil.Process(self.pid)
        _signal(parent, signal.SIGSTOP)  # first, so that it has no more children
        children = parent.children(recursive=True)
        for child in children:
            _signal(child, signal.SIGSTOP)
        return [parent, *children]

    def continue_process(self) -> None:
        """SIGCONT what `stop_process` stopped."""
        parent = psutil.Process(self.pid)
        for member in [*parent.children(recursive=True), parent]:
            _signal(member, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its files. Closing twice is fine."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start() if self._process is None else self

    def __exit__(self, *_: object) -> None:
        self.close()

    _polite = signal.SIGTERM

    def _launch(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


class PostgresServer(Server):
    """A Postgres on its own data directory.

    Args:
        directory: for its files; made here, removed by `close()`.
        template: a cluster made by `make_template`, copied instead of running initdb.
        settings: server settings, such as `{"max_connections": "20"}`.
    """

    _polite = signal.SIGINT

    def __init__(
        self, directory: Path, template: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self.data = directory / "data"
        self.settings = dict(settings or {})
        self._fill(template)

    def _fill(self, template: Path) -> None:
        _copy(template, self.data)
        _accounts.give_to_postgres(self.data)

    @property
    def url(self) -> str:
        """Of the database `postgres`, as its superuser."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/{database}"

    def ask(self, statement: str) -> Any:
        """The value of the first row of one statement."""
        with psycopg.connect(self.url, connect_timeout=5, autocommit=True) as connection:
            row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return row[0]

    def set(self, **settings: str) -> None:
        """Change settings of the running server; they outlive restarts."""
        with psycopg.connect(self.url, connect_timeout=5, autocommit=True) as connection:
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        for name, value in settings.items():
            told = f"SELECT current_setting('{name}') = '{value}'"
            wait_until(lambda told=told: bool(self.ask(told)), f"{name} is {value}")

    def snapshot(self) -> Path:
        """Keep its present state for `restore`. It is restarted in between."""
        self.stop()
        kept = self.directory / f"snapshot-{time.monotonic_ns()}"
        _copy(self.data, kept)
        self.start()
        return kept

    def restore(self, kept: Path) -> None:
        """Kill it and start it from what `snapshot` kept, as from an old backup."""
        self.kill()
        free_memory(self.data / "postmaster.pid")
        shutil.rmtree(self.data)
        _copy(kept, self.data)
        self.start()

    def close(self) -> None:
        self.kill()
        free_memory(self.data / "postmaster.pid")
        super().close()

    def _launch(self) -> subprocess.Popen[bytes]:
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # we know that it does not run
        settings = {
            "port": str(self.port),
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # in the data directory, not in /dev/shm
        } | self.settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [_servers.postgres_binaries() / "postgres", "-D", self.data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_servers.plain_environment(),
                start_new_session=True,
                **_accounts.postgres_account(),
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class Standby(PostgresServer):
    """A hot standby that follows a Postgres by streaming replication until it is promoted.

    Args:
        directory: for its files; made here, removed by `close()`.
        primary: whom it follows; it must be running.
    """

    def __init__(self, directory: Path, primary: PostgresServer) -> None:
        self.primary = primary
        super().__init__(directory, primary.data, primary.settings)

    def _fill(self, template: Path) -> None:
        self.data.mkdir(mode=0o700)
        _accounts.give_to_postgres(self.data)
        source = ["-d", self.primary.url, "-D", str(self.data), "--write-recovery-conf"]
        done = _servers.run_postgres_tool(
            "pg_basebackup", *source, "--checkpoint=fast", "--no-sync", cwd=self.data
        )
        assert done.returncode == 0, done.stdout

    def start(self) -> Self:
        """Start it, and wait until it has all that its primary has now."""
        super().start()
        if self.primary.runs:
            self.catch_up()
        return self

    def catch_up(self) -> None:
        """Wait until it shows all that its primary has now."""
        at = self.primary.ask("SELECT pg_current_wal_lsn()")
        there = f"SELECT pg_last_wal_replay_lsn() >= '{at}'"
        wait_until(lambda: bool(self.ask(there)), "the standby has caught up")

    def pause(self) -> None:
        """Let it lag from now on: what it receives it does not show."""
        self.ask("SELECT pg_wal_replay_pause()")
        paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
        wait_until(lambda: bool(self.ask(paused)), "the standby lags")

    def resume(self) -> None:
        """End its lag."""
        self.ask("SELECT pg_wal_replay_resume()")

    def promote(self) -> None:
        """Make it a primary."""
        assert self.ask("SELECT pg_promote()")


class ValkeyServer(Server):
    """A Valkey on its own data directory.

    Args:
        directory: for its files; made here, removed by `close()`.
        config: settings, such as `{"maxmemory": "2mb", "maxmemory-policy": "allkeys-lru"}`.
            Without any it keeps nothing on disk; `{"appendonly": "yes", "appendfsync": "always"}`
            loses nothing when it is killed.
    """

    def __init__(self, directory: Path, config: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self.data = directory / "data"
        self.data.mkdir()
        self.config = dict(config or {})

    @property
    def url(self) -> str:
        """Of its database 0."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """The URL of one of its numbered databases."""
        return f"redis://{LOOPBACK}:{self.port}/{database}"

    def snapshot(self) -> Path:
        """Keep its present state for `restore`."""
        with redis.Redis.from_url(self.url) as client:
            client.save()
        kept = self.directory / f"snapshot-{time.monotonic_ns()}"
        shutil.copytree(self.data, kept)
        return kept

    def restore(self, kept: Path) -> None:
        """Kill it and start it from what `snapshot` kept, as from an old backup."""
        self.kill()
        shutil.rmtree(self.data)
        shutil.copytree(kept, self.data)
        self.start()

    def _launch(self) -> subprocess.Popen[bytes]:
        config = {
            "port": str(self.port),
            "bind": LOOPBACK,
            "dir": str(self.data),
            "save": "",
            "appendonly": "no",
            "databases": "64",
        } | self.config
        options = [part for name, value in config.items() for part in (f"--{name}", value)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [_servers.valkey_binary(), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


class ValkeyCluster:
    """Masters that share the slots between them, and as many replicas as asked for.

    Args:
        directory: for their files; removed by `close()`.
        masters: how many, at least three.
        replicas: how many, each of another master, from the first on.
        config: settings of all, such as `{"cluster-require-full-coverage": "no"}`.
    """

    def __init__(
        self,
        directory: Path,
        masters: int = 3,
        replicas: int = 0,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.config = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "1000",
            "databases": "1",
            "repl-diskless-sync-delay": "0",
        } | dict(config or {})
        nodes = [self._node(directory / str(n)) for n in range(masters + replicas)]
        self.masters, self.replicas = nodes[:masters], nodes[masters:]
        self.login: Mapping[str, str] = {}

    @property
    def nodes(self) -> list[ValkeyServer]:
        """All of them, as they began."""
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        """That names the first two."""
        first, second = (f"{LOOPBACK}:{node.port}" for node in self.nodes[:2])
        return f"redis+cluster://{_who(self.login)}{first},{second}"

    def demand_login(self) -> Self:
        """Let nobody run scripts but one user, whom `url` names."""
        self.login = LOGIN
        for node in self.nodes:
            _demand_login(node)
        return self

    def start(self) -> Self:
        """Start them all, for the first time, and wait until each sees the whole cluster."""
        for node in self.nodes:
            node.start()
        ids = [told(node, "CLUSTER", "MYID").decode() for node in self.nodes]
        self._share_out()
        for node in self.nodes[1:]:
            bus = self.masters[0].config["cluster-port"]
            told(node, "CLUSTER", "MEET", LOOPBACK, self.masters[0].port, bus)
        self.wait_until_whole()
        for number, replica in enumerate(self.replicas):
            told(replica, "CLUSTER", "REPLICATE", ids[number])
            wait_until(lambda r=replica: _linked(r), "the link of a replica to its master")
        self.wait_until_whole()
        return self

    def holder(self, key: str) -> ValkeyServer:
        """The master, as they began, whose slots a key is in."""
        return self.masters[key_slot(key.encode()) * len(self.masters) // 16384]

    def wait_until_whole(self) -> None:
        """Return once each node that runs sees all the others and serves its slots."""
        running = [node for node in self.nodes if node.running]
        wait_until(lambda: all(map(self._whole, running)), "a whole cluster")

    def close(self) -> None:
        """End them and remove their files. Closing twice is fine."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _node(self, directory: Path) -> ValkeyServer:
        return ValkeyServer(directory, self.config | {"cluster-port": str(free_port())})

    def _share_out(self) -> None:
        count = len(self.masters)
        first = 0
        for number, node in enumerate(self.masters, 1):
            # `holder` divides likewise; rounding up, the first slot of the next is not this one's.
            after = -(-16384 * number // count)
            told(node, "CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            told(node, "CLUSTER", "SET-CONFIG-EPOCH", number)
            first = after

    def _whole(self, node: ValkeyServer) -> bool:
        info = told(node, "CLUSTER", "INFO").decode()
        return f"cluster_known_nodes:{len(self.nodes)}" in info and "cluster_state:ok" in info


class Sentinel(Server):
    """A Valkey that watches a master, and demands a password itself.

    Args:
        directory: for its files; made here, removed by `close()`.
        service: what it calls the master.
        port: the master's.
        quorum: how many such must find the master dead.
    """

    def __init__(self, directory: Path, service: str, port: int, quorum: int) -> None:
        super().__init__(directory)
        self.service = service
        self._settings = directory / "sentinel.conf"
        self._settings.write_text(
            f"port {self.port}\nbind {LOOPBACK}\ndir {directory}\nrequirepass {SENTINEL_PASSWORD}\n"
            f"sentinel monitor {service} {LOOPBACK} {port} {quorum}\n"
            f"sentinel down-after-milliseconds {service} 1000\n"
            f"sentinel failover-timeout {service} 5000\n"
        )

    @property
    def url(self) -> str:
        """Of the Sentinel itself."""
        return f"redis://{LOOPBACK}:{self.port}"

    def sees(self) -> dict[str, str]:
        """What it knows of the master."""
        flat = [part.decode() for part in told(self, "SENTINEL", "MASTER", self.service)]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [_servers.valkey_binary(), self._settings, "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        try:
            return bool(told(self, "PING"))
        except redis.RedisError:
            return False


class ValkeySentinels:
    """A master, its replica, and three Sentinels, two of which must agree. All demand a login.

    Args:
        directory: for their files; removed by `close()`.
    """

    service = "agents"

    def __init__(self, directory: Path) -> None:
        self.master = ValkeyServer(directory / "one", {"repl-diskless-sync-delay": "0"})
        self.replica = ValkeyServer(directory / "other", {"repl-diskless-sync-delay": "0"})
        self.sentinels = [
            Sentinel(directory / f"sentinel-{n}", self.service, self.master.port, quorum=2)
            for n in range(3)
        ]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of the Sentinels."""
        return [(LOOPBACK, sentinel.port) for sentinel in self.sentinels]

    @property
    def url(self) -> str:
        """Of the master's database 0, through the Sentinels."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses)
        secret = quote(SENTINEL_PASSWORD, safe="")
        return f"redis+sentinel://{_who(LOGIN)}{hosts}/{self.service}?sentinel_password={secret}"

    def start(self) -> Self:
        """Start them all and wait until they know each other."""
        self.master.start()
        self.replica.start()
        told(self.replica, "REPLICAOF", LOOPBACK, self.master.port)
        wait_until(lambda: _linked(self.replica), "the link of the replica to its master")
        for server in (self.master, self.replica):
            _demand_login(server)
        for sentinel in self.sentinels:
            sentinel.start()
        wait_until(self._complete, "Sentinels that know each other")
        return self

    def cut_off_replica(self) -> None:
        """Let the replica miss what the master is told from now on."""
        told(self.replica, "REPLICAOF", LOOPBACK, free_port())

    def fail_over(self) -> None:
        """Kill the master and wait until its replica is the master; from then on it is `master`,
        and the dead one `replica`."""
        self.master.kill()
        successor = str(self.replica.port)
        wait_until(
            lambda: all(sentinel.sees()["port"] == successor for sentinel in self.sentinels),
            "a successor to the master",
        )
        self.master, self.replica = self.replica, self.master

    def close(self) -> None:
        """End them and remove their files. Closing twice is fine."""
        for server in (*self.sentinels, self.master, self.replica):
            server.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _complete(self) -> bool:
        seen = [sentinel.sees() for sentinel in self.sentinels]
        return all(s["num-slaves"] == "1" and s["num-other-sentinels"] == "2" for s in seen)


def told(server: Server, *command: str | int) -> Any:
    """What a Valkey answers."""
    password = SENTINEL_PASSWORD if isinstance(server, Sentinel) else None
    options: dict[str, Any] = {"password": password, "socket_timeout": 5, "protocol": 2}
    with redis.Redis(LOOPBACK, server.port, **options) as client:
        return client.execute_command(*command)


def _demand_login(server: ValkeyServer) -> None:
    """Let nobody run scripts but the user of `LOGIN`."""
    told(server, "ACL", "SETUSER", LOGIN["username"], "on", f">{LOGIN['password']}", "~*", "+@all")
    told(server, "ACL", "SETUSER", "default", "-eval", "-evalsha")


def _who(login: Mapping[str, str]) -> str:
    """A login as it stands in a URL."""
    return ":".join(quote(part, safe="") for part in login.values()) + "@" if login else ""


def _linked(replica: Server) -> bool:
    return bool(told(replica, "INFO", "replication").get("master_link_status") == "up")


class PgBouncer(Server):
    """Debian's PgBouncer in front of a Postgres, in transaction mode.

    Args:
        directory: for its files; made here, removed by `close()`.
        target: URL of the Postgres; its user is who everybody becomes.
        pool_size: server connections per database.
    """

    def __init__(self, directory: Path, target: str, pool_size: int = 5) -> None:
        program = find_pgbouncer()
        if program is None:
            pytest.skip("pgbouncer is not installed (Debian, Ubuntu: apt install pgbouncer)")
        super().__init__(directory)
        self._program = program
        self._target = urlsplit(target)
        self._ini = directory / "pgbouncer.ini"
        self._ini.write_text(self._settings(pool_size))
        _accounts.give_to_postgres(directory)  # it refuses to run as root, too

    @property
    def url(self) -> str:
        """Of the target's database, through the pooler."""
        return f"postgresql://{self._target.username}@{LOOPBACK}:{self.port}{self._target.path}"

    def _settings(self, pool_size: int) -> str:
        target = self._target
        return "\n".join(
            [
                "[databases]",
                f"* = host={target.hostname} port={target.port} user={target.username}",
                "[pgbouncer]",
                f"listen_addr = {LOOPBACK}",
                f"listen_port = {self.port}",
                "unix_socket_dir =",
                "auth_type = any",
                "pool_mode = transaction",
                f"default_pool_size = {pool_size}",
                "max_client_conn = 200",
                "server_connect_timeout = 5",
                "server_login_retry = 1",
                "",
            ]
        )

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self._program, self._ini],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_accounts.postgres_account(),
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class Proxy:
    """A TCP proxy on loopback in front of one server, to play a bad network.

    Args:
        target: URL of a server on TCP; `url` is the same with the proxy's address.

    Attributes:
        accepted: connections so far.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        user, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{user}{at}{LOOPBACK}:{self.port}").geturl()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._delay = 0.0
        self._closed = False
        self.accepted = 0
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def blackhole(self) -> None:
        """Take connections and bytes, forward nothing, answer nothing, close nothing."""
        self._flowing.clear()

    def delay(self, seconds: float) -> None:
        """Hold back every run of bytes, in both directions, for that long."""
        self._delay = seconds

    def restore(self) -> None:
        """Forward at once again; what the black hole took and nobody gave up on goes out now."""
        self._delay = 0.0
        self._flowing.set()

    def cut(self) -> None:
        """Close all connections there are; new ones are welcome."""
        with self._lock:
            victims = list(self._open)
        for victim in victims:
            _shut(victim)

    def lead_to(self, target: str) -> None:
        """Close all connections; new ones reach this server."""
        parts = urlsplit(target)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self.cut()

    def close(self) -> None:
        """Close all connections and stop listening. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        # Closing a listener does not wake who waits on it everywhere; a connection does.
        with socket.socket() as wake:
            wake.connect((LOOPBACK, self.port))
            self._flowing.set()
            self._threads[0].join(timeout=10)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True, name="proxy")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closed:
                client.close()
                return
            self._keep(client)
            self.accepted += 1
            self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        self._flowing.wait()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            self._drop(client)
            return
        server.settimeout(None)
        self._keep(server)
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        self._drop(client)
        self._drop(server)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                if self._delay:
                    time.sleep(self._delay)
                self._flowing.wait()
                sink.sendall(data)
        except OSError:
            pass  # one end is gone, which the other one learns below
        for end in (source, sink):
            _shut(end)

    def _keep(self, one: socket.socket) -> None:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(one)

    def _drop(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        one.close()


def make_template(directory: Path) -> Path:
    """A Postgres cluster to copy from, in `directory`."""
    template = directory / "template"
    _servers.initdb(template, "--no-sync")
    return template


def find_pgbouncer() -> str | None:
    """The program, if it is installed. Debian puts it where only root's PATH looks."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def _copy(source: Path, target: Path) -> None:
    # cp keeps the owner, and is several times as fast as shutil on a thousand small files.
    subprocess.run(["cp", "-a", source, target], check=True)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass  # it ended by itself


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is shut already


def free_memory(pid_file: Path) -> None:
    """Give back the System V segment that a killed Postgres leaves to its next start."""
    try:
        found = re.search(r"^ *\d+ +(\d+) *$", pid_file.read_text(), re.MULTILINE)
    except OSError:
        return
    ipcrm = shutil.which("ipcrm")
    if found and ipcrm:
        subprocess.run([ipcrm, "-m", found[1]], check=False, stderr=subprocess.DEVNULL)
