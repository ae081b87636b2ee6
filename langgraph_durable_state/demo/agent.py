"""The agent of `durable-state demo`: it plans a trip, and books it if a human agrees.

No network and no randomness: the model is scripted, the tools answer from a table. What each node
does is noted in a journal, a file that every process of the demo appends to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send, interrupt

Graph = CompiledStateGraph[Any, Any, Any, Any]

REQUEST = "Plan a weekend in Lisbon for me, and book it."
HOTEL = "Casa Alfama"
OTHER_HOTEL = "Pensao Sol"


@tool
def search_flights(city: str) -> str:
    """The best flight to a city."""
    return f"TP 571 to {city}, 180 EUR"


@tool
def search_hotels(city: str) -> str:
    """Hotels in a city."""
    return f"In {city}: {HOTEL}, 300 EUR; {OTHER_HOTEL}, 140 EUR"


@tool
def weather_forecast(city: str) -> str:
    """The weather in a city at the weekend."""
    return f"{city}: sunny, 24 degrees"


@tool
def book_trip(flight: str, hotel: str) -> str:
    """Books a flight and a hotel."""
    return f"{flight} and {hotel} are booked"


SEARCHES = ("search_flights", "search_hotels", "weather_forecast")
BOOKING = "book_trip"
_TOOLS = {t.name: t for t in (search_flights, search_hotels, weather_forecast, book_trip)}


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(name=name, args=arguments, id=f"call_{name}", type="tool_call")


def proposal(hotel: str, id: str | None = None) -> AIMessage:
    """The model's wish to book; with the id of another message it takes that one's place."""
    wish = _call(BOOKING, flight="TP 571", hotel=hotel)
    return AIMessage(f"Shall I book TP 571 and {hotel}?", tool_calls=[wish], id=id)


class ScriptedModel(BaseChatModel):
    """A chat model that knows its lines: which one is due is told by the conversation so far."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        line = _line(turns_of(messages), str(messages[-1].content))
        return ChatResult(generations=[ChatGeneration(message=line)])


def _line(turn: int, heard: str) -> AIMessage:
    if turn == 0:
        searches = [_call(name, city="Lisbon") for name in SEARCHES]
        return AIMessage("I look for flights, hotels and the weather.", tool_calls=searches)
    if turn == 1:
        return proposal(HOTEL)
    return AIMessage(f"Done: {heard}." if turn == 2 else f"Noted: {heard}")


def turns_of(messages: Sequence[BaseMessage]) -> int:
    """How often the model has spoken."""
    return sum(isinstance(message, AIMessage) for message in messages)


# -- the journal -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal: which process did what to which piece of work."""

    worker: str
    work: str
    what: str


@dataclass(frozen=True, slots=True)
class Journal:
    """A file that processes append to: what survives of a process that was killed."""

    path: Path
    worker: str

    def note(self, work: str, what: str) -> None:
        """Adds a line, whole whoever else writes, and with the kernel once this returns."""
        line = json.dumps(asdict(Entry(self.worker, work, what))) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def entries(self) -> list[Entry]:
        """All lines, in the order they were written."""
        return [Entry(**json.loads(line)) for line in self.path.read_text().splitlines()]


# -- the graph -------------------------------------------------------------------------------


def trip_agent(
    saver: BaseCheckpointSaver[str],
    journal: Journal,
    meanwhile: Callable[[str], None] = lambda work: None,
) -> Graph:
    """The agent: a model, tools that run side by side, and a human who must agree to a booking.

    Args:
        saver: keeps its state.
        journal: is told what begins and what is done.
        meanwhile: called in the middle of each piece of work.
    """
    model = ScriptedModel()

    def agent(state: MessagesState) -> dict[str, list[BaseMessage]]:
        work = f"agent, turn {turns_of(state['messages']) + 1}"
        journal.note(work, "begun")
        meanwhile(work)
        reply = model.invoke(state["messages"])
        journal.note(work, "done")
        return {"messages": [reply]}

    def tools(state: Any) -> dict[str, list[ToolMessage]]:
        call = state  # a `Send` gives a node what it sends in the state's place
        journal.note(call["name"], "begun")
        meanwhile(call["name"])
        answer = _TOOLS[call["name"]].invoke(call)
        journal.note(call["name"], "done")
        return {"messages": [answer]}

    def approval(state: MessagesState) -> Command[Any]:
        journal.note("approval", "begun")
        call = calls_of(state["messages"])[0]
        answer = interrupt(call["args"])
        journal.note("approval", "done")
        if answer == "yes":
            return Command(goto=Send("tools", call))
        refusal = ToolMessage("the human refused", tool_call_id=call["id"])
        return Command(goto="agent", update={"messages": [refusal]})

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", tools)
    graph.add_node("approval", approval, destinations=("tools", "agent"))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", _next, ["tools", "approval", END])
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)


def calls_of(messages: Sequence[AnyMessage]) -> list[ToolCall]:
    """The tool calls that the last message asks for."""
    last = messages[-1]
    return last.tool_calls if isinstance(last, AIMessage) else []


def _next(state: MessagesState) -> str | list[Send]:
    calls = calls_of(state["messages"])
    if any(call["name"] == BOOKING for call in calls):
        return "approval"
    return [Send("tools", call) for call in calls] or END


def chat(saver: BaseCheckpointSaver[str], size: int) -> Graph:
    """A conversation whose replies have `size` characters."""

    def reply(state: MessagesState) -> dict[str, list[AIMessage]]:
        turn = turns_of(state["messages"]) + 1
        return {"messages": [AIMessage(text_of(f"Answer {turn}.", size))]}

    graph = StateGraph(MessagesState)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    return graph.compile(checkpointer=saver)


def text_of(start: str, size: int) -> str:
    """A text of `size` characters that differs from its neighbours in more than its start."""
    words = (f"{start} {i * 7919 % 9973}" for i in range(size))
    return " ".join(words)[:size]
