"""Several processes under one parent, which serves nothing itself: it owns the sockets, and starts and replaces workers.

A worker is the same command line again, with the parent's sockets and a link (`worker_link.py`). All accept connections from
the same queue, so that none is lost in the queue of a worker that dies or is replaced. A rolling restart (SIGUSR2) starts as
many new workers as there are; once all of them are ready the old ones retire, and if one fails the new ones end instead."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.server.access.counter_table import Table, create
from responses_gateway.server.process.announcement import announce, show_waiting
from responses_gateway.server.process.backend_state import SharedState
from responses_gateway.server.process.control import Control
from responses_gateway.server.process.signals import Reload, StopSignals
from responses_gateway.server.process.sockets import Listeners, open_listeners, tls_context
from responses_gateway.server.process.worker_link import Worker, WorkerConfig, own_command
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.server.setup.discovery import PoolWatch
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.settings.reloading import Reloaded, reloaded
from responses_gateway.telemetry import logs, multiprocess

# A worker that ends within so many seconds after it was ready has crashed; most crashes in a row before the parent gives up.
_SETTLED = 10.0
_CRASHES = 5
# Seconds before a crashed worker is replaced: none after the first crash, then this, doubled after each further one.
_BACKOFF = 0.5
_LONGEST_BACKOFF = 30.0
_SILENCE = 60.0  # seconds after which a worker that sends nothing is killed: its event loop is blocked
_START = 300.0  # seconds that a worker may take until it is ready
# Seconds beyond the time limits of the settings after which a worker that should end is killed.
_STOP_TIMEOUT = 15.0
_COLUMNS = 4  # most processes for each configured worker: workers that retire may take long to end
_LEFT = 2.0  # seconds in which workers tell what they wait for when they stop
_CHECK_INTERVAL = 1.0  # seconds between two checks of all workers

# Returns settings that workers get beyond flags, environment and file, and today's settings. Raises `SettingsError` if these
# are wrong.
Prepare = Callable[[], tuple[dict[str, Any], Settings]]


def supervise(settings: Settings, prepare: Prepare, reload: Reload | None) -> int:
    """Serve with several workers until SIGINT or SIGTERM. `prepare` is called before workers start, at first and at each
    rolling restart. With `reload` SIGHUP puts settings in force that it reads. Returns the exit code: that of a
    worker that could not start, or 1 if workers keep dying."""
    logs.configure(settings.log_format, settings.log_level)
    control = Control(settings, reload)
    try:
        tls_context(settings)  # each worker reads the certificate itself: this reports a wrong one once
        return asyncio.run(_supervise(settings, prepare, control))
    except SettingsError as error:
        logs.logger().error(str(error))
        return 2
    finally:
        control.close()


async def _supervise(settings: Settings, prepare: Prepare, control: Control) -> int:
    stop_signals = StopSignals()
    stop_signals.handle(worker=False)  # before anything listens: who can connect may also stop us
    with ExitStack() as stack:
        try:
            listeners = stack.enter_context(open_listeners(settings))
        except OSError as error:
            logs.logger().error("cannot listen", extra=logs.fields(address=error.filename, error=error.strerror))
            return 1
        try:
            folder = shared_folder(stack, settings.workers)
        except OSError as error:
            logs.logger().error("no folder for the workers' counters", extra=logs.fields(error=error.strerror))
            return 1
        multiprocess.share(folder, "parent")
        parent = Parent(settings, prepare, control, listeners, folder, stop_signals)
        await control.open(listeners)
        return await parent.run(lambda workers: announce(settings, listeners, workers=workers))


def shared_folder(stack: ExitStack, workers: int) -> Path:
    """Return a folder for what so many workers share, which the stack removes. Raises `OSError`."""
    folder = multiprocess.new_folder()
    stack.callback(folder.remove)
    create(folder.path, _COLUMNS * workers)
    return folder.path


@dataclass(eq=False)
class Parent:
    """Starts, watches and replaces workers."""

    _settings: Settings
    _prepare: Prepare
    _control: Control
    _listeners: Listeners
    _folder: Path
    _stop_signals: StopSignals

    def __post_init__(self) -> None:
        self._deaths = multiprocess.count_deaths()
        self._prepared: dict[str, Any] = {}
        self._in_force = self._settings
        self._current: set[Worker] = set()  # those that are to serve
        self._all: set[Worker] = set()  # and those that start for a rolling restart, or retire after one
        self._shared = SharedState(self._all)
        self._pools: PoolWatch | None = None
        self._table = Table(self._folder)
        self._places: set[str] = set()  # taken
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False  # all of the first workers were ready
        self._rolling = False
        self._replacing = asyncio.Lock()
        self._crashes = 0  # in a row
        self._code = 0

    async def run(self, on_ready: Callable[[int], None]) -> int:
        """Start, supervise, stop; returns the exit code. `on_ready` is called with the number of workers, once they serve."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, lambda: self._spawn(self._roll()))
        self._control.handle(self._use, self._stop_signals)
        try:
            self._prepared, self._in_force = await asyncio.to_thread(self._prepare)
            self._pools = PoolWatch(self._in_force, self._shared.discover)
            await self._pools.first_answers()
            self._spawn(self._watch_clocks())
            self._spawn(self._begin(on_ready))
            await self._stop_signals.stop.wait()
            self._send_order_to_all("stop")
            self._spawn(self._show_waiting())
            self._spawn(self._pass_on_stop_now())
            await self._end()
        finally:
            for worker in self._all:
                worker.signal(signal.SIGKILL)
            await asyncio.gather(*(worker.process.wait() for worker in self._all))
            await end_tasks(*self._tasks)
            if self._pools is not None:
                await self._pools.close()
        logs.logger().info("stopped", extra=logs.fields(pid=os.getpid()))
        return self._code

    @property
    def _stopping(self) -> bool:
        return self._stop_signals.stop.is_set()

    async def _begin(self, on_ready: Callable[[int], None]) -> None:
        await self._start_all(self._current)
        if await _all_ready(self._current) and not self._stopping:
            self._started = True
            on_ready(len(self._current))

    # Workers

    async def _start_all(self, started: set[Worker]) -> None:
        """Start as many as there are to be. Those that were `started` are there, too, if one cannot be."""
        for _ in range(self._settings.workers):
            if not self._stopping:
                started.add(await self._start())

    async def _start(self) -> Worker:
        place = next(name for name in map(str, count()) if name not in self._places)
        self._places.add(place)
        clients = [listener.fileno() for listener in self._listeners.clients]
        operators = [listener.fileno() for listener in self._listeners.operators]
        try:
            worker = await Worker.start(own_command(), self._listeners, self._folder, place, self._shared.generation)
        except BaseException:
            self._places.discard(place)
            raise
        # No `await` in between: later changes are sent to all workers, and this one has to be among them.
        state = self._shared.for_worker(worker).line().decode()
        config = WorkerConfig(place, clients, operators, str(self._folder), self._prepared, state)
        worker.send(msgspec.json.encode(config) + b"\n")
        self._all.add(worker)
        if self._stopping:
            worker.send_order("stop")
        self._spawn(self._watch(worker))
        return worker

    async def _watch(self, worker: Worker) -> None:
        code = await worker.watch(self._shared.receive)
        self._all.discard(worker)
        self._shared.lost(worker)
        multiprocess.forget(self._folder, worker.place)
        self._table.clear(int(worker.place))
        self._places.discard(worker.place)
        leaving = worker.leaving_since is not None or self._stopping
        if code or not leaving:
            ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
            logs.logger().error("worker died", extra=logs.fields(pid=worker.process.pid, ended=ended))
        if leaving:
            return
        self._deaths.inc()
        if not self._started:
            self._give_up(code if code > 0 else 1, "a worker could not start")
            return
        if worker not in self._current:
            return  # a new one of a rolling restart, which notices its end itself
        self._current.discard(worker)
        self._crashes = 1 if worker.served_for >= _SETTLED else self._crashes + 1
        if self._crashes >= _CRASHES and not any(other.served_for >= _SETTLED for other in self._current):
            self._give_up(1, f"{_CRASHES} workers died soon after they were started, one after another")
            return
        await self._replace()

    async def _replace(self) -> None:
        """Start the missing workers, after a delay that grows with the number of workers that died in a row."""
        if self._crashes > 1:
            await asyncio.sleep(min(_BACKOFF * 2 ** (self._crashes - 2), _LONGEST_BACKOFF))
        async with self._replacing:
            while len(self._current) < self._settings.workers and not self._stopping:
                try:
                    self._current.add(await self._start())
                except OSError as error:  # no memory, no file descriptors: the other workers continue
                    logs.logger().error("cannot start a worker", extra=logs.fields(error=error.strerror))
                    await asyncio.sleep(_LONGEST_BACKOFF)

    async def _watch_clocks(self) -> None:
        """Kill workers that hang."""
        clock = asyncio.get_running_loop().time
        while True:
            slept_at = clock()
            await asyncio.sleep(_CHECK_INTERVAL)
            if clock() - slept_at > 2 * _CHECK_INTERVAL:
                continue  # this process was blocked, and what the workers sent meanwhile is not read yet
            for worker in self._all:
                hanging = self._hanging(worker)
                if hanging is not None:
                    logs.logger().error("worker killed", extra=logs.fields(pid=worker.process.pid, reason=hanging))
                    worker.signal(signal.SIGKILL)

    def _hanging(self, worker: Worker) -> str | None:
        settings = self._settings
        if worker.leaving_since is not None:
            limit = settings.drain_delay + settings.drain_timeout + _STOP_TIMEOUT
            return "it did not end" if asyncio.get_running_loop().time() - worker.leaving_since > limit else None
        limit = _SILENCE if worker.ready_at is not None else _START
        return f"it has not responded for {limit:g} seconds" if worker.silence > limit else None

    # Signals

    async def _roll(self) -> None:
        """Do a rolling restart."""
        if self._rolling or not self._started or self._stopping:
            logs.logger().warning("no rolling restart: the gateway is already starting, restarting or stopping")
            return
        self._rolling = True
        fresh: set[Worker] = set()
        try:
            logs.logger().info("rolling restart", extra=logs.fields(workers=self._settings.workers))
            self._prepared, self._in_force = await asyncio.to_thread(self._prepare)
            self._shared.begin_generation()
            if self._pools is not None:
                self._pools.replace(self._in_force)
            await self._start_all(fresh)
            if await _all_ready(fresh):
                self._switch(fresh)
            else:
                self._abandon(fresh, "a new worker could not start")
        except (SettingsError, OSError) as error:
            self._abandon(fresh, str(error))
        finally:
            self._rolling = False

    def _switch(self, fresh: set[Worker]) -> None:
        """Let the new workers serve, and the old ones retire."""
        if self._stopping:
            return
        old = self._current
        self._current = fresh & self._all
        for worker in old:
            worker.send_order("retire")
        self._crashes = 0
        self._spawn(self._replace())
        logs.logger().info("rolled", extra=logs.fields(workers=len(self._current), retiring=len(old)))

    def _abandon(self, fresh: set[Worker], reason: str) -> None:
        for worker in fresh:
            worker.send_order("retire")  # and not stop, which closes the sockets of all
        logs.logger().error("the rolling restart is abandoned, the old workers continue", extra=logs.fields(reason=reason))

    def _use(self, settings: Settings) -> Reloaded:
        result = reloaded(self._in_force, settings)
        self._in_force = result.settings
        self._shared.reload(specs_of(result.settings))
        if self._pools is not None:
            self._pools.replace(result.settings)
        logs.logger().setLevel(result.settings.log_level.upper())
        return result

    async def _show_waiting(self) -> None:
        """Say what all workers together wait for, once each has reported its number, or has ended."""
        numbers = [worker.left for worker in self._all]
        reported, _ = await asyncio.wait(numbers, timeout=_LEFT) if numbers else (set[asyncio.Future[int]](), None)
        if not self._stop_signals.stop_now.is_set():
            show_waiting(sum(number.result() for number in reported), self._in_force.drain_timeout)

    async def _pass_on_stop_now(self) -> None:
        await self._stop_signals.stop_now.wait()
        self._send_order_to_all("stop_now")

    def _send_order_to_all(self, order: str) -> None:
        for worker in self._all:
            worker.send_order(order)

    def _give_up(self, code: int, reason: str) -> None:
        if not self._stopping:
            logs.logger().error("giving up", extra=logs.fields(reason=reason))
            self._code = code
            self._stop_signals.give("stop")

    async def _end(self) -> None:
        """Wait for the workers, which were sent an order to stop. The last one that stops listening closes the sockets."""
        self._listeners.close()
        while self._all:
            await asyncio.wait([asyncio.ensure_future(worker.process.wait()) for worker in self._all])
            await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.logger().error("defect", exc_info=error)
            self._give_up(1, "the parent failed")


async def _all_ready(workers: set[Worker]) -> bool:
    """Wait until each is ready, or one has ended. Returns whether all are ready."""
    waiting = {worker.ready for worker in workers}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not all(each.result() for each in done):
            return False
    return True
