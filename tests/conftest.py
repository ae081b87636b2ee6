"""Real servers for the tests, started here and ended here.

`postgres_url` and `redis_url` are empty databases of servers that the whole session shares: they
must not be harmed. The `make_...` fixtures give servers of one's own, to be harmed.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.servers import (
        PgBouncer,
        PostgresServer,
        Proxy,
        Standby,
        ValkeyCluster,
        ValkeySentinels,
        ValkeyServer,
    )

settings.register_profile("untimed", deadline=None)  # a machine may be busy
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def server_files() -> Iterator[Path]:
    """A directory for servers' files, with a short path, in memory if there is plenty.

    On a disk CREATE DATABASE, which copies 300 files, was measured at 210 ms, in memory at 7 ms.
    """
    memory = Path("/dev/shm")
    plenty = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30
    parent = memory if plenty else None
    directory = Path(tempfile.mkdtemp(prefix="durable-tests-", dir=parent)).resolve()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres_template(server_files: Path) -> Path:
    """A Postgres cluster that each server of the tests starts as a copy of."""
    from tests.servers import make_template

    return make_template(server_files)


@pytest.fixture(scope="session")
def shared_postgres(server_files: Path, postgres_template: Path) -> Iterator[PostgresServer]:
    """The session's Postgres. It survives no power cut, which makes it fast."""
    from tests.servers import PostgresServer

    settings = {
        "fsync": "off",
        "full_page_writes": "off",
        "autovacuum": "off",
        "max_connections": "300",
    }
    with PostgresServer(server_files / "shared-postgres", postgres_template, settings) as server:
        yield server


@pytest.fixture(scope="session")
def shared_valkey(server_files: Path) -> Iterator[ValkeyServer]:
    """The session's Valkey, with nothing on disk."""
    from tests.servers import ValkeyServer

    with ValkeyServer(server_files / "shared-valkey") as server:
        yield server


@pytest.fixture(scope="session")
def databases(shared_postgres: PostgresServer) -> Iterator[Callable[[str], None]]:
    """Run one statement as the administrator of the session's Postgres."""
    import psycopg

    with psycopg.connect(shared_postgres.url, autocommit=True) as administrator:

        def execute(statement: str) -> None:
            administrator.execute(statement.encode())

        yield execute


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Numbers for names that no two tests of the session share."""
    return itertools.count(1)


@contextmanager
def database(
    server: PostgresServer, databases: Callable[[str], None], number: int
) -> Iterator[str]:
    """URL of an empty database, dropped at the end, whoever is still connected to it."""
    name = f"test_{number}"
    databases(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
    yield server.url_of(name)
    databases(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(
    shared_postgres: PostgresServer,
    databases: Callable[[str], None],
    numbers: Iterator[int],
) -> Iterator[str]:
    """URL of an empty database, dropped after the test, whoever is still connected to it."""
    with database(shared_postgres, databases, next(numbers)) as url:
        yield url


@pytest.fixture
def redis_url(shared_valkey: ValkeyServer, numbers: Iterator[int]) -> str:
    """URL of an empty numbered database; dozens of tests run before its number comes again."""
    import redis

    url = shared_valkey.url_of(next(numbers) % 64)
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(scope="session")
def shared_cluster(server_files: Path) -> Iterator[ValkeyCluster]:
    """The session's cluster, with nothing on disk, which demands a login. It must not be harmed."""
    from tests.servers import ValkeyCluster

    with ValkeyCluster(server_files / "shared-cluster") as cluster:
        yield cluster.demand_login()


@pytest.fixture
def cluster(shared_cluster: ValkeyCluster) -> ValkeyCluster:
    """The session's cluster, emptied."""
    from tests.servers import told

    for node in shared_cluster.nodes:
        told(node, "FLUSHALL")
    return shared_cluster


@pytest.fixture
def own_files(server_files: Path) -> Iterator[Path]:
    """A directory for one test's servers, with a short path, removed after the test."""
    directory = Path(tempfile.mkdtemp(dir=server_files))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def ends(own_files: Path) -> Iterator[ExitStack]:
    """What the test started: closed in reverse order, even if the test or a closing fails."""
    with ExitStack() as stack:
        yield stack


