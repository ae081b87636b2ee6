"""`durable-state demo`: an agent is killed, resumed, forked and raced for, on real servers.

Every line with a tick was verified on what was found: in Postgres, in Redis, in the journal that
the agent's nodes write, or in what a process reported. The first that does not hold ends the demo.
"""

from __future__ import annotations

import logging
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import redis
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, StateSnapshot
from rich.console import Console
from rich.text import Text

from .. import embedded
from ..saver import DurableSaver
from . import report
from .agent import (
    HOTEL,
    OTHER_HOTEL,
    REQUEST,
    SEARCHES,
    Graph,
    Journal,
    chat,
    proposal,
    text_of,
    trip_agent,
)
from .stage import (
    CheckFailedError,
    Stage,
    Worker,
    ended_politely,
    kill_redis,
    redis_answers,
)
from .storage import (
    hot_checkpoint,
    postgres_sizes,
    redis_bytes,
    rewriting,
    thread_bytes,
)
from .worker import Task, tools_in

THREAD = "lisbon"
CHAT = "long chat"
CHAT_TURNS = 100
CHAT_SIZE = 400
STALLS = "weather_forecast"
FINISHED = {"search_flights", "search_hotels"}
UMBRELLA = "Do I need an umbrella?"


@dataclass(frozen=True)
class Scene:
    """What the steps share."""

    stage: Stage
    home: Path
    servers: embedded.Servers
    saver: DurableSaver
    agent: Graph
    journal: Journal

    @property
    def config(self) -> RunnableConfig:
        """The agent's thread, at its head."""
        return {"configurable": {"thread_id": THREAD}}

    def at(self, id: str) -> RunnableConfig:
        """The agent's thread, at a checkpoint."""
        return {"configurable": {"thread_id": THREAD, "checkpoint_id": id}}

    def head(self) -> str:
        """The id of the checkpoint that a run would resume from."""
        found = self.saver.get_tuple(self.config)
        assert found is not None
        return str(found.checkpoint["id"])

    def history(self) -> list[StateSnapshot]:
        """All checkpoints, newest first."""
        return list(self.agent.get_state_history(self.config))

    def texts(self, id: str | None = None) -> list[str]:
        """The conversation at a checkpoint, or at the head."""
        state = self.agent.get_state(self.at(id) if id else self.config)
        return [str(message.content) for message in state.values["messages"]]

    def worker(self, name: str, **what: Any) -> Worker:
        """A process that works on the thread."""
        urls = self.servers.postgres, self.servers.redis
        return Worker(Task(name, *urls, THREAD, str(self.journal.path), **what))

    def did(self, worker: str, what: str) -> list[str]:
        """What a process began or finished, in order."""
        entries = self.journal.entries()
        return [e.work for e in entries if (e.worker, e.what) == (worker, what)]


def run(console: Console) -> bool:
    """Runs the demo and tells whether all of it held. Nothing is left behind.

    Raises:
        DurableStateError: if the servers could not be started or were lost.
    """
    started = time.monotonic()
    stage = Stage(console)
    console.print("[bold]durable-state demo[/]: an agent's state, in Postgres and Redis")
    try:
        with ended_politely(), _without_log(), _scene(stage) as scene:
            for step in STEPS:
                step(scene)
    except CheckFailedError as failed:
        console.print(Text.assemble(("\nA check failed: ", "bold red"), str(failed)))
        return False
    seconds = time.monotonic() - started
    console.print(f"\n[bold green]All {stage.checks} checks held[/], in {seconds:.1f} seconds.")
    return True


@contextmanager
def _without_log() -> Iterator[None]:
    """The outages are the story's: what the log says of them is shown as checks instead."""
    loggers = [logging.getLogger(name) for name in ("langgraph_durable_state", "psycopg.pool")]
    nobody = logging.NullHandler()
    for logger in loggers:
        logger.addHandler(nobody)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(nobody)


