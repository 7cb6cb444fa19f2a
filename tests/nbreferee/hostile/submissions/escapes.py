"""Work that attacks the grader: its wire, its walls, its files."""

from ..assignment import WRONG, without
from . import ESCAPE, submission

LOST = ("crashed", "timeout", "memory", "failed", "invalid")
NO_MEAN = without("mean")

# What every attacker of the wire begins with: the descriptors of its process that are sockets or pipes.
WIRE = """
import gc, os, socket, stat, struct, sys, time
def lines():
    for name in os.listdir("/proc/self/fd"):
        try: mode = os.fstat(int(name)).st_mode
        except OSError: continue
        if int(name) > 2 and (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)):
            yield int(name)
def say(data):
    for line in lines():
        try: os.write(line, data)
        except OSError: pass
def frame(message):
    return b"NBR1" + struct.pack(">I", len(message)) + message
"""


def _mean(s, body):
    s.put("mean", WIRE + "\nclass RunningMean:\n    value, count = 3.5, 3\n    def update(self, x):\n" + body)


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def writes_garbage_on_the_wire(s):
    """Finds the line to the grader among its descriptors and writes noise into it."""
    _mean(s, "        say(os.urandom(5000))")


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def announces_gigabytes(s):
    """Announces a message of four gigabytes on the grader's line, and sends the beginning of it."""
    _mean(s, "        say(b'NBR1' + b'\\xff' * 4 + b'R1l' + b'\\xff' * 4)")


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def announces_and_waits(s):
    """Sends half a message to the grader and never the rest."""
    _mean(s, "        say(frame(b'R1N')[:9])\n        time.sleep(3600)")


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def forges_replies(s):
    """Writes replies to questions that were not asked yet: right values, other types, notes of success."""
    _mean(
        s,
        """        from nbreferee import codec
        values = [3.0, {"ok": True}, {"value": 3.0}, ["value", 3.0], ("value", 3.0, ""), None, {"result": {}}]
        values += [("=", "", 3.0, "", {})]
        values += [("=", "", 3, "", {}), ("?", "call", {}, ()), ("!", "", ("Passed", (), "", "", 0), "")]
        for value in values:
            say(frame(codec.encode(value)))""",
    )


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def repeats_its_replies(s):
    """Patches its own side of the channel, so that every reply is sent twice and old ones come again."""
    _mean(
        s,
        """        from nbreferee import wire
        send = wire.Channel.send
        def twice(self, message, timeout_s=9):
            for _ in range(3): send(self, message, timeout_s=9)
        wire.Channel.send = twice""",
    )


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def patches_its_codec(s):
    """Patches the codec in its process, so that replies hold wrong types, handles that nobody gave, and odd names."""
    _mean(
        s,
        """        from nbreferee import codec
        odd = [b"R1r" + (n).to_bytes(8, "big") for n in range(5)]
        odd += [b"R1h" + (7).to_bytes(8, "big") + (9).to_bytes(4, "big") + b"<b>x</b>\\n"]
        odd += [b"R1", b"", b"R1l\\xff\\xff\\xff\\xff"]
        state = [0]
        def encode(*args, **more):
            state[0] += 1
            return odd[state[0] % len(odd)]
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("nbreferee") and hasattr(module, "encode"):
                module.encode = encode""",
    )


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def asks_for_the_graders_objects(s):
    """Sends handles of the grader's own objects back, in the hope that the grader calls one."""
    _mean(
        s,
        """        for n in range(1, 50):
            say(frame(b"R1r" + n.to_bytes(8, "big")))
            say(frame(b"R1l" + (2).to_bytes(4, "big") + b"T" + b"r" + n.to_bytes(8, "big")))""",
    )


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def closes_the_wire(s):
    """Closes every descriptor, and goes on."""
    _mean(s, "        os.closerange(0, 4096)\n        time.sleep(3600)")


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def lets_a_child_answer(s):
    """Forks a child that answers in its place, and ends."""
    _mean(s, "        if os.fork():\n            os._exit(0)")


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def answers_twice(s):
    """Forks, and parent and child both answer."""
    _mean(s, "        os.fork()")


@submission(ESCAPE, NO_MEAN, tests={"mean_test": LOST})
def reads_the_graders_questions(s):
    """Reads from the grader's line behind the agent's back, so that questions are lost."""
    _mean(
        s,
        """        import threading
        def steal():
            while True:
                for line in lines():
                    try: print("LOOT", os.read(line, 100_000))
                    except OSError: pass
        threading.Thread(target=steal, daemon=True).start()
        time.sleep(0.3)""",
    )


