"""The messages about the end of a training, for the address in notify.email."""

from __future__ import annotations

from typing import NamedTuple

from checkpoints import Checkpoint
from contract import REPORT_FILE, repeat
from texts import MOST_NUMBERS, number_text, plain

STILL_PAYING = "You pay for the resources of the stack until you run: pulumi destroy"


class Message(NamedTuple):
    """An e-mail. SNS accepts only one line of ASCII text as the subject, of at most 100 characters."""

    subject: str
    text: str


def ready(job: str, stack: str, region: str, destination: str, checkpoint: Checkpoint | None) -> Message:
    """The message for a complete training. Nobody receives it before the results are in the bucket."""
    to = destination.rstrip("/")
    lines = [f"The training Job {job} of stack {stack} in {region} is complete. The model is in the bucket.", ""]
    if checkpoint:
        model = f"{to}/{checkpoint.name}/"
        shown = list(checkpoint.numbers.items())[:MOST_NUMBERS]
        lines += [f"Model: {model}", *(f"{plain(name)}: {number_text(value)}" for name, value in shown)]
        lines += ["", "To fetch the model:", f"aws s3 cp {model} ./model --recursive --region {region}"]
        lines += ["", "To fetch the report of the training:"]
        lines += [f"aws s3 cp {to}/{REPORT_FILE} . --region {region}"]
    return Message(f"Model is ready: {job}", "\n".join([*lines, "", STILL_PAYING, ""]))


def failed(job: str, stack: str, region: str, reason: str) -> Message:
    """The message for a training that failed."""
    lines = [
        f"The training Job {job} of stack {stack} in {region} failed. There is no new model in the bucket.",
        "",
        f"Reason: {reason}",
        "",
        "After you have removed the cause, the training can continue from its newest checkpoint.",
        repeat(job),
        "",
        STILL_PAYING,
        "",
    ]
    return Message(f"Training failed: {job}", "\n".join(lines))
