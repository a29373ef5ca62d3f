/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

#include "base/log.h"
#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PREFIX         "RONDO_"
#define BYTES_UNIT     64
#define LARGEST_CONFIG 4096

const struct rd_setting_info rd_setting_table[] = {
#define RD_ROW(field, name, kind, initial, least, most, choices, help)                                                 \
    {name, initial, choices, help, RD_##kind, least, most, offsetof(rd_settings, field)},
    RD_SETTINGS(RD_ROW)
#undef RD_ROW
};

enum {
#define RD_INDEX(field, name, kind, initial, least, most, choices, help) AT_##field,
    RD_SETTINGS(RD_INDEX)
#undef RD_INDEX
        SETTINGS
};

const int rd_setting_count = SETTINGS;

/* Names with our prefix that are not settings; one that ends in '_' stands for all that begin so. */
static const char *const other_names[] = {"RONDO_JOB", "RONDO_TEST_", "RONDO_TESTS", "RONDO_BUILD"};

extern char **environ;

const char *rd_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- Did you mean ---- */

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: rows of the table of distances between prefixes, of which the last two are kept. */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int row[3][LONGEST + 1], la = (int)strnlen(a, LONGEST + 1), lb = (int)strnlen(b, LONGEST + 1);
    if (la > LONGEST || lb > LONGEST) return INT_MAX;
    for (int j = 0; j <= lb; j++) row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = row[i % 3], *one = row[(i + 2) % 3], *two = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least_of(least_of(one[j], now[j - 1]) + 1, one[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && tolower((unsigned char)a[i - 2]) == y)
                now[j] = least_of(now[j], two[j - 2] + 1);
        }
    }
    return row[la % 3][lb];
}

const char *rd_nearest(const char *word, const char *const *candidates, int count)
{
    int length = (int)strlen(word), best = length / 3 + 1;
    const char *nearest = NULL;
    for (int i = 0; i < count; i++) {
        int d = distance(word, candidates[i]);
        if (d >= best) continue;
        best = d;
        nearest = candidates[i];
    }
    return nearest;
}

/* ---- Values ---- */

/* Cuts "a|b|c" into its parts. */
static int split(const char *choices, char *copy, size_t bytes, const char *parts[], int room)
{
    int count = 0;
    snprintf(copy, bytes, "%s", choices);
    for (char *rest = copy, *part; count < room && (part = strsep(&rest, "|"));) parts[count++] = part;
    return count;
}

static bool parse_choice(const char *choices, const char *text, long *value)
{
    char copy[128];
    const char *parts[16];
    int count = split(choices, copy, sizeof copy, parts, 16);
    for (int i = 0; i < count; i++) {
        if (strcasecmp(parts[i], text) != 0) continue;
        *value = i;
        return true;
    }
    return false;
}

static bool parse_long(const char *text, bool units, long *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || errno || isspace((unsigned char)*text)) return false;
    long unit = 1;
    if (units && *end) {
        unit = *end == 'K' || *end == 'k' ? 1024 : *end == 'M' || *end == 'm' ? 1024 * 1024 : 0;
        if (unit) end++;
    }
    return unit && !*end && !__builtin_mul_overflow(number, unit, value);
}

/* In the C locale whatever the program's: half a second is "0.5" everywhere. */
static bool parse_seconds(const char *text, double *value)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) return false;
    char *end;
    double number = strtod_l(text, &end, c);
    freelocale(c);
    *value = number;
    return end != text && !*end && !isspace((unsigned char)*text);
}

static bool in_range(const struct rd_setting_info *s, double value)
{
    return isfinite(value) && value >= s->least && value <= s->most &&
           (s->kind != RD_BYTES || fmod(value, BYTES_UNIT) == 0);
}

