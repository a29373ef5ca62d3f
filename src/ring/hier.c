/* SPDX-License-Identifier: Apache-2.0
 *
 * hier.c - the hierarchical all-reduce: three stages and the opening, each an operation of the ring over wires of its
 * own. The plan says what they do; this file cuts it into them, and lets a stage begin with a segment when the one
 * before is through with it.
 */
#include "base/status.h"
#include "ring/exec.h"

#include <stdlib.h>

/* Steps of a stage, and the first of them. */
static int32_t steps_of(const rd_op *op, int stage, int32_t *first)
{
    int32_t inside = op->plan.local - 1, between = op->plan.steps - 2 * inside;
    *first = stage == RD_RAIL ? inside : stage == RD_GATHER ? inside + between : 0;
    return stage == RD_OPEN ? 0 : stage == RD_RAIL ? between : inside;
}

rondo_result rd_hier_prepare(rd_hier *hier, const rd_reduction *reduction, uint64_t count, int cpu)
{
    bool wide = reduction->wide_bytes > reduction->bytes;
    int32_t size = reduction->ranks;
    /* What is partial has been scaled for an average already, and is divided when it is complete. */
    rondo_op op = reduction->op == RONDO_AVG ? RONDO_SUM : reduction->op;
    RD_TRY(rd_reduction_init(&hier->joins, wide ? RONDO_FLOAT32 : reduction->type, op, size, cpu));
    if (!wide) return RONDO_SUCCESS;
    rondo_range piece = rondo_split(rondo_segment(count, size, 0), (uint32_t)hier->local, 0, 1);
    size_t bytes = 2 * piece.count * reduction->wide_bytes;
    if (bytes <= hier->shelf_bytes) return RONDO_SUCCESS;
    unsigned char *shelf = realloc(hier->shelf, bytes);
    if (!shelf) return rd_fail_errno("no memory for the sums of this host, %zu bytes", bytes);
    hier->shelf = shelf;
    hier->shelf_bytes = bytes;
    return RONDO_SUCCESS;
}

/* Where the host's sum of this rank's piece lies: in the output, where it belongs, or, while it is wider, on the shelf.
 */
static void place_sum(const rd_op *op, const rondo_plan *plan, uint64_t segment, rd_stage *stage)
{
    rondo_range piece = rondo_chunk(plan, plan->chunks + plan->position % plan->local);
    stage->held_first = piece.first;
    stage->held_bytes = plan->wide ? op->reduction->wide_bytes : op->reduction->bytes;
    if (plan->wide)
        stage->held = op->hier->shelf + segment % 2 * (op->hier->shelf_bytes / 2);
    else if (op->buffers.output)
        stage->held = op->buffers.output + (stage->origin + piece.first) * op->reduction->bytes;
}

static void start_stage(rd_op *op, int which)
{
    rd_hier *hier = op->hier;
    rd_op *one = &hier->op[which];
    rd_stage *stage = &hier->stage[which];
    uint64_t number = hier->done[which];
    rondo_range segment = rondo_segment(op->plan.count, op->plan.size, number);
    size_t at = segment.first * op->reduction->bytes;
    bool gathers = which == RD_GATHER;
    one->plan = op->plan;
    one->plan.count = segment.count;
    *stage = (rd_stage){.origin = segment.first, .opens = which == RD_OPEN, .joins = &hier->joins};
    one->plan.steps = steps_of(op, which, &stage->first_step);
    one->steps = op->steps + stage->first_step;
    if (which != RD_OPEN) stage->longest = rondo_chunk(&one->plan, which == RD_RAIL ? 0 : one->plan.chunks).count;
    one->reduction = op->reduction;
    one->wiring = which == RD_OPEN ? op->wiring : &hier->wiring[which];
    one->signature = op->signature;
    one->trace = op->trace;
    one->stage = stage;
    one->buffers = (rd_buffers){.input = gathers ? op->buffers.output : op->buffers.input,
                                .output = op->buffers.output,
                                .input_whole = true,
                                .output_whole = true};
    if (one->buffers.input) one->buffers.input += at;
    if (one->buffers.output) one->buffers.output += at;
    if (which == RD_SCATTER || which == RD_RAIL) place_sum(op, &one->plan, number, stage);
    rd_op_start(one);
    hier->runs[which] = true;
}

