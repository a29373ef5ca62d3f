/* SPDX-License-Identifier: Apache-2.0
 *
 * teach_step.c - a page at a time on the terminal's other screen, which leaves no trace on the first. Keys come one by
 * one and unseen; so whatever ends the process must give the terminal back: signals are let in only while waiting for a
 * key, where they are taken note of, the terminal is restored, and only then does the signal do what it always does.
 */
#include "cli/teach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
enum { CAUGHT = sizeof caught / sizeof *caught };

static volatile sig_atomic_t came;

static void take_note(int number) { came = number; }

/* ---- The terminal ---- */

static struct termios before;

static void say(const char *text)
{
    fputs(text, stdout);
    fflush(stdout);
}

static bool enter(void)
{
    struct termios keys = before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &keys)) return false;
    say("\033[?1049h\033[?25l"); /* the other screen, no cursor */
    return true;
}

static void leave(void)
{
    say("\033[?25h\033[?1049l");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

static int window_rows(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row : 24;
}

static void show(rd_lesson *lesson, int step, rd_canvas *canvas)
{
    rd_teach_draw(lesson, step, canvas);
    int row = canvas->rows + 2, rows = window_rows();
    if (row > rows) row = rows;
    printf("\033[H\033[2J");
    rd_canvas_print(canvas, "\r\n");
    printf("\033[%d;1H%s", row,
           step + 1 < lesson->steps ? "space next   b back   q quit" : "space end   b back   q quit");
    fflush(stdout);
}

/* ---- Signals ---- */

/* Does what the signal does to a program that does not catch it. SIGTSTP: returns when the program is continued. */
static void obey(int number, const struct sigaction *old)
{
    sigset_t one, mask;
    sigemptyset(&one);
    sigaddset(&one, number);
    sigaction(number, old, NULL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, &mask); /* here it happens */
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(number, &(struct sigaction){.sa_handler = take_note}, NULL);
}

/* ---- Keys ---- */

typedef enum key { KEY_NONE, KEY_NEXT, KEY_BACK, KEY_QUIT } key;

static key key_of(const char *typed, ssize_t length)
{
    if (length >= 3 && typed[0] == '\033' && (typed[1] == '[' || typed[1] == 'O'))
        return typed[2] == 'C' || typed[2] == 'B' ? KEY_NEXT : typed[2] == 'D' || typed[2] == 'A' ? KEY_BACK : KEY_NONE;
    if (length == 1 && typed[0] == '\033') return KEY_QUIT;
    if (strchr(" \r\nnj", typed[0])) return typed[0] ? KEY_NEXT : KEY_NONE;
    if (strchr("bpk\b\177", typed[0])) return KEY_BACK;
    return strchr("qQ\004", typed[0]) ? KEY_QUIT : KEY_NONE;
}

/* The next key; KEY_NONE when something else came, `came` says what. */
static key wait_for_key(const sigset_t *open)
{
    static char typed[16];
    static ssize_t length, at;
    if (at >= length) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        if (ppoll(&in, 1, NULL, open) < 0) return errno == EINTR ? KEY_NONE : KEY_QUIT;
        length = read(STDIN_FILENO, typed, sizeof typed);
        at = 0;
        if (length <= 0) return KEY_QUIT;
    }
    key pressed = key_of(typed + at, length - at);
    if (typed[at] == '\033') at = length; /* a key of several bytes comes alone */
    else at++;
    return pressed;
}

static void step_through(rd_lesson *lesson, rd_canvas *canvas, const sigset_t *open, const struct sigaction *old)
{
    int step = -1;
    for (bool stay = true; stay;) {
        show(lesson, step, canvas);
        key pressed = wait_for_key(open);
        if (came && came != SIGWINCH) {
            int number = came;
            leave();
            for (int i = 0; i < CAUGHT; i++)
                if (caught[i] == number) obey(number, &old[i]);
            if (!enter()) return;
        }
        came = 0;
        if (pressed == KEY_NEXT) stay = ++step < lesson->steps;
        else if (pressed == KEY_BACK && step >= 0) step--;
        else if (pressed == KEY_QUIT) stay = false;
    }
}

bool rd_teach_step(rd_lesson *lesson, rd_canvas *canvas)
{
    sigset_t closed, open;
    struct sigaction old[CAUGHT];
    if (tcgetattr(STDIN_FILENO, &before)) return false;
    sigemptyset(&closed);
    for (int i = 0; i < CAUGHT; i++) sigaddset(&closed, caught[i]);
    sigprocmask(SIG_BLOCK, &closed, &open);
    for (int i = 0; i < CAUGHT; i++) sigaction(caught[i], &(struct sigaction){.sa_handler = take_note}, &old[i]);
    bool entered = enter();
    if (entered) {
        step_through(lesson, canvas, &open, old);
        leave();
        rd_canvas_print(canvas, "\n"); /* what was seen last stays */
        putchar('\n');
    }
    for (int i = 0; i < CAUGHT; i++) sigaction(caught[i], &old[i], NULL);
    sigprocmask(SIG_SETMASK, &open, NULL);
    return entered;
}