/* Stores the value that `text` says into its field; false, and the field untouched, when it says none. */
static bool store(const struct rd_setting_info *s, const char *text, rd_settings *settings)
{
    char *field = (char *)settings + s->offset;
    long number = 0;
    double seconds;
    switch (s->kind) {
    case RD_SECONDS:
        if (!parse_seconds(text, &seconds) || !in_range(s, seconds)) return false;
        memcpy(field, &seconds, sizeof seconds);
        return true;
    case RD_NUMBER:
        if (s->choices && parse_choice(s->choices, text, &number)) {
            number = -1 - number;
            break;
        }
        /* fall through */
    case RD_BYTES:
        if (!parse_long(text, s->kind == RD_BYTES, &number) || !in_range(s, (double)number)) return false;
        break;
    case RD_CHOICE:
        if (!parse_choice(s->choices, text, &number)) return false;
        break;
    case RD_SWITCH:
        if (!parse_choice("0|1|off|on|no|yes|false|true", text, &number)) return false;
        number %= 2;
        break;
    case RD_TEXT: memcpy(field, &text, sizeof text); return true;
    }
    memcpy(field, &number, sizeof number);
    return true;
}

bool rd_setting_valid(const struct rd_setting_info *s, const char *text)
{
    rd_settings scratch;
    return store(s, text, &scratch);
}

void rd_setting_range(const struct rd_setting_info *s, char *text, size_t bytes)
{
    char copy[128];
    const char *parts[16];
    size_t used = 0;
    int count;
    switch (s->kind) {
    case RD_SECONDS: snprintf(text, bytes, "%g to %.0f seconds", s->least, s->most); return;
    case RD_NUMBER:
        if (!s->choices) {
            snprintf(text, bytes, "%.0f to %.0f", s->least, s->most);
            return;
        }
        count = split(s->choices, copy, sizeof copy, parts, 16);
        for (int i = 0; i < count && used < bytes; i++)
            used += (size_t)snprintf(text + used, bytes - used, "%s, ", parts[i]);
        if (used < bytes) snprintf(text + used, bytes - used, "or 0 to %.0f", s->most);
        return;
    case RD_BYTES: snprintf(text, bytes, "%.0f to %.0f bytes, a multiple of %d", s->least, s->most, BYTES_UNIT); return;
    case RD_SWITCH: snprintf(text, bytes, "0 or 1"); return;
    case RD_TEXT: snprintf(text, bytes, "text"); return;
    case RD_CHOICE: break;
    }
    count = split(s->choices, copy, sizeof copy, parts, 16);
    for (int i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                 i == 0          ? ""
                                 : i + 1 < count ? ", "
                                                 : " or ",
                                 parts[i]);
}

void rd_setting_value(const struct rd_setting_info *s, const rd_settings *settings, char *text, size_t bytes)
{
    char copy[128];
    const char *parts[16], *field = (const char *)settings + s->offset, *words;
    long number;
    double seconds;
    switch (s->kind) {
    case RD_SECONDS:
        memcpy(&seconds, field, sizeof seconds);
        snprintf(text, bytes, "%g", seconds);
        return;
    case RD_TEXT:
        memcpy(&words, field, sizeof words);
        snprintf(text, bytes, "%s", !words ? "unset" : s == &rd_setting_table[AT_key] ? "set" : words);
        return;
    default: break;
    }
    memcpy(&number, field, sizeof number);
    if (s->kind == RD_NUMBER && s->choices && number < 0 &&
        -1 - number < split(s->choices, copy, sizeof copy, parts, 16))
        snprintf(text, bytes, "%s", parts[-1 - number]);
    else if (s->kind == RD_CHOICE && number >= 0 && number < split(s->choices, copy, sizeof copy, parts, 16))
        snprintf(text, bytes, "%s", parts[number]);
    else
        snprintf(text, bytes, "%ld", number);
}

/* ---- From the caller's configuration ---- */

static rondo_result bad_field(const char *field, const char *value, const struct rd_setting_info *s)
{
    char range[160];
    rd_setting_range(s, range, sizeof range);
    return rd_fail(RONDO_INVALID_ARGUMENT, "config->%s is %s; valid: %s", field, value, range);
}

static rondo_result config_seconds(const char *field, double value, int at, double *setting)
{
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    if (!in_range(&rd_setting_table[at], value)) return bad_field(field, text, &rd_setting_table[at]);
    *setting = value;
    return RONDO_SUCCESS;
}