/* May it begin with the next segment? */
static bool may_start(const rd_hier *hier, int which)
{
    uint64_t next = hier->done[which];
    if (which == RD_OPEN) return next == 0;
    if (next == hier->segments) return false;
    if (which == RD_SCATTER) return next < hier->done[RD_RAIL] + 2;
    return next < hier->done[which - 1];
}

/* Begins what can begin; a stage without steps is through at once. */
static void start_stages(rd_op *op)
{
    rd_hier *hier = op->hier;
    int32_t first;
    for (int s = 0; s < RD_STAGES; s++) {
        while (!hier->runs[s] && may_start(hier, s)) {
            if (s == RD_OPEN || steps_of(op, s, &first))
                start_stage(op, s);
            else
                hier->done[s]++;
        }
    }
}

void rd_hier_start(rd_op *op)
{
    rd_hier *hier = op->hier;
    hier->segments = rondo_segments(op->plan.count, op->plan.size);
    for (int s = 0; s < RD_STAGES; s++) {
        hier->done[s] = 0;
        hier->runs[s] = false;
    }
    start_stages(op);
}

static rd_progress failed(rd_op *op, const rd_op *one)
{
    return rd_op_fail(op, one->failed, one->failure);
}

rd_progress rd_hier_advance(rd_op *op)
{
    rd_hier *hier = op->hier;
    rd_progress all = RD_IDLE;
    for (int s = RD_STAGES - 1; s >= 0; s--) { /* first what is nearest to its end */
        if (!hier->runs[s]) continue;
        rd_progress one = rd_op_advance(&hier->op[s]);
        if (one == RD_FAILED) return failed(op, &hier->op[s]);
        if (one == RD_DONE) {
            hier->runs[s] = false;
            hier->done[s]++;
        }
        if (one != RD_IDLE) all = RD_MOVED;
    }
    start_stages(op);
    return hier->done[RD_GATHER] == hier->segments && hier->done[RD_OPEN] ? RD_DONE : all;
}

rd_progress rd_hier_arm(rd_op *op, rondo_bell *bell)
{
    for (int s = 0; s < RD_STAGES; s++) {
        if (!op->hier->runs[s]) continue;
        rd_progress one = rd_op_arm(&op->hier->op[s], bell);
        if (one == RD_FAILED) return failed(op, &op->hier->op[s]);
        if (one != RD_IDLE) return one;
    }
    return RD_IDLE;
}

const rd_wire *rd_hier_look(const rd_op *op)
{
    const rd_hier *hier = op->hier;
    for (int s = 0; s < RD_STAGES; s++)
        for (int c = 0; hier->runs[s] && c < hier->op[s].wiring->channels; c++) {
            const rd_wire *wire = rd_ring_look(&hier->op[s], &hier->op[s].flow[c]);
            if (wire) return wire;
        }
    return NULL;
}

/* The stage that has least to wait for: what comes later waits for it. */
int rd_hier_waits_for(const rd_op *op, bool *to_receive)
{
    for (int s = 0; s < RD_STAGES; s++)
        if (op->hier->runs[s]) return rd_op_waits_for(&op->hier->op[s], to_receive);
    return -1;
}

/* Stages that are over have nothing posted. */
bool rd_hier_withdraw(rd_op *op)
{
    bool all = true;
    for (int s = 0; s < RD_STAGES; s++)
        if (op->hier->runs[s]) all = rd_op_withdraw(&op->hier->op[s]) && all;
    return all;
}
