/* SPDX-License-Identifier: Apache-2.0
 *
 * test_env.c - settings from defaults, configuration and environment. What depends on the environment runs in a
 * child, so that "once a process" starts anew and nothing leaks into the other tests.
 */
#include "asserts.h"

#include "base/env.h"
#include "base/log.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What a child saw. */
struct seen {
    rondo_result result;
    rd_settings settings;
    char interface[64], error[RD_ERROR_BYTES], warnings[8192];
    int warns_at_end; /* rd_log_wants(RD_LOG_WARN) */
};

static void clear_environment(void)
{
    for (char **entry = environ; *entry;) {
        char name[128];
        size_t length = strcspn(*entry, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        if (strncmp(name, "RONDO_", 6) == 0) {
            unsetenv(name);
            entry = environ;
        } else {
            entry++;
        }
    }
}

static void read_all(int fd, void *to, size_t room)
{
    size_t used = 0;
    ssize_t got;
    while (used < room && (got = read(fd, (char *)to + used, room - used)) > 0) used += (size_t)got;
    close(fd);
}

/* Loads the settings `times` times in a child with these variables ("NAME=value", NULL at the end). */
static struct seen load(const char *const *variables, const rondo_config *config, int times)
{
    static struct seen seen;
    int errors[2], answers[2], status;
    memset(&seen, 0, sizeof seen);
    assert_int_equal(pipe(errors), 0);
    assert_int_equal(pipe(answers), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(errors[1], STDERR_FILENO);
        alarm(20); /* a child that hangs is a failure */
        clear_environment();
        for (; *variables; variables++) putenv((char *)(uintptr_t)*variables);
        for (int i = 0; i < times; i++) seen.result = rd_settings_load(&seen.settings, config);
        if (seen.settings.interface) snprintf(seen.interface, sizeof seen.interface, "%s", seen.settings.interface);
        snprintf(seen.error, sizeof seen.error, "%s", rd_last_error());
        seen.warns_at_end = rd_log_wants(RD_LOG_WARN);
        _exit(write(answers[1], &seen, sizeof seen) != sizeof seen);
    }
    close(errors[1]);
    close(answers[1]);
    char warnings[sizeof seen.warnings] = "";
    read_all(answers[0], &seen, sizeof seen);
    read_all(errors[0], warnings, sizeof warnings - 1);
    memcpy(seen.warnings, warnings, sizeof warnings);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return seen;
}

#define LOAD(...) load((const char *const[]){__VA_ARGS__, NULL}, NULL, 1)

static int lines(const char *text)
{
    int count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

static void defaults(void **state)
{
    (void)state;
    struct seen s = LOAD("PATH=/");
    assert_int_equal(s.result, RONDO_SUCCESS);
    assert_string_equal(s.warnings, "");
    assert_true(s.settings.timeout_s == 600 && s.settings.slow_warning_s == 10);
    assert_int_equal(s.settings.debug, RD_LOG_WARN);
    assert_int_equal(s.settings.transport, RD_TRANSPORT_AUTO);
    assert_int_equal(s.settings.algo, RD_ALGO_AUTO);
    assert_int_equal(s.settings.numerics, RD_NUMERICS_AUTO);
    assert_int_equal(s.settings.cpu, RD_CPU_AUTO);
    assert_int_equal(s.settings.channels, 0);
    assert_int_equal(s.settings.slice_bytes, 262144);
    assert_int_equal(s.settings.sockets, 0);
    assert_int_equal(s.settings.flat_ranks, 16);
    assert_int_equal(s.settings.spin, -1);
    assert_int_equal(s.settings.port, 0);
    assert_int_equal(s.settings.require_key, 0);
    assert_null(s.settings.interface);
    assert_null(s.settings.key);
    assert_null(s.settings.key_file);
}

static void environment_values(void **state)
{
    (void)state;
    struct seen s =
        LOAD("RONDO_TIMEOUT=2.5", "RONDO_SLOW_WARNING=1e-1", "RONDO_TRANSPORT=TCP", "RONDO_ALGO=flat", "RONDO_CPU=avx2",
             "RONDO_CHANNELS=8", "RONDO_SLICE=64k", "RONDO_SPIN=-1", "RONDO_PORT=65535", "RONDO_INTERFACE=eth0",
             "RONDO_REQUIRE_KEY=yes", "RONDO_DEBUG=trace", "RONDO_NUMERICS=accurate");
    assert_int_equal(s.result, RONDO_SUCCESS);
    assert_string_equal(s.warnings, "");
    assert_true(s.settings.timeout_s == 2.5 && s.settings.slow_warning_s == 0.1);
    assert_int_equal(s.settings.transport, RD_TRANSPORT_TCP);
    assert_int_equal(s.settings.algo, RD_ALGO_FLAT);
    assert_int_equal(s.settings.cpu, RD_CPU_AVX2);
    assert_int_equal(s.settings.channels, 8);
    assert_int_equal(s.settings.slice_bytes, 65536);
    assert_int_equal(s.settings.port, 65535);
    assert_string_equal(s.interface, "eth0");
    assert_int_equal(s.settings.require_key, 1);
    assert_int_equal(s.settings.debug, RD_LOG_TRACE);
    assert_int_equal(LOAD("RONDO_SLICE=4096").settings.slice_bytes, 4096);
    assert_int_equal(LOAD("RONDO_REQUIRE_KEY=off").settings.require_key, 0);
    /* Empty is unset. */
    s = LOAD("RONDO_CHANNELS=", "RONDO_NONSENSE=");
    assert_int_equal(s.settings.channels, 0);
}

/* Each is one line that names the variable, the value, and what is valid; the default stands. */
static void bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *range, *stands;
    } bad[] = {
        {"RONDO_TIMEOUT=soon", "0.001 to 1000000000 seconds", "using 600"},
        {"RONDO_TIMEOUT=nan", "0.001 to 1000000000 seconds", "using 600"},
        {"RONDO_TIMEOUT=inf", "0.001 to 1000000000 seconds", "using 600"},
        {"RONDO_TIMEOUT=-1", "0.001 to 1000000000 seconds", "using 600"},
        {"RONDO_TIMEOUT=0", "0.001 to 1000000000 seconds", "using 600"},
        {"RONDO_TIMEOUT=5s", "0.001 to 1000000000 seconds", "using 600"},
        {"RONDO_CHANNELS=9", "0 to 8", "using 0"},
        {"RONDO_CHANNELS=1.5", "0 to 8", "using 0"},
        {"RONDO_CHANNELS= 2", "0 to 8", "using 0"},
        {"RONDO_CHANNELS=99999999999999999999", "0 to 8", "using 0"},
        {"RONDO_SLICE=4097", "4096 to 262144 bytes, a multiple of 64", "using 262144"},
        {"RONDO_SLICE=1M", "4096 to 262144 bytes, a multiple of 64", "using 262144"},
        {"RONDO_SLICE=64KB", "4096 to 262144 bytes, a multiple of 64", "using 262144"},
        {"RONDO_SLICE=9223372036854775807K", "4096 to 262144 bytes, a multiple of 64", "using 262144"},
        {"RONDO_SLICE=-64K", "4096 to 262144 bytes, a multiple of 64", "using 262144"},
        {"RONDO_TRANSPORT=tpc", "auto, loop, shm, tcp, verbs or cuda_ipc; did you mean tcp?", "using auto"},
        {"RONDO_ALGO=tree", "auto, ring, flat, exchange or hier; using", "using auto"},
        {"RONDO_NUMERICS=exact", "auto, accurate, fast or strict; using", "using auto"},
        {"RONDO_DEBUG=INF", "NONE, WARN, INFO or TRACE; did you mean INFO?", "using WARN"},
        {"RONDO_REQUIRE_KEY=maybe", "0 or 1", "using 1"},
        {"RONDO_PORT=65536", "0 to 65535", "using 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct seen s = load((const char *const[]){bad[i].entry, NULL}, NULL, 3);
        assert_int_equal(s.result, RONDO_SUCCESS);
        assert_contains(s.warnings, " WARN: ");
        assert_contains(s.warnings, bad[i].entry);
        assert_contains(s.warnings, bad[i].range);
        assert_contains(s.warnings, bad[i].stands);
        assert_int_equal(lines(s.warnings), 1);
    }
}

static void unknown_names(void **state)
{
    (void)state;
    static const char *const near[][2] = {
        {"RONDO_TIMOUT=1", "RONDO_TIMEOUT?"},
        {"RONDO_Transprot=shm", "RONDO_TRANSPORT?"},
        {"RONDO_CHANNEL=2", "RONDO_CHANNELS?"},
        {"RONDO_ALGORI=ring", "RONDO_ALGO?"},
        {"RONDO_KEYFILE=/key", "RONDO_KEY_FILE?"},
        {"RONDO_INTERFACES=eth", "RONDO_INTERFACE?"},
        {"RONDO_SLOW_WARNNIG=3", "RONDO_SLOW_WARNING?"},
        {"RONDO_JBO=3", "RONDO_JOB?"},
    };
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        struct seen s = load((const char *const[]){near[i][0], NULL}, NULL, 3);
        assert_int_equal(s.result, RONDO_SUCCESS);
        assert_contains(s.warnings, near[i][1]);
        assert_int_equal(lines(s.warnings), 1);
        assert_null(strchr(s.warnings, '=')); /* the value may be a secret */
    }
    struct seen s = LOAD("RONDO_SOMETHING_ELSE=1");
    assert_null(strstr(s.warnings, "did you mean"));
    assert_contains(s.warnings, "RONDO_SOMETHING_ELSE is not a setting");
    assert_contains(s.warnings, "; rondo doctor lists all");
    assert_null(strstr(s.warnings, "RONDO_TIMEOUT"));
    s = LOAD("RONDO_JOB=a", "RONDO_TEST_LONG=1", "RONDO_TEST_X=1", "RONDO_TESTS=/t", "RONDO_BUILD=/b", "RONDOX=1",
             "RONDO=1");
    assert_string_equal(s.warnings, "");
    /* Several at once: a line each. */
    assert_int_equal(lines(LOAD("RONDO_TIMOUT=1", "RONDO_CHANEL=1", "RONDO_PORT=x").warnings), 3);
}