/* 0 leaves the choice to the library. */
static rondo_result config_number(const char *field, const char *text, double value, int at, long *setting)
{
    if (value == 0) return RONDO_SUCCESS;
    if (!in_range(&rd_setting_table[at], value)) return bad_field(field, text, &rd_setting_table[at]);
    *setting = (long)value;
    return RONDO_SUCCESS;
}

static rondo_result config_choice(const char *field, const char *value, int at, long *setting)
{
    char text[64];
    if (!value || parse_choice(rd_setting_table[at].choices, value, setting)) return RONDO_SUCCESS;
    snprintf(text, sizeof text, "\"%.48s\"", value);
    return bad_field(field, text, &rd_setting_table[at]);
}

static rondo_result from_config(rd_settings *s, const rondo_config *config)
{
    if (config->size < sizeof config->size || config->size > LARGEST_CONFIG)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "config->size is %zu; valid: %zu to %d; start from RONDO_CONFIG_INIT, which sets it",
                       config->size, sizeof config->size, LARGEST_CONFIG);
    rondo_config c = RONDO_CONFIG_INIT;
    char text[24];
    /* A program built against an older header has fewer fields, one against a newer has more, which mean nothing. */
#define END(field) (offsetof(rondo_config, field) + sizeof c.field)
    static const size_t ends[] = {END(size),     END(timeout_s),   END(slow_warning_s), END(device),
                                  END(channels), END(slice_bytes), END(transport),      END(algo)};
#undef END
    size_t known = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] <= config->size) known = ends[i];
    memcpy(&c, config, known);
    RD_TRY(config_seconds("timeout_s", c.timeout_s, AT_timeout_s, &s->timeout_s));
    RD_TRY(config_seconds("slow_warning_s", c.slow_warning_s, AT_slow_warning_s, &s->slow_warning_s));
    if (c.device < RONDO_DEVICE_HOST)
        return rd_fail(
            RONDO_INVALID_ARGUMENT,
            "config->device is %d; valid: a GPU's ordinal from 0, RONDO_DEVICE_AUTO (%d) or RONDO_DEVICE_HOST (%d)",
            c.device, RONDO_DEVICE_AUTO, RONDO_DEVICE_HOST);
    s->device = c.device;
    snprintf(text, sizeof text, "%d", c.channels);
    RD_TRY(config_number("channels", text, c.channels, AT_channels, &s->channels));
    snprintf(text, sizeof text, "%zu", c.slice_bytes);
    RD_TRY(config_number("slice_bytes", text, (double)c.slice_bytes, AT_slice_bytes, &s->slice_bytes));
    RD_TRY(config_choice("transport", c.transport, AT_transport, &s->transport));
    return config_choice("algo", c.algo, AT_algo, &s->algo);
}

/* ---- Suggestions ---- */

static const char *_Atomic suggested[SETTINGS];

bool rd_settings_suggest(const char *name, const char *value)
{
    for (int i = 0; i < SETTINGS; i++) {
        if (strcmp(rd_setting_table[i].name, name) != 0) continue;
        if (value && !rd_setting_valid(&rd_setting_table[i], value)) return false;
        atomic_store(&suggested[i], value);
        return true;
    }
    return false;
}

/* If there was one. */
static void follow_suggestion(int i, rd_settings *s)
{
    const char *text = atomic_load(&suggested[i]);
    if (text) store(&rd_setting_table[i], text, s);
}

/* ---- From the environment ---- */

static atomic_bool hushed;

void rd_settings_hush(void)
{
    atomic_store(&hushed, true);
}

static enum rd_log_level warning(void)
{
    return atomic_load(&hushed) ? RD_LOG_INFO : RD_LOG_WARN;
}

