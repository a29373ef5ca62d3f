/* SPDX-License-Identifier: Apache-2.0
 *
 * variables.c - NCCL_ environment variables: those that mean something here become suggestions for our settings, which
 * a RONDO_ variable overrides; the others are named in one warning. The only file here that reads the environment.
 */
#include "shim/shim.h"

#include "base/env.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

extern char **environ;

static int blocks = 1;
static const char *meeting_point;

static bool version_asked;
static char no_file[700]; /* why the log stays where it is */

static bool is_on(const char *value)
{
    return *value && strcmp(value, "0") != 0;
}

static bool suggested; /* by the variable that is being followed */

/* Kept for ever, as suggestions are. false: it is no value of the setting. */
static bool suggest(const char *name, const char *value)
{
    char *kept = strdup(value);
    if (kept && rd_settings_suggest(name, kept)) return suggested = true;
    free(kept);
    return false;
}

/* ---- What each means: false: nothing, as it is set ---- */

static bool level(const char *value, const char *ours)
{
    static const struct {
        const char *theirs, *ours;
    } levels[] = {{"NONE", "NONE"},  {"VERSION", "WARN"}, {"WARN", "WARN"},
                  {"ABORT", "WARN"}, {"INFO", "INFO"},    {"TRACE", "TRACE"}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcasecmp(value, levels[i].theirs) != 0) continue;
        version_asked = i == 1;
        suggest(ours, levels[i].ours);
        return true;
    }
    return false;
}

/* The two have one notation. */
static bool as_it_is(const char *value, const char *ours)
{
    return suggest(ours, value);
}

/* "log.%h.%p": with the host's name and the process's number; "stdout" and "stderr" are those. */
static void expand(const char *pattern, char *path, size_t bytes)
{
    char host[65] = "", part[80];
    gethostname(host, sizeof host - 1);
    path[0] = 0;
    for (const char *at = pattern; *at; at++) {
        bool special = *at == '%' && at[1];
        if (special) at++;
        if (special && *at == 'h')
            snprintf(part, sizeof part, "%.*s", (int)strcspn(host, "."), host);
        else if (special && *at == 'p')
            snprintf(part, sizeof part, "%d", (int)getpid());
        else
            snprintf(part, sizeof part, "%s%c", special && *at != '%' ? "%" : "", *at);
        size_t used = strlen(path);
        snprintf(path + used, bytes - used, "%s", part);
    }
}

static bool file(const char *value, const char *ours)
{
    char path[4096];
    (void)ours;
    expand(value, path, sizeof path);
    int fd = strcasecmp(path, "stdout") == 0   ? STDOUT_FILENO
             : strcasecmp(path, "stderr") == 0 ? STDERR_FILENO
                                               : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0)
        rd_log_to(fd);
    else
        snprintf(no_file, sizeof no_file, "NCCL_DEBUG_FILE: %.500s: %s; the log stays on standard error", path,
                 strerror(errno));
    return true;
}

/* Below 0 the choice is the library's. */
static bool unless_negative(const char *value, const char *ours)
{
    return *value == '-' || suggest(ours, value);
}

/* "Ring", "ring,tree", "allreduce:ring;...": where the ring is allowed it is forced. */
static bool algorithm(const char *value, const char *ours)
{
    return *value != '^' && strcasestr(value, "ring") && suggest(ours, "ring");
}

static bool no_shared_memory(const char *value, const char *ours)
{
    return !is_on(value) || suggest(ours, "tcp");
}

static bool up_to_8(const char *value, const char *ours)
{
    char text[24];
    long n = atol(value);
    snprintf(text, sizeof text, "%ld", n < 8 ? n : 8);
    return n >= 1 && suggest(ours, text);
}

/* Their sockets of a connection: threads times sockets for each. */
static bool sockets(const char *value, const char *ours)
{
    char product[24];
    const char *threads = rd_env("NCCL_SOCKET_NTHREADS"), *each = rd_env("NCCL_NSOCKS_PERTHREAD");
    (void)value;
    snprintf(product, sizeof product, "%ld", (threads ? atol(threads) : 1) * (each ? atol(each) : 1));
    return up_to_8(product, ours);
}

static bool rdma_is_off(void)
{
    const char *off = rd_env("NCCL_IB_DISABLE"), *net = rd_env("NCCL_NET");
    return (off && is_on(off)) || (net && strcasecmp(net, "Socket") == 0);
}

/* No device has this name. */
static bool rdma_off(const char *value, const char *ours)
{
    (void)value;
    return !rdma_is_off() || suggest(ours, "=none");
}

static bool rdma_devices(const char *value, const char *ours)
{
    return rdma_is_off() || suggest(ours, value);
}

static bool net(const char *value, const char *ours)
{
    return (strcasecmp(value, "Socket") == 0 && rdma_off(value, ours)) || strcasecmp(value, "IB") == 0;
}

static bool blocking(const char *value, const char *ours)
{
    (void)ours;
    blocks = is_on(value);
    return true;
}

static bool meet_at(const char *value, const char *ours)
{
    (void)ours;
    meeting_point = *value ? strdup(value) : NULL;
    return true;
}

static bool not_peers(const char *value, const char *ours)
{
    return suggest(ours, is_on(value) ? "0" : "1");
}

/* That we have no plugins suits it. */
static bool no_plugin(const char *value, const char *ours)
{
    (void)ours;
    return strcasecmp(value, "none") == 0;
}

/* Of a container or a framework, not of the library. */
static bool of_others(const char *value, const char *ours)
{
    (void)value;
    (void)ours;
    return true;
}

