"""A chat stream in, a Responses stream out. Sans I/O.

    translator = Translator(options, clock)
    send(translator.start())
    for data in body:  send(translator.feed(data))
    send(translator.finish())
    send(translator.terminal())

Whatever happens, the response ends with one terminal event: `finish` without a finish_reason, an error chunk, a malformed chunk
and a defect of our own all end in `response.failed`. That event is asked for by itself, so that the response can be stored
before its client gets it; behind the end every other method returns no bytes.

`needs` is what the stream needs next. While it is None, that is more of the backend's body, or its end. A response may take
several turns of the model, where the gateway runs tools itself or declared ones are `asynchronous`; and where the options say
that another backend may continue an answer, one that breaks off does not end the response:

    match translator.needs:
        case Verdict():      send(translator.judge(None))             # or refuse
        case RunCalls():     send(translator.finish_call(outcome))    # of the first call
        case AnotherTurn():  translator.next_turn(markup)             # and feed takes the model's next answer
        case Continue():     send(translator.resume(join, markup))    # and feed takes what continues it; or restart, or fail
        case NotAnswered():  translator.ask_again()                   # and feed takes the answer to another request; or fail
        case Ended():        send(translator.terminal())"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from responses_gateway.stream.answer.answer import Answer, HeldPart, new_answer
from responses_gateway.stream.continuation.join import Diverged, Join
from responses_gateway.stream.items.hosted import (
    ApprovedCall,
    CallOutcome,
    HostedOptions,
    ToolListing,
    write_approved_call,
    write_tool_list,
)
from responses_gateway.stream.items.text_items import begin_compaction, is_message, write_compaction
from responses_gateway.stream.lifecycle.machine import CallDone, CallRuns, Cut, LastItemDone, Lifecycle, NextTurn, Stop
from responses_gateway.stream.lifecycle.needs import (
    AnotherTurn,
    Continue,
    Ended,
    Needs,
    NotAnswered,
    RunCalls,
    Verdict,
    calls_to_run,
    close_judged,
    may_call_again,
    turn_end,
    waiting_call,
)
from responses_gateway.stream.lifecycle.turn import images_of, usage_of, usage_shown
from responses_gateway.stream.options import Clock, StreamOptions
from responses_gateway.stream.outcomes import AsItWas, EarlyTurns, outcome_of
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.sampling import CallRecorder
from responses_gateway.stream.tokens.counter import TokenCounter, unseen_tokens
from responses_gateway.stream.writer.interface import AnswerStream, EventWriter, Outcome, Status, StreamStart
from responses_gateway.wire.chat import MalformedChunk
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError, server_error, unreadable_answer
from responses_gateway.wire.hosted_kinds import MCP, TOOL_LIST
from responses_gateway.wire.sse import SSETooLong, as_stream, is_object, is_stream

# Takes each call of a public method: its name, its argument (plain data, or an error), the events that it returns. The terminal
# event is among those of the call that ended the response.
Note: TypeAlias = Callable[[str, object, bytes], None]

# Why something that came was not sent yet: it may be the white space at an end; the open call has to be complete first; the
# input of a call is to be judged first; and what the answer holds.
Held = HeldPart | Literal["white_space", "open_call", "verdict"]
_ENDED = Ended()
_NO_SUMMARY = "The model wrote no summary."


class Translator:
    """One stream. `needs` and `status` tell how it stands; `answers` are those of all turns, `answer` is the last one."""

    __slots__ = (
        "_clock", "_terminal_noted", "answer", "answers", "created", "defect", "early", "ended", "error", "has_client_key",
        "incomplete_reason", "lifecycle", "malformed", "needs", "options", "response", "status", "stop_reason", "tape",
        "tokens", "writer",
    )  # fmt: skip

    def __init__(self, options: StreamOptions, clock: Clock, created: float | None = None) -> None:
        self.options = options
        self._clock = clock
        self.tape: Note | None = None  # see `tape.py`; may be set, or taken away, between two calls
        self.has_client_key = True  # the backend got the client's key, and not the gateway's
        self.created = clock() if created is None else created
        start = StreamStart(options.response_id, options.model, self.created, clock)
        self.response: AnswerStream = options.new_stream(start)
        self.writer: EventWriter = self.response.writer
        self.status: Status = "queued"  # of the response
        # What the model writes for a compaction, or to have a prompt read, is not sent.
        self.lifecycle = Lifecycle(options, self.writer.blank() if options.hides_answer else self.writer)
        self.tokens = TokenCounter(options.encode, options.thoughts)
        self.answer = new_answer(options, self.lifecycle, self.tokens, options.markup, options.start)
        self.answers = [self.answer]
        # Whether there are any is asked first, because a property is a call for each request.
        goes_on = options.early_ends is not None and options.goes_on and not options.hides_answer
        self.early = EarlyTurns() if goes_on else None
        self.needs: Needs = None
        self.ended = False  # all but the terminal event is written
        self.error: ApiError | None = None
        self.incomplete_reason: str | None = None
        self.stop_reason: str | None = None  # why the open item is to be the last one
        self.defect: Exception | None = None
        self.malformed = 0
        self._terminal_noted = False

    # ---- what is known of it ---------------------------------------------------------------------------------------------

    @property
    def response_id(self) -> str:
        """The id of the response, the same from first event to last."""
        return self.options.response_id

    @property
    def nothing_received(self) -> bool:
        """Whether the backend has not said anything yet, not even a part of something: another one may be fed in its place."""
        return not self.malformed and self.answer.nothing_received

    @property
    def chunks(self) -> int:
        """How many chunks the backends sent so far."""
        chunks = 0
        for answer in self.answers:
            chunks += answer.chunks
        return chunks

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be repaired on the way, by kind."""
        total = dict(self.lifecycle.repairs)
        for repairs in (self.writer.repairs, *[answer.repairs for answer in self.answers]):
            for kind in repairs:
                total[kind] = total.get(kind, 0) + repairs[kind]
        return total

    @property
    def usage(self) -> Usage | None:
        """What the backends have reported for all turns so far; behind the end, with the reasoning that was counted here."""
        return self.tokens.usage if self.ended else usage_of(self.lifecycle.turns)

    @property
    def unseen_tokens(self) -> int:
        """How many tokens of a completed answer the backend used without showing anything of them."""
        done = self.lifecycle.writer.done
        if self.status != "completed" or not self.tokens.may_miss(len(done)):
            return 0
        return unseen_tokens(self.tokens, done, self.lifecycle.repairs)

    @property
    def held(self) -> list[Held]:
        """Why some of what came was not sent yet; empty if all of it was."""
        lifecycle = self.lifecycle
        call = lifecycle.call
        reasons: dict[Held, bool] = {
            "white_space": bool(lifecycle.space.text),
            "open_call": lifecycle.pending is not None,
            "verdict": type(self.needs) is Verdict or (call is not None and call.deferred),
        }
        held: list[Held] = [*self.answer.holds, *(reason for reason, holds in reasons.items() if holds)]
        return [] if self.ended else held

    # ---- the stream ------------------------------------------------------------------------------------------------------

    def queue(self) -> bytes:
        """Return `response.created` and `response.queued`, for a response that runs in the background; `start` follows."""
        self.response.queue()
        return self._noted("queue", None, self._take())

    def start(self) -> bytes:
        """Return `response.created` and `response.in_progress`."""
        self.status = "in_progress"
        self.response.start()
        return self._noted("start", None, self._take())

    def keep_alive(self) -> bytes:
        """Return `response.in_progress` with the true snapshot so far: an event that resets the idle timers of clients."""
        if not self.ended:
            self.response.keep_alive()
        return self._noted("keep_alive", None, self._take())

    def feed(self, data: bytes) -> bytes:
        """Return the events for the next piece of the backend's body, cut anywhere. Deltas of one text that came with one read
        leave as one event: a client gets tokens as fast as they come, and no more events than it can take."""
        events: bytes | None = None
        if self.needs is None:
            answer = self.answer
            try:
                events = answer.feed(data)
                if answer.last:
                    self._end_answer()
            except Exception as error:  # every failure must end in a terminal event, our own defects too
                self._break(error)
        if events is None:
            events = self._take()
        if self.tape is not None:
            self._noted("feed", data, events)
        return events

    def feed_completion(self, body: bytes) -> bytes:
        """Return the events for the body of a backend that did not say that it streams: one JSON object, or a stream."""
        tape = self.tape
        self.tape = None  # the calls below are parts of this one
        if is_stream(body):
            events = self.feed(body) + self.finish()
        elif not is_object(body):
            self.malformed += 1
            events = self.fail(unreadable_answer(body))
        else:
            events = self.feed(as_stream(body))
        self.tape = tape
        return self._noted("feed_completion", body, events)

    def finish(self) -> bytes:
        """Return the last events: the backend's body has ended."""
        self._finish()
        return self._noted("finish", None, self._take())

    def fail(self, error: ApiError) -> bytes:
        """Return the last events of a stream that broke (connection lost, time-out, shutdown): what is open is incomplete.
        Behind a finish_reason nothing was lost but usage and `[DONE]`: then the response ends as the model ended it, unless the
        model waits for the results of calls (`finish` has them run)."""
        answer = self.answer
        answer.forget_ids()
        if self.needs is None and answer.joined and self.lifecycle.turn.finish_reason is not None:
            self._finish()
        while isinstance(self.needs, Verdict):
            self._settle(self.needs.unclosed, None)
        if not self.ended:
            self._fail(error)
        return self._noted("fail", error, self._take())

    def stop_after_item(self, reason: str) -> bytes:
        """Have the open item be the last one, or the calls of this turn, which are run: then the response ends as incomplete
        for this reason, at once if nothing is open. Where the model ends by itself before, it ends as the model ended it."""
        if not self.ended:
            self.stop_reason = reason
            self.lifecycle.open_no_more()
            if type(self.needs) is AnotherTurn or (self.needs is None and self.lifecycle.is_between_items):
                self._break(LastItemDone())
        return self._noted("stop_after_item", reason, self._take())

    def cut_short(self) -> bytes:
        """End the open text, and the response with it, as at a limit of tokens: nothing of use would follow."""
        if self.needs is None and self.lifecycle.item is not None:
            self.stop_reason = "max_output_tokens"
            self.incomplete_reason = self.stop_reason
            self.answer.stop()
            self.lifecycle.forget_space()
            self.lifecycle.step(Cut())
            self.lifecycle.repairs["text_loop_ended"] = 1
            self.lifecycle.turn.outcome = None if self.options.early_ends is None else "length"
            self._terminate("incomplete")
        return self._noted("cut_short", None, self._take())

    def take_number(self) -> int:
        """Return the next sequence number, for an event of somebody else that stands between those of the stream."""
        number = self.writer.next_number
        self.writer.next_number += 1
        self._noted("take_number", None, b"")
        return number

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the terminal event and `[DONE]`; no bytes before the end. `stored` overrides the `store` of the request."""
        return self.response.terminal(stored=stored) if self.ended else b""

    # ---- verdicts on the inputs of custom tools --------------------------------------------------------------------------

    def judge(self, replacement: str | None) -> bytes:
        """Return the events that were held for the verdict on the call that waits: None lets its input pass as it is."""
        if type(self.needs) is Verdict:
            self._settle(False, replacement)
        return self._noted("judge", replacement, self._take())

    def refuse(self) -> bytes:
        """Return the events that were held for the verdict, which is that the call that waits is not to be handed over."""
        if type(self.needs) is Verdict:
            self._settle(True, None)
        return self._noted("refuse", None, self._take())

    # ---- continuing on another backend -----------------------------------------------------------------------------------

    @property
    def continuable(self) -> bool:
        """Whether another backend can continue the answer, should it break off now, or has to, since it did."""
        return (self.needs is None or type(self.needs) is Continue) and self.answer.continuable

    def ask_again(self) -> bytes:
        """Forget an error in the place of an answer: `feed` takes the answer to another request."""
        self.answer.last = False
        self.answer.error = None
        self.needs = None
        return self._noted("ask_again", None, b"")

    def restart(self, markup: Markup | LeadingThoughtDetector | None, start: object = None) -> bytes:
        """Forget an answer that has said nothing yet: another backend answers in its place. `start` is how that answer is read,
        as plain data, for the tape."""
        self.answer.stop()
        self.lifecycle.restart()
        self.tokens.forget_answer()
        self._begin(new_answer(self.options, self.lifecycle, self.tokens, markup, start))
        return self._noted("restart", start, b"")

    def resume(self, join: Join, markup: Markup | None) -> bytes:
        """Continue with the answer of another backend, which `feed` takes. `markup` reads it, in the place of what read the
        answer that broke off; None if that reads on. Return the events of what a second reading of that answer has shown."""
        self._begin(self.answer.continue_with(join, markup))
        for delta in self.tokens.counted(list(join.unseen), None):
            self.lifecycle.step(delta)
        return self._noted("resume", join.point, self._take())

    def _begin(self, answer: Answer) -> None:
        self.answer = answer
        self.answers.append(answer)
        self.needs = None

    # ---- items before the model's first turn -----------------------------------------------------------------------------

    def begin_summary(self, item_id: str) -> bytes:
        """Return the events that tell that a summary of the context is being made, behind `start`; `insert` gets it whole."""
        if not self.ended:
            self.writer.begin_summary(item_id)
        return self._noted("begin_summary", item_id, self._take())

    def insert(self, kind: str, item: str) -> bytes:
        """Return the events for an item that the gateway made itself, as JSON: behind `start`, before the model's first one."""
        if not self.ended:
            self.writer.write_record(kind, item)
            self.lifecycle.note_inserted()
        return self._noted("insert", item, self._take())

    def list_tools(self, listing: ToolListing) -> bytes:
        """Return the events for the tools of an MCP server, which are offered to the model."""
        if not self.ended:
            write_tool_list(self.writer, self.lifecycle.inserted_id(TOOL_LIST.id_prefix), listing)
            self.lifecycle.note_inserted()
        return self._noted("list_tools", listing, self._take())

    def approved_call(self, call: ApprovedCall) -> bytes:
        """Return the events for a call that the client has approved and that was run."""
        if not self.ended:
            write_approved_call(
                self.writer, self.lifecycle.inserted_id(MCP.item.id_prefix), call, self.options.hosted or HostedOptions()
            )
            self.lifecycle.note_inserted(approved=1)
        return self._noted("approved_call", call, self._take())

    # ---- hosted calls ----------------------------------------------------------------------------------------------------

    def finish_call(self, outcome: CallOutcome) -> bytes:
        """Return the events for the outcome of the first call to run, and those that were held for it."""
        if type(self.needs) is RunCalls:
            self._proceed(self.lifecycle.step, CallDone(outcome))
        return self._noted("finish_call", outcome, self._take())

    def next_turn(
        self, markup: Markup | LeadingThoughtDetector | None, *, may_call: bool = True, start: object = None
    ) -> bytes:
        """Begin the next answer of the model, which has got the results: `feed` takes the body of another request. Unless it
        `may_call`, its calls are suppressed. `start` is how the answer is read, as plain data, for the tape."""
        if type(self.needs) is AnotherTurn:
            self.lifecycle.step(NextTurn(may_call))
            self.tokens.begin_answer()
            self._begin(new_answer(self.options, self.lifecycle, self.tokens, markup, start))
        return self._noted("next_turn", {"may_call": may_call, "start": start}, b"")

    # ---- events ----------------------------------------------------------------------------------------------------------

    def _noted(self, method: str, argument: object, events: bytes) -> bytes:
        if self.tape is not None:
            ends = self.ended and not self._terminal_noted
            self._terminal_noted = self.ended
            self.tape(method, argument, events + self.terminal() if ends else events)
        return events

    def _take(self) -> bytes:
        hidden = self.lifecycle.writer
        if hidden is not self.writer:
            hidden.events = []
            if self.options.compaction is not None and not self.ended:
                begin_compaction(self.writer, self.response_id, hidden)
        events = b"".join(self.writer.events)
        self.writer.events = []
        return events

    # ---- the end ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if type(self.needs) is NotAnswered:
            self._fail(self.needs.error)
        if self.needs is not None:
            return
        try:
            try:
                self.answer.finish_body()
            except MalformedChunk:
                self.malformed += 1  # the finish_reason tells what was lost
            self._end_answer()
        except Exception as error:  # as in feed
            self._break(error)

    def _settle(self, refused: bool, replacement: str | None) -> None:
        if refused:
            self._proceed(self.lifecycle.step, Stop())
        else:
            self._proceed(close_judged, self.lifecycle, replacement)

    def _proceed(self, step: Callable[..., None], *arguments: object) -> None:
        """Do what the stream has waited for, and find out what it needs next."""
        self.needs = None
        try:
            step(*arguments)
            self._conclude()
        except Exception as error:  # as in feed
            self._break(error)

    def _end_answer(self) -> None:
        answer = self.answer
        error = answer.error
        if error is not None and answer.broken_off is None:
            error = error if self.has_client_key else error.of_gateway_key()
            if not self.nothing_received:
                self._fail(error)
            else:
                self.needs = NotAnswered(error)
            return
        answer.finish()
        if answer.broken_off is not None:
            self.needs = Continue(answer.broken_off, answer.error)
        else:
            self._conclude()

    def _conclude(self) -> None:
        """Close what is open, behind the end of an answer, as far as nothing else is needed for that."""
        lifecycle = self.lifecycle
        turn = lifecycle.turn
        reason = turn.finish_reason
        if reason is None:
            self._fail(server_error("The backend closed the stream before the model finished."))
            return
        if reason == "error":
            self._fail(server_error("The backend aborted the generation."))
            return
        if self.early is not None and self.early.as_it_was is not None and not turn.visible and reason != "stop":
            lifecycle.complete_texts()  # because the response ends as it was before this thought
        grammars = self.options.grammars if lifecycle.writer is self.writer else {}
        while lifecycle.state != "ended":
            call = lifecycle.call
            if call is not None and reason == "stop" and call.runnable:
                if self.early is not None:
                    self.early.progress()
                self.answer.forget_ids()
                lifecycle.step(CallRuns())
                self.needs = calls_to_run(lifecycle, self.options.tools)
                return
            if grammars and (verdict := waiting_call(lifecycle, grammars)) is not None:
                self.needs = verdict
                return
            lifecycle.close_next()
        if self.options.early_ends is not None and self._goes_on():
            return
        self._end_turn()

    def _goes_on(self) -> bool:
        """Judge the end of the model's turn, and have the model go on from there if it ended early, and may."""
        lifecycle = self.lifecycle
        turn = lifecycle.turn
        early = self.early
        end = turn_end(lifecycle, self.answer.repairs, self.options)
        turn.outcome = outcome_of(end)
        judged = self.options.early_ends
        if early is None or judged is None or turn.outcome is None:
            return False
        turn.same = early.repeats(end)
        if turn.outcome in ("call", "final"):
            early.progress()
        elif (
            self.stop_reason is None
            and judged.are_continued(turn.outcome, tool_ran=end.tool_ran)
            and may_call_again(lifecycle, self.options)
            and early.goes_on(end)
        ):
            early.begin(end, AsItWas("max_output_tokens" if turn.call_cut else None))
            turn.continued = True
            self.answer.forget_ids()
            self.needs = AnotherTurn(again=True)
            return True
        return False

    def _end_turn(self) -> None:
        """End the response behind an answer, or have the model answer again."""
        turn = self.lifecycle.turn
        reason = turn.finish_reason
        if self.early is not None and self.early.as_it_was is not None and not turn.visible:
            self._end_as_it_was(self.early.as_it_was)
        elif reason != "stop" or turn.call_cut:
            # There is no third reason, and this one tells what happened to a call that was cut: the model wrote too little.
            self.incomplete_reason = "content_filter" if reason == "content_filter" else "max_output_tokens"
            self._terminate("incomplete")
        elif turn.calls and turn.asks_again:
            if self.stop_reason is not None:
                raise LastItemDone
            self.answer.forget_ids()
            self.needs = AnotherTurn()
        else:
            self._terminate("completed")

    def _end_as_it_was(self, before: AsItWas) -> None:
        """End the response as it would have ended before the model was asked to go on, unless it has made a call since."""
        turn = self.lifecycle.turn
        self.incomplete_reason = None if turn.client_calls else before.reason
        if turn.call_cut:
            self.incomplete_reason = "max_output_tokens"
        self._terminate("completed" if self.incomplete_reason is None else "incomplete")

    def _break(self, error: Exception) -> None:
        if isinstance(error, LastItemDone):  # whatever the model has begun since is left out
            self.answer.stop()
            self.lifecycle.forget_space()
            while self.lifecycle.state != "ended":
                self.lifecycle.step(Stop())
            self.incomplete_reason = self.stop_reason
            self._terminate("incomplete")
        elif isinstance(error, Diverged):
            self.answer.diverged = str(error) or "text_differs"
            self._fail(server_error("The connection to the backend broke in the middle of the answer."))
        elif isinstance(error, MalformedChunk | SSETooLong):
            self.malformed += 1
            if self.lifecycle.turn.finish_reason is None:
                self._fail(server_error("The backend sent something that is not a chat completion chunk."))
                return
            try:
                self._end_answer()  # nothing was lost but usage, as in `fail`
            except Exception as defect:
                self._break(defect)
        else:
            self.defect = error
            self._fail(server_error("The gateway failed to translate the stream. This is a defect: please report it.", 500))

    def _fail(self, error: ApiError) -> None:
        as_it_was = None if self.early is None else self.early.as_it_was
        if as_it_was is None:
            self.error = error
        else:
            self.answer.late_error = error
        end_items = self.lifecycle.abandon if as_it_was is None else self.lifecycle.complete_texts
        release = (self.answer.release,) if self.defect is None else ()
        for step in (self.answer.stop, *release, end_items):
            try:
                step()
            except LastItemDone:  # what the model has begun since is left out
                pass
            except Exception as defect:  # nothing may stand between the client and its terminal event
                self.defect = defect
        try:
            if as_it_was is None:
                self._terminate("failed")
            else:
                self._end_as_it_was(as_it_was)
        except Exception as defect:  # the end is told without what would be added to it
            self.defect = defect
            self.error = error
            self.needs = _ENDED
            self.ended = True
            self.status = "failed"
            self.response.end(Outcome("failed", error=error))

    def _terminate(self, status: Status) -> None:
        if self.lifecycle.aside is not None:
            self.lifecycle.close_aside(omitted=status != "completed")
        if self.lifecycle.writer is not self.writer and status != "failed":
            status = self._replace_answer()
        elif status == "completed" and self.options.client.needs_message and not any(map(is_message, self.writer.done)):
            self.error = server_error(_NO_SUMMARY)
            status = "failed"
        self.answer.stop()
        self.answer.forget_ids()
        if self.options.recorder is not None:
            _show_tokens(self, self.options.recorder)
        self.needs = _ENDED
        self.ended = True
        self.status = status
        usage = self.tokens.complete_usage(usage_of(self.lifecycle.turns), self.lifecycle.writer.characters)
        if self.early is not None:
            usage = usage_shown(self.lifecycle.turns, usage, self.lifecycle.writer.done)
        # Never before it was created: the clock may have been set back, or be that of another process, which took it over.
        completed_at = int(max(self.created, self._clock())) if status == "completed" else None
        turn = self.lifecycle.turn
        images = None if self.options.hosted is None else images_of(self.lifecycle.turns)
        why = (self.incomplete_reason, self.error, turn.stop_string, turn.finish_reason == "length")
        self.response.end(Outcome(status, usage, completed_at, *why, turn.used, images))

    def _replace_answer(self) -> Status:
        """Write the item, if any, that takes the place of what the model wrote; return how the response ends."""
        self.incomplete_reason = None  # a summary that was cut is better than none, and one token was all that was asked for
        seal = self.options.compaction
        if seal is not None and not write_compaction(self.writer, self.response_id, self.lifecycle.writer.done, seal):
            self.error = server_error(_NO_SUMMARY)
            return "failed"
        return "completed"


def was_stopped(translator: Translator) -> bool:
    """Tell whether `stop_after_item` has ended the response, so that its backend may still be generating."""
    return translator.stop_reason is not None and translator.incomplete_reason == translator.stop_reason


def _show_tokens(translator: Translator, recorder: CallRecorder) -> None:
    """Note whether the last call was stopped; add what it sampled to the last item, if the client wants it and there is one."""
    lifecycle = translator.lifecycle
    items = lifecycle.writer.done[lifecycle.turn.first_item :]
    if recorder.calls:
        recorder.calls[-1].stopped = was_stopped(translator)
    if recorder.shows is None or not recorder.calls or not items or lifecycle.writer is not translator.writer:
        return
    members = recorder.shows(recorder.calls[-1], [msgspec.json.decode(item) for item in items])
    if members:
        recorder.shown = True
        translator.response.extend_last_item(members)
