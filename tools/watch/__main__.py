"""`python -m tools.watch --stack STACK`: a live view of a stack in the terminal. Ctrl-C ends the view, nothing else."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from sandbox.engine.pulumi_cli import in_sandbox
from settings.schema import Settings
from settings.stack_file import StackFileError, stack_settings
from tools.kubernetes_client import Api, KubeconfigError, load_kubeconfig
from tools.price.cost import estimate
from tools.watch import stack, training_log, words
from tools.watch.cluster_copy import Cluster
from tools.watch.errors import WatchError
from tools.watch.screen import draw
from tools.watch.snapshot import FAILED, Cost, Names, Snapshot, jobs_of, nodes_of, pods_to_read
from tools.watch.training_log import Progress

# Each reading starts `pulumi`, which may read from S3. Read more often only while `pulumi up` runs.
SECONDS_BETWEEN_STATES, SECONDS_WHEN_IDLE = 5.0, 15.0
SECONDS_BETWEEN_PICTURES = 1.0
SECONDS_FOR_FIRST_LIST = 15.0
SECONDS_FOR_LOGS = 3.0


class View:
    """Collects the facts about one stack."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.settings = settings
        self.env = stack.environment(name)
        self.names = Names(
            name,
            settings.region,
            in_sandbox(name),
            settings.workers.count,
            settings.job.name,
            settings.export.enabled,
        )
        self.state = stack.export(name, self.env)
        self.trouble = ""
        self.seen: dict[str, float] = {}
        self.cluster: Cluster | None = None
        self.progress: dict[str, Progress] = {}
        if not self.state.resources and not self.state.operations:
            raise WatchError(f"Stack {name} has no resources. Create them with `pulumi up --stack {name}`.")

    def follow_state(self) -> None:
        """Read the stack's state for as long as the process lives."""
        while True:
            time.sleep(SECONDS_BETWEEN_STATES if self.state.operations or not self.cluster else SECONDS_WHEN_IDLE)
            self.read_state()

    def read_state(self) -> None:
        try:
            self.state, self.trouble = stack.export(self.names.stack, self.env), ""
        except WatchError as error:
            self.trouble = str(error)
        except (ValueError, KeyError, TypeError) as error:
            self.trouble = f"The state of the stack is not understood: {error!r}"

    def connect(self) -> None:
        """Start to follow the cluster as soon as the state contains its kubeconfig."""
        if self.cluster or not self.state.kubeconfig:
            return
        try:
            api = Api(load_kubeconfig(self.state.kubeconfig))
        except KubeconfigError as error:
            self.trouble = str(error)
            return
        self.cluster = Cluster(api, self.settings.job.namespace)
        self.cluster.start()

    def snapshot(self) -> Snapshot:
        """The facts at this moment."""
        now = time.time()
        state, cluster = self.state, self.cluster
        self.seen = {each: self.seen.get(each, now) for each in state.operations}
        jobs = jobs_of(self.names, cluster.copy("jobs"), cluster.copy("pods")) if cluster else ()
        if cluster:
            roles = {pod.uid: job.role for job in jobs for pod in job.pods}
            for pod in pods_to_read(jobs):
                cluster.follow_log(pod.uid, pod.name)
                role = roles[pod.uid]
                self.progress[role] = training_log.read(self.progress.get(role, Progress()), cluster.take_log(pod.uid))
        trouble = [self.trouble, *(cluster.trouble.values() if cluster else ())]
        return Snapshot(
            self.names,
            now,
            state.resources,
            tuple(self.seen.items()),
            nodes_of(cluster.copy("nodes")) if cluster else (),
            jobs,
            dict(self.progress),
            cost_of(self.settings, state.created),
            stack.fetch_command(self.names.stack, state.outputs),
            tuple(dict.fromkeys(filter(None, trouble))),
        )


def cost_of(settings: Settings, since: float) -> Cost:
    """The cost at list prices; items without a known price are listed in `unknown`."""
    found = estimate(settings)
    return Cost(float(found.hourly), since, found.unknown)


def first(view: View) -> Snapshot:
    """The first picture. It waits until the cluster has listed its objects."""
    view.connect()
    ends = time.monotonic() + SECONDS_FOR_FIRST_LIST
    while view.cluster and not view.cluster.listed and time.monotonic() < ends:
        time.sleep(0.05)
    return view.snapshot()


def settle_logs(view: View) -> Snapshot:
    """A picture that includes the logs. It waits a few seconds for them."""
    ends = time.monotonic() + SECONDS_FOR_LOGS
    view.snapshot()
    while view.cluster and not view.cluster.logs_read() and time.monotonic() < ends:
        time.sleep(0.1)
        view.snapshot()
    return view.snapshot()


def print_news(shown: Snapshot, known: set[str]) -> None:
    """Print the lines that are new since the last picture."""
    now = words.lines(shown)
    for line in now:
        if line not in known:
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
    known.clear()
    known.update(now)


def run(name: str, once: bool, console: Console) -> int:
    view = View(name, stack_settings(name))
    shown = first(view)
    if once:
        shown = settle_logs(view)
        if console.is_terminal:
            console.print(draw(shown, console.width))
        else:
            print("\n".join(words.lines(shown)))
        return 1 if shown.trouble else 0
    threading.Thread(target=view.follow_state, daemon=True).start()
    if not console.is_terminal:
        return print_until_the_end(view)
    try:
        with Live(draw(shown, console.width), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(SECONDS_BETWEEN_PICTURES)
                view.connect()
                shown = view.snapshot()
                live.update(draw(shown, console.width), refresh=True)
    finally:
        # The last picture stays in the terminal.
        console.print(draw(shown, console.width))


def print_until_the_end(view: View) -> int:
    """Print each change until the model is ready or a Job has failed."""
    known: set[str] = set()
    while True:
        view.connect()
        shown = view.snapshot()
        ended = words.is_finished(shown) or any(job.state == FAILED for job in shown.jobs)
        if ended and not shown.operations:
            view.state = stack.export(view.names.stack, view.env)
            print_news(settle_logs(view), known)
            return 0 if words.is_finished(shown) else 1
        print_news(shown, known)
        time.sleep(SECONDS_BETWEEN_PICTURES)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.watch", description="A live view of a stack.")
    parser.add_argument("--stack", default="dev", help="the stack to watch (default: dev)")
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    given = parser.parse_args(arguments)
    console = Console()
    try:
        return run(given.stack, given.once, console)
    except (WatchError, StackFileError) as error:
        print(f"watch: {error}", file=sys.stderr)
        return 1
    except json.JSONDecodeError:
        print("watch: Pulumi's answer is not JSON. Check `pulumi version`.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