class MakePostgres(Protocol):
    """Type of `make_postgres`."""

    def __call__(self, **settings: str) -> PostgresServer: ...


class MakeValkey(Protocol):
    """Type of `make_valkey`."""

    def __call__(self, **config: str) -> ValkeyServer: ...


class MakeCluster(Protocol):
    """Type of `make_cluster`."""

    def __call__(self, masters: int = 3, replicas: int = 0, **config: str) -> ValkeyCluster: ...


class MakePgBouncer(Protocol):
    """Type of `make_pgbouncer`."""

    def __call__(self, target: str, pool_size: int = 5) -> PgBouncer: ...


@pytest.fixture
def make_postgres(
    own_files: Path, ends: ExitStack, postgres_template: Path, numbers: Iterator[int]
) -> MakePostgres:
    """Start a Postgres that only this test uses: `make_postgres(max_connections="20")`."""
    from tests.servers import PostgresServer

    def make(**settings: str) -> PostgresServer:
        directory = own_files / f"postgres-{next(numbers)}"
        server = PostgresServer(directory, postgres_template, settings)
        return ends.enter_context(server)

    return make


@pytest.fixture
def make_standby(
    own_files: Path, ends: ExitStack, numbers: Iterator[int]
) -> Callable[[PostgresServer], Standby]:
    """Start a hot standby of a running Postgres, once it has caught up."""
    from tests.servers import Standby

    def make(primary: PostgresServer) -> Standby:
        return ends.enter_context(Standby(own_files / f"standby-{next(numbers)}", primary))

    return make


@pytest.fixture
def make_valkey(own_files: Path, ends: ExitStack, numbers: Iterator[int]) -> MakeValkey:
    """Start a Valkey that only this test uses: `make_valkey(maxmemory_policy="allkeys-lru")`."""
    from tests.servers import ValkeyServer

    def make(**config: str) -> ValkeyServer:
        dashed = {name.replace("_", "-"): value for name, value in config.items()}
        return ends.enter_context(ValkeyServer(own_files / f"valkey-{next(numbers)}", dashed))

    return make


@pytest.fixture
def make_cluster(own_files: Path, ends: ExitStack, numbers: Iterator[int]) -> MakeCluster:
    """Start a cluster that only this test uses: `make_cluster(replicas=1)`."""
    from tests.servers import ValkeyCluster

    def make(masters: int = 3, replicas: int = 0, **config: str) -> ValkeyCluster:
        dashed = {name.replace("_", "-"): value for name, value in config.items()}
        directory = own_files / f"cluster-{next(numbers)}"
        return ends.enter_context(ValkeyCluster(directory, masters, replicas, dashed))

    return make


@pytest.fixture
def make_sentinels(
    own_files: Path, ends: ExitStack, numbers: Iterator[int]
) -> Callable[[], ValkeySentinels]:
    """Start a master, a replica and Sentinels that only this test uses."""
    from tests.servers import ValkeySentinels

    return lambda: ends.enter_context(ValkeySentinels(own_files / f"sentinels-{next(numbers)}"))


@pytest.fixture
def make_proxy(ends: ExitStack) -> Callable[[str], Proxy]:
    """Put a proxy in front of a server's URL; use its `.url` from then on."""
    from tests.servers import Proxy

    return lambda target: ends.enter_context(Proxy(target))


@pytest.fixture
def make_pgbouncer(own_files: Path, ends: ExitStack, numbers: Iterator[int]) -> MakePgBouncer:
    """Put PgBouncer in front of a Postgres's URL. The test is skipped if it is not installed."""
    from tests.servers import PgBouncer

    def make(target: str, pool_size: int = 5) -> PgBouncer:
        directory = own_files / f"pgbouncer-{next(numbers)}"
        return ends.enter_context(PgBouncer(directory, target, pool_size))

    return make