static void warn_bad(const struct rd_setting_info *s, const char *text, const rd_settings *settings)
{
    static atomic_flag warned[SETTINGS];
    if (atomic_flag_test_and_set(&warned[s - rd_setting_table])) return;
    char range[160], value[64], copy[128];
    const char *parts[16], *nearest = NULL;
    rd_setting_range(s, range, sizeof range);
    rd_setting_value(s, settings, value, sizeof value);
    if (s->kind == RD_CHOICE) nearest = rd_nearest(text, parts, split(s->choices, copy, sizeof copy, parts, 16));
    rd_log(warning(), "%s=%.64s is not valid: %s%s%s%s; using %s", s->name, text, range,
           nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "", value);
}

static bool is_known(const char *entry, size_t length)
{
    for (int i = 0; i < SETTINGS; i++)
        if (strlen(rd_setting_table[i].name) == length && !strncmp(entry, rd_setting_table[i].name, length))
            return true;
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        size_t whole = strlen(other_names[i]);
        bool family = other_names[i][whole - 1] == '_';
        if ((family ? length >= whole : length == whole) && !strncmp(entry, other_names[i], whole)) return true;
    }
    return false;
}

/* Compared without the prefix that all share, or everything would be near everything. */
static const char *nearest_setting(const char *name)
{
    const char *names[SETTINGS + 1];
    for (int i = 0; i < SETTINGS; i++) names[i] = rd_setting_table[i].name + strlen(PREFIX);
    names[SETTINGS] = other_names[0] + strlen(PREFIX);
    const char *nearest = rd_nearest(name + strlen(PREFIX), names, SETTINGS + 1);
    return nearest ? nearest - strlen(PREFIX) : NULL;
}

int rd_settings_unknown(struct rd_unknown_setting *list, int room)
{
    int count = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0 || is_known(*entry, length)) continue;
        if (count++ >= room) continue;
        struct rd_unknown_setting *unknown = &list[count - 1];
        snprintf(unknown->name, sizeof unknown->name, "%.*s", length < 90 ? (int)length : 90, *entry);
        unknown->nearest = nearest_setting(unknown->name);
    }
    return count;
}

static void warn_unknown(const struct rd_unknown_setting *unknown)
{
    const char *nearest = unknown->nearest;
    rd_log(warning(), "%s is not a setting, ignored%s%s%s; rondo doctor lists all", unknown->name,
           nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static void warn_all_unknown(void)
{
    enum { MOST = 16 };
    static atomic_flag done = ATOMIC_FLAG_INIT;
    struct rd_unknown_setting unknown[MOST];
    if (atomic_flag_test_and_set(&done)) return;
    int count = rd_settings_unknown(unknown, MOST);
    for (int i = 0; i < count && i < MOST; i++) warn_unknown(&unknown[i]);
}

#define GIVES(config, field) \
    ((config) && (config)->size >= offsetof(rondo_config, field) + sizeof(config)->field && (config)->field)

bool rd_config_background(const rondo_config *config)
{
    return GIVES(config, background);
}

rondo_result rd_settings_load(rd_settings *settings, const rondo_config *config)
{
    rd_settings s;
    const char *bad[SETTINGS] = {NULL};
    memset(&s, 0, sizeof s);
    for (int i = 0; i < SETTINGS; i++) {
        if (rd_setting_table[i].initial) store(&rd_setting_table[i], rd_setting_table[i].initial, &s);
        follow_suggestion(i, &s);
    }
    if (config) RD_TRY(from_config(&s, config));
    s.allow_overlap = GIVES(config, allow_overlap);
    for (int i = 0; i < SETTINGS; i++) {
        const char *text = rd_env(rd_setting_table[i].name);
        if (!text) continue;
        if (store(&rd_setting_table[i], text, &s)) continue;
        bad[i] = text;
        if (rd_setting_table[i].kind == RD_SWITCH) store(&rd_setting_table[i], "1", &s);
    }
    rd_log_set((enum rd_log_level)s.debug); /* before the first warning, which it may silence */
    for (int i = 0; i < SETTINGS; i++)
        if (bad[i]) warn_bad(&rd_setting_table[i], bad[i], &s);
    warn_all_unknown();
    *settings = s;
    return RONDO_SUCCESS;
}
