/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "base/status.h"
#include "cli/cli.h"
#include "cli/flight.h"
#include "cli/option.h"
#include "topo/topo.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHO "rondo doctor"

static const char help[] =
    "usage: rondo doctor [--json]\n"
    "       rondo doctor --pid PID [--calls N] [--save FILE] [--json]\n"
    "       rondo doctor --merge DIR [--json]\n"
    "\n"
    "Checks what Rondo needs of this machine: links, limits, kernel, libraries; runs an all-reduce of two ranks over\n"
    "shared memory and over TCP; and lists every setting with its value and where that comes from. Says what is\n"
    "missing and what mends it. The exit status is 1 when something is missing that Rondo needs.\n"
    "\n"
    "Or, of a job that hangs or has failed, what its ranks called last: of a process that runs, or of all ranks whose\n"
    "records lie in a directory. These are written when a communicator ends by an error and RONDO_RECORD=DIR is set.\n"
    "\n"
    "      --pid PID     the communicators of this process, and their last calls; its own user and root may ask;\n"
    "                    waits up to 5 s for the answer\n"
    "      --calls N     how many of them, 1 to 1024 (10)\n"
    "      --save FILE   write its records to a file, too, for --merge: DIR/anything.rec\n"
    "      --merge DIR   the records in DIR (*.rec) side by side: which rank called what else, is late, is missing\n"
    "      --json        for programs: {ok, checks: [{section, name, level, text, fix}], settings: [...]}; of --pid "
    "{pid,\n"
    "                    communicators: [...]}; of --merge {verdict, communicators: [...], skipped: [...]}\n"
    "  -h, --help        this text\n";

static const char *const level_names[] = {"ok", "info", "warning", "missing"};

/* A setting, and where its value comes from. */
typedef struct setting {
    const struct rd_setting_info *info;
    char value[256], range[160];
    const char *from;
} setting;

void rd_find(rd_findings *f, const char *section, const char *name, rd_level level, const char *fix, const char *format,
             ...)
{
    if (f->count == sizeof f->list / sizeof f->list[0]) return;
    rd_finding *found = &f->list[f->count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found->text, sizeof found->text, format, arguments);
    va_end(arguments);
    found->section = section;
    found->level = level;
    snprintf(found->fix, sizeof found->fix, "%s", level >= RD_LEVEL_WARNING && fix ? fix : "");
    snprintf(found->name, sizeof found->name, "%s", name);
}

/* ---- Settings ---- */

/* What is mended by unsetting a variable. */
static void find_variable(rd_findings *f, const char *name, const char *text)
{
    char fix[128];
    snprintf(fix, sizeof fix, "unset %.96s", name);
    rd_find(f, "settings", name, RD_LEVEL_WARNING, fix, "%s", text);
}

static void check_names(rd_findings *f)
{
    enum { ROOM = 16 };
    struct rd_unknown_setting unknown[ROOM];
    char text[128];
    int count = rd_settings_unknown(unknown, ROOM);
    for (int i = 0; i < count && i < ROOM; i++) {
        const char *nearest = unknown[i].nearest;
        snprintf(text, sizeof text, "is not a setting%s%s%s", nearest ? "; did you mean " : "", nearest ? nearest : "",
                 nearest ? "?" : "");
        find_variable(f, unknown[i].name, text);
    }
}

/* Whether records could be written there; the library would make it, one level deep. */
static void check_record(rd_findings *f, const char *directory)
{
    struct stat about;
    int error = 0;
    if (!directory) return;
    if (mkdir(directory, 0700) == 0) {
        rmdir(directory);
        return;
    }
    if (errno != EEXIST)
        error = errno;
    else if (stat(directory, &about))
        error = errno;
    else if (!S_ISDIR(about.st_mode))
        error = ENOTDIR;
    else if (access(directory, W_OK | X_OK))
        error = errno;
    if (error)
        rd_find(f, "settings", "RONDO_RECORD", RD_LEVEL_WARNING,
                "name a directory that may be written in, or whose parent may",
                "no records can be written to %.200s: %s", directory, strerror(error));
}

/* False when they cannot be in force at all. */
static bool read_settings(rd_findings *f, rd_settings *settings, setting *list)
{
    char what[400];
    check_names(f);
    if (rd_settings_load(settings, NULL) != RONDO_SUCCESS) {
        rd_find(f, "settings", "RONDO_*", RD_LEVEL_MISSING, "unset the variable", "%s", rd_last_error());
        return false;
    }
    for (int i = 0; i < rd_setting_count; i++) {
        const struct rd_setting_info *info = &rd_setting_table[i];
        const char *text = rd_env(info->name);
        list[i].info = info;
        rd_setting_value(info, settings, list[i].value, sizeof list[i].value);
        rd_setting_range(info, list[i].range, sizeof list[i].range);
        list[i].from = !text ? "default" : "environment";
        if (!text || rd_setting_valid(info, text)) continue;
        list[i].from = "not valid in the environment";
        snprintf(what, sizeof what, "'%.64s' is not valid, it must be %s; %.64s holds", text, list[i].range,
                 list[i].value);
        find_variable(f, info->name, what);
    }
    check_record(f, settings->record);
    return true;
}

/* ---- For people ---- */

static void print_findings(const rd_findings *f)
{
    static const char *const marks[] = {"ok", "-", "warning", "MISSING"};
    const char *section = "";
    for (int i = 0; i < f->count; i++) {
        const rd_finding *found = &f->list[i];
        if (strcmp(section, found->section) != 0) printf("\n%s\n", found->section);
        section = found->section;
        printf("  %-8s %-14s %s\n", marks[found->level], found->name, found->text);
        if (*found->fix) printf("  %-8s %-14s to mend it: %s\n", "", "", found->fix);
    }
}