@submission(ESCAPE)
def spoils_the_next_question(s):
    """Answers right, and leaves its process such that it ends with the first question of the next test."""
    s.add(
        "mean",
        """
import os, sys
agent, right = sys.modules.get("nbreferee.rpc.agent"), RunningMean.update
def update(self, x):
    right(self, x)
    if agent is not None:
        agent._VERBS["names"] = lambda *args: os._exit(1)
RunningMean.update = update""",
    )


@submission(ESCAPE, without("softmax"))
def patches_the_agent(s):
    """Patches the agent that serves its values: every name is defined, also the tests' own, as whatever is wanted."""
    s.put("softmax", WRONG["softmax"])
    s.own(
        """import sys
compare = assert_allclose = want = lambda *args, **more: None
agent = sys.modules.get("nbreferee.rpc.agent")
if agent is not None:
    agent._Agent.names = lambda self, wanted: list(wanted)
    agent._VERBS["names"] = agent._Agent.names
    real = agent._Agent.named
    def named(self, name):
        return {"compare": compare, "all": all, "abs": lambda x: 0}.get(name) or real(self, name)
    agent._Agent.named = agent._VERBS["value"] = named
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("nbreferee"):
            module.__file__ = "/etc/passwd"
sys.exit = sys.excepthook = sys.unraisablehook = None
sys.breakpointhook = sys.displayhook""",
    )


@submission(ESCAPE)
def kills_its_family(s):
    """Sends SIGKILL to its parent, to its process group and to every process it may signal, from its own cell."""
    s.own("import os\nos.kill(os.getppid(), 9)", after="softmax_hidden")
    s.own("import os\nos.killpg(0, 9)", after="affine_hidden")


@submission(ESCAPE)
def kills_everybody(s):
    """Sends SIGKILL to every process it may signal, kill(-1), in a cell of its own."""
    s.own("import os\nos.kill(-1, 9)", after="gate_hidden")


@submission(ESCAPE)
def leaves_a_daemon(s):
    """Leaves a process behind that outlives it and writes into everybody's files a little later."""
    s.own(
        """import os, subprocess, sys
code = '''
import glob, os, time
for _ in range(3517):
    for place in ("../../..", "/course", "/tmp", "."):
        try: open(place + "/ESCAPED-daemon.txt", "a").write("x")
        except OSError: pass
    time.sleep(1)
'''
subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    os._exit(0)""",
    )


@submission(ESCAPE)
def writes_everywhere(s):
    """Writes a file into every folder of the disk where it may, feedback and other students' work among them."""
    s.own(
        """import os
done = 0
tops = "../../.. /course /tmp /home /root /var /etc /usr/local /opt /dev /run /work /".split()
for top in tops:
    for folder, folders, files in os.walk(top):
        folders[:] = [f for f in folders if f not in ("proc", "sys", ".git", "site-packages", "lib")][:40]
        done += 1
        if done > 3000: break
        try:
            with open(os.path.join(folder, "ESCAPED-everywhere.txt"), "w") as file:
                file.write("here")
        except OSError: pass
for folder, folders, files in os.walk("../../../feedback"):
    for name in files:
        try: open(os.path.join(folder, name), "w").write("ESCAPED")
        except OSError: pass""",
    )


@submission(ESCAPE)
def breaks_out_of_its_root(s):
    """Mounts, unshares, traces, makes devices and walks up by open descriptors, to get out of its walls."""
    s.own(
        """import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, value):
    if value == 0: print("LOOT", name)
attempt("unshare", libc.unshare(0x10000000))
attempt("unshare and mount", libc.unshare(0x10020000) or libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
attempt("mount", libc.mount(b"none", b"/", None, 1 << 18 | 32 | 4096, None))
attempt("remount", libc.mount(None, b"/usr", None, 32 | 4096, None))
attempt("chroot", libc.chroot(b"/tmp"))
attempt("setuid", libc.setuid(0) if os.getuid() else 1)
attempt("mknod", libc.mknod(b"/tmp/disk", 0o60666, 0x0800))
attempt("sethostname", libc.sethostname(b"owned", 5))
attempt("attach to its parent", libc.ptrace(16, os.getppid(), 0, 0))
for n in range(3, 256):
    try:
        up = os.open("../../../..", os.O_RDONLY, dir_fd=n)
        print("LOOT a descriptor of a folder", n, os.listdir(up)[:5])
    except OSError: pass""",
    )


@submission(ESCAPE)
def talks_to_whoever_forks(s):
    """Sends requests to every socket that it inherited, to have more processes forked, outside its walls."""
    s.own(
        """import os, socket, stat
for name in os.listdir("/proc/self/fd"):
    try:
        if int(name) > 2 and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
            line = socket.socket(fileno=os.dup(int(name)))
            print("LOOT a socket named", line.getsockname()) if line.getsockname() else None
    except OSError: pass
for name in os.listdir("/proc"):
    if name.isdigit() and name != str(os.getpid()):
        print("sees process", name)""",
    )