static const struct {
    const char *name;
    bool (*follow)(const char *value, const char *ours);
    const char *ours;
} variables[] = {
    {"NCCL_DEBUG", level, "RONDO_DEBUG"},
    {"NCCL_DEBUG_FILE", file, NULL},
    {"NCCL_SOCKET_IFNAME", as_it_is, "RONDO_INTERFACE"},
    {"NCCL_ALGO", algorithm, "RONDO_ALGO"},
    {"NCCL_SHM_DISABLE", no_shared_memory, "RONDO_TRANSPORT"},
    {"NCCL_MIN_NCHANNELS", up_to_8, "RONDO_CHANNELS"},
    {"NCCL_MIN_CTAS", up_to_8, "RONDO_CHANNELS"},
    {"NCCL_SOCKET_NTHREADS", sockets, "RONDO_SOCKETS"},
    {"NCCL_NSOCKS_PERTHREAD", sockets, "RONDO_SOCKETS"},
    {"NCCL_IB_DISABLE", rdma_off, "RONDO_RDMA_DEVICE"},
    {"NCCL_IB_HCA", rdma_devices, "RONDO_RDMA_DEVICE"},
    {"NCCL_IB_GID_INDEX", unless_negative, "RONDO_RDMA_GID_INDEX"},
    {"NCCL_IB_TC", as_it_is, "RONDO_RDMA_TRAFFIC_CLASS"},
    {"NCCL_IB_SL", as_it_is, "RONDO_RDMA_SERVICE_LEVEL"},
    {"NCCL_IB_PKEY", as_it_is, "RONDO_RDMA_PKEY_INDEX"},
    {"NCCL_IB_TIMEOUT", as_it_is, "RONDO_RDMA_TIMEOUT"},
    {"NCCL_NET", net, "RONDO_RDMA_DEVICE"},
    {"NCCL_COMM_BLOCKING", blocking, NULL},
    {"NCCL_COMM_ID", meet_at, NULL},
    {"NCCL_P2P_DISABLE", not_peers, "RONDO_GPU_PEER"},
    {"NCCL_NET_PLUGIN", no_plugin, NULL},
    {"NCCL_TUNER_PLUGIN", no_plugin, NULL},
    {"NCCL_PROFILER_PLUGIN", no_plugin, NULL},
    {"NCCL_VERSION", of_others, NULL},
    {"NCCL_HOME", of_others, NULL},
    {"NCCL_ROOT", of_others, NULL},
    {"NCCL_ROOT_DIR", of_others, NULL},
    {"NCCL_INCLUDE_DIR", of_others, NULL},
    {"NCCL_LIB_DIR", of_others, NULL},
    {"NCCL_ASYNC_ERROR_HANDLING", of_others, NULL},
    {"NCCL_BLOCKING_WAIT", of_others, NULL},
};

enum { VARIABLES = sizeof variables / sizeof *variables };

static bool in_force[VARIABLES]; /* one of our settings has its value from it */

static bool followed(const char *name, const char *value)
{
    for (int i = 0; i < VARIABLES; i++) {
        if (strcmp(variables[i].name, name) != 0) continue;
        suggested = false;
        bool means = variables[i].follow(value, variables[i].ours);
        in_force[i] = suggested && !rd_env(variables[i].ours);
        return means;
    }
    return false;
}

const char *rd_shim_followed(int *i, const char **ours, const char **value)
{
    while (*i < VARIABLES && !in_force[*i]) ++*i;
    if (*i == VARIABLES) return NULL;
    bool same = variables[*i].follow == as_it_is || variables[*i].follow == unless_negative ||
                variables[*i].follow == rdma_devices;
    *ours = variables[*i].ours;
    *value = same ? NULL : rd_env(variables[*i].name);
    return variables[(*i)++].name;
}

/* ---- All of them ---- */

static void follow_all(void)
{
    char ignored[1024] = "", name[128];
    size_t used = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "NCCL_", 5) != 0 || length >= sizeof name || (*entry)[length] != '=') continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        if (followed(name, *entry + length + 1) || used >= sizeof ignored) continue;
        used += (size_t)snprintf(ignored + used, sizeof ignored - used, "%s%s", used ? ", " : "", *entry);
    }
    if (!used && !*no_file) return;
    rd_settings settings; /* the level at which to say it */
    if (rd_settings_load(&settings, NULL) != RONDO_SUCCESS) return;
    if (*no_file) rd_log(RD_LOG_WARN, "%s", no_file);
    if (!used) return;
    rd_log(RD_LOG_WARN,
           "these variables mean nothing to Rondo's libnccl.so.2, as they are set: %s; docs/nccl.md lists those "
           "that do, rondo doctor Rondo's own",
           ignored);
}

void rd_shim_variables(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, follow_all);
}

void rd_shim_tell_version(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&told)) return;
    rd_log(version_asked ? RD_LOG_NONE : RD_LOG_INFO, "NCCL version %d.%d.%d, as Rondo %d.%d.%d has it", NCCL_MAJOR,
           NCCL_MINOR, NCCL_PATCH, RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH);
}

int rd_shim_blocks(void)
{
    return blocks;
}

const char *rd_shim_meeting_point(void)
{
    return meeting_point;
}

void rd_shim_debug(void)
{
    const char *value = rd_env("NCCL_DEBUG");
    rd_settings settings;
    if (value) level(value, "RONDO_DEBUG");
    rd_settings_load(&settings, NULL); /* which sets the level of the log */
}