static void print_settings(const setting *list)
{
    printf("\nsettings\n");
    for (int i = 0; i < rd_setting_count; i++) {
        const struct rd_setting_info *info = list[i].info;
        printf("  %-20s %s  (%s", info->name, list[i].value, list[i].from);
        if (strcmp(list[i].from, "environment") == 0) printf("; default %s", info->initial ? info->initial : "unset");
        printf(")\n  %-20s %s: %s\n", "", list[i].range, info->help);
    }
}

/* ---- For programs ---- */

static void add_text(json_object *to, const char *name, const char *text)
{
    json_object_object_add(to, name, text ? json_object_new_string(text) : NULL);
}

static void print_json(const rd_findings *f, const setting *list, const char *machine, bool good)
{
    json_object *all = json_object_new_object(), *checks = json_object_new_array(), *settings = json_object_new_array();
    for (int i = 0; i < f->count; i++) {
        json_object *check = json_object_new_object();
        add_text(check, "section", f->list[i].section);
        add_text(check, "name", f->list[i].name);
        add_text(check, "level", level_names[f->list[i].level]);
        add_text(check, "text", f->list[i].text);
        add_text(check, "fix", *f->list[i].fix ? f->list[i].fix : NULL);
        json_object_array_add(checks, check);
    }
    for (int i = 0; list && i < rd_setting_count; i++) {
        json_object *one = json_object_new_object();
        add_text(one, "name", list[i].info->name);
        add_text(one, "value", list[i].value);
        add_text(one, "default", list[i].info->initial);
        add_text(one, "range", list[i].range);
        add_text(one, "from", list[i].from);
        add_text(one, "help", list[i].info->help);
        json_object_array_add(settings, one);
    }
    json_object_object_add(all, "ok", json_object_new_boolean(good));
    add_text(all, "machine", machine);
    json_object_object_add(all, "checks", checks);
    json_object_object_add(all, "settings", settings);
    puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                 JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(all);
}

/* ---- The command ---- */

static int examine(bool json)
{
    rd_settings settings;
    rd_findings *f = calloc(1, sizeof *f);
    setting *list = calloc((size_t)rd_setting_count, sizeof *list);
    char machine[160] = "";
    int missing = 0;
    if (!f || !list) {
        perror(WHO);
        goto out;
    }
    bool loaded = read_settings(f, &settings, list);
    const rd_machine *here = rd_machine_here();
    if (here) rd_machine_describe(here, machine, sizeof machine);
    else rd_find(f, "links", "machine", RD_LEVEL_MISSING, "mount /sys", "%s", rd_last_error());
    rd_doctor_links(f, loaded ? &settings : NULL);
    rd_doctor_rdma(f, loaded ? &settings : NULL);
    rd_doctor_self_test(f);
    rd_doctor_limits(f, loaded ? &settings : NULL);
    rd_doctor_kernel(f);
    rd_doctor_libraries(f);
    rd_doctor_gpus(f, loaded ? &settings : NULL);
    for (int i = 0; i < f->count; i++) missing += f->list[i].level == RD_LEVEL_MISSING;
    if (json) {
        print_json(f, loaded ? list : NULL, machine, !missing);
    } else {
        printf("rondo %d.%d.%d on %s\n", RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH, machine);
        print_findings(f);
        if (loaded) print_settings(list);
        printf(missing ? "\nSomething that Rondo needs is missing: see MISSING above.\n"
                       : "\nNothing that Rondo needs is missing.\n");
    }
out:
    free(list);
    free(f);
    return missing || !f ? 1 : 0;
}

typedef struct choices {
    bool json;
    int pid, calls; /* 0: not said */
    const char *save, *merge;
} choices;

/* What holds between options. */
static int check(const choices *c)
{
    if (c->pid && c->merge) fprintf(stderr, WHO ": --pid and --merge: one of them at a time\n");
    else if (!c->pid && c->calls) fprintf(stderr, WHO ": --calls belongs to --pid\n");
    else if (!c->pid && c->save) fprintf(stderr, WHO ": --save belongs to --pid\n");
    else return 0;
    return RD_EXIT_USAGE;
}

int rd_cli_doctor(int argc, char **argv)
{
    static const char short_names[] = "+:h";
    static const struct option names[] = {
        {"json", no_argument, NULL, 'j'},       {"pid", required_argument, NULL, 'p'},
        {"calls", required_argument, NULL, 'c'}, {"save", required_argument, NULL, 's'},
        {"merge", required_argument, NULL, 'm'}, {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    choices c = {.json = false};
    int status = 0;
    optind = 1;
    opterr = 0;
    for (int id; !status && (id = getopt_long(argc, argv, short_names, names, NULL)) >= 0;) {
        switch (id) {
        case 'j': c.json = true; break;
        case 'p': status = rd_option_number(WHO, "--pid", optarg, 1, INT_MAX, &c.pid); break;
        case 'c': status = rd_option_number(WHO, "--calls", optarg, 1, RONDO_RECORD_CALLS, &c.calls); break;
        case 's': c.save = optarg; break;
        case 'm': c.merge = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return rd_option_wrong(WHO, id, argv, short_names, names);
        }
    }
    if (!status) status = rd_option_no_words(WHO, argc, argv);
    if (!status) status = check(&c);
    if (status) return status;
    if (c.pid) return rd_flight_ask(c.pid, c.calls ? c.calls : 10, c.save, c.json);
    return c.merge ? rd_flight_merge(c.merge, c.json) : examine(c.json);
}
