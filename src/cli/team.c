/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"

#include "base/env.h"
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

/* Rank 0 makes the id, so that this process stays without threads and can fork as it likes. */
static rondo_result share_id(const rd_team *team, int rank, const int ids[2], rondo_unique_id *id)
{
    if (rank == 0) {
        RD_TRY(rondo_get_unique_id(id));
        for (int r = 1; r < team->ranks; r++)
            if (write(ids[1], id, sizeof *id) != sizeof *id) return rd_fail_errno("telling the ranks the unique id");
        return RONDO_SUCCESS;
    }
    close(ids[1]); /* or the end of rank 0 would not be seen */
    if (read(ids[0], id, sizeof *id) != sizeof *id) return rd_fail(RONDO_REMOTE_ERROR, "rank 0 has no unique id");
    return RONDO_SUCCESS;
}

static rondo_result join_and_run(const rd_team *team, int rank, const int ids[2], rank_report *report)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    rondo_unique_id id;
    rondo_result result = share_id(team, rank, ids, &id);
    if (result == RONDO_SUCCESS) result = rondo_init_rank(&comm, team->ranks, id, rank, &config);
    if (result == RONDO_SUCCESS) result = team->run(comm, rank, team->context);
    if (result != RONDO_SUCCESS) snprintf(report->error, sizeof report->error, "%s", rondo_last_error(comm));
    rondo_comm_destroy(comm);
    return result;
}

/* Does not return. */
static void be_rank(const rd_team *team, int rank, const int ids[2], pid_t parent, rank_report *report)
{
    char timeout[32];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    snprintf(timeout, sizeof timeout, "%g", team->timeout_s);
    setenv("RONDO_TIMEOUT", timeout, 1);
    for (const char *const (*e)[2] = team->environment; e && (*e)[0]; e++) {
        if ((*e)[1]) setenv((*e)[0], (*e)[1], 1);
        else unsetenv((*e)[0]);
    }
    report->result = join_and_run(team, rank, ids, report);
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

static void describe(const rd_team *team, const rank_report *reports, const int *status, bool late, char *text,
                     size_t bytes)
{
    int first = -1;
    *text = '\0';
    for (int r = 0; r < team->ranks; r++) {
        /* Of several the one that failed by itself says more than those who lost it. */
        if (reports[r].ended && reports[r].result == RONDO_SUCCESS) continue;
        if (first < 0 || (reports[first].result == RONDO_REMOTE_ERROR && reports[r].result != RONDO_REMOTE_ERROR))
            first = r;
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
static int start_and_wait(const rd_team *team, rank_report *reports, int *status, bool *late)
{
    int ends[2], ids[2], started = 0;
    pid_t pids[RD_TEAM_RANKS], parent = getpid();
    if (pipe2(ends, O_CLOEXEC)) return 0;
    if (pipe2(ids, O_CLOEXEC)) {
        close(ends[0]);
        close(ends[1]);
        return 0;
    }
    fflush(NULL);
    for (; started < team->ranks; started++) {
        pids[started] = fork();
        if (pids[started] < 0) break;
        if (pids[started] == 0) be_rank(team, started, ids, parent, &reports[started]);
    }
    int error = errno;
    close(ids[0]);
    close(ids[1]);
    close(ends[1]);
    *late = started == team->ranks && !all_ended(ends[0], (int)(team->timeout_s * 1000) + PATIENCE_MS);
    close(ends[0]);
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
    int status[RD_TEAM_RANKS] = {0};
    bool late = false;
    rd_settings settings; /* read here for the warnings: so they come once, and not from every rank */
    if (rd_settings_load(&settings, NULL) != RONDO_SUCCESS) {
        snprintf(text, bytes, "%s", rd_last_error());
        return false;
    }
    rank_report *reports = rd_team_memory(size);
    if (!reports) {
        snprintf(text, bytes, "no memory to share with ranks: %s", strerror(errno));
        return false;
    }
    int started = start_and_wait(team, reports, status, &late);
    if (started < team->ranks) snprintf(text, bytes, "cannot start rank %d: %s", started, strerror(errno));
    else describe(team, reports, status, late, text, bytes);
    rd_team_memory_free(reports, size);
    return !*text;
}
