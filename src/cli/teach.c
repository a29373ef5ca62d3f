/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/teach.h"

#include "base/env.h"
#include "cli/cli.h"
#include "cli/option.h"
#include "cli/team.h"
#include "rondo_plan.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: rondo teach [-n N] [options]\n"
    "\n"
    "Runs a real all-reduce of N ranks on a few numbers, and steps through what they did by its trace: which chunk\n"
    "moves from whom to whom, what is added, what is replaced, what each rank then holds, how many bytes it has sent.\n"
    "\n"
    "  -n, --ranks N           2 to 8 (4)\n"
    "  -c, --count COUNT       numbers of each rank, 1 to 1000 (N: a chunk is one number)\n"
    "      --algo ALGO         ring (default), flat or exchange (rondo_plan.h)\n"
    "  -s, --step              one step at a time: space next, b back, q quit\n"
    "      --color WHEN        auto (default), always or never; auto heeds NO_COLOR\n"
    "  -h, --help              this text\n"
    "\n"
    "Number i of rank r is the digit i+1 in the decimal place of rank r (10^r): rank 2 has 100, 200, 300, so that a\n"
    "sum shows whose terms it has. In the table 3··3 is 3003, and the dots are the terms of ranks 1 and 2 that are\n"
    "missing; + was added to in this step, ✓ is finished. A chunk of several numbers is shown by its first.\n";

static const struct option names[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"count", required_argument, NULL, 'c'},
    {"algo", required_argument, NULL, 'a'},
    {"step", no_argument, NULL, 's'},
    {"color", required_argument, NULL, 'C'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};
#define WHO     "rondo teach"
#define CHOICES "ring|flat|exchange" /* as rondo_algo counts them */

enum { AUTO, ALWAYS, NEVER };

typedef struct options {
    int ranks, count, algo, color;
    bool step;
} options;

/* ---- The call ---- */

/* What the ranks really hold afterwards. */
typedef struct outcome {
    size_t count;
    int32_t held[RD_TEACH_RANKS][RD_TEACH_COUNT];
    bool done[RD_TEACH_RANKS];
} outcome;

static rondo_result reduce(rondo_comm *comm, int rank, void *context)
{
    outcome *o = context;
    int32_t numbers[RD_TEACH_COUNT];
    for (size_t i = 0; i < o->count; i++) numbers[i] = (int32_t)rd_teach_input(rank, i);
    rondo_result result = rondo_all_reduce(numbers, numbers, o->count, RONDO_INT32, RONDO_SUM, comm, NULL);
    if (result != RONDO_SUCCESS) return result;
    memcpy(o->held[rank], numbers, o->count * sizeof numbers[0]);
    o->done[rank] = true;
    return RONDO_SUCCESS;
}

static rd_lesson *read_trace(int fd, char *text, size_t bytes)
{
    struct stat info;
    rd_lesson *lesson = NULL;
    if (fstat(fd, &info)) return NULL;
    size_t size = (size_t)info.st_size, count = size / sizeof(rondo_trace_record);
    rondo_trace_record *records = malloc(size + 1);
    if (records && size && pread(fd, records, size, 0) == info.st_size)
        lesson = rd_lesson_read(records, count, text, bytes);
    else snprintf(text, bytes, "the trace is empty");
    free(records);
    return lesson;
}

