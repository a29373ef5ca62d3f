/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The launchers we know, by the variables they set. A launcher is there when its rank and its world are; what names
 * the job may be absent. To know another one, add a line. */
static const struct launcher {
    const char *name, *rank, *world, *local_rank, *local_world, *nodes;
    const char *job[2];
    const char *start; /* how to start with it */
} launchers[] = {
    {.name = "environment",
     .rank = "RANK",
     .world = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_world = "LOCAL_WORLD_SIZE",
     .start = "set both, or start with `rondo run` or torchrun"},
    {.name = "Slurm",
     .rank = "SLURM_PROCID",
     .world = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .nodes = "SLURM_NNODES",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .start = "start the program with srun"},
    {.name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"PMIX_NAMESPACE"},
     .start = "start the program with mpirun"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

#define PORTS_TRIED     16   /* after MASTER_PORT, should that have an owner */
#define NAME_PATIENCE_S 30.0 /* for MASTER_ADDR's name to be known */

struct launch {
    const struct launcher *by;
    int rank, world, local_rank, local_world, nodes; /* -1: not said */
};

/* ---- Reading ---- */

/* "RANK=1, WORLD_SIZE unset, LOCAL_RANK=x" of the variables that matter; those that may be absent only if set. */
static void describe(const struct launcher *l, char *text, size_t bytes)
{
    const char *const names[] = {l->rank, l->world, l->local_rank, l->local_world, l->nodes};
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < 5 && used < bytes; i++) {
        const char *value = names[i] ? rd_env(names[i]) : NULL;
        if (!names[i] || (!value && i > 1)) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s%s%.40s", used ? ", " : "", names[i],
                                 value ? "=" : " unset", value ? value : "");
    }
}

static rondo_result refuse(const struct launcher *l, const char *what)
{
    char seen[512];
    describe(l, seen, sizeof seen);
    return rd_fail(RONDO_INVALID_ARGUMENT, "%s's variables: %s (%s)", l->name, what, seen);
}

/* -1 when the variable is unset; false when it is no number from least to most. */
static bool read_number(const char *name, int least, int most, int *value)
{
    const char *text = name ? rd_env(name) : NULL;
    *value = -1;
    if (!text) return true;
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < least || number > most) return false;
    *value = (int)number;
    return true;
}

bool rd_launch_is_first(void)
{
    int local_rank;
    for (int i = 0; i < LAUNCHERS; i++)
        if (read_number(launchers[i].local_rank, 0, RD_LARGEST_WORLD, &local_rank) && local_rank > 0) return false;
    return true;
}

static rondo_result read_launch(const struct launcher *l, struct launch *to)
{
    struct launch a = {.by = l};
    char what[128];
    snprintf(what, sizeof what, "the world size must be a number from 1 to %d", RD_LARGEST_WORLD);
    if (!read_number(l->world, 1, RD_LARGEST_WORLD, &a.world)) return refuse(l, what);
    snprintf(what, sizeof what, "the rank must be a number from 0 to %d, one less than the world size", a.world - 1);
    if (!read_number(l->rank, 0, a.world - 1, &a.rank)) return refuse(l, what);
    if (!read_number(l->local_world, 1, a.world, &a.local_world))
        return refuse(l, "the local world size must be a number from 1 to the world size");
    if (!read_number(l->local_rank, 0, (a.local_world > 0 ? a.local_world : a.world) - 1, &a.local_rank))
        return refuse(l, "the local rank must be a number from 0, below the local world size and the world size");
    if (!read_number(l->nodes, 1, RD_LARGEST_WORLD, &a.nodes))
        return refuse(l, "the number of nodes must be at least 1");
    *to = a;
    return RONDO_SUCCESS;
}

/* A launcher that is started by another one, and whose word is therefore the one that counts. */
static bool is_innermost(void)
{
    return rd_env("RONDO_JOB") || rd_env("TORCHELASTIC_RUN_ID");
}

/* The one launcher there is; several may be there as long as they agree. */
static rondo_result find_launch(struct launch *to)
{
    const struct launcher *half = NULL;
    struct launch found = {.by = NULL}, other = {.by = NULL};
    for (int i = 0; i < LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        bool rank = rd_env(l->rank), world = rd_env(l->world);
        if (rank != world && !half && (i == 0 || !found.by)) half = l;
        if (!rank || !world) continue;
        if (found.by == &launchers[0] && is_innermost()) break;
        RD_TRY(read_launch(l, &other));
        if (!found.by) found = other;
        if (found.rank == other.rank && found.world == other.world) continue;
        char first[512], second[512];
        describe(found.by, first, sizeof first);
        describe(l, second, sizeof second);
        return rd_fail(
            RONDO_INVALID_ARGUMENT,
            "two launchers disagree: %s says %s, but %s says %s; unset the variables of the one that does not count",
            found.by->name, first, l->name, second);
    }
    if (half && (!found.by || half == &launchers[0])) {
        char what[160];
        snprintf(what, sizeof what, "%s and %s belong together; %s", half->rank, half->world, half->start);
        return refuse(half, what);
    }
    if (!found.by)
        return rd_fail(RONDO_INVALID_USAGE, "no launcher's environment found: start with `rondo run -n N -- program`, "
                                            "torchrun, or set RANK and WORLD_SIZE");
    *to = found;
    return RONDO_SUCCESS;
}

/* ---- Which job ---- */

/* When a process began, in clock ticks since the machine did: with its number, a name that is not used twice. */
static unsigned long long start_of(pid_t pid)
{
    char path[64], line[1024];
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL; /* names may hold anything */
    fclose(file);
    if (name_end)
        (void)!sscanf(name_end, ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                      &ticks);
    return ticks;
}

