/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"
#include "cli/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool rd_json_check(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        fprintf(stderr, "rondo bench: --json %s: %s\n", path, strerror(errno));
    else
        close(fd);
    return fd >= 0;
}

static void put(json_object *to, const char *key, json_object *value)
{
    json_object_object_add(to, key, value);
}
static void put_text(json_object *to, const char *key, const char *text)
{
    put(to, key, json_object_new_string(text));
}
static void put_count(json_object *to, const char *key, uint64_t n)
{
    put(to, key, json_object_new_uint64(n));
}
static void put_switch(json_object *to, const char *key, bool on)
{
    put(to, key, json_object_new_boolean(on));
}

/* Six digits say all that was measured. */
static void put_number(json_object *to, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    put(to, key, json_object_new_double_s(value, text));
}

static void put_number_or_null(json_object *to, const char *key, double value)
{
    if (value > 0)
        put_number(to, key, value);
    else
        put(to, key, NULL);
}

static json_object *row_object(const rd_bench *b, const rd_row *row)
{
    const rd_bench_options *o = b->options;
    json_object *object = json_object_new_object(), *time = json_object_new_object();
    put_count(object, "bytes", row->bytes);
    put_count(object, "count", row->count);
    put_text(object, "dtype", rd_dtype_name(o->dtype));
    if (rd_bench_reduces(o->collective))
        put_text(object, "op", rd_op_name(o->op));
    else
        put(object, "op", NULL);
    put_switch(object, "in_place", !o->out_of_place);
    put_text(object, "algorithm", row->algorithm);
    put_text(object, "placement", row->placement);
    put_number(time, "min", row->min_us);
    put_number(time, "median", row->median_us);
    put_number(time, "max", row->max_us);
    put_number(time, "p99", row->p99_us);
    put(object, "time_us", time);
    put_number(object, "algbw_GBps", row->algbw);
    put_number(object, "busbw_GBps", row->busbw);
    if (row->checked)
        put_count(object, "wrong", row->wrong);
    else
        put(object, "wrong", NULL);
    put_number_or_null(object, "limit_us", row->limit_us);
    if (row->limit_us > 0)
        put_text(object, "limit", row->limit_name);
    else
        put(object, "limit", NULL);
    put_switch(object, "limit_is_wrong", row->limit_is_wrong);
    put_number_or_null(object, "copy_us", row->copy_us);
    put_number_or_null(object, "round_trip_ns", row->round_trip_ns);
    put_count(object, "calls", (uint64_t)row->calls);
    put_count(object, "attempts", (uint64_t)row->attempts);
    return object;
}

bool rd_json_write(const rd_bench *b, const rd_row *rows, int count)
{
    const rd_bench_options *o = b->options;
    char host[256] = "unknown", text[512];
    json_object *top = json_object_new_object(), *list = json_object_new_array();
    gethostname(host, sizeof host - 1);
    put_count(top, "ranks", (uint64_t)b->size);
    put_text(top, "transport", b->transport);
    put_text(top, "collective", rd_bench_names[o->collective]);
    put_text(top, "host", host);
    rd_bench_machine(text, sizeof text);
    put_text(top, "machine", text);
    put_text(top, "memory", o->cuda ? "cuda" : o->shareable ? "rondo_mem_alloc" : "malloc");
    rd_bench_pages(text, sizeof text);
    put_text(top, "pages", text);
    put_count(top, "misaligned_elements", o->misalign);
    put_switch(top, "rewritten", !o->reuse);
    snprintf(text, sizeof text, "%d.%d.%d", RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH);
    put_text(top, "rondo", text);
    for (int i = 0; i < count; i++) json_object_array_add(list, row_object(b, &rows[i]));
    put(top, "results", list);
    bool written = json_object_to_file_ext(o->json, top, JSON_C_TO_STRING_PRETTY) == 0;
    if (!written) fprintf(stderr, "rondo bench: --json %s: %s\n", o->json, json_util_get_last_err());
    json_object_put(top);
    return written;
}