static void debug_silences(void **state)
{
    (void)state;
    struct seen s = LOAD("RONDO_TIMEOUT=x", "RONDO_FOO=1", "RONDO_DEBUG=none");
    assert_string_equal(s.warnings, "");
    assert_int_equal(s.warns_at_end, 0);
    assert_true(s.settings.timeout_s == 600);
}

static void every_way_of_adding(void **state)
{
    (void)state;
    assert_int_equal(LOAD("RONDO_NUMERICS=fast").settings.numerics, RD_NUMERICS_FAST);
    struct seen s = LOAD("RONDO_NUMERICS=STRICT");
    assert_int_equal(s.settings.numerics, RD_NUMERICS_STRICT);
    assert_string_equal(s.warnings, "");
}

static void config_fields(void **state)
{
    (void)state;
    rondo_config c = RONDO_CONFIG_INIT;
    c.timeout_s = 3;
    c.slow_warning_s = 2;
    c.channels = 4;
    c.slice_bytes = 8192;
    c.transport = "shm";
    c.algo = "ring";
    c.device = RONDO_DEVICE_HOST;
    struct seen s = load((const char *const[]){NULL}, &c, 1);
    assert_int_equal(s.result, RONDO_SUCCESS);
    assert_true(s.settings.timeout_s == 3 && s.settings.slow_warning_s == 2);
    assert_int_equal(s.settings.channels, 4);
    assert_int_equal(s.settings.slice_bytes, 8192);
    assert_int_equal(s.settings.transport, RD_TRANSPORT_SHM);
    assert_int_equal(s.settings.algo, RD_ALGO_RING);
    /* The environment wins, field by field; a bad variable leaves the field. */
    s = load((const char *const[]){"RONDO_CHANNELS=2", "RONDO_TRANSPORT=tcp", "RONDO_TIMEOUT=x", NULL}, &c, 1);
    assert_int_equal(s.settings.channels, 2);
    assert_int_equal(s.settings.transport, RD_TRANSPORT_TCP);
    assert_int_equal(s.settings.algo, RD_ALGO_RING);
    assert_true(s.settings.timeout_s == 3);
    assert_contains(s.warnings, "using 3");
}

