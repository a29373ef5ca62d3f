/* SPDX-License-Identifier: Apache-2.0
 *
 * agree.c - whether all ranks were given the same, and one text for all where something went wrong on one.
 *
 * What a rank was given is written down as text, a line for each tensor. Ranks compare hashes; only where these differ
 * do they compare lines, each its own with those of rank 0.
 */
#include "base/dtype.h"
#include "base/hash.h"
#include "base/status.h"
#include "ddp/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct summary {
    uint64_t wrong; /* 1: this rank's arguments */
    uint64_t bytes; /* of its text, with the end */
    unsigned char hash[16];
} summary;

static void describe_tensor(FILE *to, const char *kind, int index, const rondo_ddp_tensor *t)
{
    fprintf(to, "%s %d '%s', %zu elements of %s\n", kind, index, t->name, t->count, rd_dtype_name(t->dtype));
}

/* To be freed. */
static char *describe(const rondo_ddp *ddp)
{
    const rondo_ddp_config *c = &ddp->config;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return NULL;
    for (int i = 0; i < ddp->params; i++) describe_tensor(to, "parameter", i, &ddp->param[i].of);
    for (int i = 0; i < ddp->buffers; i++) describe_tensor(to, "buffer", i, &ddp->buffer[i]);
    fprintf(to,
            "no more tensors\nthe settings first_bucket_bytes %zu, bucket_bytes %zu, reduce %d, buffers %d, join %d, "
            "find_unused %d, compression %d, hook %s\n",
            c->first_bucket_bytes, c->bucket_bytes, (int)c->reduce, (int)c->buffers, (int)c->join, c->find_unused != 0,
            (int)c->compression, c->hook ? "given" : "NULL");
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}

/* Of the first line that differs, what this rank and rank 0 have. */
static void compare(const rondo_ddp *ddp, const char *mine, const char *theirs, char *said)
{
    said[0] = 0;
    while (*mine && *theirs) {
        int m = (int)strcspn(mine, "\n"), t = (int)strcspn(theirs, "\n");
        if (m != t || memcmp(mine, theirs, (size_t)m) != 0) {
            snprintf(said, RD_DDP_TEXT,
                     "rondo_ddp_create: rank %d was given %.*s, where rank 0 was given %.*s; all ranks "
                     "must be given the same tensors in the same order, and the same settings",
                     ddp->rank, m < 300 ? m : 300, mine, t < 300 ? t : 300, theirs);
            return;
        }
        mine += m + (mine[m] != 0);
        theirs += t + (theirs[t] != 0);
    }
}

rondo_result rd_ddp_tell(const rondo_ddp *ddp, rondo_result result, const char *mine)
{
    char(*texts)[RD_DDP_TEXT] = calloc((size_t)ddp->size, sizeof *texts);
    if (!texts) return rd_fail_errno("no memory for what %d ranks say", ddp->size);
    snprintf(texts[ddp->rank], sizeof *texts, "%s", mine);
    rondo_result told = rondo_all_gather(texts[ddp->rank], texts, sizeof *texts, RONDO_UINT8, ddp->comm, NULL);
    for (int r = 0; r < ddp->size && told == RONDO_SUCCESS; r++)
        if (texts[r][0]) told = rd_fail(result, "%s", texts[r]);
    free(texts);
    return told;
}

static rondo_result compare_lines(const rondo_ddp *ddp, const char *mine, size_t bytes_of_0)
{
    char said[RD_DDP_TEXT];
    char *theirs = malloc(bytes_of_0);
    if (!theirs) return rd_fail_errno("no memory for the description of rank 0's tensors");
    if (ddp->rank == 0) memcpy(theirs, mine, bytes_of_0);
    rondo_result result = rondo_broadcast(theirs, theirs, bytes_of_0, RONDO_UINT8, 0, ddp->comm, NULL);
    if (result == RONDO_SUCCESS) {
        compare(ddp, mine, theirs, said);
        result = rd_ddp_tell(ddp, RONDO_INVALID_ARGUMENT, said);
    }
    free(theirs);
    return result;
}

/* Where a rank's own arguments are wrong, its text is everybody's. */
static rondo_result pass_on(const rondo_ddp *ddp, rondo_result mine)
{
    char said[RD_DDP_TEXT] = "";
    if (mine != RONDO_SUCCESS) snprintf(said, sizeof said, "%.900s (on rank %d)", rondo_last_error(NULL), ddp->rank);
    return rd_ddp_tell(ddp, mine == RONDO_SUCCESS ? RONDO_INVALID_ARGUMENT : mine, said);
}

rondo_result rd_ddp_agree(const rondo_ddp *ddp, rondo_result mine)
{
    char *text = mine == RONDO_SUCCESS ? describe(ddp) : NULL;
    summary *all = calloc((size_t)ddp->size, sizeof *all);
    rondo_result result = mine;
    if (!all) {
        free(text);
        return rd_fail_errno("no memory for the words of %d ranks", ddp->size);
    }
    if (mine == RONDO_SUCCESS && !text)
        mine = rd_fail_errno("no memory for the description of %d tensors", ddp->params);
    all[ddp->rank].wrong = mine != RONDO_SUCCESS;
    if (text) {
        all[ddp->rank].bytes = strlen(text) + 1;
        rd_hash(all[ddp->rank].hash, sizeof all->hash, "rondo ddp tensors", text, strlen(text));
    }
    result = rondo_all_gather(&all[ddp->rank], all, sizeof *all, RONDO_UINT8, ddp->comm, NULL);
    bool wrong = false, same = true;
    for (int r = 0; r < ddp->size; r++) {
        wrong = wrong || all[r].wrong;
        same = same && memcmp(&all[r], &all[0], sizeof *all) == 0;
    }
    size_t bytes_of_0 = all[0].bytes;
    free(all);
    if (result == RONDO_SUCCESS && wrong)
        result = pass_on(ddp, mine);
    else if (result == RONDO_SUCCESS && !same)
        result = compare_lines(ddp, text, bytes_of_0);
    free(text);
    return result;
}