@contextmanager
def _scene(stage: Stage) -> Iterator[Scene]:
    with ExitStack() as ends:
        home = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="durable-demo-")))
        with stage.busy("starting Postgres and Valkey"):
            handle = ends.enter_context(embedded.start(home / "servers"))
        saver = _saver(handle.servers)
        ends.callback(saver.close)
        journal = Journal(home / "journal", "this process")
        agent = trip_agent(saver, journal)
        yield Scene(stage, home, handle.servers, saver, agent, journal)


def _saver(servers: embedded.Servers, **options: Any) -> DurableSaver:
    # By default Redis serves heads of 64 KB and more; this conversation is short, and it shall.
    return DurableSaver(servers.postgres, servers.redis, hot_reads="always", **options)


# -- the steps -------------------------------------------------------------------------------


def servers_start(scene: Scene) -> None:
    """Real servers, from wheels."""
    scene.stage.step(
        "Real servers",
        "Postgres and Valkey come from Python wheels and run in a temporary directory.",
    )
    with psycopg.connect(scene.servers.postgres) as connection:
        version = connection.info.server_version // 10_000
    with redis.Redis.from_url(scene.servers.redis) as client:
        valkey = client.info("server")
    scene.stage.holds(f"Postgres {version} answers", version >= 14, version, "14 or newer")
    name = f"Valkey {valkey.get('valkey_version')}"
    scene.stage.holds(f"{name} answers", "process_id" in valkey, valkey, "its process id")
    found = scene.saver.get_tuple(scene.config)
    scene.stage.equal("the tables were installed at first use; the thread is empty", found, None)


def worker_is_killed(scene: Scene) -> None:
    """SIGKILL, while one of three parallel tools works."""
    scene.stage.step(
        "A worker is killed in the middle of its work",
        f"An agent plans a trip: the model asks for three tools, which run side by side. "
        f"Two have answered, {STALLS} is still at it when the process gets SIGKILL.",
    )
    with (
        scene.stage.busy("worker 1 plans a trip"),
        scene.worker("worker 1", ask=REQUEST, stall_in=STALLS) as worker,
    ):
        stored = [{"event": "stored", "work": work} for work in sorted(FINISHED)]
        worker.until_all([*stored, {"event": "stalled", "work": STALLS}])
        code = worker.kill()
    scene.stage.equal(f"worker 1 (process {worker.pid}) is dead", code, -signal.SIGKILL)
    begun = sorted(scene.did("worker 1", "begun"))
    scene.stage.equal(
        "it had begun all three searches", begun, sorted(["agent, turn 1", *SEARCHES])
    )
    found = scene.saver.get_tuple(scene.config)
    writes = [(channel, value) for _, channel, value in (found and found.pending_writes) or []]
    answers = sorted(tools_in(writes))
    fact = "Postgres holds the answers of the two that finished, and no other"
    scene.stage.equal(fact, answers, sorted(FINISHED))


def worker_resumes(scene: Scene) -> None:
    """A second process does what is missing, and nothing again."""
    scene.stage.step(
        "A second process resumes",
        "It is given the thread's id and nothing else.",
    )
    before = scene.history()
    with scene.stage.busy("worker 2 resumes"), scene.worker("worker 2") as worker:
        outcome = worker.outcome()
    fact = f"worker 2 (process {worker.pid}) began with {STALLS}, the one that was cut off"
    expected = [STALLS, "agent, turn 2", "approval"]
    scene.stage.equal(fact, scene.did("worker 2", "begun"), expected)
    booking = {"flight": "TP 571", "hotel": HOTEL}
    fact = f"it stopped where a human must agree: book {booking['flight']} and {HOTEL}?"
    scene.stage.equal(fact, outcome, {"event": "interrupt", "value": booking})
    kept = {report.id_of(s) for s in before} & {report.id_of(s) for s in scene.history()}
    scene.stage.equal("every checkpoint of worker 1 is still there", len(kept), len(before))


def human_approves(scene: Scene) -> None:
    """A third process gets the answer."""
    scene.stage.step(
        "A human approves",
        "The process that asked has ended; a third one brings the answer: yes.",
    )
    with scene.stage.busy("worker 3 books"), scene.worker("worker 3", answer="yes") as worker:
        outcome = worker.outcome()
    reply = f"Done: TP 571 and {HOTEL} are booked."
    fact = f'the agent says: "{reply}"'
    scene.stage.equal(fact, outcome, {"event": "finished", "reply": reply})
    done = report.times_done(scene.journal.entries())
    fact = f"{len(done)} pieces of work, each done exactly once, by three processes"
    scene.stage.equal(fact, set(done.values()), {1})
    scene.stage.show(report.work_table(scene.journal.entries()))