static void bad_config(void **state)
{
    (void)state;
    rd_settings settings, before;
    memset(&before, 0x5a, sizeof before);
#define BAD(field, value, ...)                                                                                         \
    do {                                                                                                               \
        rondo_config c = RONDO_CONFIG_INIT;                                                                            \
        const char *const parts[] = {"config->" #field " is ", __VA_ARGS__};                                           \
        c.field = (value);                                                                                             \
        settings = before;                                                                                             \
        assert_int_equal(rd_settings_load(&settings, &c), RONDO_INVALID_ARGUMENT);                                     \
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_contains(rd_last_error(), parts[i]);          \
        assert_memory_equal(&settings, &before, sizeof before);                                                        \
    } while (0)
    BAD(timeout_s, 0, "is 0;", "0.001 to 1000000000");
    BAD(timeout_s, -3, "is -3;", "0.001 to 1000000000");
    BAD(timeout_s, (double)NAN, "nan", "0.001 to 1000000000");
    BAD(timeout_s, (double)INFINITY, "inf", "0.001 to 1000000000");
    BAD(slow_warning_s, 0, "is 0;", "0.001");
    BAD(device, -3, "-3", "RONDO_DEVICE_AUTO (-1)");
    BAD(channels, -1, "-1", "0 to 8");
    BAD(channels, 9, "9", "0 to 8");
    BAD(slice_bytes, 4095, "4095", "4096 to 262144 bytes, a multiple of 64");
    BAD(slice_bytes, 4100, "4100", "a multiple of 64");
    BAD(slice_bytes, (size_t)-1, "18446744073709551615", "4096 to 262144");
    BAD(transport, "rdma", "\"rdma\"", "auto, loop, shm, tcp, verbs or cuda_ipc");
    BAD(transport, "", "\"\"", "auto, loop, shm, tcp, verbs or cuda_ipc");
    BAD(algo, "tree", "\"tree\"", "auto, ring, flat, exchange or hier");
    BAD(size, 0, "is 0;", "8 to 4096");
    BAD(size, 7, "is 7;", "8 to 4096");
    BAD(size, 4097, "is 4097;", "8 to 4096");
#undef BAD
}

/* Programs built against older and newer headers: what lies within size counts, whole fields only. */
static void config_sizes(void **state)
{
    (void)state;
    struct {
        rondo_config known;
        char later[256];
    } c = {.known = RONDO_CONFIG_INIT};
    rd_settings s;
    memset(c.later, 0xee, sizeof c.later);
    c.known.timeout_s = 7;
    c.known.channels = 3;
    c.known.algo = "ring";
    c.known.size = sizeof c;
    assert_int_equal(rd_settings_load(&s, &c.known), RONDO_SUCCESS);
    assert_int_equal(s.algo, RD_ALGO_RING);
    c.known.size = offsetof(rondo_config, algo) + 1; /* half a field is none */
    assert_int_equal(rd_settings_load(&s, &c.known), RONDO_SUCCESS);
    assert_int_equal(s.algo, RD_ALGO_AUTO);
    assert_int_equal(s.channels, 3);
    c.known.size = offsetof(rondo_config, channels);
    assert_int_equal(rd_settings_load(&s, &c.known), RONDO_SUCCESS);
    assert_int_equal(s.channels, 0);
    assert_true(s.timeout_s == 7);
    c.known.size = sizeof c.known.size;
    c.known.timeout_s = -1; /* beyond its size: not ours to judge */
    assert_int_equal(rd_settings_load(&s, &c.known), RONDO_SUCCESS);
    assert_true(s.timeout_s == 600);
}

static void nearest(void **state)
{
    (void)state;
    static const char *const words[] = {"ring", "flat", "timeout", "transport", "slice"};
    static const char *const cases[][2] = {
        {"ring", "ring"},
        {"RING", "ring"},
        {"rign", "ring"},
        {"rin", "ring"},
        {"rings", "ring"},
        {"rong", "ring"},
        {"flta", "flat"},
        {"tiemout", "timeout"},
        {"slcie", "slice"},
        {"trasnprot", "transport"},
        {"timeouts", "timeout"},
        {"gnir", NULL},
        {"x", NULL},
        {"", NULL},
        {"banana", NULL},
        {"xring", "ring"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = rd_nearest(cases[i][0], words, 5);
        if (cases[i][1] == NULL ? found != NULL : !found || strcmp(found, cases[i][1]) != 0)
            fail_msg("%s: %s", cases[i][0], found ? found : "nothing");
    }
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(rd_nearest(longest, words, 5));
    assert_null(rd_nearest("ring", words, 0));
    static const char *const equals[] = {"cat", "bat", "hat"};
    assert_ptr_equal(rd_nearest("rat", equals, 3), equals[0]);
}

static void table_for_people(void **state)
{
    (void)state;
    struct seen s = LOAD("RONDO_KEY=0123456789abcdef", "RONDO_KEY_FILE=/tmp/key", "RONDO_ALGO=ring");
    char text[200];
    int found = 0;
    s.settings.key = "0123456789abcdef"; /* the child's pointers mean nothing here */
    s.settings.key_file = "/tmp/key";
    for (int i = 0; i < rd_setting_count; i++) {
        const struct rd_setting_info *info = &rd_setting_table[i];
        assert_true(strncmp(info->name, "RONDO_", 6) == 0 && *info->help);
        rd_setting_range(info, text, sizeof text);
        assert_true(*text);
        rd_setting_value(info, &s.settings, text, sizeof text);
        assert_null(strstr(text, "0123456789")); /* a key stays secret */
        if (strcmp(info->name, "RONDO_ALGO") == 0) found += strcmp(text, "ring") == 0;
        if (strcmp(info->name, "RONDO_KEY") == 0) found += strcmp(text, "set") == 0;
        if (strcmp(info->name, "RONDO_KEY_FILE") == 0) found += strcmp(text, "/tmp/key") == 0;
        if (strcmp(info->name, "RONDO_INTERFACE") == 0) found += strcmp(text, "unset") == 0;
        if (strcmp(info->name, "RONDO_TIMEOUT") == 0) found += strcmp(text, "600") == 0;
    }
    assert_int_equal(found, 5);
    rd_setting_range(&rd_setting_table[0], text, 5); /* a short buffer is cut, not overrun */
    assert_string_equal(text, "0.00");
}

/* Below config and the environment. */
static void suggestions(void **state)
{
    (void)state;
    rondo_config c = RONDO_CONFIG_INIT;
    assert_false(rd_settings_suggest("RONDO_NONSENSE", "1"));
    assert_false(rd_settings_suggest("RONDO_CHANNELS", "9"));
    assert_true(rd_settings_suggest("RONDO_CHANNELS", "5"));
    assert_true(rd_settings_suggest("RONDO_INTERFACE", "eth7"));
    assert_true(rd_settings_suggest("RONDO_SLICE", "8192"));
    struct seen s = LOAD("PATH=/");
    assert_string_equal(s.warnings, "");
    assert_int_equal(s.settings.channels, 5);
    assert_string_equal(s.interface, "eth7");
    assert_int_equal(s.settings.slice_bytes, 8192);
    c.channels = 3;
    s = load((const char *const[]){"RONDO_INTERFACE=lo", NULL}, &c, 1);
    assert_int_equal(s.settings.channels, 3);
    assert_string_equal(s.interface, "lo");
    static const char *const all[] = {"RONDO_CHANNELS", "RONDO_INTERFACE", "RONDO_SLICE"};
    for (int i = 0; i < 3; i++) assert_true(rd_settings_suggest(all[i], NULL));
    assert_int_equal(LOAD("PATH=/").settings.channels, 0);
}

static void empty_is_unset(void **state)
{
    (void)state;
    setenv("RONDO_TEST_EMPTY", "", 1);
    assert_null(rd_env("RONDO_TEST_EMPTY"));
    setenv("RONDO_TEST_EMPTY", "x", 1);
    assert_string_equal(rd_env("RONDO_TEST_EMPTY"), "x");
    unsetenv("RONDO_TEST_EMPTY");
    assert_null(rd_env("RONDO_TEST_EMPTY"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),      cmocka_unit_test(environment_values), cmocka_unit_test(bad_values),
        cmocka_unit_test(unknown_names), cmocka_unit_test(debug_silences),     cmocka_unit_test(every_way_of_adding),
        cmocka_unit_test(config_fields), cmocka_unit_test(bad_config),         cmocka_unit_test(config_sizes),
        cmocka_unit_test(nearest),       cmocka_unit_test(table_for_people),   cmocka_unit_test(empty_is_unset),
        cmocka_unit_test(suggestions),
    };
    clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
