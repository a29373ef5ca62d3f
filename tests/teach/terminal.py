#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# terminal.py RONDO - `rondo teach` on a terminal of its own: keys, colours, and that whatever ends it gives the
# terminal back as it was.
import fcntl, os, pty, re, select, signal, struct, sys, termios, time

LEAVE = b"\x1b[?25h\x1b[?1049l"


class Job:
    """The program in the foreground of a session, below a leader that reports how it stops and ends, like a shell."""

    def __init__(self, *arguments, **environment):
        reports, report = os.pipe()
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.close(reports)
            self.lead(report, arguments, environment)
        os.close(report)
        self.leader, self.reports, self.seen, self.told = pid, reports, b"", b""
        self.program = int(self.report().split()[1])

    def lead(self, report, arguments, environment):
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        go, start = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            for number in (signal.SIGTTOU, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)
            os.environ.update(environment)
            os.execv(sys.argv[1], (sys.argv[1], "teach") + arguments)
        os.setpgid(child, child)
        os.tcsetpgrp(0, child)
        os.write(report, b"pid %d\n" % child)
        os.write(start, b"x")
        while True:
            _, status = os.waitpid(child, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.write(report, b"stopped %d\n" % os.WSTOPSIG(status))
            else:
                killed = os.WIFSIGNALED(status)
                os.write(report, b"signal %d\n" % os.WTERMSIG(status) if killed else b"exit %d\n" % os.WEXITSTATUS(status))
                os._exit(0)

    def read(self, seconds):
        if select.select([self.terminal], [], [], seconds)[0]:
            try: self.seen += os.read(self.terminal, 65536)
            except OSError: pass

    def expect(self, text, what):
        """Waits for text on the terminal, and forgets all up to its end."""
        deadline = time.monotonic() + 20
        while text not in self.seen:
            if time.monotonic() > deadline: raise SystemExit("%s: no %r in %r" % (what, text, self.seen[-600:]))
            self.read(0.1)
        before, self.seen = self.seen.split(text, 1)
        return before

    def report(self):
        deadline = time.monotonic() + 20
        while b"\n" not in self.told:
            if time.monotonic() > deadline: raise SystemExit("it neither stops nor ends: %r" % self.seen[-600:])
            if hasattr(self, "program"): self.read(0.01)
            if select.select([self.reports], [], [], 0.05)[0]: self.told += os.read(self.reports, 100)
        line, self.told = self.told.split(b"\n", 1)
        return line.decode()

    def type(self, keys): os.write(self.terminal, keys)
    def modes(self): return termios.tcgetattr(self.terminal)

    def ends(self, expected, what, modes):
        told = self.report()
        self.read(0.05)
        if told != expected: raise SystemExit("%s: %s, expected %s" % (what, told, expected))
        if self.modes() != modes: raise SystemExit("%s: the terminal is not as it was" % what)
        os.waitpid(self.leader, 0)
        rest = self.seen
        os.close(self.terminal)
        os.close(self.reports)
        return rest


def started(*arguments, **environment):
    job = Job("--step", *arguments, **environment)
    job.expect(b"Before step 1 of ", "start")
    job.expect(b"q quit", "start")
    if job.modes()[3] & (termios.ICANON | termios.ECHO): raise SystemExit("keys are echoed, or wait for a line's end")
    return job


def plain_modes():
    job = Job("--help")
    modes = job.modes()
    job.ends("exit 0", "help", modes)
    return modes


modes = plain_modes()

job = started("-n", "3")
for key, page in ((b" ", b"Step 1 of 4"), (b"n", b"Step 2 of 4"), (b"b", b"Step 1 of 4"), (b"\x1b[C", b"Step 2 of 4"),
                  (b"\x1b[D", b"Step 1 of 4"), (b"x ", b"Step 2 of 4"), (b"\r\r", b"Step 4 of 4")):
    job.type(key)
    job.expect(page, "key %r" % key)
    job.expect(b"b back", "key %r" % key)
job.type(b" ")
rest = job.ends("exit 0", "the end", modes)
after = rest.partition(LEAVE)[2]
if b"what its trace says" not in after or b"Step 4 of 4" not in after: raise SystemExit("the end: %r" % rest)

job = started("-n", "8")
job.type(b"q")
if LEAVE not in job.ends("exit 0", "q", modes): raise SystemExit("q does not leave the screen")

for how, ending in ((b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT), (signal.SIGTERM,) * 2, (signal.SIGHUP,) * 2):
    job = started("-n", "2")
    if isinstance(how, bytes): job.type(how)
    else: os.kill(job.program, how)
    if LEAVE not in job.ends("signal %d" % ending, "signal %d" % ending, modes):
        raise SystemExit("signal %d keeps the screen" % ending)

job = started("-n", "2")
job.type(b"\x1a")
if job.report() != "stopped %d" % signal.SIGTSTP: raise SystemExit("Ctrl-Z does not stop it")
if job.modes() != modes: raise SystemExit("Ctrl-Z keeps the terminal")
job.expect(LEAVE, "Ctrl-Z")
os.kill(job.program, signal.SIGCONT)
job.expect(b"Before step 1", "continued")
job.expect(b"q quit", "continued")
job.type(b"q")
job.ends("exit 0", "after Ctrl-Z", modes)

colour = re.compile(rb"\x1b\[0[0-9;]*38;5;")
for environment, wanted in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)):
    job = Job("-n", "2", **environment)
    if bool(colour.search(job.ends("exit 0", "colours", modes))) != wanted:
        raise SystemExit("colours with %r" % environment)