def redis_is_killed(scene: Scene) -> None:
    """The conversation goes on over Postgres alone, and a Redis that comes back is not believed."""
    scene.stage.step(
        "Redis is killed, and the conversation goes on",
        "Redis holds copies; what was acknowledged is in Postgres. A copy is served only if it has "
        "the digest of Postgres's head.",
    )
    old = scene.head()
    fact = f"Redis holds a copy of the head, {report.short(old)}"
    scene.stage.equal(fact, hot_checkpoint(scene.servers.redis, THREAD), old)
    pid = kill_redis(scene.servers.redis)
    scene.stage.equal(f"Redis (process {pid}) is dead", redis_answers(scene.servers.redis), False)
    began = time.monotonic()
    scene.agent.invoke({"messages": [("user", UMBRELLA)]}, scene.config)
    took = (time.monotonic() - began) * 1000
    said = [UMBRELLA, f"Noted: {UMBRELLA}"]
    fact = f"one more turn over Postgres alone, in {took:.0f} ms"
    with _fresh(scene) as fresh:
        scene.stage.equal(fact, fresh.texts()[-2:], said)
    _redis_returns(scene, old)


def _redis_returns(scene: Scene, old: str) -> None:
    with scene.stage.busy("Redis starts again"), embedded.start(scene.home / "servers"):
        pass
    kept = hot_checkpoint(scene.servers.redis, THREAD)
    fact = f"Redis is back, with its old copy, {report.short(old)}: behind by a turn"
    scene.stage.equal(fact, kept, old)
    with _fresh(scene) as fresh:
        fact = "a process that reads now gets the newest state all the same"
        scene.stage.equal(fact, fresh.texts()[-1], f"Noted: {UMBRELLA}")
        head = fresh.head()
    now = hot_checkpoint(scene.servers.redis, THREAD)
    scene.stage.equal(f"and Redis has its copy, {report.short(head)}, from now on", now, head)


@contextmanager
def _fresh(scene: Scene) -> Iterator[Scene]:
    """The scene as a process sees it that has read nothing yet."""
    with _saver(scene.servers) as saver:
        yield replace(scene, saver=saver, agent=trip_agent(saver, scene.journal))


def time_travel(scene: Scene) -> None:
    """Back to before the approval, on with another hotel; both branches stay."""
    scene.stage.step(
        "Time travel and a fork",
        f"Back to where the agent asked to book {HOTEL}: what if it had proposed {OTHER_HOTEL}?",
    )
    main = scene.head()
    before = scene.texts()
    asked = next(s for s in reversed(scene.history()) if s.next == ("approval",))
    other = proposal(OTHER_HOTEL, id=asked.values["messages"][-1].id)
    forked = scene.agent.update_state(asked.config, {"messages": [other]}, as_node="agent")
    scene.agent.invoke(None, forked)
    scene.agent.invoke(Command(resume="yes"), scene.config)
    fork = scene.head()
    fact = f"the fork ends with {OTHER_HOTEL}"
    booked = f"Done: TP 571 and {OTHER_HOTEL} are booked."
    scene.stage.equal(fact, scene.texts(fork)[-1], booked)
    fact = f"the first branch still ends with {HOTEL} and the umbrella"
    scene.stage.equal(fact, scene.texts(main), before)
    history = scene.history()
    fact = f"both grow from checkpoint {report.short(report.id_of(asked))}"
    common = _ancestors(history, main) & _ancestors(history, fork)
    scene.stage.equal(fact, max(common), report.id_of(asked))
    scene.stage.show(report.checkpoint_tree(history, scene.head()))


def _ancestors(history: list[StateSnapshot], id: str) -> set[str]:
    parents = {report.id_of(s): report.parent_of(s) for s in history}
    found, at = set(), parents[id]
    while at is not None:
        found.add(at)
        at = parents[at]
    return found


