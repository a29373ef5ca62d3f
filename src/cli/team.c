/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Beyond the library's own deadline. */
enum { PATIENCE_MS = 5000 };

typedef struct rank_report {
    rondo_result result;
    bool ended; /* it came to its end, well or not */
    char error[RD_ERROR_BYTES];
} rank_report;

void *rd_team_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void rd_team_memory_free(void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes);
}

/* Does not return. */
static void be_rank(const rd_team *team, const rondo_unique_id *id, int rank, pid_t parent, rank_report *report)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    char timeout[32];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    snprintf(timeout, sizeof timeout, "%g", team->timeout_s);
    setenv("RONDO_TIMEOUT", timeout, 1);
    for (const char *const (*e)[2] = team->environment; e && (*e)[0]; e++) {
        if ((*e)[1]) setenv((*e)[0], (*e)[1], 1);
        else unsetenv((*e)[0]);
    }
    report->result = rondo_init_rank(&comm, team->ranks, *id, rank, &config);
    if (report->result == RONDO_SUCCESS) report->result = team->run(comm, rank, team->context);
    if (report->result != RONDO_SUCCESS) snprintf(report->error, sizeof report->error, "%s", rondo_last_error(comm));
    rondo_comm_destroy(comm);
    report->ended = true;
    exit(0);
}

/* Until the pipe that every rank holds has no writer left, or there is no more time. Returns whether all have ended. */
static bool all_ended(int fd, int milliseconds)
{
    struct pollfd ends = {.fd = fd};
    int n;
    do n = poll(&ends, 1, milliseconds);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

static void describe(const rd_team *team, const rank_report *reports, const int *status, bool late, char *text, size_t bytes)
{
    int first = -1;
    *text = '\0';
    for (int r = 0; r < team->ranks; r++) {
        /* Of several the one that failed by itself says more than those who lost it. */
        if (reports[r].ended && reports[r].result == RONDO_SUCCESS) continue;
        if (first < 0 || (reports[first].result == RONDO_REMOTE_ERROR && reports[r].result != RONDO_REMOTE_ERROR)) first = r;
    }
    if (first < 0) return;
    if (reports[first].ended) snprintf(text, bytes, "rank %d: %s", first, reports[first].error);
    else if (late) snprintf(text, bytes, "rank %d did not end in %g s", first, team->timeout_s);
    else if (WIFSIGNALED(status[first]))
        snprintf(text, bytes, "rank %d was killed by signal %d (%s)", first, WTERMSIG(status[first]),
                 strsignal(WTERMSIG(status[first])));
    else snprintf(text, bytes, "rank %d exited with status %d", first, WEXITSTATUS(status[first]));
}

/* Starts the ranks and waits for them. Returns how many could be started. */
static int start_and_wait(const rd_team *team, const rondo_unique_id *id, const int ends[2], rank_report *reports, int *status,
                          bool *late)
{
    pid_t pids[RD_TEAM_RANKS], parent = getpid();
    int started = 0;
    fflush(NULL);
    for (; started < team->ranks; started++) {
        pids[started] = fork();
        if (pids[started] < 0) break;
        if (pids[started] == 0) be_rank(team, id, started, parent, &reports[started]);
    }
    int error = errno;
    close(ends[1]);
    *late = started == team->ranks && !all_ended(ends[0], (int)(team->timeout_s * 1000) + PATIENCE_MS);
    for (int r = 0; r < started; r++)
        if (*late || started < team->ranks) kill(pids[r], SIGKILL);
    for (int r = 0; r < started; r++)
        while (waitpid(pids[r], &status[r], 0) < 0 && errno == EINTR) {}
    errno = error;
    return started;
}

bool rd_team_run(const rd_team *team, char *text, size_t bytes)
{
    size_t size = (size_t)team->ranks * sizeof(rank_report);
    int ends[2], status[RD_TEAM_RANKS] = {0};
    bool late = false;
    rondo_unique_id id;
    rank_report *reports = rd_team_memory(size);
    if (!reports) {
        snprintf(text, bytes, "no memory to share with ranks: %s", strerror(errno));
        return false;
    }
    if (rondo_get_unique_id(&id) != RONDO_SUCCESS) {
        snprintf(text, bytes, "%s", rondo_last_error(NULL));
        goto free_reports;
    }
    if (pipe2(ends, O_CLOEXEC)) {
        snprintf(text, bytes, "no pipe: %s", strerror(errno));
        goto free_reports;
    }
    int started = start_and_wait(team, &id, ends, reports, status, &late);
    close(ends[0]);
    if (started < team->ranks) snprintf(text, bytes, "cannot start rank %d: %s", started, strerror(errno));
    else describe(team, reports, status, late, text, bytes);
    rd_team_memory_free(reports, size);
    return !*text;

free_reports:
    rd_team_memory_free(reports, size);
    return false;
}