/* The trace goes to memory that looks like a file, so that none is left behind, whatever happens. */
static rd_lesson *run(const options *o, outcome *real, char *failure, size_t bytes)
{
    static const char *const algos[] = {
        [RONDO_ALGO_RING] = "ring", [RONDO_ALGO_FLAT] = "flat", [RONDO_ALGO_EXCHANGE] = "exchange"};
    char path[40], text[160] = "";
    int fd = memfd_create("rondo teach", 0);
    if (fd < 0) {
        perror(WHO ": no memory for the trace");
        return NULL;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *const environment[][2] = {
        {"RONDO_ALGO", algos[o->algo]},
        {"RONDO_TRACE", path},
        {"RONDO_CHANNELS", NULL},
        {"RONDO_SLICE", "4096"}, /* the least; a chunk is one slice even so */
        {"RONDO_FLAT_RANKS", NULL},
        {NULL, NULL},
    };
    rd_team team = {.ranks = o->ranks, .timeout_s = 20, .environment = environment, .run = reduce, .context = real};
    real->count = (size_t)o->count;
    rd_team_run(&team, failure, bytes);
    rd_lesson *lesson = read_trace(fd, text, sizeof text);
    close(fd);
    if (*failure) fprintf(stderr, WHO ": the all-reduce failed: %s\n", failure);
    if (!lesson && !*failure) fprintf(stderr, WHO ": %s\n", text);
    return lesson;
}

/* ---- How it ended ---- */

static void verdict(rd_canvas *canvas, bool good, const char *format, const char *detail)
{
    int row = canvas->rows;
    rd_canvas_put(canvas, row, 0, RD_BOLD | (good ? RD_GOOD : RD_BAD), "%s", good ? "✓" : "✗");
    rd_canvas_put(canvas, row, 2, 0, format, detail);
}

static bool as_replayed(const rd_lesson *lesson, const outcome *o, rd_canvas *canvas)
{
    char text[160];
    size_t wrong = 0;
    for (int r = 0; r < lesson->ranks; r++)
        for (size_t i = 0; o->done[r] && i < lesson->count; i++) {
            if ((uint32_t)o->held[r][i] == lesson->cell[r][i].value || wrong++) continue;
            snprintf(text, sizeof text, "rank %d holds %" PRId32 " as number %zu; by its trace it would be %" PRIu32, r,
                     o->held[r][i], i, lesson->cell[r][i].value);
        }
    verdict(canvas, !wrong, "%s", wrong ? text : "Every rank really holds what its trace says, number by number.");
    return !wrong;
}

static bool as_summed(const rd_lesson *lesson, const outcome *o, rd_canvas *canvas)
{
    char text[160];
    size_t wrong = 0, all = 0;
    for (int r = 0; r < lesson->ranks; r++)
        for (size_t i = 0; o->done[r] && i < lesson->count; i++, all++) {
            uint32_t sum = 0;
            for (int s = 0; s < lesson->ranks; s++) sum += rd_teach_input(s, i);
            if ((uint32_t)o->held[r][i] == sum || wrong++) continue;
            snprintf(text, sizeof text, "rank %d holds %" PRId32 " as number %zu; the sum is %" PRIu32, r,
                     o->held[r][i], i, sum);
        }
    verdict(canvas, !wrong, "%s", wrong ? text : "Every number is the sum over all ranks.");
    if (wrong > 1) rd_canvas_put(canvas, canvas->rows, 2, 0, "and so on: %zu of %zu numbers are wrong", wrong, all);
    return !wrong;
}

static bool as_planned(const rd_lesson *lesson, rd_canvas *canvas)
{
    char text[160];
    for (int r = 0; r < lesson->ranks; r++) {
        if (lesson->result[r] == RONDO_SUCCESS) continue;
        snprintf(text, sizeof text, "The call failed at rank %d: %s.", r,
                 rondo_result_string((rondo_result)lesson->result[r]));
        verdict(canvas, false, "%s", text);
        return false;
    }
    return true;
}

static bool conclude(rd_lesson *lesson, const outcome *o, rd_canvas *canvas)
{
    rd_lesson_go(lesson, lesson->steps);
    rd_canvas_clear(canvas);
    bool good = as_planned(lesson, canvas);
    if (good) {
        good = as_replayed(lesson, o, canvas);
        good &= as_summed(lesson, o, canvas);
    }
    rd_canvas_print(canvas, "\n");
    return good;
}

/* ---- The command ---- */

static void print_all(rd_lesson *lesson, rd_canvas *canvas)
{
    for (int step = -1; step < lesson->steps; step++) {
        rd_teach_draw(lesson, step, canvas);
        rd_canvas_print(canvas, "\n");
        putchar('\n');
    }
}

static bool wants_colour(int when)
{
    const char *terminal = rd_env("TERM");
    if (when != AUTO) return when == ALWAYS;
    return isatty(STDOUT_FILENO) && !rd_env("NO_COLOR") && terminal && strcmp(terminal, "dumb") != 0;
}

static int teach(const options *o)
{
    static rd_canvas canvas;
    char failure[2200] = "";
    int status = 1;
    outcome *real = rd_team_memory(sizeof *real);
    rd_lesson *lesson = real ? run(o, real, failure, sizeof failure) : NULL;
    if (!lesson) goto out;
    setlocale(LC_CTYPE, "");
    canvas.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    canvas.colour = wants_colour(o->color);
    if (!o->step) print_all(lesson, &canvas);
    else if (!rd_teach_step(lesson, &canvas)) goto out;
    if (conclude(lesson, real, &canvas) && !*failure) status = 0;
out:
    rd_lesson_free(lesson);
    rd_team_memory_free(real, sizeof *real);
    return status;
}

int rd_cli_teach(int argc, char **argv)
{
    static const char short_names[] = "+:n:c:sh";
    options o = {.ranks = 4, .algo = RONDO_ALGO_RING};
    int status = 0;
    optind = 1;
    opterr = 0;
    for (int id; !status && (id = getopt_long(argc, argv, short_names, names, NULL)) >= 0;) {
        switch (id) {
        case 'n': status = rd_option_number(WHO, "-n", optarg, 2, RD_TEACH_RANKS, &o.ranks); break;
        case 'c': status = rd_option_number(WHO, "-c", optarg, 1, RD_TEACH_COUNT, &o.count); break;
        case 'a': status = rd_option_choice(WHO, "--algo", optarg, CHOICES, &o.algo); break;
        case 'C': status = rd_option_choice(WHO, "--color", optarg, "auto|always|never", &o.color); break;
        case 's': o.step = true; break;
        case 'h': fputs(help, stdout); return 0;
        default: return rd_option_wrong(WHO, id, argv, short_names, names);
        }
    }
    if (!status) status = rd_option_no_words(WHO, argc, argv);
    if (status) return status;
    if (!o.count) o.count = o.ranks;
    if (o.step && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))) {
        fprintf(stderr, WHO ": --step needs a terminal; without it all steps are printed\n");
        return RD_EXIT_USAGE;
    }
    return teach(&o);
}