def two_race(scene: Scene) -> None:
    """Two processes start from one head; one advances it."""
    scene.stage.step(
        "Two workers race for one thread",
        "Both have read the same head before either writes; then both are let go.",
    )
    start = scene.head()
    asks = {"worker A": "Rent me a car.", "worker B": "Cancel the hotel."}
    with scene.stage.busy("worker A and worker B race"), ExitStack() as ends:
        workers = [
            ends.enter_context(scene.worker(name, ask=ask, hold=True)) for name, ask in asks.items()
        ]
        heads = [worker.until("read")["checkpoint"] for worker in workers]
        scene.stage.equal(f"both read the head {report.short(start)}", heads, [start, start])
        for worker in workers:
            worker.go_on()
        outcomes = {worker.task.name: worker.outcome() for worker in workers}
    events = sorted(outcome["event"] for outcome in outcomes.values())
    scene.stage.equal("one finished, one got a ConflictError", events, ["conflict", "finished"])
    winner, loser = sorted(outcomes, key=lambda name: outcomes[name]["event"], reverse=True)
    _look_at_race(scene, asks[winner], asks[loser], winner, outcomes[loser])


def _look_at_race(scene: Scene, won: str, lost: str, winner: str, conflict: dict[str, Any]) -> None:
    texts = scene.texts()
    fact = f'{winner} won: the thread goes on with "{won}"'
    scene.stage.equal(fact, texts[-2:], [won, f"Noted: {won}"])
    scene.stage.equal("nothing of the other is mixed in", lost in texts, False)
    refused = conflict["refused"]
    found = scene.saver.get_tuple(scene.at(refused))
    kept = str(found and found.checkpoint["channel_values"].get("__start__"))
    fact = f"the refused checkpoint {report.short(refused)} is kept, with what was asked"
    scene.stage.holds(fact, lost in kept, kept, f"a checkpoint that holds {lost!r}")


def storage(scene: Scene) -> None:
    """What is stored where, and how much a chat costs."""
    scene.stage.step(
        "What is stored where",
        f"First a longer chat: {CHAT_TURNS} turns of two messages, {CHAT_SIZE} characters each. "
        "A step stores what is new, not the history again. To compare like with like, nothing is "
        "compressed here; by default it is.",
    )
    with scene.stage.busy("a longer chat"), _saver(scene.servers, compression="none") as saver:
        _chat(saver)
        again = rewriting(saver, CHAT)
    ours = thread_bytes(scene.servers.postgres, CHAT)
    fact = f"{3 * CHAT_TURNS} checkpoints of the chat are kept, and all were read back"
    scene.stage.equal(fact, again.checkpoints, 3 * CHAT_TURNS)
    fact = (
        f"rewriting the history at each step takes [bold]{again.bytes / ours:.0f} times[/] "
        "what Postgres holds of it, its records and each task's answers included"
    )
    scene.stage.holds(fact, ours * 5 < again.bytes, ours, f"less than a fifth of {again.bytes}")
    in_redis = redis_bytes(scene.servers.redis)
    fact = "the copies in Redis stay below three final states"
    scene.stage.holds(fact, 0 < in_redis < 3 * again.final, in_redis, f"0 to {3 * again.final}")
    bars = [("final state", again.final), ("stored here", ours), ("rewriting", again.bytes)]
    scene.stage.show(report.comparison(bars))
    scene.stage.show(report.storage_table(postgres_sizes(scene.servers.postgres), in_redis))


def _chat(saver: DurableSaver) -> None:
    graph = chat(saver, CHAT_SIZE)
    config: RunnableConfig = {"configurable": {"thread_id": CHAT}}
    for turn in range(1, CHAT_TURNS + 1):
        ask = HumanMessage(text_of(f"Question {turn}?", CHAT_SIZE))
        graph.invoke({"messages": [ask]}, config)


STEPS = (
    servers_start,
    worker_is_killed,
    worker_resumes,
    human_approves,
    redis_is_killed,
    time_travel,
    two_race,
    storage,
)
