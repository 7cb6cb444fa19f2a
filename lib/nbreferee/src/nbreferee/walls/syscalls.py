"""The calls of Linux that Python 3.11 does not offer, by ctypes. Each raises OSError with the name of the call."""

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from functools import cache

__all__ = ["FILTERED", "capabilities_away", "filter_calls", "mount", "prctl", "unshare"]

NEW = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
NOSUID, NODEV, NOEXEC, BIND, REC, PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PDEATHSIG, DUMPABLE, SECCOMP, BOUNDING_DROP, NO_NEW_PRIVS, SUBREAPER = 1, 4, 22, 24, 38, 36


@cache
def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(*names: str) -> None:
    """Leave the named namespaces (keys of ``NEW``) for new ones."""
    _check(_libc().unshare(sum(NEW[name] for name in names)), f"unshare {' '.join(names)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2)."""
    kind = kind.encode() if kind else None
    flags = ctypes.c_ulong(flags)
    result = _libc().mount(os.fsencode(source), os.fsencode(target), kind, flags, data.encode() or None)
    _check(result, f"mount {target}")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    zero = ctypes.c_ulong(0)
    _check(_libc().prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {option}")


def die_with_parent() -> None:
    """Let this process be killed when the thread that forked it ends."""
    prctl(PDEATHSIG, signal.SIGKILL)


def capabilities_away() -> None:
    """Give up all capabilities for good, those that an executable could bring back included."""
    prctl(NO_NEW_PRIVS, 1)
    for number in range(64):
        try:
            prctl(BOUNDING_DROP, number)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: this kernel has no capability of that number
                raise
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_libc().capset(header, (ctypes.c_uint32 * 6)()), "capset")


# What student code has no use for and what reaches around a wall: memory that no limit counts (memfd, shmget,
# vmsplice), kernel parts with a record of holes (io_uring, bpf, perf, keyctl, userfaultfd), other processes (ptrace),
# mounts, namespaces, and what processes behind different walls could tell each other by (watched files, the count of
# io_setup). Name: the numbers on x86_64 and on aarch64; None: no such call. From 424 on all share one numbering.
_REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "syslog": (103, 116),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "personality": (135, 92), "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "sethostname": (170, 161), "setdomainname": (171, 162), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "vmsplice": (278, 75), "io_setup": (206, 0),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
}  # fmt: skip
# These do nothing and seem to succeed, since honest code calls them. A lock on a file that all may read could be felt
# by another student's process, or by the next one of the same student; so there are no locks between processes, not
# even between a student's own. And a student keeps to the processor that it was given.
_IGNORED = {"flock": (73, 32), "sched_setaffinity": (203, 122)}
_SOCKET = (41, 198)
_FAMILIES = (1, 2, 10)  # unix, inet, inet6; a network namespace does not hold back AF_VSOCK, the line to a hypervisor
_FCNTL = (72, 25)
# Copies, flags, owners, signals, the look at locks, the size of pipes. Not leases, notices and hints, which outlive or
# leave the process, nor what later kernels may add.
_FCNTL_ALLOWED = (0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 15, 16, 36, 1030, 1031, 1032)
_FCNTL_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW and the same for open files
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NOTHING = _ERRNO  # the error number 0: the call does nothing and returns 0
_LOAD, _EQUAL, _AT_LEAST, _GIVE = 0x20, 0x15, 0x35, 0x06
FILTERED = sys.platform == "linux" and sys.maxsize > 2**32 and platform.machine() in _MACHINES


def _when(number, lines):
    """Lines for one call; the number None is no call."""
    return [] if number is None else [(_EQUAL, 0, len(lines), number), *lines]


def _by_argument(offset, answers, otherwise):
    """Lines that look at an argument, at that place of the kernel's record, and answer by its value."""
    lines = [line for value, answer in answers.items() for line in _when(value, [(_GIVE, 0, 0, answer)])]
    return [(_LOAD, 0, 0, offset), *lines, (_GIVE, 0, 0, otherwise)]


@cache
def _program():
    """The filter as classic BPF: (code, jump if true, jump if false, constant) eight bytes each."""
    column, machine = _MACHINES[platform.machine()]
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine), (_GIVE, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    lines += [(_AT_LEAST, 0, 1, 0x40000000), (_GIVE, 0, 0, _KILL)]  # the x32 calls of x86_64
    families = dict.fromkeys(_FAMILIES, _ALLOW)
    lines += _when(_SOCKET[column], _by_argument(16, families, _ERRNO | errno.EAFNOSUPPORT))
    orders = dict.fromkeys(_FCNTL_ALLOWED, _ALLOW) | dict.fromkeys(_FCNTL_LOCKS, _NOTHING)
    lines += _when(_FCNTL[column], _by_argument(24, orders, _ERRNO | errno.EINVAL))
    for calls, answer in ((_REFUSED, _ERRNO | errno.EPERM), (_IGNORED, _NOTHING)):
        for numbers in calls.values():
            lines += _when(numbers[column], [(_GIVE, 0, 0, answer)])
    lines.append((_GIVE, 0, 0, _ALLOW))
    return ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines)), len(lines)


def filter_calls() -> None:
    """Refuse the calls of the table from now on, in this process and all that it starts; needs no_new_privs."""
    program, length = _program()
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", length, ctypes.addressof(program)))
    zero = ctypes.c_ulong(0)
    result = _libc().prctl(SECCOMP, ctypes.c_ulong(2), ctypes.c_ulong(ctypes.addressof(head)), zero, zero)
    _check(result, "seccomp")
