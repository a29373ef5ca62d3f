/* SPDX-License-Identifier: Apache-2.0
 *
 * variables.c - NCCL_ environment variables: those that mean something here become suggestions for our settings, which a
 * RONDO_ variable overrides; the others are named in one warning. The only file here that reads the environment.
 */
#include "shim/shim.h"

#include "base/env.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

static int blocks = 1;
static const char *meeting_point;

static bool is_on(const char *value)
{
    return *value && strcmp(value, "0") != 0;
}

/* Kept for ever, as suggestions are. */
static void suggest(const char *name, const char *value)
{
    char *kept = strdup(value);
    if (kept && !rd_settings_suggest(name, kept)) free(kept);
}

static void suggest_number(const char *name, long value, long most)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", value < most ? value : most);
    suggest(name, text);
}

/* ---- What each means: false: nothing, as it is set ---- */

static bool level(const char *value)
{
    static const struct {
        const char *theirs, *ours;
    } levels[] = {{"NONE", "NONE"}, {"VERSION", "WARN"}, {"WARN", "WARN"},
                  {"ABORT", "WARN"}, {"INFO", "INFO"},   {"TRACE", "TRACE"}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcasecmp(value, levels[i].theirs) != 0) continue;
        suggest("RONDO_DEBUG", levels[i].ours);
        return true;
    }
    return false;
}

static bool interface(const char *value)
{
    suggest("RONDO_INTERFACE", value);
    return true;
}

/* "Ring", "ring,tree", "allreduce:ring;...": where the ring is allowed it is forced. */
static bool algorithm(const char *value)
{
    if (*value == '^' || !strcasestr(value, "ring")) return false;
    suggest("RONDO_ALGO", "ring");
    return true;
}

static bool no_shared_memory(const char *value)
{
    if (is_on(value)) suggest("RONDO_TRANSPORT", "tcp");
    return true;
}

static bool channels(const char *value)
{
    long n = atol(value);
    if (n >= 1) suggest_number("RONDO_CHANNELS", n, 8);
    return n >= 1;
}

/* Their sockets of a connection: threads times sockets for each. */
static bool sockets(const char *value)
{
    const char *threads = rd_env("NCCL_SOCKET_NTHREADS"), *each = rd_env("NCCL_NSOCKS_PERTHREAD");
    long n = (threads ? atol(threads) : 1) * (each ? atol(each) : 1);
    (void)value;
    if (n >= 1) suggest_number("RONDO_SOCKETS", n, 8);
    return n >= 1;
}

static bool blocking(const char *value)
{
    blocks = is_on(value);
    return true;
}

static bool meet_at(const char *value)
{
    meeting_point = *value ? strdup(value) : NULL;
    return true;
}

/* Nothing of what it forbids happens here anyway. */
static bool only_off(const char *value)
{
    return is_on(value);
}

/* That we have no plugins suits it. */
static bool no_plugin(const char *value)
{
    return strcasecmp(value, "none") == 0 || strcasecmp(value, "Socket") == 0;
}

/* Of a container or a framework, not of the library. */
static bool of_others(const char *value)
{
    (void)value;
    return true;
}

static const struct {
    const char *name;
    bool (*follow)(const char *value);
} variables[] = {
    {"NCCL_DEBUG", level},
    {"NCCL_SOCKET_IFNAME", interface},
    {"NCCL_ALGO", algorithm},
    {"NCCL_SHM_DISABLE", no_shared_memory},
    {"NCCL_P2P_DISABLE", only_off},
    {"NCCL_IB_DISABLE", only_off},
    {"NCCL_NVLS_ENABLE", of_others},
    {"NCCL_MIN_NCHANNELS", channels},
    {"NCCL_MIN_CTAS", channels},
    {"NCCL_SOCKET_NTHREADS", sockets},
    {"NCCL_NSOCKS_PERTHREAD", sockets},
    {"NCCL_COMM_BLOCKING", blocking},
    {"NCCL_COMM_ID", meet_at},
    {"NCCL_NET", no_plugin},
    {"NCCL_NET_PLUGIN", no_plugin},
    {"NCCL_TUNER_PLUGIN", no_plugin},
    {"NCCL_PROFILER_PLUGIN", no_plugin},
    {"NCCL_VERSION", of_others},
    {"NCCL_HOME", of_others},
    {"NCCL_ROOT", of_others},
    {"NCCL_ROOT_DIR", of_others},
    {"NCCL_INCLUDE_DIR", of_others},
    {"NCCL_LIB_DIR", of_others},
    {"NCCL_ASYNC_ERROR_HANDLING", of_others},
    {"NCCL_BLOCKING_WAIT", of_others},
};

static bool followed(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (strcmp(variables[i].name, name) == 0) return variables[i].follow(value);
    return false;
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
    if (!used) return;
    rd_settings settings; /* the level at which to say it */
    if (rd_settings_load(&settings, NULL) != RONDO_SUCCESS) return;
    rd_log(RD_LOG_WARN, "these variables mean nothing to Rondo's libnccl.so.2, as they are set: %s; docs/nccl.md says what to "
                        "use instead",
           ignored);
}

void rd_shim_variables(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, follow_all);
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
    if (value) level(value);
    rd_settings_load(&settings, NULL); /* which sets the level of the log */
}