static void parent_name(char *text, size_t bytes)
{
    pid_t parent = getppid();
    snprintf(text, bytes, "%d since %llu", (int)parent, start_of(parent));
}

/* All ranks of one job must come to the same 16 bytes, and those of another job to others. */
static void name_job(const struct launch *a, bool one_host, unsigned char id[16])
{
    char world[16], user[16] = "", parent[64] = "";
    const char *run[3] = {rd_env("RONDO_JOB"), NULL, NULL};
    if (!run[0]) run[0] = rd_env("TORCHELASTIC_RUN_ID");
    for (int i = 0; i < 2 && !rd_env("RONDO_JOB"); i++)
        if (a->by->job[i]) run[1 + i] = rd_env(a->by->job[i]);
    snprintf(world, sizeof world, "%d", a->world);
    if (one_host) snprintf(user, sizeof user, "%u", (unsigned)geteuid());
    if (!run[0] && !run[1] && !rd_env("MASTER_ADDR")) parent_name(parent, sizeof parent);
    const char *const parts[] = {
        run[0], run[1], run[2], rd_env("MASTER_ADDR"), rd_env("MASTER_PORT"), rd_env("TORCHELASTIC_RESTART_COUNT"),
        world,  user,   parent};
    enum { PARTS = sizeof parts / sizeof *parts };
    unsigned char hashes[PARTS][32];
    for (int i = 0; i < PARTS; i++) {
        const char *part = parts[i] ? parts[i] : "";
        rd_hash(hashes[i], sizeof hashes[i], "rondo job part", part, strlen(part));
    }
    rd_hash(id, 16, "rondo job", hashes, sizeof hashes);
}

/* ---- Where its root is ---- */

/* Whether no rank is elsewhere: said by the launcher, or by the absence of an address. */
static rondo_result spread(const struct launch *a, bool *one_host)
{
    bool several = (a->local_world > 0 && a->local_world < a->world) || a->nodes > 1;
    *one_host = a->local_world == a->world || a->nodes == 1 || (!several && !rd_env("MASTER_ADDR"));
    if (!several || rd_env("MASTER_ADDR")) return RONDO_SUCCESS;
    return refuse(a->by, "the ranks are on several hosts; set MASTER_ADDR to the address of rank 0's host and "
                         "MASTER_PORT to a port that is free there, on all of them");
}

/* The root takes the first free port of a range and its peers try them all; what tells it from others is the
 * handshake. Under torchrun the agent's store holds MASTER_PORT itself. */
static rondo_result find_ports(const rd_settings *settings, bool one_host, rd_job *job)
{
    const char *agent = rd_env("TORCHELASTIC_USE_AGENT_STORE"), *text = rd_env("MASTER_PORT");
    bool taken = agent && (strcasecmp(agent, "true") == 0 || strcmp(agent, "1") == 0);
    int port = -1;
    if (settings->port > 0) { /* asked for by name: that one or none */
        job->root_port = (int)settings->port;
        job->root_ports = 1;
        return RONDO_SUCCESS;
    }
    if (one_host) return RONDO_SUCCESS;
    if (!read_number("MASTER_PORT", 1, 65535 - taken, &port) || port < 0)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "MASTER_ADDR=%.100s, but MASTER_PORT%s%.40s; valid: 1 to %d, or set RONDO_PORT",
                       rd_env("MASTER_ADDR"), text ? "=" : " is unset", text ? text : "", 65535 - taken);
    job->root_port = port + taken;
    job->root_ports = port + PORTS_TRIED > 65535 ? 65535 - job->root_port + 1 : PORTS_TRIED + !taken;
    return RONDO_SUCCESS;
}

static rondo_result find_root(const rd_settings *settings, bool one_host, rd_job *job)
{
    char digits[33];
    rd_address list[RD_ROOTS - 1];
    int count = 0;
    rd_hex(digits, job->id, sizeof job->id);
    snprintf(job->root[job->roots++], sizeof job->root[0], "unix:rondo-%u-%s", (unsigned)geteuid(), digits);
    RD_TRY(find_ports(settings, one_host, job));
    if (one_host || job->is_root) return RONDO_SUCCESS;
    rondo_result result =
        rd_address_resolve(rd_env("MASTER_ADDR"), job->root_port,
                           rd_deadline(settings->timeout_s < NAME_PATIENCE_S ? settings->timeout_s : NAME_PATIENCE_S),
                           list, RD_ROOTS - 1, &count);
    if (result != RONDO_SUCCESS) return rd_fail(result, "MASTER_ADDR: %s", rd_last_error());
    for (int i = 0; i < count; i++) rd_address_print(&list[i], job->root[job->roots++]);
    return RONDO_SUCCESS;
}

/* ---- Together ---- */

static const char *launcher_name(const struct launch *a)
{
    if (a->by != &launchers[0]) return a->by->name;
    return rd_env("TORCHELASTIC_RUN_ID") ? "torchrun" : rd_env("RONDO_JOB") ? "rondo run" : a->by->name;
}

rondo_result rd_job_from_env(rd_job *job, const rd_settings *settings)
{
    struct launch a = {.by = NULL};
    rd_job j;
    bool one_host = false;
    memset(&j, 0, sizeof j);
    RD_TRY(find_launch(&a));
    RD_TRY(spread(&a, &one_host));
    j.rank = a.rank;
    j.world = a.world;
    j.is_root = a.rank == 0;
    snprintf(j.launcher, sizeof j.launcher, "%s", launcher_name(&a));
    name_job(&a, one_host, j.id);
    RD_TRY(rd_key_read(settings, j.key, &j.has_key));
    RD_TRY(find_root(settings, one_host, &j));
    RD_TRY(rd_job_count(j.id, j.rank, &j.comm_number));
    *job = j;
    return RONDO_SUCCESS;
}
